/* The executor's dry run against the ledger: every strategy and dialect, no rank really there.
 * What the planner says does not fit must stop at the same entry. */
#include "tests/check.h"
#include "tests/mpi/matrix_plans.h"

#include <jansson.h>

#include "exec/run/executor.h"
#include "model/memory/evaluate.h"

static struct choices chosen;           /* the covering sets of all cells */

static int load(void **state)
{
    (void)state;
    models_load();
    matrix_choose(SOME, &chosen);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    models_free();
    free(chosen.c);
    return 0;
}

/* ---- one plan, lowered, and its executor under a limit ---- */

static void lowered(const struct plan *p, int64_t rank, struct schedules *s)
{
    memset(s, 0, sizeof *s);
    s->detailed = true;
    if (lower(p, rank, s) < 0)
        fail_msg("not lowered");
}

static struct executor *executor_under(const struct plan *p, const struct schedules *s, int64_t limit)
{
    static struct comm *const nobody[PLAN_GROUPS];
    struct executor *x = executor_new(&(struct executor_args){ .plan = p, .schedules = s, .comm = nobody,
                                                               .threads = 1, .limit = limit });

    if (!x)
        fail_msg("no executor");
    return x;
}

/* ---- where it stops ---- */

static void stops_where_the_ledger_does(const struct plan *p, const struct schedules *s, int64_t limit,
                                        const char *name)
{
    struct executor *x = executor_under(p, s, limit);
    const struct exec_over *over = executor_over(x);
    struct peak at = { .op = -1 };
    char words[2][96] = { "fits", "fits" };

    ledger_first_over(s, limit, &at);
    if (at.op >= 0)
        evaluation_op_in_words(s, at.op, at.iteration, words[0], sizeof words[0]);
    if (over->over)
        evaluation_op_in_words(s, over->op, over->iteration, words[1], sizeof words[1]);
    if (over->over != (at.op >= 0) || (over->over && (over->sched != at.sched || over->op != at.op ||
                                                      over->iteration != at.iteration)))
        fail_msg("%s, limit %lld: the ledger says %s \"%s\" (%d, %d), the executor %s \"%s\" (%d, %d)", name,
                 (long long)limit, sched_name(at.sched), words[0], at.op, (int)at.iteration,
                 sched_name(over->sched), words[1], over->op, (int)over->iteration);
    executor_free(x);
}

/* Just below each new height that the steps reach, and at the last one. */
static void stops_at_every_height(const struct plan *p, const struct schedules *s, const char *name)
{
    enum { POINTS = 4000 };
    static struct point point[POINTS];
    int64_t highest = 0;

    for (int turn = 0; turn < NSCHED; turn++) {
        int64_t n = ledger_curve(s, sched_in_turn(turn), point, POINTS);
        for (int64_t i = 0; i < n; i++)
            if (point[i].peak > highest) {
                highest = point[i].peak;
                stops_where_the_ledger_does(p, s, highest - 1, name);
            }
    }
    stops_where_the_ledger_does(p, s, highest, name);
}

struct cell { enum strategy s; enum dialect d; };

static void a_plan_too_large_stops_at_first_over(void **state)
{
    const struct cell *cell = *state;
    struct plan p;
    char words[256];

    for (int i = 0; i < chosen.n; i++) {
        struct schedules s;
        if (chosen.c[i].s != cell->s || chosen.c[i].d != cell->d)
            continue;
        matrix_plan(&chosen.c[i], &p);
        matrix_words(&chosen.c[i], &p, words, sizeof words);
        lowered(&p, i % p.cluster.world_size, &s);
        stops_at_every_height(&p, &s, words);
        schedules_free(&s);
    }
}

/* ---- stages of a pipeline ---- */

static const struct { enum pipeline_kind kind; int64_t chunks; } orders[] = {
    { PIPELINE_GPIPE, 1 }, { PIPELINE_1F1B, 1 }, { PIPELINE_INTERLEAVED, 2 }, { PIPELINE_LOOPED_BFS, 2 }, { PIPELINE_ZB1P, 1 },
    { PIPELINE_ZB1P, 2 }, { PIPELINE_ZBV, 2 }, { PIPELINE_DUALPIPEV, 2 },
};
static const struct cell piped_cells[] = {
    { STRAT_DDP, DIALECT_PAPER }, { STRAT_ZERO1, DIALECT_PAPER }, { STRAT_ZERO2, DIALECT_PAPER }, { STRAT_FSDP, DIALECT_PAPER },
    { STRAT_DDP, DIALECT_TORCH }, { STRAT_FSDP, DIALECT_TORCH },
};

/* Two stages of two data-parallel ranks; false: there is no such plan. */
static bool piped_plan(int order, const struct cell *cell, int on, struct plan *p)
{
    memset(p, 0, sizeof *p);
    p->model = model[on];
    p->cluster.world_size = p->cluster.gpus_per_node = 4;
    p->cluster.nodes = 1;
    p->seq = SEQ;
    plan_defaults(p, cell->s, cell->d, DT_FP32);
    p->parallel.pipeline = 2;
    p->parallel.virtual_stages = orders[order].chunks;
    p->parallel.pipeline_schedule = orders[order].kind;
    p->parallel.first_stage_less = p->parallel.last_stage_less = 0;
    p->kernels = KERNELS_DPX;
    p->sync_every_micro_step = false;
    p->shard_group = 2;
    p->clip = 1;
    p->accumulation = 4;
    p->micro_batch = 3;
    plan_resolve(p);
    return plan_check(p, "pipeline") == 0 && can_run(p) == 0;
}

static void of_every_rank(const struct plan *p, const char *name)
{
    for (int64_t r = 0; r < p->cluster.world_size; r++) {
        struct local_model local;
        struct schedules s;
        assert_int_equal(local_model_of(p, r, &local), 0);
        lowered(p, r, &s);
        stops_at_every_height(local.plan, &s, name);
        schedules_free(&s);
        local_model_free(&local);
    }
}

static void a_stage_too_large_stops_at_first_over(void **state)
{
    char why[256], name[128];
    int n = 0;

    (void)state;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
        for (size_t c = 0; c < sizeof piped_cells / sizeof *piped_cells; c++)
            for (int on = 0; on < NCONFIGS; on++) {
                struct plan p;
                fail_capture(why, sizeof why);
                bool is = piped_plan((int)o, &piped_cells[c], on, &p);
                fail_capture(NULL, 0);
                snprintf(name, sizeof name, "%s, %s/%s, %s", pipeline_name(orders[o].kind), strategy_name(p.strategy),
                         dialect_name(p.dialect), p.model.family);
                if (is)
                    of_every_rank(&p, name);
                n += is;
            }
    /* GPT-2's embedding is tied: those of the paper; torch's DDP under the four schedules that split no backward; two blocks are no
     * two chunks on two stages. */
    assert_int_equal(n, 8 * 4 + 8 * 5 + 4 + 3 * 4);
}

/* ---- small blocks that outlive the step ---- */

/* Of GPT-2's six blocks 38 vectors stay whole, gathered at the end of a step while the secondary partitions of all tensors are there:
 * the best fit alone finds them other places in every one of 1024 steps. */
static void the_places_of_steps_come_to_repeat(void **state)
{
    static const char *const keys[] = { "", "zero_quantized_weights", "zero_quantized_gradients" };

    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *j = json_loads("{ \"dpx_plan\": 1, \"kernels\": \"dpx\", \"seq\": 64, \"micro_batch\": 1, \"precision\": \"fp32\", "
            "\"strategy\": \"zero3\", \"dialect\": \"deepspeed\", \"deepspeed\": { \"stage3_param_persistence_threshold\": 1000, "
            "\"reduce_bucket_size\": 2000000, \"stage3_max_reuse_distance\": 0, \"zero_hpz_partition_size\": 2 }, "
            "\"model\": { \"model_type\": \"gpt2\", \"n_layer\": 6, \"n_embd\": 384, \"n_head\": 6, \"vocab_size\": 512, "
            "\"n_positions\": 64 }, "
            "\"cluster\": { \"name\": \"pair\", \"host\": true, \"nodes\": 2, \"gpus_per_node\": 2, "
            "\"gpu\": { \"name\": \"cpu\", \"memory_bytes\": 4000000000 }, "
            "\"intra\": { \"gb_per_s\": 4 }, \"inter\": { \"gb_per_s\": 0.125 } } }", 0, NULL);
        struct plan p;
        struct schedules s;
        assert_non_null(j);
        if (keys[i][0])
            json_object_set_new(json_object_get(j, "deepspeed"), keys[i], json_true());
        assert_int_equal(plan_from_json(j, "plan", &p), 0);
        lowered(&p, 0, &s);
        struct executor *x = executor_under(&p, &s, INT64_MAX);
        assert_true(executor_extent_in(x, SPACE_DEVICE) >= executor_allocated_peak_in(x, SPACE_DEVICE));
        executor_free(x);
        schedules_free(&s);
        plan_free(&p);
        json_decref(j);
    }
}

#define A_CELL(strategy, dialect) \
    { .name = "a_plan_too_large_stops_at_first_over_in_" #strategy "_of_" #dialect, \
      .test_func = a_plan_too_large_stops_at_first_over, \
      .initial_state = &(struct cell){ STRAT_##strategy, DIALECT_##dialect } }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_too_large_stops_at_first_over),
        cmocka_unit_test(the_places_of_steps_come_to_repeat),
        A_CELL(DP, PAPER), A_CELL(DDP, PAPER), A_CELL(ZERO1, PAPER), A_CELL(ZERO2, PAPER),
        A_CELL(ZERO3, PAPER), A_CELL(FSDP, PAPER), A_CELL(DP, TORCH), A_CELL(DDP, TORCH),
        A_CELL(ZERO1, TORCH), A_CELL(FSDP, TORCH),
        A_CELL(FSDP, TORCH_FSDP1), A_CELL(DDP, DEEPSPEED), A_CELL(ZERO1, DEEPSPEED),
        A_CELL(ZERO2, DEEPSPEED), A_CELL(ZERO3, DEEPSPEED),
    };
    return cmocka_run_group_tests_name("exec/executor", tests, load, unload);
}
