/* FSDP1's CPUOffload, beside what PyTorch 2.15 itself did under fake tensors (tests/golden/memory/record_fsdp1_offload.py),
 * and by sums that can be redone. */
#include "tests/model/plans.h"

#include "model/lower/common/pinned.h"
#include "tests/model/recorded_steps.h"

#define GOLDEN "tests/golden/memory/fsdp1_offload.jsonl"

static void check_device(const struct step *s)
{
    device_agrees(s);
    for (int c = CAT_PARAMS; c <= CAT_OPTIMIZER; c++)
        assert_int_equal(s->ledger.persistent[c], 0);
}

static void the_devices_peak_agrees(void **state)
{
    (void)state;
    assert_true(each_line(GOLDEN, check_device) >= 36);
}

/* clip_grad_norm_() sends its norm to the device, to be summed there, and back. */
static void check_host(const struct step *s)
{
    struct ledger pinned, pageable;

    ledger_run_in(&s->schedules, IN(SPACE_PINNED), &pinned);
    ledger_run_in(&s->schedules, IN(SPACE_HOST), &pageable);
    agrees(s, "pinned", pinned.phase[SCHED_STEADY].bytes, on_host(s, "most", "pinned"));
    agrees(s, "pinned after", pinned.persistent[CAT_PARAMS] + pinned.persistent[CAT_GRADS], on_host(s, "after", "pinned"));
    agrees(s, "pageable", pageable.phase[SCHED_STEADY].bytes, on_host(s, "most", "pageable"));
    agrees(s, "pageable after", pageable.persistent[CAT_OPTIMIZER], on_host(s, "after", "pageable"));
    copies_agree(s, s->plan.clip > 0 ? sizeof(float) : 0);
}

static void the_host_and_what_is_copied_agree_to_the_byte(void **state)
{
    (void)state;
    assert_true(each_line(GOLDEN, check_host) >= 36);
}

/* Llama-2-7B on 8 ranks.  A block has 4 of 4096^2, 3 of 11008 x 4096 and 2 norms, 202,383,360 elements, of which a rank has
 * 25,297,920: 101,191,680 bytes, pinned 2^27.  The root has 2 of 32000 x 4096 and a norm: 131,074,048 bytes, pinned 2^27 too.
 * So 33 * 2^27 for parameters, as many for gradients, and 8 bytes an element for states.  A step copies every shard to the
 * device twice and its gradient back once, in fp32: 3,369,207,808 bytes each. */
static void llama_7b_is_pinned_by_units(void **state)
{
    (void)state;
    const int64_t shards = 32 * (int64_t)101191680 + 131074048;
    struct ledger pinned, host;
    struct copied c = { 0, 0, 0 };
    struct schedules s = { .nnotes = 0 };
    struct plan p;

    assert_int_equal(shards, 3369207808);
    plan_of(&p, "llama-2-7b", 0, 8, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_BF16);
    p.fsdp.cpu_offload = true;
    lowered(&p, 0, &s);
    ledger_run_in(&s, IN(SPACE_PINNED), &pinned);
    ledger_run_in(&s, IN(SPACE_HOST), &host);
    assert_int_equal(pinned.persistent[CAT_PARAMS], 33 * ((int64_t)1 << 27));
    assert_int_equal(pinned.peak.bytes, 66 * ((int64_t)1 << 27));
    assert_int_equal(host.persistent[CAT_OPTIMIZER], 2 * shards);
    sched_walk(&s, SCHED_STEADY, count_copy, &c);
    assert_int_equal(c.up, 2 * shards);
    assert_int_equal(c.down, shards);
    assert_int_equal(c.copies, 3 * 33);
    schedules_free(&s);
    plan_free(&p);
}

static void what_fsdp1_cannot_offload_is_refused(void **state)
{
    (void)state;
    struct plan p;

    plan_of(&p, "llama-2-7b", 2, 8, STRAT_FSDP, DIALECT_TORCH_FSDP1, DT_BF16);
    p.fsdp.cpu_offload = true;
    assert_int_equal(plan_check(&p, "plan"), 0);
    p.accumulation = 2;
    plan_refused(&p, "only within no_sync(): set it to false");
    p.sync_every_micro_step = false;
    assert_int_equal(plan_check(&p, "plan"), 0);
    p.fsdp.sharding_strategy = FSDP1_NO_SHARD;
    plan_refused(&p, "fsdp.cpu_offload: FSDP1's NO_SHARD");
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_peak_agrees),
        cmocka_unit_test(the_host_and_what_is_copied_agree_to_the_byte),
        cmocka_unit_test(llama_7b_is_pinned_by_units),
        cmocka_unit_test(what_fsdp1_cannot_offload_is_refused),
    };
    return cmocka_run_group_tests_name("model/FSDP1 with offload", tests, NULL, NULL);
}
