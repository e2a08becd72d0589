/* The speed of a network at which two plans take as long: by the definition, on stated and on measured networks. */
#include "tests/model/plans.h"

#include "model/schedule/measured.h"
#include "sim/search/crossover.h"

/* Llama 3.1 8B on two nodes of 8 H100s, ZeRO-3 of DeepSpeed, and the same with int8 gathers. */
static void plans_of(struct plan *plain, struct plan *codes)
{
    plan_of(plain, "llama-3.1-8b", 2, 8, STRAT_ZERO3, DIALECT_DEEPSPEED, DT_BF16);
    plain->cluster.nodes = 2;
    plain->cluster.gpus_per_node = 8;
    plain->cluster.world_size = 16;
    plan_resolve(plain);
    *codes = *plain;
    codes->ds.zero_quantized_weights = true;
    plan_resolve(codes);
}

static double step_at(const struct plan *p, double inter)
{
    struct plan other = *p;
    struct crossover_plan *s;

    other.cluster.inter = inter;
    s = crossover_open(&other);
    assert_non_null(s);
    double step = crossover_step(s, 1);
    crossover_close(s);
    return step;
}

static void both_take_as_long_there(void **state)
{
    struct plan plain, codes;
    bool slower = false;

    (void)state;
    plans_of(&plain, &codes);
    double at = crossover_find(&plain, &codes, &slower);
    assert_true(at > 0);
    assert_true(slower);
    assert_close(step_at(&codes, at) / step_at(&plain, at), 1, 2e-3);
    assert_true(step_at(&codes, at / 2) < step_at(&plain, at / 2));
    assert_true(step_at(&codes, at * 2) > step_at(&plain, at * 2));
    /* The other way round it is the same speed. */
    double back = crossover_find(&codes, &plain, &slower);
    assert_close(back / at, 1, 2e-3);
    assert_false(slower);
    plan_free(&plain);
}

static void a_plan_has_none_with_itself(void **state)
{
    struct plan plain, codes;
    bool slower;

    (void)state;
    plans_of(&plain, &codes);
    assert_close(crossover_find(&plain, &plain, &slower), 0, 0);
    plan_free(&plain);
}

/* What a measured gather takes beyond the least message of its sweep goes with the speed: 0.1 s for 1 KiB and 1.1 s for 1 GiB become
 * 0.1 s and 0.1 + 0.5 s of a network twice as fast; within a node nothing changes. */
static void measured_times_change_beyond_the_least(void **state)
{
    struct measured_coll coll[] = {
        { COLL_ALL_GATHER, DT_BF16, false, 8, 8, 1024, 1e-4, 0, 0 }, { COLL_ALL_GATHER, DT_BF16, false, 8, 8, 1 << 30, 0.1, 0, 0 },
        { COLL_ALL_GATHER, DT_BF16, false, 16, 8, 1024, 0.1, 0, 0 }, { COLL_ALL_GATHER, DT_BF16, false, 16, 8, 1 << 30, 1.1, 0, 0 },
    };
    struct measured_device measured = { .coll = coll, .ncoll = 4 };
    struct plan plain, codes;

    (void)state;
    plans_of(&plain, &codes);
    plain.cluster.measured = &measured;
    struct crossover_plan *s = crossover_open(&plain);
    double here = crossover_step(s, 1), twice = crossover_step(s, 2);
    crossover_close(s);
    for (int i = 2; i < 4; i++)
        coll[i].s = i == 2 ? 0.1 : 0.6;
    plain.cluster.inter *= 2;               /* what was not measured */
    s = crossover_open(&plain);
    assert_close(crossover_step(s, 1), twice, 1e-9);
    assert_true(twice < here);
    crossover_close(s);
    plan_free(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_take_as_long_there),
        cmocka_unit_test(a_plan_has_none_with_itself),
        cmocka_unit_test(measured_times_change_beyond_the_least),
    };
    return cmocka_run_group_tests_name("sim/crossover", tests, NULL, NULL);
}
