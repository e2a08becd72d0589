/* The memory of DDP, ZeroRedundancyOptimizer, FSDP1 and DeepSpeed's stages 0 to 3, held against two
 * real ranks whose storages were counted one by one (tests/golden/memory/record_cpu_ranks.py;
 * README.md there says what is counted). */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "model/arch/recorded.h"
#include "model/lower/common/stage_ports.h"
#include "model/lower/lower.h"
#include "model/schedule/ledger.h"
#include "tests/model/as_recorded.h"

#define GOLDEN "tests/golden/memory/"
#define PEAK 1e-3
enum { AUTOEP_RANKS = 26 * 4 };
/* Where little trains nothing hides what the CPU's kernels take of 16 tokens; 33,792 bytes were seen at most. */
#define LITTLE 36000
struct rank {
    const char      *name;
    int              rank;
    double           limit;         /* of a peak's error */
    const json_t    *recorded;
    struct plan      plan;
    struct schedules schedules;
    struct ledger    ledger;
};

static const char *const phase_key[] = { "init", "first", "steady" };

static int64_t number(const struct rank *r, enum sched_id id, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(r->recorded, phase_key[id]), key));
}

static int64_t category(const struct rank *r, enum sched_id id, const char *table, const char *key)
{
    const json_t *phase = json_object_get(r->recorded, phase_key[id]);

    return json_integer_value(json_object_get(json_object_get(phase, table), key));
}

/* The most that is live before the optimizer's step. */
static int64_t peak_before_step(const struct rank *r, enum sched_id id)
{
    enum { POINTS = 20000 };
    struct point *points = calloc(POINTS, sizeof *points);
    int64_t most = 0;

    assert_non_null(points);
    int64_t n = ledger_curve(&r->schedules, id, points, POINTS);
    assert_true(n < POINTS);
    for (int64_t i = 0; i < n && r->schedules.ops[points[i].op].kind != OP_OPTIMIZER; i++)
        if (r->schedules.ops[points[i].op].phase != PHASE_OPTIMIZER && points[i].peak > most)
            most = points[i].peak;
    free(points);
    return most;
}

/* Micro-steps whose activations a stage of DeepSpeed's pipeline holds at once: TrainSchedule.num_pipe_buffers(), less what it adds. */
static int64_t in_flight(const struct rank *r)
{
    int64_t stages = r->plan.parallel.pipeline, behind = stages - stage_pipeline(&r->plan, r->rank).rank;

    return r->plan.accumulation < behind ? r->plan.accumulation : behind;
}

/* What a pipeline's first stage has that the recorder sets aside: cosines and sines of every micro-step in flight, which its model
 * makes once for all blocks of all stages. */
static int64_t tables(const struct rank *r)
{
    const struct model *m = &r->plan.model;

    if (r->plan.parallel.pipeline == 1 || m->position != POS_ROPE || stage_pipeline(&r->plan, r->rank).rank > 0)
        return 0;
    return in_flight(r) * 2 * r->plan.seq * m->head_dim * dtype_bytes(r->plan.precision);
}

static void agrees(const struct rank *r, enum sched_id id, const char *key, int64_t got)
{
    int64_t want = number(r, id, key);
    double error = (double)(got - want) / (double)want, over = r->limit + (double)tables(r) / (double)want;

    if ((error >= -r->limit && error <= over) || (r->plan.model.ntrainable < r->plan.model.ntensors && llabs(got - want) <= LITTLE))
        return;
    const struct peak *p = &r->ledger.phase[id];
    for (int c = 0; c < NCAT; c++)
        if (p->by[c])
            print_error(" %s %lld", category_name((enum category)c), (long long)p->by[c]);
    print_error("\n");
    fail_msg("%s, rank %d, %s: %s of %lld, counted %lld (%+.3f %%); the peak above is at %s", r->name, r->rank,
             phase_key[id], key, (long long)got, (long long)want, 100 * error, r->schedules.ops[p->op].what);
}

/* FSDP2's recorder builds the model whole on each rank; plans materialise shards. */
static bool begins_whole(const struct rank *r) { return r->plan.strategy == STRAT_FSDP && r->plan.dialect == DIALECT_TORCH; }

static void check_peaks(const struct rank *r)
{
    for (int id = begins_whole(r) ? SCHED_FIRST : SCHED_INIT; id <= SCHED_STEADY; id++)
        agrees(r, (enum sched_id)id, "peak", r->ledger.phase[id].bytes);
    for (int id = SCHED_FIRST; id <= SCHED_STEADY; id++)
        agrees(r, (enum sched_id)id, "peak_before_step", peak_before_step(r, (enum sched_id)id));
}

/* DeepSpeed's own layer keeps what a recomputed block saved: of that the recorder has what is no larger than a scalar (norms' and tokens'
 * numbers, at most four a block) among scalars, and ours has both rotary tables among the step's own. */
static int64_t small_that_l_aux_keeps(const struct rank *r)
{
    const struct plan *p = &r->plan;
    int64_t tables = 2 * p->seq * p->micro_batch * p->model.head_dim * dtype_bytes(p->precision);

    return p->ds.moe_layer == MOE_NATIVE && p->recompute == RECOMPUTE_FULL ? 4 * 512 * p->model.layers + tables : 0;
}

static int64_t masters(const struct rank *r)
{
    int64_t sum = 0;

    for (int i = 0; i < r->schedules.nbufs; i++)
        sum += !strcmp(r->schedules.bufs[i].what, "fp32 partition") ? r->schedules.bufs[i].bytes * r->schedules.bufs[i].count : 0;
    return sum;
}

/* A recorded module's buffers that are no larger than a scalar. */
static int64_t small_buffers(const struct rank *r)
{
    const struct recorded *m = r->plan.model.recorded;
    int64_t sum = 0;

    for (int64_t i = 0; m && i < m->nbuffers + m->nkept; i++)
        sum += m->buffer[i].bytes <= 512 ? 512 : 0;
    return sum;
}

/* All that is live after a step, less scalars: the loss, norms, a kernel's arguments. */
static void check_persistent(const struct rank *r)
{
    const json_t *phase = json_object_get(r->recorded, "steady"), *value;
    int64_t want = 0, got = 0;
    const char *key;
    size_t i;

    json_object_foreach(json_object_get(phase, "persistent"), key, value)
        want += json_integer_value(value);
    json_array_foreach(json_object_get(phase, "other"), i, value)
        if (json_integer_value(value) > 512)
            want += json_integer_value(value);
    for (int c = 0; c < NCAT; c++)
        got += r->ledger.persistent[c];
    got -= small_buffers(r);
    if (llabs(got - want) > small_that_l_aux_keeps(r))
        fail_msg("%s, rank %d: %lld bytes persist, counted %lld", r->name, r->rank, (long long)got, (long long)want);
    assert_int_equal(r->ledger.persistent[CAT_PARAMS] + r->ledger.persistent[CAT_UNSHARDED] - small_buffers(r),
                     category(r, SCHED_STEADY, "persistent", "params"));
    /* At stage 3 the optimizer's parameter groups are empty but in the step: the recorder finds Adam's two states,
     * not the master, which is as large as one. */
    int64_t states = category(r, SCHED_STEADY, "persistent", "optimizer");
    bool stage3 = r->plan.dialect == DIALECT_DEEPSPEED && r->plan.strategy == STRAT_ZERO3, adamw = r->plan.optimizer == OPTIMIZER_ADAMW;
    assert_int_equal(r->ledger.persistent[CAT_OPTIMIZER], !stage3 ? states : adamw ? states / 2 * 3 : states + masters(r));
}

/* ---- what collectives are given ----
 *
 * The recorder names a storage after the first collective that is given it as its full buffer, until its release, and
 * what persists at a phase's end (parameters, gradients, optimizer states) after that.  The same is done here with the
 * buffers of the schedule, entry by entry: so a bucket that is reduced in place counts as the recorder counts it, and
 * so does a gradient too large for the bucket. */

enum { PERSISTS = NCOLL, NAMELESS, NNAMES };

struct names {
    int     *first;                 /* of each family, its first instance */
    uint8_t *name;                  /* of each instance; only while it is there */
    bool    *there;
    int64_t  live[NNAMES], most[NNAMES];
};

static void call_it(struct names *n, int instance, int64_t bytes, int name)
{
    n->live[n->name[instance]] -= bytes;
    n->name[instance] = (uint8_t)name;
    n->live[name] += bytes;
    if (n->live[name] > n->most[name])
        n->most[name] = n->live[name];
}

static void on_each(const struct schedules *s, const struct op *o, int64_t iteration, int what, struct names *n)
{
    for (uint32_t k = o->act0; k < o->act0 + o->nacts; k++) {
        const struct act *a = &s->acts[k];
        for (int64_t i = 0; i < a->n && (a->what & what); i++) {
            int at = n->first[a->buf] + (int)(a->at + a->by * iteration + i);
            int64_t bytes = s->bufs[a->buf].bytes;
            if (what == ACT_ALLOC && !n->there[at]) {
                n->there[at] = true;
                n->live[n->name[at] = NAMELESS] += bytes;
            }
            if ((what == ACT_READ || what == ACT_WRITE) && n->name[at] == NAMELESS)
                call_it(n, at, bytes, o->u.coll.op);
            if (what == ACT_FREE) {
                n->there[at] = false;
                n->live[n->name[at]] -= bytes;
            }
        }
    }
}

static int name_entry(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    on_each(s, o, iteration, ACT_ALLOC, arg);
    if (o->kind == OP_COLL && o->u.coll.of == OF_BUFFERS)       /* the full buffer: an all-gather's output, else the input */
        on_each(s, o, iteration, o->u.coll.op == COLL_ALL_GATHER ? ACT_WRITE : ACT_READ, arg);
    on_each(s, o, iteration, ACT_FREE, arg);
    return 0;
}

static bool named_when_it_persists(enum category c)
{
    return c == CAT_PARAMS || c == CAT_GRADS || c == CAT_OPTIMIZER || c == CAT_UNSHARDED;
}

static void name_what_persists(const struct schedules *s, struct names *n)
{
    for (int b = 0; b < s->nbufs; b++)
        for (int i = n->first[b]; i < n->first[b + 1]; i++)
            if (n->there[i] && named_when_it_persists(s->bufs[b].category))
                call_it(n, i, s->bufs[b].bytes, PERSISTS);
}

/* Scalars (norms, overflow flags) and orders that ranks compare (8 bytes a use of a parameter) are not buffers of the schedule. */
static void names_agree(const struct rank *r, enum sched_id id, const struct names *n)
{
    static const struct { const char *key; enum coll_op op; } keys[] = {
        { "all_gather", COLL_ALL_GATHER }, { "reduce_scatter", COLL_REDUCE_SCATTER }, { "all_reduce", COLL_ALL_REDUCE },
        { "reduce", COLL_REDUCE }, { "broadcast", COLL_BROADCAST },
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t want = category(r, id, "most", keys[i].key), got = n->most[keys[i].op];
        if (got != want && (got != 0 || want > 2048))
            fail_msg("%s, rank %d, %s: %s was given %lld bytes, recorded %lld", r->name, r->rank, phase_key[id],
                     keys[i].key, (long long)got, (long long)want);
    }
}

/* What C++ issues (DDP's reducer and its broadcasts) the recorder does not hear. */
static void check_names(const struct rank *r)
{
    const struct schedules *s = &r->schedules;
    struct names n = { .first = calloc((size_t)s->nbufs + 1, sizeof *n.first) };

    if (r->plan.dialect == DIALECT_TORCH) {
        free(n.first);
        return;
    }
    for (int b = 0; b < s->nbufs; b++)
        n.first[b + 1] = n.first[b] + s->bufs[b].count;
    n.name = calloc((size_t)n.first[s->nbufs] + 1, sizeof *n.name);
    n.there = calloc((size_t)n.first[s->nbufs] + 1, sizeof *n.there);
    assert_true(n.first && n.name && n.there);
    for (int id = 0; id <= SCHED_STEADY; id++) {
        memcpy(n.most, n.live, sizeof n.most);
        sched_walk(s, (enum sched_id)id, name_entry, &n);
        names_agree(r, (enum sched_id)id, &n);
        name_what_persists(s, &n);
    }
    free(n.first);
    free(n.name);
    free(n.there);
}

/* FSDP1 gathers straight into the unsharded parameters. */
static void check_gathered(const struct rank *r)
{
    if (r->plan.dialect != DIALECT_TORCH_FSDP1 || r->plan.fsdp.sharding_strategy == FSDP1_NO_SHARD)
        return;
    assert_int_equal(r->ledger.most[CAT_UNSHARDED], category(r, SCHED_STEADY, "most", "all_gather"));
}

/* Every recorded rank of a file through `check`; returns how many there were. */
static int each_rank_of(const char *path, double limit, void (*check)(const struct rank *))
{
    static char text[1 << 17];
    FILE *in = fopen(path, "r");
    int n = 0;

    assert_non_null(in);
    assert_non_null(fgets(text, sizeof text, in));
    json_t *head = json_loads(text, 0, NULL);
    while (fgets(text, sizeof text, in)) {
        json_t *line = json_loads(text, 0, NULL), *plan = json_object_get(line, "plan"), *recorded;
        size_t i;

        assert_non_null(line);
        json_object_set(plan, "model", json_object_get(json_object_get(head, "models"),
                                                       json_string_value(json_object_get(plan, "model"))));
        as_recorded(plan);
        json_array_foreach(json_object_get(line, "ranks"), i, recorded) {
            struct rank r = { .name = json_string_value(json_object_get(line, "name")), .rank = (int)i, .limit = limit,
                              .recorded = recorded };
            assert_int_equal(plan_from_json(plan, r.name, &r.plan), 0);
            r.schedules.detailed = true;    /* collectives name their buffers */
            assert_int_equal(lower(&r.plan, r.rank, &r.schedules), 0);
            ledger_run(&r.schedules, &r.ledger);
            check(&r);
            schedules_free(&r.schedules);
            plan_free(&r.plan);
            n++;
        }
        json_decref(line);
    }
    json_decref(head);
    fclose(in);
    return n;
}

/* Those of DeepSpeed 0.19.6, of 0.19.8 what it does otherwise, where not everything trains, and where autograd keeps what stage 3 gathered. */
static void each_rank(void (*check)(const struct rank *))
{
    assert_true(each_rank_of(GOLDEN "cpu_ranks.jsonl", PEAK, check) >= 100);
    assert_true(each_rank_of(GOLDEN "cpu_ranks_0.19.8.jsonl", PEAK, check) >= 38);
    assert_true(each_rank_of(GOLDEN "cpu_ranks_tuned.jsonl", PEAK, check) >= 30);
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_kept.jsonl", PEAK, check), 2 * 16);
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_forms.jsonl", PEAK, check), 2 * 29);
}

static void peaks_of_init_first_and_steady_agree(void **state)
{
    (void)state;
    each_rank(check_peaks);
}

/* The recorder sets Adam's `step` aside, which lies on the host but for the fused form. */
static void check_persistent_of_forms(const struct rank *r)
{
    if (r->plan.dialect != DIALECT_TORCH || r->plan.optimizer_form != OPTIMIZER_FUSED)
        check_persistent(r);
}

/* DDP in bf16 with buckets' views, DeepSpeed's stage 2 with options drawn at random, FSDP2's units of several blocks. */
static void steps_with_drawn_options_agree(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_drawn.jsonl", PEAK, check_peaks), 2 * (16 + 8 + 8));
    each_rank_of(GOLDEN "cpu_ranks_drawn.jsonl", PEAK, check_persistent_of_forms);
}

/* Recorded files (tests/golden/module/record_ranks_memory.py) under FSDP1 and DeepSpeed's stages 1 to 3. */
static void recorded_modules_agree(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of("tests/golden/module/ranks_memory.jsonl", PEAK, check_peaks), 2 * 3 * 8);
    each_rank_of("tests/golden/module/ranks_memory.jsonl", PEAK, check_persistent);
}

static void what_persists_agrees_to_the_byte(void **state)
{
    (void)state;
    each_rank(check_persistent);
}

static void what_collectives_are_given_agrees_to_the_byte(void **state)
{
    (void)state;
    each_rank(check_names);
}

static void the_most_that_fsdp1_gathers_agrees_to_the_byte(void **state)
{
    (void)state;
    each_rank(check_gathered);
}

/* DeepSpeed cuts tensors while the model is on the host; the recorder had it all counted. */
static void check_stage(const struct rank *r)
{
    if (r->plan.parallel.tensor == 1)
        agrees(r, SCHED_INIT, "peak", r->ledger.phase[SCHED_INIT].bytes);
    for (int id = SCHED_FIRST; id <= SCHED_STEADY; id++) {
        agrees(r, (enum sched_id)id, "peak", r->ledger.phase[id].bytes);
        agrees(r, (enum sched_id)id, "peak_before_step", peak_before_step(r, (enum sched_id)id));
    }
}

/* Tensors of a boundary's size and more; smaller ones are samples and scalars. */
static void check_what_stages_keep(const struct rank *r)
{
    const json_t *phase = json_object_get(r->recorded, "steady"), *value;
    int64_t want = category(r, SCHED_STEADY, "persistent", "grads"), got = 0;
    size_t i;

    if (r->plan.parallel.pipeline == 1)
        return;
    json_array_foreach(json_object_get(phase, "other"), i, value)
        if (json_integer_value(value) >= r->schedules.program.boundary)
            want += json_integer_value(value);
    for (int c = 0; c < NCAT; c++)
        got += c == CAT_PARAMS || c == CAT_OPTIMIZER || c == CAT_UNSHARDED || c == CAT_GRADS ? 0 : r->ledger.persistent[c];
    if (got != want)
        fail_msg("%s, rank %d: a stage keeps %lld bytes, counted %lld", r->name, r->rank, (long long)got, (long long)want);
}

/* The instruction of PipelineEngine that an entry ends; those that only compute end where the next one begins. */
static const char *instruction_of(const struct rank *r, const struct op *o)
{
    bool back = o->phase == PHASE_BACKWARD;

    if (!strcmp(o->what, "clone what was received"))
        return "RecvActivation";
    if (!strcmp(o->what, "await send") && !back)
        return "SendActivation";
    if (!strcmp(o->what, "await receive") && back)
        return "RecvGrad";
    return !strcmp(o->what, r->plan.parallel.pipeline - 1 == stage_pipeline(&r->plan, r->rank).rank ? "its graph keeps the input" :
                                                                                                     "drop the stage's input") ? "SendGrad" : NULL;
}

static int64_t messages_of(const json_t *instructions)
{
    const json_t *one;
    int64_t n = 0;
    size_t i;

    json_array_foreach(instructions, i, one) {
        const char *name = json_string_value(json_array_get(one, 0));
        n += !strncmp(name, "Send", 4) || !strncmp(name, "Recv", 4);
    }
    return n;
}

/* What is live after every message of the steady step, in the engine's order: what passes leave, and what they give back.  Ours may be
 * apart by what limits are of a peak. */
static void check_instructions(const struct rank *r)
{
    enum { POINTS = 20000 };
    struct point *points = calloc(POINTS, sizeof *points);
    const json_t *recorded = json_object_get(r->recorded, "instructions");
    size_t at = 0;

    if (!recorded) {
        assert_int_equal(r->plan.parallel.pipeline, 1);
        free(points);
        return;
    }
    assert_non_null(points);
    int64_t n = ledger_curve(&r->schedules, SCHED_STEADY, points, POINTS), found = 0;
    assert_true(n < POINTS);
    for (int64_t i = 0; i < n; i++) {
        const char *name = instruction_of(r, &r->schedules.ops[points[i].op]);
        while (name && at < json_array_size(recorded) && strcmp(json_string_value(json_array_get(json_array_get(recorded, at), 0)), name))
            at++;
        if (!name)
            continue;
        if (at == json_array_size(recorded))
            fail_msg("%s, rank %d: no %s was recorded here", r->name, r->rank, name);
        int64_t want = json_integer_value(json_array_get(json_array_get(recorded, at++), 1)), off = points[i].bytes - want;
        if ((double)off < -r->limit * (double)want || (double)off > r->limit * (double)want + (double)tables(r))
            fail_msg("%s, rank %d: after instruction %zu, %s, %lld bytes are live, counted %lld", r->name, r->rank, at - 1, name,
                     (long long)points[i].bytes, (long long)want);
        found++;
    }
    assert_int_equal(found, messages_of(recorded));
    free(points);
}

static void stages_of_deepspeeds_pipeline_take_what_was_counted(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_pipeline.jsonl", PEAK, check_stage), 42);
}

static void stages_keep_what_was_counted_to_the_byte(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_pipeline.jsonl", PEAK, check_what_stages_keep), 42);
}

static void stages_hold_what_was_counted_after_each_message(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_pipeline.jsonl", PEAK, check_instructions), 42);
}

/* AutoTP's layers save views of their weights, which then stay though stage 3 releases them. */
static void autotp_keeps_what_stage_3_gathered(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_autotp3.jsonl", PEAK, check_peaks), 8);
}

/* DeepSpeed's AutoEP under stages 0 to 3, and its own layer of experts (deepspeed.moe.layer.MoE) under stages 0, 1 and 2. */
static void autoep_takes_what_was_counted(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_autoep.jsonl", PEAK, check_peaks), AUTOEP_RANKS);
}

static void what_persists_of_autoep_agrees_to_the_byte(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_autoep.jsonl", PEAK, check_persistent), AUTOEP_RANKS);
}

static void what_autoeps_collectives_are_given_agrees_to_the_byte(void **state)
{
    (void)state;
    assert_int_equal(each_rank_of(GOLDEN "cpu_ranks_autoep.jsonl", PEAK, check_names), AUTOEP_RANKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_of_init_first_and_steady_agree),
        cmocka_unit_test(steps_with_drawn_options_agree),
        cmocka_unit_test(recorded_modules_agree),
        cmocka_unit_test(what_persists_agrees_to_the_byte),
        cmocka_unit_test(what_collectives_are_given_agrees_to_the_byte),
        cmocka_unit_test(the_most_that_fsdp1_gathers_agrees_to_the_byte),
        cmocka_unit_test(stages_of_deepspeeds_pipeline_take_what_was_counted),
        cmocka_unit_test(stages_keep_what_was_counted_to_the_byte),
        cmocka_unit_test(stages_hold_what_was_counted_after_each_message),
        cmocka_unit_test(autotp_keeps_what_stage_3_gathered),
        cmocka_unit_test(autoep_takes_what_was_counted),
        cmocka_unit_test(what_persists_of_autoep_agrees_to_the_byte),
        cmocka_unit_test(what_autoeps_collectives_are_given_agrees_to_the_byte),
    };
    return cmocka_run_group_tests_name("model/cpu ranks memory", tests, NULL, NULL);
}
