/* test_kineto_h200.c -- traces that PyTorch's profiler took of two of our plans on one H200 (tests/gpu/h200), taken in as calibrations: one step
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

#define H200 "tests/gpu/h200/"

/* steps.jsonl has the steps without a profiler. */
static const struct { const char *plan; char *trace; int64_t products, attention; double unprofiled_s; } traces[] = {
    /* 12 blocks of 4 products and one head, thrice. */
    { H200 "plan-gpt2-ddp.json", (char[]){ H200 "trace-gpt2-ddp.json.gz" }, 3 * (12 * 4 + 1), 24, .0590 },
    /* 16 blocks of 7. */
    { H200 "plan-llama-fsdp2.json", (char[]){ H200 "trace-llama-fsdp2.json.gz" }, 3 * (16 * 7 + 1), 32, .1280 },
};
enum { NTRACES = sizeof traces / sizeof *traces };

static void import(const char *path, int i, const char *steps)
{
    struct import_kineto how = { .plan = traces[i].plan, .steps = steps, .cluster = "1xh200" };
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
    assert_int_equal(measured_for(path, true, p.precision, &p.cluster, &d), 1);
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
        assert_close(by_first.line.step_s, k.step[1].v[M_STEP], .04);
        assert_close(by_second.line.step_s, k.step[0].v[M_STEP], .04);
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
        assert_close(t.line.step_s, traces[i].unprofiled_s, .05);
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
    for (int i = 0; i < NTRACES; i++) {
        struct timing t;

        predict_from(path, i, &t);
        assert_close(t.line.step_s, traces[i].unprofiled_s, .05);
    }
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
        assert_int_equal(expect(&p, &e, &x), 0);
        assert_int_equal(x.nproducts, traces[i].products);
        assert_int_equal(x.nattention, traces[i].attention);
        assert_int_equal(kineto_load(traces[i].trace, &k), 0);
        match_open(&m, &p, &x);
        assert_int_equal(match_trace(&m, &k, traces[i].trace, 2, 2), 0);
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
        cmocka_unit_test(nothing_of_a_step_is_lost),
    };
    return cmocka_run_group_tests_name("calib/kineto h200", tests, make_folder, remove_folder);
}
