/* torch.autograd.graph.save_on_cpu() around a model of PyTorch's kernels, beside what PyTorch 2.15 itself did under fake tensors
 * (tests/golden/memory/record_save_on_cpu.py), and by a sum that can be redone. */
#include "tests/model/plans.h"

#include "tests/model/recorded_steps.h"

#define GOLDEN "tests/golden/memory/torch_save_on_cpu.jsonl"

static void the_devices_peak_agrees(void **state)
{
    (void)state;
    assert_true(each_line(GOLDEN, device_agrees) >= 17);
}

/* A number of 4 bytes is the host's own, in either plan. */
static void check_host(const struct step *s)
{
    bool pins = s->plan.activation_offload == OFFLOAD_SAVE_ON_CPU_PINNED;
    struct copied c = { 0, 0, 0 };
    struct ledger host;

    ledger_run_in(&s->schedules, IN(pins ? SPACE_PINNED : SPACE_HOST), &host);
    agrees(s, "host memory", host.phase[SCHED_STEADY].bytes, on_host(s, "most", pins ? "pinned" : "pageable"));
    sched_walk(&s->schedules, SCHED_STEADY, count_copy, &c);
    agrees(s, "bytes to the device", c.up, on_host(s, "copied", "up"));
    agrees(s, "bytes to the host", c.down, on_host(s, "copied", "down"));
}

static void the_host_and_what_is_copied_agree_to_the_byte(void **state)
{
    (void)state;
    assert_true(each_line(GOLDEN, check_host) >= 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_peak_agrees),
        cmocka_unit_test(the_host_and_what_is_copied_agree_to_the_byte),
    };
    return cmocka_run_group_tests_name("model/save_on_cpu", tests, NULL, NULL);
}
