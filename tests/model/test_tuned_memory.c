/* The memory of fine-tuning steps, LoRA and frozen tensors, held against PyTorch's own trackers: steps recorded by
 * tests/golden/tune/record_memory.py with PEFT.  As in test_torch_memory.c what persists agrees to the byte, and the peak
 * to a part in ten thousand, or is above by what an attention kernel takes within its call. */
#include "tests/model/recorded_steps.h"

#include <string.h>

#include "model/arch/training.h"
#include "model/plan/attention.h"
#include "model/schedule/units.h"

#define GOLDEN "tests/golden/tune/memory.jsonl"
#define MUON "tests/golden/tune/muon.jsonl"      /* by record_muon.py: under FSDP2 */
#define MUON_LORA "tests/golden/tune/muon_lora.jsonl"   /* of adapters alone */
#define MIXTURES "tests/golden/tune/mixtures.jsonl"     /* by record_mixtures.py: attention of mixtures of experts */
#define NARROW "tests/golden/tune/narrow.jsonl"  /* by record_narrow.py: adapters in the model's 16 bits */
#define DORA "tests/golden/tune/dora.jsonl"      /* by record_dora.py: torchtune's layers with magnitudes */
#define ENDS "tests/golden/tune/ends.jsonl"      /* by record_ends.py: adapters of the embedding and the head */
#define TARGETS "tests/golden/tune/targets.jsonl"  /* by record_targets.py: adapters of some layers, of none of q and k */
#define COPIES "tests/golden/tune/copies.jsonl"  /* by record_copies.py: copies in bf16 beside adapters in fp32, under DDP */
#define LIVE "tests/golden/tune/live.jsonl"      /* by record_live.py: int8 layers under DDP */
#define FOLLOWED 1e-4

static int steps, lora, frozen, wrong;

/* What the recording adds: PEFT's deep copy of a fake tensor, which DDP leaves as it is, is transposed by a copy in a linear layer;
 * a real one, one with storage of its own (made so by hand the recorded peak is ours), or autocast's copy by a view. */
static int64_t transposed_copy(const struct plan *p)
{
    enum dtype kept = plan_recipe(p).copies;            /* that of the products: autocast makes no copy either */
    bool copied = p->strategy == STRAT_DDP && p->precision == kept && strstr(p->train.modules_to_save, "lm_head");

    return copied ? p->model.vocab * p->model.hidden * dtype_bytes(kept) : 0;
}

static void check_peak(const struct step *s)
{
    const json_t *steady = json_object_get(s->line, "steady"), *by = json_object_get(steady, "peak_by_category");
    const struct peak *p = &s->ledger.phase[SCHED_STEADY];
    int64_t got = p->bytes, want = json_integer_value(json_object_get(steady, "peak_total"));
    want -= transposed_copy(&s->plan);
    double error = (double)(got - want) / (double)want;
    const char *key;
    json_t *value;

    steps++;
    lora += training_is_lora(&s->plan.train);
    frozen += !training_is_lora(&s->plan.train);
    if (fabs(error) <= FOLLOWED || (got > want && got - want <= attention_scratch(&s->plan)))
        return;
    print_error("%s: %lld, PyTorch counts %lld (%+.3f %%)\ntorch:", s->name, (long long)got, (long long)want, 100 * error);
    json_object_foreach((json_t *)(uintptr_t)by, key, value)
        print_error(" %s %lld", key, (long long)json_integer_value(value));
    print_error("\nhere, at %s:", s->schedules.ops[p->op].what);
    for (int c = 0; c < NCAT; c++)
        if (p->by[c])
            print_error(" %s %lld", category_name((enum category)c), (long long)p->by[c]);
    print_error("\n");
    wrong++;
}

static void peaks_agree(void **state)
{
    (void)state;
    steps = lora = frozen = wrong = 0;
    each_line(GOLDEN, check_peak);
    assert_int_equal(wrong, 0);
    assert_true(steps >= 61 && lora >= 53 && frozen >= 8);
}

static void mixtures_peaks_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(MIXTURES, check_peak) >= 87);
    assert_int_equal(wrong, 0);
}

static void peaks_with_adapters_in_16_bits_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(NARROW, check_peak) >= 33);
    assert_int_equal(wrong, 0);
}

static void peaks_with_magnitudes_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_int_equal(each_line(DORA, check_peak), 5);
    assert_int_equal(wrong, 0);
}

static void peaks_with_adapters_of_the_ends_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(ENDS, check_peak) >= 24);
    assert_int_equal(wrong, 0);
}

static void peaks_with_adapters_of_some_layers_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_int_equal(each_line(TARGETS, check_peak), 32);
    assert_int_equal(wrong, 0);
}

static void peaks_with_copies_in_16_bits_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(COPIES, check_peak) >= 9);
    assert_int_equal(wrong, 0);
}

/* Of int8 layers, which keep their inputs beside autograd until backward is over: through checkpoints, too. */
static void check_live(const struct step *s)
{
    const struct peak *p = &s->ledger.phase[SCHED_STEADY];
    int64_t want = json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak"));
    double error = (double)(p->bytes - want) / (double)want;

    steps++;
    if (fabs(error) <= FOLLOWED || (p->bytes > want && p->bytes - want <= attention_scratch(&s->plan)))
        return;
    print_error("%s: %lld at %s, PyTorch counts %lld (%+.3f %%)\n", s->name, (long long)p->bytes, s->schedules.ops[p->op].what,
                (long long)want, 100 * error);
    wrong++;
}

static void int8_layers_keep_their_inputs_through_checkpoints(void **state)
{
    (void)state;
    steps = wrong = 0;
    each_line(LIVE, check_live);
    assert_int_equal(wrong, 0);
    assert_true(steps >= 50);
}

static void same(const struct step *s, const char *what, int64_t got, int64_t want)
{
    if (got != want)
        fail_msg("%s: %s: %lld, PyTorch counts %lld", s->name, what, (long long)got, (long long)want);
}

/* What packed layers keep beside their codes is tracked with the inputs, two tensors of int64. */
static int64_t beside_codes(const struct step *s)
{
    int64_t inputs = 2 * round512(8 * s->plan.micro_batch * s->plan.seq);

    return s->plan.train.base == BASE_PLAIN ? 0
         : recorded(s, "after", s->plan.strategy == STRAT_FSDP ? "Inputs" : "Other") - inputs;
}

static void check_persistent(const struct step *s)
{
    bool fsdp = s->plan.strategy == STRAT_FSDP;

    same(s, "parameters", s->ledger.persistent[CAT_PARAMS], recorded(s, "after", fsdp ? "Sharded Param" : "Parameter") + beside_codes(s));
    same(s, "states", s->ledger.persistent[CAT_OPTIMIZER], recorded(s, "after", fsdp ? "OptState" : "Optstate"));
    if (fsdp)
        same(s, "all-gather", s->ledger.most[CAT_ALL_GATHER], recorded(s, "max_by_category", "All Gather"));
    else
        same(s, "buckets", s->ledger.persistent[CAT_BUCKET], recorded(s, "after", "Activation") + recorded(s, "after", "Temp"));
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
    each_line(GOLDEN, check_entries);
    each_line(COPIES, check_entries);
    each_line(MUON, check_entries);
    each_line(MUON_LORA, check_entries);
    each_line(MIXTURES, check_entries);
    each_line(ENDS, check_entries);
}

static void what_persists_agrees_to_the_byte(void **state)
{
    (void)state;
    each_line(GOLDEN, check_persistent);
    each_line(COPIES, check_persistent);
    each_line(MUON, check_persistent);
    each_line(MUON_LORA, check_persistent);
    each_line(MIXTURES, check_persistent);
    each_line(ENDS, check_persistent);
}

static void muon_peaks_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(MUON, check_peak) >= 16);
    assert_true(each_line(MUON_LORA, check_peak) >= 8);
    assert_int_equal(wrong, 0);
}

/* What the step of an optimizer takes beside its states, which is seldom the peak of a whole step. */
static void check_moment(const struct step *s)
{
    const char *states = s->plan.strategy == STRAT_FSDP ? "OptState" : "Optstate";
    int64_t want = recorded(s, "max_by_category", states) - recorded(s, "after", states), got = 0;

    for (int i = 0; i < s->schedules.nbufs; i++)
        if (!strcmp(s->schedules.bufs[i].what, "AdamW's temporaries"))
            got = s->schedules.bufs[i].bytes;
    same(s, "the optimizer's temporaries", got, want);
}

static void muon_takes_what_it_takes_for_the_moment(void **state)
{
    (void)state;
    each_line(MUON, check_moment);
    each_line(MUON_LORA, check_moment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_agree),
        cmocka_unit_test(mixtures_peaks_agree),
        cmocka_unit_test(peaks_with_adapters_in_16_bits_agree),
        cmocka_unit_test(peaks_with_magnitudes_agree), cmocka_unit_test(peaks_with_adapters_of_the_ends_agree),
        cmocka_unit_test(peaks_with_adapters_of_some_layers_agree),
        cmocka_unit_test(peaks_with_copies_in_16_bits_agree),
        cmocka_unit_test(int8_layers_keep_their_inputs_through_checkpoints),
        cmocka_unit_test(entries_use_what_is_there),
        cmocka_unit_test(what_persists_agrees_to_the_byte),
        cmocka_unit_test(muon_peaks_agree),
        cmocka_unit_test(muon_takes_what_it_takes_for_the_moment),
    };
    return cmocka_run_group_tests_name("model/tuned memory", tests, NULL, NULL);
}
