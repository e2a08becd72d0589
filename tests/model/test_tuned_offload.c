/* Fine-tuning with weights in host memory, LoRA, frozen tensors and NF4, beside what PyTorch 2.15 itself did under fake tensors
 * (tests/golden/tune/record_host.py), and by sums that can be redone. */
#include "tests/model/plans.h"

#include "model/arch/training.h"
#include "model/lower/common/pinned.h"
#include "model/memory/evaluate.h"
#include "model/plan/attention.h"
#include "tests/model/recorded_steps.h"

#define FSDP2 "tests/golden/tune/fsdp2_host.jsonl"
#define FSDP1 "tests/golden/tune/fsdp1_host.jsonl"

/* Layers of bitsandbytes keep tensors by themselves until their graph goes.  The tracker's hooks keep every graph of a step, which go with the
 * losses where nothing tracks: of each micro-step as much is there after the step, of the earlier ones at its peak as well. */
static int64_t left_by_tracker(const struct step *s)
{
    int64_t steps = s->plan.accumulation;

    return (recorded(s, "after", "Activation") + recorded(s, "after", "Temp")) / steps * (steps - 1);
}

/* As device_agrees(), but for that and for what an attention kernel takes within its call, which no tracker sees. */
static void check_device(const struct step *s)
{
    int64_t want = json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak_total"));
    int64_t over = s->ledger.phase[SCHED_STEADY].bytes - (want - left_by_tracker(s));

    if (s->plan.model.training.base == BASE_PLAIN)
        device_agrees(s);
    else if (!(over > 0 && over <= attention_scratch(&s->plan)) && fabs((double)over) > 1e-4 * (double)want)
        fail_msg("%s: %lld bytes above the tracker's peak", s->name, (long long)over);
    assert_int_equal(s->ledger.persistent[CAT_GRADS], 0);
    assert_int_equal(s->ledger.persistent[CAT_OPTIMIZER], 0);
}

static void the_devices_peak_agrees(void **state)
{
    (void)state;
    assert_true(each_line(FSDP2, check_device) >= 23);
    assert_true(each_line(FSDP1, check_device) >= 8);
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

/* DeepSpeed's stage 3 with everything in host memory, by hand: a frozen tensor's slice of 2 q bytes is a pinned block by itself; what trains, Q
 * elements of a rank, has one block of slices, one of gradients, one of fp32 gradients, and 12 Q pageable bytes of masters and moments. */
static void frozen_slices(int64_t ranks)
{
    json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:{s:i, s:s}, s:{s:{s:s}, s:{s:s}}}", "dpx_plan", 1, "model", "gpt2", "cluster",
                          ranks == 1 ? "1xh100" : "2xh100", "strategy", "zero3", "dialect", "deepspeed", "seq", 128, "precision", "bf16", "train", "lora", "lora", "rank", 8,
                          "target_modules", "all-linear", "deepspeed", "offload_optimizer", "device", "cpu", "offload_param", "device", "cpu");
    int64_t frozen = 0, trained = 0, up = 0;
    struct schedules s = { .nnotes = 0 };
    struct ledger pinned, host;
    struct plan p;

    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    lowered(&p, 0, &s);
    for (int t = 0; t < p.model.ntensors; t++) {
        int64_t q = (p.model.tensors[t].numel + ranks - 1) / ranks;
        frozen += p.model.tensors[t].frozen ? pinned_bytes(2 * q) : 0;
        trained += p.model.tensors[t].frozen ? 0 : q;
        up += 2 * q;
    }
    ledger_run_in(&s, IN(SPACE_PINNED), &pinned);
    ledger_run_in(&s, IN(SPACE_HOST), &host);
    assert_int_equal(pinned.persistent[CAT_PARAMS], frozen + pinned_bytes(2 * trained));
    assert_int_equal(pinned.persistent[CAT_GRADS], pinned_bytes(2 * trained) + pinned_bytes(4 * trained));
    assert_int_equal(host.persistent[CAT_OPTIMIZER], 12 * trained);
    assert_true(up > 20 * 2 * trained);                 /* most of what comes up is frozen */
    schedules_free(&s);
    plan_free(&p);
}

static void stage_3_keeps_frozen_slices_one_by_one(void **state)
{
    (void)state;
    frozen_slices(1);
    frozen_slices(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_peak_agrees),
        cmocka_unit_test(the_host_and_what_is_copied_agree_to_the_byte),
        cmocka_unit_test(entries_use_what_is_there),
        cmocka_unit_test(stage_3_keeps_frozen_slices_one_by_one),
    };
    return cmocka_run_group_tests_name("model/tuned offload", tests, NULL, NULL);
}
