/* What runs on the compute stream hides behind nothing. */
#include "tests/model/plans.h"

#include "sim/clock/simulate.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(collectives_of_the_compute_stream_are_exposed) };
    return cmocka_run_group_tests_name("sim/exposed", tests, NULL, NULL);
}
