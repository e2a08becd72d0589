/* Stage 3 with optimizer states and parameters outside of device memory: what lies where, and what is copied.
 * Expected values are arithmetic on the model's elements.
 *
 * The models are made so that every tensor divides by the world: 36 layers of width 4000 and 21530 rows of embeddings
 * are 7e9 parameters, 875e6 a rank among 8. */
#include "tests/model/plans.h"

#include <glob.h>

#include "model/schedule/ledger.h"
#include "tests/model/recorded_sizes.h"

static const char seven[] = "{\"model_type\": \"gpt2\", \"n_layer\": 36, \"n_embd\": 4000, \"n_head\": 40, "
                            "\"n_positions\": 1024, \"vocab_size\": 20506}";
enum { Q = 875000000 };
#define GB ((int64_t)1000000000)

/* 7e9 parameters on 8 ranks in bf16, one sub-group, optimizer on the host; gathered in forward and in backward. */
static void plan_seven(struct plan *p)
{
    json_t *j = json_loads(seven, 0, NULL);

    memset(p, 0, sizeof *p);
    if (!j || model_from_config(j, "test", &p->model) < 0)
        fail_msg("no model");
    json_decref(j);
    world_of(&p->cluster, 8);
    p->seq = 64;
    p->micro_batch = 1;
    plan_defaults(p, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p->clip = 0;
    p->ds.stage3_max_reuse_distance = 0;
    p->ds.stage3_max_live_parameters = 0;
    p->ds.stage3_param_persistence_threshold = 0;
    p->ds.offload_optimizer.device = OFFLOAD_CPU;
}

static void offload_params(struct plan *p, bool pin)
{
    p->ds.offload_param.device = OFFLOAD_CPU;
    p->ds.offload_param.pin_memory = pin;
}

static int64_t persistent_in(const struct schedules *s, unsigned in)
{
    struct ledger l;
    int64_t sum = 0;

    ledger_run_in(s, in, &l);
    for (int c = 0; c < NCAT; c++)
        sum += l.persistent[c];
    return sum;
}

struct moved { bool from_device; int64_t bytes; };

static int add_moved(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct moved *m = arg;
    enum space from, to;

    (void)iteration;
    if (sched_crosses(s, o, &from, &to) && (m->from_device ? from : to) == SPACE_DEVICE)
        m->bytes += o->u.copy.reads;
    return 0;
}

/* Bytes that a step copies from the device, or to it. */
static int64_t copied(const struct schedules *s, bool from_device)
{
    struct moved m = { from_device, 0 };

    sched_walk(s, SCHED_STEADY, add_moved, &m);
    return m.bytes;
}

static void assert_bytes(int64_t got, int64_t want)
{
    if (got != want)
        fail_msg("%lld bytes, on paper %lld", (long long)got, (long long)want);
}

/* Vector 15: fp32 weights 4 Q pageable, their gradients p2(4 Q) and 16-bit ones p2(2 Q) pinned, Adam 8 Q pageable. */
static void optimizer_on_the_host_takes_sixteen_bytes_an_element_and_rounding(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_seven(&p);
    lowered(&p, 0, &s);
    assert_int_equal(p.model.params, 7 * GB);
    assert_bytes(persistent_in(&s, IN_HOST), 16942450944);
    assert_bytes(persistent_in(&s, IN(SPACE_PINNED)), pinned_bytes(4 * (int64_t)Q) + pinned_bytes(2 * (int64_t)Q));
    p.ds.offload_optimizer.pin_memory = false;
    lowered(&p, 0, &s);
    assert_bytes(persistent_in(&s, IN_HOST), 18 * (int64_t)Q);
    assert_bytes(persistent_in(&s, IN(SPACE_PINNED)), 0);
    schedules_free(&s);
    plan_free(&p);
}

/* Vector 16: partitions are p2(2 Q) more, pinned whatever pin_memory says; and blocks of single partitions that were
 * pinned before they became one stay with the allocator. */
static void partitions_on_the_host_are_pinned_and_leave_blocks_behind(void **state)
{
    static struct schedules s;
    struct plan p;
    int64_t kept = 0;

    (void)state;
    plan_seven(&p);
    offload_params(&p, false);
    lowered(&p, 0, &s);
    assert_bytes(persistent_in(&s, IN_HOST), 19089934592);
    offload_params(&p, true);
    lowered(&p, 0, &s);
    for (int t = 0; t < p.model.ntensors; t++)
        kept += pinned_bytes(p.model.tensors[t].numel / 8 * 2);
    assert_true(kept > 2 * (int64_t)Q);
    assert_bytes(persistent_in(&s, IN_HOST), 19089934592 + kept);
    schedules_free(&s);
    plan_free(&p);
}

/* Vectors 17 and 18: a micro-step's 16-bit gradients go down and come back, at the last one they go down in fp32, and the
 * step brings 2 Q of new weights. */
static void gradients_cross_three_times(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_seven(&p);
    lowered(&p, 0, &s);
    assert_bytes(copied(&s, true), 5250000000);
    assert_bytes(copied(&s, false), 3500000000);
    p.accumulation = 4;
    lowered(&p, 0, &s);
    assert_bytes(copied(&s, true), 10500000000);
    assert_bytes(copied(&s, false), 8750000000);
    schedules_free(&s);
    plan_free(&p);
}

/* Vector 19: partitions come up for each gather, 2 Q for all of them; the step copies nothing up. */
static void partitions_come_up_for_every_gather(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_seven(&p);
    offload_params(&p, true);
    lowered(&p, 0, &s);
    int64_t gathered = tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).elems / 8;
    assert_bytes(copied(&s, true), 5250000000);
    assert_bytes(copied(&s, false), 2 * (int64_t)Q + 2 * gathered);
    /* The last block stays from forward to backward; the tied embedding is used four times. */
    assert_true(gathered > 19 * (int64_t)Q / 10 && gathered <= 2 * (int64_t)Q + 2 * p.model.tensors[0].numel / 8);
    schedules_free(&s);
    plan_free(&p);
}

/* Alone there is nothing to gather: parameters come up whole.  On paper: 2 bytes of each, once or twice. */
static void one_rank_copies_its_parameters_up(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_of(&p, "gpt2", 2, 1, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    offload_params(&p, true);
    lowered(&p, 0, &s);
    assert_bytes(tally_of(&s, SCHED_STEADY, COLL_ALL_GATHER).count, 0);
    assert_bytes(copied(&s, true), 4 * p.model.params);         /* the optimizer is on the device: fp32 goes down */
    assert_true(copied(&s, false) >= 2 * p.model.params && copied(&s, false) <= 4 * p.model.params);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- Twin-Flow ---- */

static void count_masters(const struct schedules *s, int *all, int *device)
{
    *all = *device = 0;
    for (int b = 0; b < s->nbufs; b++)
        if (!strcmp(s->bufs[b].what, "fp32 partition")) {
            ++*all;
            *device += s->bufs[b].space == SPACE_DEVICE;
        }
}

/* A plan with n sub-groups. */
static void plan_groups_of(struct plan *p, int n, struct schedules *s)
{
    static const int64_t sizes[] = { 1000000000, 7000000, 3000000, 1000000, 800000, 500000, 20000, 1 };
    int all, device;

    for (int layers = 1; layers <= 9; layers++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            plan_of(p, "gpt2", layers, 1, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
            p->ds.sub_group_size = sizes[i];
            p->ds.offload_optimizer.device = OFFLOAD_CPU;
            lowered(p, 0, s);
            count_masters(s, &all, &device);
            if (all == n)
                return;
            plan_free(p);
        }
    fail_msg("no plan with %d sub-groups", n);
}

/* Vectors 20 to 24: sub-groups [0, int((1 - ratio) n)) stay, in floats. */
static void a_ratio_is_cut_to_whole_sub_groups(void **state)
{
    static const struct { double ratio; int n, device; } rows[] = {
        { 0.3, 1, 0 }, { 0.3, 4, 2 }, { 0.8, 5, 0 }, { 0.4, 5, 3 }, { 1, 5, 0 }, { 0, 5, 5 },
        { 0.3, 10, 7 }, { 0.9, 10, 0 } };       /* 1 - 0.9 is 0.09999999999999998 */
    static struct schedules s;
    struct plan p;
    int all, device;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        plan_groups_of(&p, rows[i].n, &s);
        p.ds.offload_optimizer.ratio = rows[i].ratio;
        lowered(&p, 0, &s);
        count_masters(&s, &all, &device);
        assert_int_equal(device, rows[i].device);
        plan_free(&p);
    }
    schedules_free(&s);
}

/* What stays is 16 bytes an element, gradients included; it crosses 4 times fewer: no fp32 gradient goes down, no
 * weight comes up. */
static void a_sub_group_that_stays_does_not_cross(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    plan_groups_of(&p, 1, &s);
    int64_t n = p.model.params;
    assert_bytes(copied(&s, true), 6 * n);
    assert_bytes(copied(&s, false), 4 * n);
    p.ds.offload_optimizer.ratio = 0;
    lowered(&p, 0, &s);
    assert_bytes(copied(&s, true), 2 * n);
    assert_bytes(copied(&s, false), 2 * n);
    assert_bytes(persistent_in(&s, IN_HOST) - pinned_bytes(2 * n), pinned_bytes(4 * n));    /* its zeros' block */
    schedules_free(&s);
    plan_free(&p);
}

/* ---- disks ---- */

/* GPT-2 of one layer; on one rank parts are whole.  Sub-groups of 3e6: wte; wpe to the attention's projection; the MLP's
 * matrices; the last norm and biases. */
static void disk_plan(struct plan *p, int64_t sub_group)
{
    plan_of(p, "gpt2", 1, 1, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p->ds.sub_group_size = sub_group;
    p->ds.offload_optimizer.device = OFFLOAD_NVME;
}

static int64_t family(const struct schedules *s, const char *what, int *count)
{
    for (int b = 0; b < s->nbufs; b++)
        if (!strcmp(s->bufs[b].what, what)) {
            if (count)
                *count = s->bufs[b].count;
            return s->bufs[b].bytes;
        }
    fail_msg("no buffer \"%s\"", what);
    return 0;
}

static int64_t on_disk(const struct schedules *s)
{
    struct ledger l;

    ledger_run_in(s, IN(SPACE_DISK), &l);
    return l.phase[SCHED_STEADY].bytes;
}

static int add_disk(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    int64_t *bytes = arg;

    (void)s;
    (void)iteration;
    if (o->kind == OP_COPY && o->stream >= STREAM_DISK_READ)
        bytes[o->stream == STREAM_DISK_WRITE] += o->u.copy.writes;
    return 0;
}

/* Vectors 25 to 29 at this model's size: the pool is buffer_count times the largest sub-group rounded up to 256 elements
 * for each thread; a step reads and writes 12 bytes an element of states and 4 of gradients, which are 16 on disk. */
static void states_on_disk_take_a_pool_and_sixteen_bytes_an_element(void **state)
{
    static struct schedules s;
    int64_t bytes[2] = { 0, 0 };
    struct plan p;
    int count = 0;

    (void)state;
    disk_plan(&p, 1000000000);
    int64_t n = p.model.params, up = round_up(n, 256), up8 = round_up(n, 256 * 8), grads = 0;
    lowered(&p, 0, &s);
    assert_bytes(family(&s, "swap buffer", &count), up * 4);
    assert_int_equal(count, 4);
    for (int t = 0; t < p.model.ntensors; t++)
        if (p.model.tensors[t].numel >= 262144)                     /* vector 31: 1 MiB */
            grads += p.model.tensors[t].numel / 256 * 256 * 4;      /* vector 33: the rest stays */
    assert_bytes(on_disk(&s), 3 * 4 * up + grads);
    sched_walk(&s, SCHED_STEADY, add_disk, bytes);
    assert_bytes(bytes[0], 3 * 4 * up + grads);
    assert_bytes(bytes[1], 3 * 4 * up + grads);
    p.ds.aio.intra_op_parallelism = 8;
    lowered(&p, 0, &s);
    assert_bytes(family(&s, "swap buffer", NULL), up8 * 4);
    schedules_free(&s);
    plan_free(&p);
}

struct at_step { int64_t live; bool reached; };

/* Gradients of the device that live when the optimizer's turn comes. */
static int until_the_step(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct at_step *a = arg;

    (void)iteration;
    a->reached |= o->phase == PHASE_OPTIMIZER;
    for (uint32_t k = o->act0; k < o->act0 + o->nacts && !a->reached; k++) {
        const struct act *act = &s->acts[k];
        const struct buf *b = &s->bufs[act->buf];
        if (b->space == SPACE_DEVICE && b->category == CAT_GRADS)
            a->live += (act->what & ACT_ALLOC ? act->n * b->bytes : 0) - (act->what & ACT_FREE ? act->n * b->bytes : 0);
    }
    return 0;
}

/* Vector 32: Llama-2-7B on 128 ranks.  Of a matrix of 4096^2 a rank has 131,072 elements, less than a MiB in fp32: 128 of
 * them stay on the device until the step, 128 * 524,288 = 67,108,864 bytes, and 65 norms in 512 bytes each.  The others
 * (11008 * 4096 / 128 = 1376 * 256 elements, 32000 * 4096 / 128 = 4000 * 256) go to disk whole. */
static void gradients_below_a_mebibyte_stay_on_the_device(void **state)
{
    static struct schedules s;
    struct at_step a = { 0, false };
    struct plan p;

    (void)state;
    plan_of(&p, "llama-2-7b", 0, 128, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    p.ds.offload_optimizer.device = OFFLOAD_NVME;
    snprintf(p.ds.offload_optimizer.nvme_path, sizeof p.ds.offload_optimizer.nvme_path, "/local");
    lowered(&p, 0, &s);
    sched_walk(&s, SCHED_STEADY, until_the_step, &a);
    assert_true(a.reached);
    assert_bytes(a.live, 67108864 + 65 * 512);
    schedules_free(&s);
    plan_free(&p);
}

/* Four sub-groups: while one is computed the next is read and the last is written, each with weights, two moments and the
 * gradient. */
static void pipelining_both_ways_needs_twelve_buffers(void **state)
{
    static struct schedules s;
    struct plan p;

    (void)state;
    disk_plan(&p, 3000000);
    p.ds.offload_optimizer.buffer_count = 3;
    plan_refused(&p, "deepspeed.offload_optimizer.buffer_count");
    p.ds.offload_optimizer.buffer_count = 4;
    lowered(&p, 0, &s);
    p.ds.offload_optimizer.pipeline_read = true;
    plan_refused(&p, "deepspeed.offload_optimizer.buffer_count");
    p.ds.offload_optimizer.buffer_count = 8;
    lowered(&p, 0, &s);
    p.ds.offload_optimizer.pipeline_write = true;
    plan_refused(&p, "deepspeed.offload_optimizer.buffer_count");
    p.ds.offload_optimizer.buffer_count = 12;
    lowered(&p, 0, &s);
    schedules_free(&s);
    plan_free(&p);
}

/* Vectors 34 and 35: five buffers of 1e8 elements rounded up to 512; a partition that is larger is refused. */
static void parameters_on_disk_have_a_pool_of_their_own(void **state)
{
    static struct schedules s;
    struct plan p;
    int count = 0;

    (void)state;
    disk_plan(&p, 3000000);
    p.ds.offload_param.device = OFFLOAD_NVME;
    p.ds.offload_param.max_in_cpu = 0;
    p.ds.stage3_max_reuse_distance = p.ds.stage3_max_live_parameters = 0;
    lowered(&p, 0, &s);
    assert_bytes(family(&s, "parameter buffer", &count), 200000512);
    assert_int_equal(count, 5);
    assert_bytes(count * family(&s, "parameter buffer", NULL), 1000002560);
    p.ds.offload_param.buffer_size = 38597375;                      /* wte is 50257 * 768 = 38,597,376 */
    plan_refused(&p, "deepspeed.offload_param.buffer_size");
    p.ds.offload_param.buffer_size = 38597376;
    p.ds.offload_param.buffer_count = 1;
    plan_refused(&p, "deepspeed.offload_param.buffer_count: 1 buffers are in use when");
    p.ds.offload_param.buffer_count = 5;
    p.ds.offload_param.max_in_cpu = 1000000000;                     /* all of it stays in host memory: files, but no reads */
    lowered(&p, 0, &s);
    int64_t bytes[2] = { 0, 0 }, states = round_up(38597376, 256);
    sched_walk(&s, SCHED_STEADY, add_disk, bytes);
    assert_true(bytes[0] >= 16 * states && bytes[0] <= 16 * round_up(p.model.params, 256) + 12 * 256 * 4);
    schedules_free(&s);
    plan_free(&p);
}

/* The plan of the demonstration: GPT-2 1.5B in fp32, states and parameters on disk, sub-groups of 1e8.  On paper, for one
 * of two ranks: partitioned gradients are 4 bytes of 778,805,600 elements; on disk states, gradients and parameters are 20,
 * less small gradients and partitions. */
static void gpt2_xl_on_disk_lowers(void **state)
{
    static struct schedules s;
    struct ledger host;
    struct plan p;

    (void)state;
    plan_of(&p, "gpt2-xl", 0, 2, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP32);
    assert_int_equal(p.model.params, 1557611200);
    p.recompute = RECOMPUTE_FULL;
    p.ds.sub_group_size = 100000000;
    p.ds.stage3_max_reuse_distance = p.ds.stage3_max_live_parameters = p.ds.stage3_prefetch_bucket_size = 0;
    p.ds.offload_optimizer.device = p.ds.offload_param.device = OFFLOAD_NVME;
    p.ds.offload_param.max_in_cpu = 0;
    p.ds.offload_param.buffer_size = 41000000;                      /* half of wte: 50257 * 1600 / 2 = 40,205,600 */
    lowered(&p, 0, &s);
    assert_bytes(family(&s, "partitioned gradients", NULL), pinned_bytes(4 * p.model.params / 2));
    p.ds.offload_optimizer.pin_memory = false;
    lowered(&p, 0, &s);
    assert_bytes(family(&s, "partitioned gradients", NULL), 2 * p.model.params);
    assert_bytes(on_disk(&s), on_disk(&s) / 1024 * 1024);
    ledger_run_in(&s, IN_HOST, &host);
    assert_true(host.peak.bytes > 2 * p.model.params);
    assert_true(on_disk(&s) > 19 * p.model.params / 2 && on_disk(&s) < 20 * p.model.params / 2 + (1 << 20));
    schedules_free(&s);
    plan_free(&p);
}

/* ---- beside DeepSpeed: tests/golden/offload has the format ---- */

/* Buffers that aio locks: the pool of partitions is one tensor. */
static void add_locked(const struct schedules *s, struct sizes *z)
{
    for (int b = 0; b < s->nbufs; b++) {
        const struct buf *f = &s->bufs[b];
        for (int i = 0; i < f->count && !strcmp(f->what, "swap buffer"); i++)
            z->of[z->n++] = f->bytes;
        if (!strcmp(f->what, "parameter buffer"))
            z->of[z->n++] = f->count * f->bytes;
        if (!strcmp(f->what, "partitioned swap buffer"))
            z->of[z->n++] = f->bytes;
    }
}

/* Files of states by themselves, those of gradients added up. */
static void add_files(const struct schedules *s, struct sizes *z)
{
    for (int b = 0; b < s->nbufs; b++) {
        const struct buf *f = &s->bufs[b];
        bool gradients = !strcmp(f->what, "files of gradients");
        if (f->space != SPACE_DISK || f->category == CAT_PARAMS)
            continue;
        z->of[gradients ? 0 : z->n++] += f->bytes;
    }
}

static void add_recorded_files(const json_t *files, struct sizes *z)
{
    const json_t *file;
    size_t i;

    json_array_foreach(files, i, file) {
        bool gradients = strstr(json_string_value(json_array_get(file, 0)), "_gradient_") != NULL;
        z->of[gradients ? 0 : z->n++] += json_integer_value(json_array_get(file, 1));
    }
}

struct named { const char *what; int calls; int64_t bytes; };

static int add_named(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct named *n = arg;

    (void)s;
    (void)iteration;
    if (o->kind == OP_COPY && !strcmp(o->what, n->what)) {
        n->calls++;
        n->bytes += o->u.copy.writes;
    }
    return 0;
}

/* Entries of these names are, together, what a function of DeepSpeed's copied, so many times. */
static void same_copies(const char *name, const struct schedules *s, enum sched_id id, const json_t *copies, int64_t times,
                        const char *function, const char *what, const char *what2)
{
    struct named a = { what, 0, 0 }, b = { what2, 0, 0 };
    int64_t calls = 0, bytes = 0;
    const json_t *c;
    size_t i;

    sched_walk(s, id, add_named, &a);
    sched_walk(s, id, add_named, &b);
    json_array_foreach(copies, i, c)
        if (!strcmp(json_string_value(json_array_get(c, 0)), function)) {
            calls += times * json_integer_value(json_array_get(c, 1));
            bytes += times * json_integer_value(json_array_get(c, 3));
        }
    if (a.calls + b.calls != calls || a.bytes + b.bytes != bytes)
        fail_msg("%s, %s, %s: %d copies of %lld bytes, DeepSpeed's %s %lld of %lld", name, sched_name(id), what,
                 a.calls + b.calls, (long long)(a.bytes + b.bytes), function, (long long)calls, (long long)bytes);
}

static void rank_follows(const char *name, const struct schedules *s, int64_t accumulation, bool offloaded,
                         const json_t *rank)
{
    static const char *const phases[] = { "init", "first", "steady" };
    static struct sizes ours, theirs;

    for (int id = 0; id <= SCHED_STEADY; id++) {
        const json_t *copies = json_object_get(json_object_get(rank, "copies"), phases[id]);
        ours.n = theirs.n = 0;
        sched_walk(s, (enum sched_id)id, add_pinned, &ours);
        add_calls(json_object_get(json_object_get(rank, "pinned"), phases[id]), true, &theirs);
        same_sizes(name, "pinned", &ours, &theirs);
        if (id == SCHED_INIT || !offloaded)
            continue;
        /* A CPU's later micro-steps add where the gradient is, for that is its accelerator's memory. */
        same_copies(name, s, (enum sched_id)id, copies, accumulation, "partition_grads", "gradient to host", "");
        same_copies(name, s, (enum sched_id)id, copies, 1, "_offload_grad_partition_at_boundary", "fp32 gradient to host",
                    "fp32 gradient");
    }
    ours.n = theirs.n = 0;
    add_locked(s, &ours);
    add_calls(json_object_get(json_object_get(rank, "locked"), "init"), false, &theirs);
    same_sizes(name, "locked", &ours, &theirs);
    memset(&ours, 0, sizeof ours);
    memset(&theirs, 0, sizeof theirs);
    ours.n = theirs.n = 1;
    add_files(s, &ours);
    add_recorded_files(json_object_get(json_object_get(rank, "files"), "steady"), &theirs);
    same_sizes(name, "files", &ours, &theirs);
}

static void deepspeed_pins_locks_copies_and_writes_so(void **state)
{
    static struct schedules s;
    struct plan p;
    json_t *rank;
    size_t r;
    glob_t g;

    (void)state;
    assert_int_equal(glob("tests/golden/offload/0.19.[68]/s3_*.json", 0, NULL, &g), 0);     /* both versions alike */
    assert_true(g.gl_pathc >= 51);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        json_t *j = json_load_file(g.gl_pathv[i], 0, NULL);
        const char *name = strrchr(g.gl_pathv[i], '/') + 1;
        char why[256] = "";
        if (!j || plan_from_json(json_object_get(j, "plan"), name, &p) < 0)
            fail_msg("%s", name);
        fail_capture(why, sizeof why);
        bool follows = lower_check(&p) == 0;
        fail_capture(NULL, 0);
        if (!follows)
            assert_non_null(strstr(why, "fast_init: not followed"));
        json_array_foreach(follows ? json_object_get(j, "ranks") : NULL, r, rank) {
            lowered(&p, (int64_t)r, &s);
            rank_follows(name, &s, p.accumulation, p.ds.offload_optimizer.device != OFFLOAD_NONE, rank);
        }
        plan_free(&p);
        json_decref(j);
    }
    globfree(&g);
    schedules_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizer_on_the_host_takes_sixteen_bytes_an_element_and_rounding),
        cmocka_unit_test(partitions_on_the_host_are_pinned_and_leave_blocks_behind),
        cmocka_unit_test(gradients_cross_three_times),
        cmocka_unit_test(partitions_come_up_for_every_gather),
        cmocka_unit_test(one_rank_copies_its_parameters_up),
        cmocka_unit_test(a_ratio_is_cut_to_whole_sub_groups),
        cmocka_unit_test(a_sub_group_that_stays_does_not_cross),
        cmocka_unit_test(states_on_disk_take_a_pool_and_sixteen_bytes_an_element),
        cmocka_unit_test(gradients_below_a_mebibyte_stay_on_the_device),
        cmocka_unit_test(pipelining_both_ways_needs_twelve_buffers),
        cmocka_unit_test(parameters_on_disk_have_a_pool_of_their_own),
        cmocka_unit_test(gpt2_xl_on_disk_lowers),
        cmocka_unit_test(deepspeed_pins_locks_copies_and_writes_so),
    };
    return cmocka_run_group_tests_name("model/zero3_offload", tests, NULL, NULL);
}
