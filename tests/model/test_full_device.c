/* A device without room in every micro-step: what is left out of the walk changes nothing that is shown. */
#include "tests/model/shown.h"

/* A full device that gives its cache back in every micro-step hands out new addresses each time: the state that counts is the same, and the
 * rest is left out.  Of 100 micro-steps on devices of less and less memory: the same is shown, and mostly three of four retries were not made. */
static void a_full_device_leaves_micro_steps_out(void **state)
{
    static const struct { enum strategy strategy; enum dialect dialect; bool every; } plans[] = {
        { STRAT_FSDP, DIALECT_TORCH, false }, { STRAT_FSDP, DIALECT_TORCH, true }, { STRAT_FSDP, DIALECT_TORCH_FSDP1, false } };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct schedules s = { 0 };
        struct plan p;
        int full = 0, left_out = 0;
        plan_of(&p, "llama-3.1-8b", 32, 8, plans[i].strategy, plans[i].dialect, DT_BF16);
        p.kernels = KERNELS_TORCH_SDPA;
        p.seq = 4096;
        p.accumulation = 100;
        p.sync_every_micro_step = plans[i].every;
        plan_resolve(&p);
        lowered(&p, 0, &s);
        for (int d = FALLS; d <= RISES; d++) {
            int64_t made, capacity = shown_of(&p, &s, (int64_t)1 << 48, (enum device)d, true).peak[2];
            for (bool holds = true; holds; capacity -= capacity / 50) {
                struct shown whole = shown_of(&p, &s, capacity, (enum device)d, true);
                struct shown part = shown_with(&p, &s, capacity, (enum device)d, false, &made);
                assert_true(same_shown(&whole, &part));
                holds = !whole.r.out_of_memory;
                full += whole.r.steady_retries >= p.accumulation / 2;
                left_out += whole.r.steady_retries >= p.accumulation / 2 && 4 * made < whole.retries;
            }
        }
        assert_true(full >= 2);
        assert_true(2 * left_out > full);
        schedules_free(&s);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_full_device_leaves_micro_steps_out) };

    return cmocka_run_group_tests_name("model/full_device", tests, NULL, NULL);
}
