/* Pinned memory of CUDA's and its copy streams, by the emulator: states that go to pinned memory and back, through a
 * file as well, change no bit; the host's Adam differs from the device's in the last ones. */
#include "tests/exec/offload.h"

static void check(const struct outcome *want, const struct outcome *got, int way)
{
    double tolerance = way == ON_HOST ? 1e-4 : 0;

    for (int i = 0; i < STEPS; i++)
        if (!(fabs(got->loss[i] - want->loss[i]) <= tolerance * want->loss[i]))
            fail_msg("%s: loss %.17g in step %d, as it was %.17g", ways[way], got->loss[i], i + 1, want->loss[i]);
    if (way != ON_HOST && got->weights != want->weights)
        fail_msg("%s: other weights", ways[way]);
    assert_true(want->loss[0] > want->loss[STEPS - 1]);
}

static void cuda_moves_what_the_schedule_moves(void **state)
{
    (void)state;
    struct outcome want, got;
    struct schedules s;
    struct plan p;

    tiny(&p);
    for (int way = AS_IT_IS; way < NWAYS; way++) {
        struct device *d = device_cuda_open(0);
        assert_non_null(d);
        lowered_as(&p, way, &s);
        run_on(&p, &s, d, way == AS_IT_IS ? &want : &got);
        if (way != AS_IT_IS)
            check(&want, &got, way);
        schedules_free(&s);
        device_close(d);
    }
}

static int load(void **state) { (void)state; models_load(); return 0; }
static int unload(void **state) { (void)state; models_free(); return 0; }

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cuda_moves_what_the_schedule_moves) };

    return cmocka_run_group_tests_name("emu/spaces", tests, load, unload);
}
