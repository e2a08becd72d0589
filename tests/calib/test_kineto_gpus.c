/* test_kineto_gpus.c -- traces that PyTorch's profiler took of our plans on one H200 and one H100 (tests/gpu), taken in as calibrations: one step
 * against the other, and against steps that no profiler slowed. */
#include "tests/check.h"
#include "base/fail.h"
#include "calib/import/import_kineto.h"
#include "calib/import/kineto_match.h"
#include "calib/store/measured_for.h"
#include "calib/store/query.h"
#include "sim/clock/simulate.h"
#include "tests/calib/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define H200 "tests/gpu/h200/"

#define H100 "tests/gpu/h100/"

/* steps.jsonl has the steps without a profiler.  `within`: what host and profiler do to a step that the issuing thread bounds differs more. */
static const struct {
    const char *plan; char *trace;
    const char *cluster;
    int64_t products, attention;
    double unprofiled_s, within;
} traces[] = {
    /* 12 blocks of 4 products and one head, thrice. */
    { H200 "plan-gpt2-ddp.json", (char[]){ H200 "trace-gpt2-ddp.json.gz" }, "1xh200", 3 * (12 * 4 + 1), 24, .0590, .05 },
    /* 16 blocks of 7. */
    { H200 "plan-llama-fsdp2.json", (char[]){ H200 "trace-llama-fsdp2.json.gz" }, "1xh200", 3 * (16 * 7 + 1), 32, .1280, .05 },
    /* Compiled: weights' gradients of attention come last in a block's backward. */
    { H100 "plan-1b-compiled.json", (char[]){ H100 "trace-1b-compiled.json.gz" }, "1xh100", 3 * (16 * 7 + 1), 32, .1888, .10 },
    { H100 "plan-8b6-compiled.json", (char[]){ H100 "trace-8b6-compiled.json.gz" }, "1xh100", 3 * (6 * 7 + 1), 12, .2586, .05 },
    { H100 "plan-8b6-float8-compiled.json", (char[]){ H100 "trace-8b6-float8-compiled.json.gz" }, "1xh100", 3 * (6 * 7 + 1), 12, .2414, .05 },
    /* 4 blocks of q, k, v, output, router and two grouped products, recomputed; no backward needs the last product of one again, and yet it runs. */
    { H100 "plan-qwen3-moe.json", (char[]){ H100 "trace-qwen3-moe.json.gz" }, "1xh100", 4 * 4 * 7 + 3, 12, .2137, .05 },
};
enum { NTRACES = sizeof traces / sizeof *traces };

static void import(const char *path, int i, const char *steps)
{
    struct import_kineto how = { .plan = traces[i].plan, .steps = steps, .cluster = traces[i].cluster };
    struct db *db = db_open(path);
    bool refused;

    assert_non_null(db);
    assert_int_equal(import_kineto(db, &how, &traces[i].trace, 1, &refused), 0);
    db_close(db);
}

static void predict_from(const char *path, int i, struct timing *t)
{
    struct measured_device d = { 0 };
    struct evaluation e;
    struct plan p;

    assert_int_equal(plan_read(traces[i].plan, &p), 0);
    assert_int_equal(measured_for(path, true, p.precision, p.kernels, &p.cluster, &d), 1);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, t, NULL), 0);
    assert_int_equal(t->basis, BASIS_TRACED);
    evaluation_free(&e);
    measured_device_free(&d);
    plan_free(&p);
}

/* A step of the plan, by those steps of its trace; NULL: all. */
static void predict(int i, const char *steps, struct timing *t)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%d-%s.db", folder, i, steps ? steps : "all");
    import(path, i, steps);
    predict_from(path, i, t);
}

static void each_step_predicts_the_other(void **state)
{
    (void)state;
    for (int i = 0; i < NTRACES; i++) {
        struct timing by_first, by_second;
        struct kineto k;

        assert_int_equal(kineto_load(traces[i].trace, &k), 0);
        assert_int_equal(k.nsteps, 2);
        predict(i, "1", &by_first);
        predict(i, "2", &by_second);
        assert_close(by_first.line.step_s, k.step[1].v[M_STEP], traces[i].within);
        assert_close(by_second.line.step_s, k.step[0].v[M_STEP], traces[i].within);
        kineto_free(&k);
    }
}

/* The profiler slows the host down, of which the GPU is nearly independent here. */
static void both_predict_the_step_without_a_profiler(void **state)
{
    (void)state;
    for (int i = 0; i < NTRACES; i++) {
        struct timing t;

        predict(i, NULL, &t);
        assert_close(t.line.step_s, traces[i].unprofiled_s, traces[i].within);
        assert_true(t.low_s < traces[i].unprofiled_s && traces[i].unprofiled_s < t.high_s);
    }
}

/* FSDP2's hooks take the issuing thread's time, and DDP has none: in one database each keeps its own, whichever came last. */
static void hooks_of_one_training_are_not_another_s(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/both.db", folder);
    import(path, 0, NULL);
    import(path, 1, NULL);
    for (int i = 0; i < 2; i++) {
        struct timing t;

        predict_from(path, i, &t);
        assert_close(t.line.step_s, traces[i].unprofiled_s, .05);
    }
}

/* Products of the same dimensions in 8 and in 16 bits: in one database each plan has its own, and 8 bits are no answer to a question of 16. */
static void products_of_8_bits_are_not_those_of_16(void **state)
{
    enum { WIDE = 3, NARROW = 4 };
    struct timing t;
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/narrow.db", folder);
    import(path, NARROW, NULL);
    predict_from(path, WIDE, &t);
    assert_close(t.line.step_s, traces[WIDE].unprofiled_s, .05);
    import(path, WIDE, NULL);
    for (int i = WIDE; i <= NARROW; i++) {
        predict_from(path, i, &t);
        assert_close(t.line.step_s, traces[i].unprofiled_s, .03);
    }
}

/* As many products, but of 4,096 tokens instead of 8,192. */
static void dimensions_tell_another_sequence(void **state)
{
    struct expectation x;
    struct evaluation e;
    struct kineto k;
    struct match m;
    struct plan p;
    char said[512];

    (void)state;
    assert_int_equal(plan_read(traces[3].plan, &p), 0);
    p.seq = 4096;
    assert_int_equal(evaluate_allocated(&p, &e), 0);
    assert_int_equal(kineto_expect_check(&p), 0);
    kineto_expect(&p, &e.schedules, &x);
    assert_int_equal(kineto_load(traces[3].trace, &k), 0);
    match_open(&m, &p);
    fail_capture(said, sizeof said);
    assert_int_equal(match_trace(&m, &x, &k, "t", 1, 1), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(said, "t: step 1 has more products [8192, 4096] by [4096, 4096] than the plan's: --plan has to be"));
    match_free(&m);
    kineto_free(&k);
    kineto_expect_free(&x);
    evaluation_free(&e);
    plan_free(&p);
}

/* Every kernel and every copy in the GPU's memory, on whatever stream: to the nanosecond. */
static void nothing_of_a_step_is_lost(void **state)
{
    (void)state;
    for (int i = 0; i < NTRACES; i++) {
        struct expectation x;
        struct evaluation e;
        struct kineto k;
        struct match m;
        struct plan p;
        double sum = 0, all = 0;

        assert_int_equal(plan_read(traces[i].plan, &p), 0);
        assert_int_equal(evaluate_allocated(&p, &e), 0);
        assert_int_equal(kineto_expect_check(&p), 0);
        kineto_expect(&p, &e.schedules, &x);
        assert_int_equal(x.nproducts, traces[i].products);
        assert_int_equal(x.nattention, traces[i].attention);
        assert_int_equal(kineto_load(traces[i].trace, &k), 0);
        match_open(&m, &p);
        assert_int_equal(match_trace(&m, &x, &k, traces[i].trace, 2, 2), 0);
        for (int64_t j = 0; j < k.work.n; j++)
            if (k.work.at[j].window == 1)
                all += 1e-9 * (double)(k.work.at[j].end - k.work.at[j].start);
        for (int j = 0; j < m.n; j++)
            for (int64_t c = 0; c < m.timed[j]->ncalls; c++)
                if (m.timed[j]->of.kind == SERIES_KERNEL || m.timed[j]->of.kind == SERIES_PASS)
                    sum += m.timed[j]->call[c].s;
        for (int64_t j = 0; j < k.ncopies; j++)         /* to and from the host: those of both steps */
            sum -= k.copy[j].seconds;
        assert_close(sum, all, 1e-9);
        match_free(&m);
        kineto_free(&k);
        kineto_expect_free(&x);
        evaluation_free(&e);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_predicts_the_other),
        cmocka_unit_test(both_predict_the_step_without_a_profiler),
        cmocka_unit_test(hooks_of_one_training_are_not_another_s),
        cmocka_unit_test(products_of_8_bits_are_not_those_of_16),
        cmocka_unit_test(dimensions_tell_another_sequence),
        cmocka_unit_test(nothing_of_a_step_is_lost),
    };
    return cmocka_run_group_tests_name("calib/kineto gpus", tests, make_folder, remove_folder);
}
