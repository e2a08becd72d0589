/* A plan's schedules as requests to PyTorch's allocator: the bytes equal the ledger's, and the replay's counters
 * equal those of the allocator of a released wheel. */
#include "tests/model/plans.h"
#include "model/memory/reserved.h"
#include "tests/model/random_plan.h"
#include "tests/model/request_plans.h"
#include "tests/model/shown.h"

#include <inttypes.h>

static const struct request_options no_workspace = { 0 };

/* A device that hands out every request in multiples of 512 bytes and nothing more: what is allocated is what
 * the ledger counts. */
static struct caching_allocator *exact(void)
{
    struct caching_options o = caching_allocator_defaults();

    o.expandable_segments = true;
    return caching_allocator_new((int64_t)1 << 48, &o);
}

/* The last step is left where the state of the one before is met, at these addresses or at those of segments that are as good: that shows
 * what a walk to its end shows, with room, with pages, and on devices that have a little less than the plan would reserve. */
static bool shortened_alike(const struct plan *p, const struct schedules *s, char *why, int size)
{
    static const char *const names[] = { "segments", "segments that rise", "pages" };

    for (int d = 0; d < NDEVICE; d++) {
        int64_t capacity = (int64_t)1 << 48;
        for (int share = 100; share > 85; share -= 4) {
            struct shown whole = shown_of(p, s, capacity, (enum device)d, true), part = shown_of(p, s, capacity, (enum device)d, false);
            if (!same_shown(&whole, &part)) {
                snprintf(why, (size_t)size, "%s %s, %s, at %d %%: reserved %" PRId64 " and %" PRId64 ", requests %" PRId64 " and %" PRId64,
                         strategy_name(p->strategy), dialect_name(p->dialect), names[d], share, whole.peak[2],
                         part.peak[2], whole.r.requests, part.r.requests);
                return false;
            }
            if (share == 100)
                capacity = whole.peak[2];
            capacity = capacity / 100 * 97;
        }
    }
    return true;
}

/* A stage's edges stand for the embedding and the head up to what these make and free at other kernels: a few KiB. */
enum { EDGES = 32 << 10 };

static bool walked_like_the_ledger(const struct plan *p, const struct schedules *s, char *why, int size)
{
    int64_t edges = p->parallel.pipeline > 1 ? EDGES : 0;
    struct caching_allocator *a = exact();
    const struct caching_stats *c = caching_allocator_stats(a);
    struct request_target t = every_step(reserved_target(a));
    struct request_report r;
    struct ledger l;
    int64_t persistent = 0;

    ledger_run(s, &l);
    for (int i = 0; i < NCAT; i++)
        persistent += l.persistent[i];
    requests_walk(p, s, no_workspace, &t, &r);
    /* Where no stream is recorded what is requested is what is allocated, before rounding: the paper's buffers and
     * DataParallel's are not multiples of 512 bytes. */
    bool records = p->dialect == DIALECT_TORCH_FSDP1 || p->dialect == DIALECT_DEEPSPEED;
    const struct caching_meter *m = records ? &c->allocated : &c->requested;
    bool same = r.unmatched == 0 && !r.out_of_memory && m->peak >= l.peak.bytes - edges && m->peak <= l.peak.bytes + edges &&
                m->now == persistent;
    if (!same)
        snprintf(why, (size_t)size, "%s %s: %" PRId64 " unmatched; peak %" PRId64 ", ledger %" PRId64
                 " (%+" PRId64 "); then %" PRId64 ", ledger %" PRId64 " (%+" PRId64 ")", strategy_name(p->strategy),
                 dialect_name(p->dialect), r.unmatched, m->peak, l.peak.bytes, m->peak - l.peak.bytes,
                 m->now, persistent, m->now - persistent);
    caching_allocator_delete(a);
    return same;
}

/* Whether the requests of every named plan add up, with the families of one category in another memory (NCAT: none). */
static void named_plans_add_up(enum category elsewhere)
{
    char why[512];
    int wrong = 0;

    for (int i = 0; i < NREQUEST_PLANS; i++) {
        struct plan p;
        struct schedules s = { 0 };
        request_plan(i, &p);
        lowered(&p, 0, &s);
        for (int b = 0; b < s.nbufs; b++)
            if (s.bufs[b].category == elsewhere)
                s.bufs[b].space = SPACE_PINNED;
        if (!walked_like_the_ledger(&p, &s, why, sizeof why) || !shortened_alike(&p, &s, why, sizeof why)) {
            print_error("%s: %s\n", request_plans[i].name, why);
            wrong++;
        }
        schedules_free(&s);
        plan_free(&p);
    }
    assert_int_equal(wrong, 0);
}

static void the_requests_add_up_to_the_ledger(void **state)
{
    (void)state;
    named_plans_add_up(NCAT);
}

/* Optimizer states in pinned host memory: neither the ledger of device memory nor PyTorch's allocator has them. */
static void what_lies_in_other_memories_is_not_its(void **state)
{
    (void)state;
    named_plans_add_up(CAT_OPTIMIZER);
}

/* A random plan of every cell, with kernels of PyTorch; false: it cannot be lowered.  Plans with micro-steps get up to twelve more. */
static bool random_plan(int i, const struct model *m, const struct cluster *c, uint64_t *rng, struct plan *p, struct schedules *s)
{
    draw_plan(m, c, rng, p);
    if (p->kernels == KERNELS_DPX)
        p->kernels = KERNELS_TORCH_EAGER;
    if (p->dialect == DIALECT_PAPER && p->parallel.pipeline > 1)
        return false;                   /* what PyTorch's kernels free of tensors that a stage sent is not followed there */
    if (p->accumulation > 1)
        p->accumulation += i % 13;
    /* Lowering finds out what DeepSpeed's buffers on the host do not allow. */
    return plan_check(p, "random") == 0 && p->accumulation < 20 && lower(p, 0, s) == 0;
}

/* They add up to the ledger, and those with micro-steps and a third of the others show the same where a walk is shortened. */
static void random_plans_add_up(uint64_t seed, const char *const *models, int nmodels, int plans, int least)
{
    uint64_t rng = seed;
    char why[512];
    int wrong = 0, n = 0;

    for (int i = 0; i < plans; i++) {
        struct plan p, whole;
        struct schedules s = { 0 };
        struct model m;
        struct cluster c;
        plan_of(&whole, models[i % nmodels], 1 + i % (nmodels > 5 ? 5 : 11), 4, STRAT_DDP, DIALECT_TORCH, DT_FP32);
        m = whole.model;
        world_of(&c, 1 + i % 8);
        fail_capture(why, sizeof why);
        bool accepted = random_plan(i, &m, &c, &rng, &p, &s);
        fail_capture(NULL, 0);
        if (accepted) {
            if (!schedules_check(&s, why, sizeof why)) {
                json_dumpf(plan_to_json(&p), stderr, 0);
                fail_msg("%s", why);
            }
            bool shortened = i % 3 == 0 || p.accumulation > 1;
            if (!walked_like_the_ledger(&p, &s, why, sizeof why) || (shortened && !shortened_alike(&p, &s, why, sizeof why))) {
                print_error("random plan %d, %s: %s\n", i, models[i % nmodels], why);
                wrong++;
            }
            n++;
        }
        schedules_free(&s);
        plan_free(&whole);
    }
    assert_true(n > least);
    assert_int_equal(wrong, 0);
}

/* 20261122: a gradient made by one entry's kernels and handed out by the next one's.  99: an embedding's sum that is offloaded. */
static void so_do_those_of_random_plans(void **state)
{
    (void)state;
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "qwen3-0.6b", "opt-350m", "gemma-3-1b", "falcon-7b" };

    random_plans_add_up(20261122, models, 6, 3000, 1000);
    random_plans_add_up(99, models, 6, 3000, 1000);
}

/* Blocks of several kinds: up to 11 of them, attention among the last. */
static void so_do_those_of_hybrid_models(void **state)
{
    static const char *const models[] = { "nemotron-h-8b", "nemotron-3-nano-30b-a3b", "nemotron-nano-9b-v2" };

    (void)state;
    random_plans_add_up(20261130, models, 3, 1200, 200);
}

/* opt-350m's embedding adds up what it projects and the positions, and all three are as large as a block's input: the sum alone goes to the
 * host with the first block. */
static void what_an_embedding_adds_up_stays_on_the_device(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    char why[512];

    (void)state;
    plan_of(&p, "opt-350m", 3, 6, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_FP32);
    p.kernels = KERNELS_TORCH_SDPA;
    p.recompute = RECOMPUTE_OFFLOAD;
    p.recompute_interval = 2;
    plan_resolve(&p);
    lowered(&p, 0, &s);
    if (!walked_like_the_ledger(&p, &s, why, sizeof why))
        fail_msg("%s", why);
    schedules_free(&s);
    plan_free(&p);
}

/* Blocks that end in a norm add a product's gradient to what goes on before they hand out the weight's: where the bucket is full at
 * every gradient, one entry makes it and the next one hands it out. */
static void a_gradient_outlives_the_entry_that_made_it(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    char why[512];

    (void)state;
    plan_of(&p, "opt-350m", 2, 2, STRAT_ZERO1, DIALECT_DEEPSPEED, DT_FP16);
    p.kernels = KERNELS_TORCH_SDPA;
    p.ds.reduce_bucket_size = 2;
    p.ds.contiguous_gradients = false;
    p.ds.overlap_comm = true;
    p.ds.communication_dtype = DT_BF16;
    p.dropout = 0.1;
    p.accumulation = 3;
    p.recompute = RECOMPUTE_SELECTIVE;
    plan_resolve(&p);
    lowered(&p, 0, &s);
    if (!walked_like_the_ledger(&p, &s, why, sizeof why))
        fail_msg("%s", why);
    schedules_free(&s);
    plan_free(&p);
}

/* ---- the same requests through PyTorch's allocator ---- */

/* Takes requests for a replay, as lines too: a hash of them, and a file if one is wanted. */
/* Blocks are called by how many requests came before theirs: what numbers the replay gives them is its own affair. */
enum { LISTED_BLOCKS = 1 << 16 };
struct listed {
    struct request_target replay;
    uint64_t hash;
    FILE    *to;
    int     n, name[LISTED_BLOCKS];
};

static void list(struct listed *l, const char *line)
{
    for (; *line; line++)
        l->hash = (l->hash ^ (uint8_t)*line) * 1099511628211u;
}

#define LIST(l, ...) \
    do { \
        char line_[96]; \
        snprintf(line_, sizeof line_, __VA_ARGS__); \
        list(l, line_); \
        if ((l)->to) \
            fputs(line_, (l)->to); \
    } while (0)

static int listed_allocate(void *of, int64_t bytes, int stream)
{
    struct listed *l = of;
    int block = l->replay.allocate(l->replay.of, bytes, stream);

    assert_true(block < LISTED_BLOCKS);
    LIST(l, "a %d %" PRId64 " %d\n", block < 0 ? -1 : l->n, bytes, stream);
    if (block >= 0)
        l->name[block] = l->n++;
    return block;
}

static void listed_release(void *of, int block)
{
    struct listed *l = of;

    LIST(l, "f %d\n", l->name[block]);
    l->replay.release(l->replay.of, block);
}

static void listed_record(void *of, int block, int stream)
{
    struct listed *l = of;

    LIST(l, "r %d %d\n", l->name[block], stream);
    l->replay.record(l->replay.of, block, stream);
}

static void listed_complete(void *of, int stream, int64_t event)
{
    struct listed *l = of;

    LIST(l, "d %d %" PRId64 "\n", stream, event);
    l->replay.complete(l->replay.of, stream, event);
}

static int64_t listed_events(void *of, int stream)
{
    struct listed *l = of;

    return l->replay.events(l->replay.of, stream);
}

static void listed_empty(void *of)
{
    struct listed *l = of;

    LIST(l, "e 0\n");
    l->replay.empty(l->replay.of);
}

/* No plan of these lists has CUDA graphs. */
static void never_kept(void *of, int stream)
{
    (void)of;
    (void)stream;
    assert_true(false);
}

/* Every third plan with expandable segments; every fourth on a device that has 3 % less than it would reserve. */
static struct caching_allocator *device_of(int i, const struct plan *p, const struct schedules *s, int64_t *capacity)
{
    struct caching_options o = caching_allocator_defaults();
    struct request_report r;

    o.expandable_segments = i % 3 == 2;
    o.addresses_rise = true;        /* as cudart_stub.c's */
    *capacity = (int64_t)1 << 40;
    struct caching_allocator *a = caching_allocator_new(*capacity, &o);
    if (i % 4 != 3)
        return a;
    struct request_target t = reserved_target(a);
    requests_walk(p, s, reserved_options(p), &t, &r);
    *capacity = caching_allocator_stats(a)->reserved.peak / 100 * 97;
    caching_allocator_delete(a);
    return caching_allocator_new(*capacity, &o);
}

/* The list of a plan's requests, and the counters after them as plans.txt has them. */
static uint64_t listed_plan(int i, FILE *to, char *counters, size_t size)
{
    struct plan p;
    struct schedules s = { 0 };
    struct request_report r;
    int64_t capacity;

    request_plan(i, &p);
    lowered(&p, 0, &s);
    struct caching_allocator *a = device_of(i, &p, &s, &capacity);
    const struct caching_stats *c = caching_allocator_stats(a);
    struct listed l = { .replay = reserved_target(a), .hash = 14695981039346656037u, .to = to };
    struct request_target t = { .of = &l, .allocate = listed_allocate, .release = listed_release, .record = listed_record, .complete = listed_complete,
                                .events = listed_events, .stats = c, .empty = listed_empty, .keep = never_kept };
    LIST(&l, "%" PRId64 " %d\n", capacity, i % 3 == 2);
    requests_walk(&p, &s, reserved_options(&p), &t, &r);
    snprintf(counters, size, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
             c->allocated.now, c->active.now, c->reserved.now, c->allocated.peak, c->active.peak, c->reserved.peak,
             c->retries, c->ooms);
    caching_allocator_delete(a);
    schedules_free(&s);
    plan_free(&p);
    return l.hash;
}

/* DUMP=FOLDER writes the lists there, for tests/golden/allocator/record.py --plans FOLDER. */
static void dump(const char *folder)
{
    for (int i = 0; i < NREQUEST_PLANS; i++) {
        char path[512], counters[256];
        snprintf(path, sizeof path, "%s/%s.events", folder, request_plans[i].name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "%s %016" PRIx64 "\n", request_plans[i].name, listed_plan(i, NULL, counters, sizeof counters));
        listed_plan(i, f, counters, sizeof counters);
        fclose(f);
    }
}

static int index_of(const char *name)
{
    for (int i = 0; i < NREQUEST_PLANS; i++)
        if (!strcmp(request_plans[i].name, name))
            return i;
    return -1;
}

/* A list that is not the recorded one any more cannot be compared: skipped, and said. */
static void requests_reserve_what_torch_reserved_for_them(void **state)
{
    FILE *f = fopen("tests/golden/allocator/plans.txt", "r");
    char line[512], name[64], counters[256];
    uint64_t hash;
    int at, same = 0, changed = 0;

    (void)state;
    if (getenv("DUMP"))
        dump(getenv("DUMP"));
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (*line == '#')
            continue;
        assert_int_equal(sscanf(line, "%63s %" SCNx64 " %n", name, &hash, &at), 2);
        line[strcspn(line, "\n")] = '\0';
        int i = index_of(name);
        assert_true(i >= 0);
        if (listed_plan(i, NULL, counters, sizeof counters) != hash) {
            print_message("the requests of %s are not the recorded ones\n", name);
            changed++;
            continue;
        }
        assert_string_equal(counters, line + at);
        same++;
    }
    fclose(f);
    assert_true(same + changed >= 40);
    if (changed)
        skip();
}

/* ---- orders within an entry ---- */

/* Sizes of the requests that entries of that name make in init or the first step; of a release, their negative. */
struct stepped { struct request_target replay; const struct schedules *s; const struct request_report *r; const char *what;
                 int64_t bytes[4096]; int n; int64_t of_block[8192]; };

static void stepped_put(struct stepped *x, int64_t bytes)
{
    if (x->r->sched <= SCHED_FIRST && strcmp(x->s->ops[x->r->op].what, x->what) == 0) {
        assert_true(x->n < 4096);
        x->bytes[x->n++] = bytes;
    }
}

static int stepped_allocate(void *of, int64_t bytes, int stream)
{
    struct stepped *x = of;
    int block = x->replay.allocate(x->replay.of, bytes, stream);

    assert_true(block >= 0 && block < 8192);
    x->of_block[block] = bytes;
    stepped_put(x, bytes);
    return block;
}

static void stepped_release(void *of, int block)
{
    struct stepped *x = of;

    stepped_put(x, -x->of_block[block]);
    x->replay.release(x->replay.of, block);
}

static void stepped_record(void *of, int block, int stream)          { struct stepped *x = of; x->replay.record(x->replay.of, block, stream); }
static void stepped_complete(void *of, int stream, int64_t event)    { struct stepped *x = of; x->replay.complete(x->replay.of, stream, event); }
static void stepped_empty(void *of)                                  { struct stepped *x = of; x->replay.empty(x->replay.of); }
static int64_t stepped_events(void *of, int stream)                  { struct stepped *x = of; return x->replay.events(x->replay.of, stream); }

static int64_t shard_of(const struct tensor *t, int64_t ranks)
{
    return round_up(ceil_div(t->shape[0], ranks) * (t->numel / t->shape[0]) * 4, 512);
}

/* torch/optim/adam.py: _init_group() makes exp_avg and exp_avg_sq of one parameter after another, in the order of
 * model.parameters() (embedding, blocks, norm, head), and _multi_tensor_adam() a list of roots when all are there.  What comes
 * first fills the smallest holes, for good: a list in the states' place moved them into the logits' segments, and each
 * later step asked for others (up to 20 % of what an H200 had reserved: tests/gpu/h200). */
static void states_come_before_temporaries_in_the_models_order(void **state)
{
    static const enum strategy strategies[] = { STRAT_FSDP, STRAT_DDP };
    (void)state;

    for (int k = 0; k < 2; k++) {
        struct caching_allocator *a = exact();
        struct schedules s = { 0 };
        struct request_report r;
        struct plan p;
        int at = 0;
        plan_of(&p, "llama-2-7b", 8, 8, strategies[k], DIALECT_TORCH, DT_BF16);
        assert_false(p.model.tied);
        assert_int_equal(lower(&p, 0, &s), 0);
        struct stepped *x = calloc(1, sizeof *x);
        *x = (struct stepped){ .replay = reserved_target(a), .s = &s, .r = &r, .what = "AdamW" };
        struct request_target t = { .of = x, .allocate = stepped_allocate, .release = stepped_release, .record = stepped_record,
                                    .complete = stepped_complete, .events = stepped_events, .stats = caching_allocator_stats(a), .empty = stepped_empty,
                                    .keep = never_kept };
        requests_walk(&p, &s, no_workspace, &t, &r);
        for (int list = 0; list < 2; list++)            /* the states, two of each parameter; then one of each */
            for (int i = 0; i < p.model.ntensors; i++)
                for (int of = list; of < 2; of++)
                    assert_int_equal(x->bytes[at++], shard_of(&p.model.tensors[i], strategies[k] == STRAT_FSDP ? 8 : 1));
        for (; at < x->n; at++)
            assert_true(x->bytes[at] < 0);
        free(x);
        caching_allocator_delete(a);
        schedules_free(&s);
        plan_free(&p);
    }
}

/* FSDPParamGroup.wait_for_unshard() of a world of one: a parameter is cast, its storage made, the next one cast, and then
 * the first cast has no name any more.  The root's come first: embedding, norm, head. */
static void one_rank_casts_parameter_by_parameter(void **state)
{
    struct caching_allocator *a = exact();
    struct stepped *x = calloc(1, sizeof *x);
    struct schedules s = { 0 };
    struct request_report r;
    struct plan p;

    (void)state;
    plan_of(&p, "llama-2-7b", 2, 1, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(lower(&p, 0, &s), 0);
    const int64_t table = 2 * p.model.vocab * p.model.hidden, norm = 2 * p.model.hidden;
    const int64_t want[] = { table, table, norm, -table, norm, table, -norm, table, -table };
    *x = (struct stepped){ .replay = reserved_target(a), .s = &s, .r = &r, .what = "copy-out" };
    struct request_target t = { .of = x, .allocate = stepped_allocate, .release = stepped_release, .record = stepped_record,
                                .complete = stepped_complete, .events = stepped_events, .stats = caching_allocator_stats(a),
                                .empty = stepped_empty, .keep = never_kept };
    requests_walk(&p, &s, no_workspace, &t, &r);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(x->bytes[i], want[i]);
    char why[512];
    if (!walked_like_the_ledger(&p, &s, why, sizeof why))
        fail_msg("%s", why);
    free(x);
    caching_allocator_delete(a);
    schedules_free(&s);
    plan_free(&p);
}

/* What the entries of that name ask for: sizes, in `x`. */
static void steps_of(const struct plan *p, const struct schedules *s, const char *what, struct stepped *x)
{
    struct caching_allocator *a = exact();
    struct request_report r;

    *x = (struct stepped){ .replay = reserved_target(a), .s = s, .r = &r, .what = what };
    struct request_target t = { .of = x, .allocate = stepped_allocate, .release = stepped_release, .record = stepped_record,
                                .complete = stepped_complete, .events = stepped_events, .stats = caching_allocator_stats(a),
                                .empty = stepped_empty, .keep = never_kept };
    requests_walk(p, s, no_workspace, &t, &r);
    caching_allocator_delete(a);
}

/* module.to(device) moves one parameter after another, and an optimizer has two states of each that it is given: of a flat one two
 * requests, of the fp32 engine's own parameters two of each.  A request of their sum would leave one segment where DeepSpeed leaves many,
 * in which what comes later finds room that is not there. */
static void deepspeed_asks_for_one_tensor_after_another(void **state)
{
    static const struct { enum strategy s; enum dtype t; bool flat; } of[] = {
        { STRAT_DDP, DT_FP32, false }, { STRAT_DDP, DT_FP16, true }, { STRAT_ZERO1, DT_BF16, true }, { STRAT_ZERO2, DT_FP16, true },
    };
    struct stepped *x = calloc(1, sizeof *x);
    (void)state;

    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct schedules s = { 0 };
        struct plan p;
        plan_of(&p, "llama-2-7b", 2, 8, of[k].s, DIALECT_DEEPSPEED, of[k].t);
        assert_int_equal(lower(&p, 0, &s), 0);
        steps_of(&p, &s, "model to device", x);
        assert_int_equal(x->n, p.model.ntensors);
        for (int i = 0; i < x->n; i++)
            assert_int_equal(x->bytes[i], round_up(p.model.tensors[i].numel * dtype_bytes(of[k].t), 512));
        steps_of(&p, &s, "AdamW", x);
        int made = 0;
        for (int i = 0; i < x->n; i++)
            made += x->bytes[i] > 0;
        assert_int_equal(made, of[k].flat ? 2 : 2 * p.model.ntensors);
        for (int i = 0; i < made; i += 2) {
            assert_int_equal(x->bytes[i], x->bytes[i + 1]);
            assert_true(of[k].flat || x->bytes[i] == round_up(4 * p.model.tensors[i / 2].numel, 512));
        }
        schedules_free(&s);
        plan_free(&p);
    }
    free(x);
}

/* DeepSpeed flattens a model beside itself where that has room, and what it moved stays cached, in pieces that fp32 partition and states
 * do not fit into; else it goes to the host first, and the cache is emptied. */
static void a_model_flattened_on_the_device_leaves_its_pieces(void **state)
{
    int64_t reserved[2], model = 0;
    struct evaluation e;
    struct plan p;
    (void)state;

    for (int full = 0; full < 2; full++) {
        plan_of(&p, "llama-2-7b", 0, 8, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_BF16);
        model = 2 * p.model.params;
        if (full)
            p.cluster.memory = p.cluster.context + model * 19 / 10;
        assert_int_equal(evaluate(&p, &e), 0);
        reserved[full] = e.reserved.reserved_peak;
        evaluation_free(&e);
        plan_free(&p);
    }
    assert_true(reserved[0] > 2 * model + 12 * (model / 2) / 8);
    assert_true(reserved[0] - reserved[1] > model / 2);
}

/* A script that empties the cache behind init begins its first step with what is allocated. */
static void a_cache_can_be_emptied_behind_init(void **state)
{
    struct request_options emptied = { .emptied = true };
    int64_t reserved[2];
    struct schedules s = { 0 };
    struct plan p;

    (void)state;
    plan_of(&p, "gpt2", 12, 2, STRAT_DDP, DIALECT_TORCH, DT_BF16);
    assert_int_equal(lower(&p, 0, &s), 0);
    for (int i = 0; i < 2; i++) {
        struct caching_allocator *a = caching_allocator_new((int64_t)1 << 48, NULL);
        struct request_target t = reserved_target(a);
        struct request_report r;
        requests_walk(&p, &s, i ? emptied : no_workspace, &t, &r);
        reserved[i] = t.stats->reserved.peak;
        assert_int_equal(t.stats->device_frees > 0, i);         /* DDP's broadcast left flat copies */
        caching_allocator_delete(a);
    }
    assert_true(reserved[0] > 0 && reserved[1] > 0);
    schedules_free(&s);
    plan_free(&p);
}

/* Every stage of pipelines: what is received and sent, and backwards in two halves, add up to the ledger's too. */
static void stages_of_pipelines_add_up(void **state)
{
    static const struct { enum strategy s; enum dtype t; enum pipeline_kind kind; int chunks; enum recompute r; } of[] = {
        { STRAT_FSDP, DT_BF16, PIPELINE_GPIPE, 1, RECOMPUTE_NONE }, { STRAT_FSDP, DT_BF16, PIPELINE_1F1B, 1, RECOMPUTE_FULL },
        { STRAT_DDP, DT_FP32, PIPELINE_1F1B, 1, RECOMPUTE_NONE }, { STRAT_FSDP, DT_FP32, PIPELINE_INTERLEAVED, 2, RECOMPUTE_NONE },
        { STRAT_FSDP, DT_BF16, PIPELINE_ZB1P, 1, RECOMPUTE_NONE }, { STRAT_FSDP, DT_BF16, PIPELINE_ZBV, 2, RECOMPUTE_NONE },
        { STRAT_FSDP, DT_BF16, PIPELINE_DUALPIPEV, 2, RECOMPUTE_NONE },
    };
    (void)state;

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct schedules s = { 0 };
        struct plan p;
        char why[512];
        plan_of(&p, "llama-2-7b", 8, 8, of[i].s, DIALECT_TORCH, of[i].t);
        p.parallel.pipeline = 4;
        p.parallel.pipeline_schedule = of[i].kind;
        p.parallel.virtual_stages = of[i].chunks;
        p.accumulation = 8;
        p.recompute = of[i].r;
        p.sync_every_micro_step = false;
        p.shard_group = 2;
        p.fsdp.reshard_after_forward = 0;
        p.parallel.first_stage_less = p.parallel.last_stage_less = 0;
        assert_int_equal(plan_check(&p, "pipeline"), 0);
        for (int64_t rank = 0; rank < 8; rank += 2) {
            assert_int_equal(lower(&p, rank, &s), 0);
            if (!walked_like_the_ledger(&p, &s, why, sizeof why))
                fail_msg("%s, stage %d: %s", pipeline_name(of[i].kind), (int)rank / 2, why);
        }
        schedules_free(&s);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_of_pipelines_add_up),
        cmocka_unit_test(states_come_before_temporaries_in_the_models_order),
        cmocka_unit_test(one_rank_casts_parameter_by_parameter),
        cmocka_unit_test(deepspeed_asks_for_one_tensor_after_another),
        cmocka_unit_test(a_model_flattened_on_the_device_leaves_its_pieces),
        cmocka_unit_test(a_cache_can_be_emptied_behind_init),
        cmocka_unit_test(the_requests_add_up_to_the_ledger),
        cmocka_unit_test(what_lies_in_other_memories_is_not_its),
        cmocka_unit_test(so_do_those_of_random_plans),
        cmocka_unit_test(so_do_those_of_hybrid_models),
        cmocka_unit_test(what_an_embedding_adds_up_stays_on_the_device),
        cmocka_unit_test(a_gradient_outlives_the_entry_that_made_it),
        cmocka_unit_test(requests_reserve_what_torch_reserved_for_them),
    };
    return cmocka_run_group_tests_name("model/reserved", tests, NULL, NULL);
}
