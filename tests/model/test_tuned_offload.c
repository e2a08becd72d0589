/* Fine-tuning with weights in host memory, LoRA, frozen tensors and NF4, beside what PyTorch 2.15 itself did under fake tensors
 * (tests/golden/tune/record_host.py), beside what DeepSpeed pinned and issued (tests/golden/offload, compared by test_ds_offload.c,
 * test_zero3_offload.c and test_collectives.c), and by sums that can be redone. */
#include "tests/model/plans.h"

#include "model/arch/training.h"
#include "model/lower/common/pinned.h"
#include "model/memory/evaluate.h"
#include "model/plan/attention.h"
#include "tests/model/recorded_steps.h"

#define FSDP2 "tests/golden/tune/fsdp2_host.jsonl"
#define FSDP1 "tests/golden/tune/fsdp1_host.jsonl"

/* As device_agrees(), but for what an attention kernel takes within its call, which no tracker sees. */
static void check_device(const struct step *s)
{
    int64_t want = json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak_total"));
    int64_t over = s->ledger.phase[SCHED_STEADY].bytes - want;

    if (!(over > 0 && over <= attention_scratch(&s->plan)))
        device_agrees(s);
    assert_int_equal(s->ledger.persistent[CAT_GRADS], 0);
    assert_int_equal(s->ledger.persistent[CAT_OPTIMIZER], 0);
}

static void the_devices_peak_agrees(void **state)
{
    (void)state;
    assert_true(each_line(FSDP2, check_device) >= 12);
    assert_true(each_line(FSDP1, check_device) >= 2);
}

/* clip_grad_norm_() of FSDP1 sends its norm to the device, to be summed there, and back.  Where a unit has frozen weights FSDP1 makes, for the
 * moment, pageable tensors that are not modelled: zeros of a shard or two (_writeback_orig_params), an empty one of a parameter's part
 * (_use_unsharded_grad_views). */
static void check_host(const struct step *s)
{
    static const struct { const char *word; enum space space; } memory[] = { { "pinned", SPACE_PINNED }, { "pageable", SPACE_HOST } };
    bool fsdp1 = s->plan.dialect == DIALECT_TORCH_FSDP1;

    for (int i = 0; i < 2; i++) {
        struct ledger l;
        ledger_run_in(&s->schedules, IN(memory[i].space), &l);
        if (fsdp1 && memory[i].space == SPACE_HOST)
            assert_true(l.phase[SCHED_STEADY].bytes <= on_host(s, "most", "pageable"));
        else
            agrees(s, memory[i].word, l.phase[SCHED_STEADY].bytes, on_host(s, "most", memory[i].word));
        agrees(s, memory[i].word, l.persistent[CAT_PARAMS] + l.persistent[CAT_GRADS] + l.persistent[CAT_OPTIMIZER],
               on_host(s, "after", memory[i].word));
    }
    copies_agree(s, fsdp1 && s->plan.clip > 0 ? sizeof(float) : 0);
}

static void the_host_and_what_is_copied_agree_to_the_byte(void **state)
{
    (void)state;
    each_line(FSDP2, check_host);
    each_line(FSDP1, check_host);
}

static void check_entries(const struct step *s)
{
    char why[256];

    if (!schedules_check(&s->schedules, why, sizeof why))
        fail_msg("%s: %s", s->name, why);
}

static void entries_use_what_is_there(void **state)
{
    (void)state;
    each_line(FSDP2, check_entries);
    each_line(FSDP1, check_entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_peak_agrees),
        cmocka_unit_test(the_host_and_what_is_copied_agree_to_the_byte),
        cmocka_unit_test(entries_use_what_is_there),
    };
    return cmocka_run_group_tests_name("model/tuned offload", tests, NULL, NULL);
}
