/* What PyTorch's allocator costs a step where it has to give its cache back to the device. */
#include "tests/model/plans.h"

#include "sim/clock/simulate.h"
#include "tests/model/request_plans.h"

/* The plan's step on a device of so many bytes. */
static void step_on(const struct plan *of, int64_t memory, struct reserved *r, enum verdict *v, struct timing *t)
{
    struct plan p = *of;
    struct evaluation e;

    p.cluster.memory = memory;
    p.cluster.headroom = 0;
    assert_int_equal(evaluate(&p, &e), 0);
    assert_int_equal(simulate_plan(&p, &e, t, NULL), 0);
    *r = e.reserved;
    *v = e.verdict;
    evaluation_free(&e);
}

/* On a device of 80 GB nothing is given back in a steady step; on ever smaller ones it is, before the plan does not fit: the step
 * is longer by 35 us for each call of cudaMalloc and cudaFree and by nothing else, and its interval reaches to 30 times that. */
static void giving_the_cache_back_is_part_of_the_step(void **state)
{
    struct reserved room, r;
    struct timing wide, t;
    enum verdict v;
    struct plan p;
    int tight = 0;

    (void)state;
    request_plan(10, &p);                       /* fsdp2-gpt2 */
    step_on(&p, (int64_t)80 << 30, &room, &v, &wide);
    assert_int_equal(v, VERDICT_FITS);
    assert_int_equal(room.steady_retries, 0);
    assert_true(wide.retry_s == 0);
    int64_t beside = ((int64_t)80 << 30) - room.limit;
    for (int64_t memory = room.reserved_peak; memory > room.active_peak; memory -= (room.reserved_peak - room.active_peak) / 16 + 1) {
        step_on(&p, memory + beside, &r, &v, &t);
        if (v == VERDICT_DOES_NOT_FIT)
            break;
        double retry = r.steady_retries > 0 ? 35e-6 * (double)r.steady_calls : 0;
        assert_close(t.retry_s + 1, retry + 1, 1e-12);
        assert_close(t.line.step_s, wide.line.step_s + retry, 1e-9);
        assert_close(t.high_s, wide.high_s + 30 * retry, 1e-9);
        assert_close(t.low_s, wide.low_s + retry, 1e-9);
        if (r.steady_retries > 0) {
            assert_int_equal(v, VERDICT_TIGHT);
            assert_true(r.steady_calls >= 2 * r.steady_retries);        /* something was freed, and something taken */
            tight++;
        }
    }
    printf("  of the devices tried %d make a steady step give its cache back\n", tight);
    assert_true(tight > 0);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(giving_the_cache_back_is_part_of_the_step) };
    return cmocka_run_group_tests_name("sim/retry", tests, NULL, NULL);
}
