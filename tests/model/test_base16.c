/* FSDP whose frozen weights stay in 16 bits beside adapters in fp32 (fsdp.model_dtype with train "lora"), as accelerate prepares them: memory
 * that was recorded by tests/golden/tune/record_base16.py, dtypes by record_dtypes.py, sums that can be redone, and what is refused.
 * The lists of collectives are in test_collectives.c. */
#include "tests/model/plans.h"

#include "base/fail.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/memory/evaluate.h"
#include "model/plan/attention.h"
#include "tests/model/recorded_steps.h"

#define DEVICE "tests/golden/tune/base16.jsonl"
#define HOST "tests/golden/tune/base16_host.jsonl"
#define DTYPES "tests/golden/tune/dtypes.jsonl"

/* ---- what PyTorch counted ---- */

static int wrong;

static void report(const struct step *s, const char *what, int64_t got, int64_t want)
{
    print_error("%s: %s: %lld, PyTorch counts %lld (%+.3f %%)\n", s->name, what, (long long)got, (long long)want,
                100 * (double)(got - want) / (double)want);
    wrong++;
}

/* A part in ten thousand, or above by what an attention kernel takes within its call, which no tracker sees. */
static void check_peak(const struct step *s)
{
    int64_t got = s->ledger.phase[SCHED_STEADY].bytes, want = json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak_total"));

    if (fabs((double)(got - want)) > fmax(1e-4 * (double)want, 8192) && !(got > want && got - want <= attention_scratch(&s->plan)))
        report(s, "peak", got, want);
}

/* FSDP2's tracker names what persists; what packed layers have beside their codes it counts with the inputs, two tensors of int64. */
static void check_persistent(const struct step *s)
{
    int64_t beside = s->plan.train.base == BASE_PLAIN ? 0 : recorded(s, "after", "Inputs") - 2 * round512(8 * s->plan.micro_batch * s->plan.seq);

    if (s->plan.dialect != DIALECT_TORCH)
        return;
    agrees(s, "parameters", s->ledger.persistent[CAT_PARAMS], recorded(s, "after", "Sharded Param") + beside);
    agrees(s, "states", s->ledger.persistent[CAT_OPTIMIZER], recorded(s, "after", "OptState"));
    agrees(s, "all-gather", s->ledger.most[CAT_ALL_GATHER], recorded(s, "max_by_category", "All Gather"));
}

static void check_entries(const struct step *s)
{
    char why[256];

    if (!schedules_check(&s->schedules, why, sizeof why))
        fail_msg("%s: %s", s->name, why);
}

static void check_device(const struct step *s)
{
    check_peak(s);
    check_persistent(s);
    check_entries(s);
}

static void the_devices_memory_agrees(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(DEVICE, check_device) >= 43);
    assert_true(each_line("tests/golden/tune/base16_mixtures.jsonl", check_device) >= 16);      /* FSDP1 beside whole experts */
    assert_int_equal(wrong, 0);
}

static void check_host(const struct step *s)
{
    static const struct { const char *word; enum space space; } memory[] = { { "pinned", SPACE_PINNED }, { "pageable", SPACE_HOST } };
    bool fsdp1 = s->plan.dialect == DIALECT_TORCH_FSDP1;

    check_peak(s);
    check_entries(s);
    for (int i = 0; i < 2; i++) {
        struct ledger l;
        ledger_run_in(&s->schedules, IN(memory[i].space), &l);
        if (fsdp1)                      /* which pins, in its first step */
            agrees(s, memory[i].word, l.phase[SCHED_INIT].bytes, on_host(s, "first", memory[i].word));
        if (s->plan.fsdp.use_orig_params && memory[i].space == SPACE_HOST)      /* zeros for the moment: test_tuned_offload.c */
            assert_true(l.phase[SCHED_STEADY].bytes <= on_host(s, "most", memory[i].word));
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
    wrong = 0;
    assert_true(each_line(HOST, check_host) >= 21);
    assert_true(each_line("tests/golden/tune/base16_mixtures_host.jsonl", check_host) >= 8);
    assert_int_equal(wrong, 0);
}

/* ---- what accelerate does ---- */

/* PEFT's adapters on all linear layers of Llama-2-7B, on two cards; `more` of a plan's "fsdp". */
static json_t *adapted(const char *model, const char *cluster, bool fsdp1, const char *base, json_t *more)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:{s:i, s:s}, s:o}", "dpx_plan", 1, "model", model, "cluster", cluster,
                     "strategy", "fsdp", "dialect", fsdp1 ? "torch-fsdp1" : "torch", "kernels", "torch-sdpa", "seq", 2048, "precision", "bf16",
                     "recompute", "full", "train", "lora", "base_dtype", base, "lora", "rank", 16, "target_modules", "all-linear", "fsdp", more);
}

static int read_plan(json_t *j, struct plan *p)
{
    int rc = plan_from_json(j, "plan", p);

    json_decref(j);
    return rc;
}

static bool says(const json_t *row, const char *key, const char *dtype)
{
    return !strcmp(json_string_value(json_array_get(json_object_get(row, key), 0)), dtype);
}

static const char *torch_name(enum dtype t) { return t == DT_FP32 ? "float32" : "bfloat16"; }

/* Adapters in their block's unit, in 16 bits with it, are made fp32 with all of their unit: the plan without model_dtype, whose root accelerate
 * leaves in 16 bits. */
static bool is_planned(const json_t *row) { return !(json_is_false(json_object_get(row, "apart")) && json_is_false(json_object_get(row, "cast"))); }

static void check_prepared(const json_t *row)
{
    bool fsdp1 = json_integer_value(json_object_get(row, "fsdp")) == 1, apart = json_is_true(json_object_get(row, "apart"));
    bool packed = !strcmp(json_string_value(json_object_get(row, "base")), "nf4"), cast = json_is_true(json_object_get(row, "cast"));
    json_t *more = fsdp1 ? json_pack("{s:s, s:b, s:b}", "model_dtype", "bf16", "use_orig_params", !apart, "wrap_adapters", apart)
                         : json_pack("{s:s}", "model_dtype", "bf16");
    json_t *j = adapted("llama-2-7b", "2xa100-80gb", fsdp1, packed ? "nf4" : "plain", more);
    char why[512] = "";
    struct plan p;

    if (packed && !fsdp1)
        json_object_set_new(json_object_get(j, "lora"), "autocast_adapter_dtype", json_boolean(cast));
    fail_capture(why, sizeof why);
    int rc = read_plan(j, &p);
    fail_capture(NULL, 0);
    if (json_object_get(row, "fails")) {
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, "wrap_adapters"));
        return;
    }
    assert_int_equal(rc, 0);
    struct recipe r = plan_recipe(&p);
    assert_true(says(row, "trains", torch_name(r.kept)));
    assert_true(says(row, "frozen", torch_name(r.frozen)));
    plan_free(&p);
}

/* accelerate 1.15 as plans say it; until 1.12 FSDP2 had all of it in fp32, which is a plan without model_dtype. */
static void plans_keep_weights_as_accelerate_does(void **state)
{
    char text[1024];
    FILE *f = fopen(DTYPES, "r");
    int newest = 0, older = 0;

    (void)state;
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) {
        json_t *row = json_loads(text, 0, NULL);
        const char *version = json_string_value(json_object_get(row, "accelerate"));
        bool two = json_integer_value(json_object_get(row, "fsdp")) == 2;
        if (!strcmp(version, "1.15.0") && is_planned(row)) {
            check_prepared(row);
            newest++;
        } else if (two && (!strcmp(version, "1.10.1") || !strcmp(version, "1.12.0"))) {
            assert_true(says(row, "trains", "float32") && says(row, "frozen", "float32"));
            older++;
        } else if (two && !strcmp(version, "1.13.0")) {
            assert_true(says(row, "frozen", "bfloat16"));
        }
        json_decref(row);
    }
    fclose(f);
    assert_int_equal(newest, 10);
    assert_int_equal(older, 8);
}

/* What a plan means that does not say how its frozen weights are kept, under DDP and FSDP2: in bf16 beside adapters of PyTorch's kernels, as trainers
 * load a model; null and "fp32" are fp32.  Of n weights that are frozen and t that train DDP keeps 2 n + 4 t or 4 (n + t) bytes, padding aside. */
static void frozen_weights_are_kept_alike_under_ddp_and_fsdp(void **state)
{
    static const struct { const char *precision, *kernels, *dtype; bool half; } cases[] = {
        { "bf16", "torch-sdpa", NULL, true }, { "bf16", "torch-eager", NULL, true }, { "bf16", "dpx", NULL, false },
        { "fp32", "torch-sdpa", NULL, false }, { "bf16", "torch-sdpa", "fp32", false }, { "bf16", "torch-sdpa", "null", false },
        { "bf16", "torch-sdpa", "bf16", true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int fsdp = 0; fsdp < 2; fsdp++) {
            json_t *j = json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-2-7b", "cluster", "2xa100-80gb",
                                  "strategy", fsdp ? "fsdp" : "ddp", "dialect", "torch", "seq", 512, "micro_batch", 1,
                                  "precision", cases[i].precision, "kernels", cases[i].kernels, "train", "lora");
            struct plan p;
            struct evaluation e;
            if (cases[i].dtype)
                json_object_set_new(j, fsdp ? "fsdp" : "ddp", json_pack("{s:o}", "model_dtype", !strcmp(cases[i].dtype, "null")
                                                                         ? json_null() : json_string(cases[i].dtype)));
            assert_int_equal(read_plan(j, &p), 0);
            assert_int_equal(fsdp ? p.fsdp.model_dtype : p.ddp.model_dtype, cases[i].half ? DT_BF16 : -1);
            assert_int_equal(plan_recipe(&p).frozen, cases[i].half ? DT_BF16 : DT_FP32);
            if (!fsdp) {
                assert_int_equal(evaluate(&p, &e), 0);
                assert_close((double)e.m.ledger.persistent[CAT_PARAMS],
                             (double)(p.model.params - p.model.trainable) * (cases[i].half ? 2 : 4) + (double)p.model.trainable * 4, 1e-4);
                evaluation_free(&e);
            }
            plan_free(&p);
        }
}

/* ---- what is known to fit ---- */

/* Llama-3.1-70B on four A100 of 80 GB, which holds it (huggingface/accelerate#3844 and after): a rank has a quarter of 70.6e9 frozen weights of 2
 * bytes, 35.3e9, and of 207e6 of adapters 12 bytes, 0.6e9.  In fp32 it would be 70.8e9, which does not fit. */
static void lora_of_70b_fits_on_four_cards_of_80_gb(void **state)
{
    (void)state;
    for (int fsdp1 = 0; fsdp1 < 2; fsdp1++)
        for (int half = 0; half < 2; half++) {
            json_t *more = json_pack("{s:s}", "model_dtype", half ? "bf16" : "fp32");
            struct evaluation e;
            struct plan p;
            if (fsdp1)
                json_object_update(more, json_pack("{s:b, s:b}", "use_orig_params", !half, "wrap_adapters", half));
            assert_int_equal(read_plan(adapted("llama-3.1-70b", "4xa100-80gb", fsdp1, "plain", more), &p), 0);
            double frozen = (double)(p.model.params - p.model.trainable), trained = (double)p.model.trainable;
            assert_int_equal(evaluate(&p, &e), 0);
            assert_close((double)e.m.ledger.persistent[CAT_PARAMS], (frozen * (half ? 2 : 4) + trained * 4) / 4, 1e-4);
            if (half || !fsdp1)         /* with use_orig_params ranks have unequal parts */
                assert_close((double)e.m.ledger.persistent[CAT_OPTIMIZER], trained * 8 / 4, 0.01);
            assert_true(e.m.fits == (half == 1));
            evaluation_free(&e);
            plan_free(&p);
        }
}

/* fms-acceleration, benchmarks/refs/a100_80gb.csv, rows 13 and 15: Mistral-7B, LoRA of rank 16 of attention, FSDP1 on two A100, 4096 tokens:
 * 15.12e9 and 21.43e9 bytes allocated at most with 2 and 4 samples.  transformers of that time made logits of 16 bytes, 13 today: 3 x 32000 bytes of
 * each of their 8192 and 16384 tokens.  What is left, 0.5e9, is as much as the root's unit, whose copy lay there after a step as well. */
static void mistral_takes_what_fms_acceleration_measured(void **state)
{
    static const double measured[] = { 15.12e9, 21.43e9 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        int batch = 2 << i;
        json_t *j = adapted("mistral-7b", "2xa100-80gb", true, "plain",
                            json_pack("{s:s, s:b, s:b}", "model_dtype", "bf16", "use_orig_params", 0, "wrap_adapters", 1));
        struct evaluation e;
        struct plan p;
        json_object_set_new(j, "seq", json_integer(4096));
        json_object_set_new(j, "micro_batch", json_integer(batch));
        json_object_set_new(json_object_get(j, "lora"), "target_modules", json_pack("[s, s, s, s]", "q_proj", "k_proj", "v_proj", "o_proj"));
        assert_int_equal(read_plan(j, &p), 0);
        assert_int_equal(evaluate(&p, &e), 0);
        double got = (double)e.m.ledger.peak.bytes + 3.0 * 32000 * 4096 * batch;
        assert_true(got > 0.95 * measured[i] && got < measured[i]);
        evaluation_free(&e);
        plan_free(&p);
    }
}

/* ---- what is not planned ---- */

static void what_is_not_planned_is_refused_by_name(void **state)
{
    static const struct { bool fsdp1, wrap; const char *base, *words; } cases[] = {
        { true, false, "plain", "fsdp.model_dtype: FSDP1 flattens a unit's tensors in one dtype" },
        { true, false, "nf4", "need fsdp.wrap_adapters true" },
        { true, true, "int8", "nf4 or nf4-double" },
        { false, false, "int8", "nf4 or nf4-double" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *more = json_pack("{s:s}", "model_dtype", "bf16");
        char why[512] = "";
        struct plan p;
        if (cases[i].fsdp1)
            json_object_update(more, json_pack("{s:b, s:b}", "use_orig_params", !cases[i].wrap, "wrap_adapters", cases[i].wrap));
        fail_capture(why, sizeof why);
        assert_int_equal(read_plan(adapted("llama-2-7b", "2xa100-80gb", cases[i].fsdp1, cases[i].base, more), &p), -1);
        fail_capture(NULL, 0);
        if (!strstr(why, cases[i].words))
            fail_msg("no \"%s\" in: %s", cases[i].words, why);
    }
}

/* Of mixtures of experts linear layers are adapted, beside whole experts. */
static void mixtures_have_adapters_of_linear_layers(void **state)
{
    static const struct { bool fsdp1; const char *base, *targets; int64_t expert; const char *words; } cases[] = {
        { false, "plain", "w1", 1, "without also targeting w3" },
        { true, "plain", "all-linear", 1, "experts' weights" },
        { false, "plain", "all-linear", 1, NULL },
        { false, "plain", "q_proj", 2, NULL },
        { false, "plain", "all-linear", 2, "parallel.expert" },
        { false, "nf4", "q_proj", 1, NULL },
        { true, "plain", "q_proj", 1, NULL },
        { false, "plain", "q_proj", 1, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *j = adapted("mixtral-8x7b", "8xa100-80gb", cases[i].fsdp1, cases[i].base, json_object());
        char why[512] = "";
        struct plan p;
        json_object_set_new(json_object_get(j, "lora"), "target_modules", !strcmp(cases[i].targets, "all-linear")
                            ? json_string("all-linear") : json_pack("[s]", cases[i].targets));
        if (cases[i].expert > 1)
            json_object_set_new(j, "parallel", json_pack("{s:I}", "expert", (json_int_t)cases[i].expert));
        fail_capture(why, sizeof why);
        int rc = read_plan(j, &p);
        fail_capture(NULL, 0);
        assert_int_equal(rc, cases[i].words ? -1 : 0);
        if (cases[i].words && !strstr(why, cases[i].words))
            fail_msg("no \"%s\" in: %s", cases[i].words, why);
        if (rc == 0)
            plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_devices_memory_agrees),
        cmocka_unit_test(the_host_and_what_is_copied_agree_to_the_byte),
        cmocka_unit_test(plans_keep_weights_as_accelerate_does),
        cmocka_unit_test(frozen_weights_are_kept_alike_under_ddp_and_fsdp),
        cmocka_unit_test(lora_of_70b_fits_on_four_cards_of_80_gb),
        cmocka_unit_test(mistral_takes_what_fms_acceleration_measured),
        cmocka_unit_test(what_is_not_planned_is_refused_by_name),
        cmocka_unit_test(mixtures_have_adapters_of_linear_layers),
    };
    return cmocka_run_group_tests_name("model/frozen weights in 16 bits", tests, NULL, NULL);
}
