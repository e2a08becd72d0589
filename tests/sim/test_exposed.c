/* What runs on the compute stream hides behind nothing. */
#include "tests/model/plans.h"

#include "sim/clock/simulate.h"
#include "sim/clock/step.h"

/* Seconds of all collectives of a step, and of what the step says is exposed. */
static void times(enum strategy s, enum dialect d, double *all, double *exposed)
{
    struct evaluation e;
    struct timing t;
    struct plan p;
    struct run r;

    plan_of(&p, "gpt2", 8, 8, s, d, DT_BF16);
    if (d == DIALECT_DEEPSPEED)
        p.ds.overlap_comm = 0;
    assert_int_equal(plan_check(&p, "test"), 0);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, &t, &r), 0);
    *all = 0;
    for (int64_t i = 0; i < r.n; i++)
        if (e.schedules.ops[r.ran[i].op].kind == OP_COLL)
            *all += r.ran[i].end - r.ran[i].start;
    *exposed = t.line.exposed_s;
    assert_true(*all > 0);
    run_free(&r);
    evaluation_free(&e);
    plan_free(&p);
}

/* DeepSpeed's stages 1 and 2 without overlap_comm, and DataParallel. */
static void collectives_of_the_compute_stream_are_exposed(void **state)
{
    static const struct { enum strategy s; enum dialect d; } of[] = {
        { STRAT_ZERO1, DIALECT_DEEPSPEED }, { STRAT_ZERO2, DIALECT_DEEPSPEED }, { STRAT_DP, DIALECT_TORCH },
    };
    double all, exposed;

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        times(of[i].s, of[i].d, &all, &exposed);
        assert_true(exposed > all * (1 - 1e-9) && exposed < 1.02 * all);      /* and what the issuing thread takes in between */
    }
}

/* 8B over 8 tensor-parallel ranks in 2048 tokens: a block's kernels take less than their launches.  No more is exposed than is sent,
 * and the interval is that of the issuing thread, whose time is known within STEP_ISSUE_LOW and STEP_ISSUE_HIGH. */
static void a_step_that_waits_to_be_issued_says_so(void **state)
{
    struct evaluation e;
    struct timing t;
    struct plan p;

    (void)state;
    plan_of(&p, "llama-3.1-8b", 0, 8, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
    p.seq = 2048;
    p.parallel.tensor = 8;
    p.shard_group = 1;
    plan_resolve(&p);
    assert_int_equal(plan_check(&p, "test"), 0);
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, &t, NULL), 0);
    assert_true(t.line.idle_s > .5 * t.line.step_s);
    assert_true(t.line.exposed_s <= t.line.comm_s);
    assert_true(t.low_s < t.line.step_s - .9 * (1 - STEP_ISSUE_LOW) * t.line.idle_s);
    assert_true(t.high_s > t.line.step_s + .9 * (STEP_ISSUE_HIGH - 1) * t.line.idle_s);
    evaluation_free(&e);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_the_compute_stream_are_exposed),
        cmocka_unit_test(a_step_that_waits_to_be_issued_says_so),
    };
    return cmocka_run_group_tests_name("sim/exposed", tests, NULL, NULL);
}
