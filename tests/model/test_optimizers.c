/* States of optimizers, against those that bitsandbytes, torchao and torch make (tests/golden/tune/optimizers.jsonl), and
 * where plans take them. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/lower/common/optimizer.h"
#include "model/exchange/export.h"
#include "model/lower/lower.h"
#include "model/plan/knob.h"
#include "model/schedule/ledger.h"

#define GOLDEN "tests/golden/tune/optimizers.jsonl"

static int word_of(const char *name)
{
    const char *const *words = knob_words("optimizer");

    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], name))
            return i;
    fail_msg("no optimizer \"%s\"", name);
    return -1;
}

static void states_are_those_that_the_packages_make(void **state)
{
    FILE *f = fopen(GOLDEN, "r");
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *c;
    int cases = 0, of[NOPTIMIZER] = { 0 };

    (void)state;
    assert_non_null(json_object_get(head, "bitsandbytes"));
    for (; (c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); cases++) {
        const char *name = json_string_value(json_object_get(c, "optimizer"));
        const json_t *shape = json_object_get(c, "shape"), *want = json_object_get(c, "bytes");
        struct plan p = { .dialect = DIALECT_TORCH, .strategy = STRAT_DDP, .optimizer = (enum optimizer)word_of(name) };
        struct tensor t = { .ndim = (int)json_array_size(shape), .shape = { 1, 1 }, .role = ROLE_UP };
        int64_t bytes[OPTIMIZER_PARTS];
        for (int d = 0; d < t.ndim; d++)
            t.shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
        t.numel = t.shape[0] * t.shape[1];
        p.precision = DT_BF16;
        p.ddp.model_dtype = json_object_get(c, "kept") ? DT_BF16 : -1;
        p.fsdp.model_dtype = -1;
        assert_int_equal(optimizer_states(&p, &t, t.shape[0], bytes), json_array_size(want));
        for (size_t i = 0; i < json_array_size(want); i++)
            if (bytes[i] != json_integer_value(json_array_get(want, i)))
                fail_msg("%s of %lld x %lld: state %zu has %lld bytes, there %lld", name, (long long)t.shape[0], (long long)t.shape[1],
                         i, (long long)bytes[i], (long long)json_integer_value(json_array_get(want, i)));
        of[p.optimizer]++;
        json_decref(c);
    }
    for (int i = 0; i < OPTIMIZER_PAGED_ADAMW; i++)     /* paged ones are the same, elsewhere */
        assert_true(of[i] >= 20);
    assert_true(of[OPTIMIZER_SOAP] >= 20);
    json_decref(head);
    fclose(f);
}

/* tests/golden/tune/steps.jsonl: what PyTorch's default form holds at the fullest moment of a step. */
static void a_step_takes_what_pytorch_takes(void **state)
{
    FILE *f = fopen("tests/golden/tune/steps.jsonl", "r");
    json_t *head = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *c;
    int cases = 0;

    (void)state;
    assert_non_null(json_object_get(head, "torch"));
    for (; (c = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); cases++) {
        const json_t *shapes = json_object_get(c, "shapes");
        struct plan p = { .dialect = DIALECT_TORCH, .strategy = STRAT_DDP };
        struct tensor t[16] = { 0 };
        int64_t bytes[OPTIMIZER_MOMENT_PARTS], sum = 0;
        p.optimizer = (enum optimizer)word_of(json_string_value(json_object_get(c, "optimizer")));
        p.ddp.model_dtype = -1;
        p.model.tensors = t;
        p.model.ntensors = (int)json_array_size(shapes);
        assert_true(p.model.ntensors <= 16);
        for (int i = 0; i < p.model.ntensors; i++) {
            const json_t *shape = json_array_get(shapes, (size_t)i);
            t[i].ndim = (int)json_array_size(shape);
            t[i].shape[0] = json_integer_value(json_array_get(shape, 0));
            t[i].shape[1] = t[i].ndim > 1 ? json_integer_value(json_array_get(shape, 1)) : 1;
            t[i].numel = t[i].shape[0] * t[i].shape[1];
        }
        for (int i = optimizer_moment(&p, bytes) - 1; i >= 0; i--)
            sum += bytes[i];
        int64_t list = 0;           /* of AdamW, whose step is another one */
        for (int i = 0; i < p.model.ntensors; i++)
            list += optimizer_beside_muon(&p, &t[i]);
        sum = sum > list ? sum : list;
        assert_int_equal(sum, json_integer_value(json_object_get(c, "bytes")));
        json_decref(c);
    }
    assert_true(cases >= 12);
    json_decref(head);
    fclose(f);
}

static json_t *plan_of(const char *strategy, const char *optimizer)
{
    return json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", "llama-3.1-8b", "cluster", "8xh100", "seq", 512,
                     "strategy", strategy, "dialect", "torch", "optimizer", optimizer);
}

/* `bf16`: the object whose "model_dtype" says so; NULL: fp32. */
static int64_t states_in(const char *strategy, const char *optimizer, const char *bf16)
{
    json_t *j = plan_of(strategy, optimizer);
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;

    if (bf16) {
        json_object_set_new(j, "precision", json_string("bf16"));
        json_object_set_new(j, bf16, json_pack("{s:s}", "model_dtype", "bf16"));
    }
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    schedules_free(&s);
    plan_free(&p);
    return l.persistent[CAT_OPTIMIZER];
}

static int64_t states_of(const char *strategy, const char *optimizer) { return states_in(strategy, optimizer, NULL); }

/* Llama-3.1-8B: 8,030,261,248 parameters, of which 65 norms of 4,096 and an embedding of 525,336,576; all sizes are
 * multiples of 512 bytes but for single numbers. */
static void plans_hold_what_tensors_need(void **state)
{
    const int64_t n = 8030261248, embedding = 525336576, tables = 2048;

    (void)state;
    assert_int_equal(states_of("ddp", "adamw"), 8 * n);
    assert_int_equal(states_of("ddp", "sgd"), 4 * n);
    assert_int_equal(states_of("ddp", "lion_32bit"), 4 * n);
    /* 2 (1 + 4/256) bytes each, 8 of the embedding; a norm's 16 blocks take 64 bytes, an allocation 512 */
    assert_int_equal(states_of("ddp", "adamw_bnb_8bit"), (n - embedding) / 32 * 65 + 8 * embedding + 65 * 2 * (512 - 64) + tables);
    assert_int_equal(states_of("ddp", "lion_8bit"), (n - embedding) / 64 * 65 + 4 * embedding + 65 * (512 - 64) + tables);
    /* 2 (1 + 4/256) bytes and two tables of 1,024 for each of the 291 tensors */
    assert_int_equal(states_of("ddp", "adamw_torch_8bit"), n / 32 * 65 + 65 * 2 * (512 - 64) + 291 * 2 * 1024);
    /* A rank's eighth; a norm's 512 elements stay in fp32 */
    assert_int_equal(states_of("fsdp", "sgd"), 4 * n / 8);
    assert_int_equal(states_of("fsdp", "adamw_torch_8bit"), (n - 65 * 4096) / 8 / 32 * 65 + 65 * 512 * 8 + 226 * 2 * 1024);
    /* In bf16 with the parameters: 4 bytes each, no master; 8 bits stay 8 bits, what is too small is in bf16 */
    assert_int_equal(states_in("ddp", "adamw_stochastic_bf16", "ddp"), 4 * n);
    assert_int_equal(states_in("fsdp", "adamw_stochastic_bf16", "fsdp"), 4 * n / 8);
    assert_int_equal(states_in("fsdp", "adamw_torch_8bit", "fsdp"), (n - 65 * 4096) / 8 / 32 * 65 + 65 * 512 * 4 + 226 * 2 * 1024);
}

static int64_t in_512(int64_t bytes) { return (bytes + 511) / 512 * 512; }

/* DeepSpeed steps a rank's eighth of all in fp32, one tensor: master weights, codes, a scale a block and two tables. */
static void partitions_of_deepspeed_have_codes(void **state)
{
    static const struct { const char *optimizer; int64_t bits, block, table; } of[] = { { "adamw_torch_8bit", 8, 256, 1024 }, { "adamw_torch_4bit", 4, 128, 512 } };
    const int64_t part = 8030261248 / 8;
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;
    char why[512];

    (void)state;
    for (int i = 0; i < 2; i++) {
        json_t *j = plan_of("zero2", of[i].optimizer);
        json_object_set_new(j, "dialect", json_string("deepspeed"));
        json_object_set_new(j, "precision", json_string("bf16"));
        assert_int_equal(plan_from_json(j, "plan", &p), 0);
        assert_int_equal(lower(&p, 0, &s), 0);
        ledger_run(&s, &l);
        assert_int_equal(l.persistent[CAT_OPTIMIZER], 4 * part + 2 * (in_512(part * of[i].bits / 8) + in_512(4 * part / of[i].block) + of[i].table));
        plan_free(&p);
        json_object_set_new(j, "deepspeed", json_pack("{s:{s:s}}", "offload_optimizer", "device", "cpu"));
        fail_capture(why, sizeof why);
        assert_int_equal(plan_from_json(j, "plan", &p), -1);
        fail_capture(NULL, 0);
        assert_non_null(strstr(why, "DeepSpeedCPUAdam"));
        json_decref(j);
    }
    schedules_free(&s);
}

static void what_a_strategy_cannot_shard_is_refused(void **state)
{
    static const char *const not_of_fsdp2[] = { "adafactor", "adamw_bnb_8bit", "lion_32bit", "lion_8bit" };
    char why[512];
    struct plan p;

    (void)state;
    for (int i = 0; i < 4; i++) {
        json_t *j = json_pack("{s:i, s:s, s:s, s:i, s:s, s:s}", "dpx_plan", 1, "model", "gpt2", "cluster", "8xh100", "seq", 512,
                              "strategy", "fsdp", "optimizer", not_of_fsdp2[i]);
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "plan", &p);
        fail_capture(NULL, 0);
        json_decref(j);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, "optimizer: "));
        assert_non_null(strstr(why, not_of_fsdp2[i]));
    }
}

static void rounding_by_chance_needs_parameters_in_bf16(void **state)
{
    static const char *const strategies[] = { "ddp", "fsdp" };
    char why[512];
    struct plan p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        json_t *j = plan_of(strategies[i], "adamw_stochastic_bf16");
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "plan", &p);
        fail_capture(NULL, 0);
        json_decref(j);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(why, "model_dtype to bf16"));
        assert_non_null(strstr(why, strategies[i]));
    }
}

/* ---- beside weights in bf16 ---- */

/* Of 4096 x 14336 numbers, and of 33.  flashoptim: a byte for each moment and for error bits (two where master weights have 32), and 2 of a scale for each 32 or part of it.
 * Transformer Engine: moments of 4 bytes, or of 2 with a scale of 4 for each, and 2 of the master weight's low half. */
static void others_keep_part_of_the_master_weights(void **state)
{
    static const struct { enum optimizer o; int64_t rows, columns, bytes[OPTIMIZER_PARTS]; } row[] = {
        { OPTIMIZER_FLASH_ADAMW, 4096, 14336, { 58720256, 3670016, 58720256, 3670016, 58720256 } },
        { OPTIMIZER_FLASH_ADAMW, 1, 33, { 33, 4, 33, 4, 33 } },
        { OPTIMIZER_FLASH_ADAMW32, 1, 33, { 33, 4, 33, 4, 66 } },
        { OPTIMIZER_TE_ADAMW, 4096, 14336, { 234881024, 234881024, 117440512 } },
        { OPTIMIZER_TE_ADAMW16, 1, 33, { 66, 66, 66, 4, 4 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct plan p = { .dialect = DIALECT_TORCH, .strategy = STRAT_FSDP, .optimizer = row[i].o, .precision = DT_BF16, .fsdp = { .model_dtype = DT_BF16 } };
        struct tensor t = { .ndim = 2, .shape = { row[i].rows, row[i].columns }, .numel = row[i].rows * row[i].columns, .role = ROLE_UP };
        int64_t bytes[OPTIMIZER_PARTS] = { 0 };
        optimizer_states(&p, &t, t.shape[0], bytes);
        for (int k = 0; k < OPTIMIZER_PARTS; k++)
            assert_int_equal(bytes[k], row[i].bytes[k]);
    }
}

/* A shard of an eighth: 2 + 1 bytes of the weights and 2 of the codes, and 1/8 of scales; in bf16. */
static void a_step_has_them_of_each_shard(void **state)
{
    int64_t params = 8030261248;

    (void)state;
    assert_close((double)states_in("fsdp", "flash_adamw", "fsdp"), (double)params / 8 * 3.125, 1e-4);
    assert_close((double)states_in("fsdp", "flash_adamw_32bit", "fsdp"), (double)params / 8 * 4.125, 1e-4);
    assert_close((double)states_in("fsdp", "te_adamw", "fsdp"), (double)params / 8 * 10, 1e-4);
    assert_close((double)states_in("fsdp", "te_adamw_bf16", "fsdp"), (double)params / 8 * 6, 1e-4);
}

/* ---- SOAP ---- */

static json_t *soap(const char *model, const char *strategy)
{
    return json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", model, "cluster", "8xh100", "seq", 64, "strategy",
                     strategy, "dialect", "torch", "optimizer", "soap");
}

/* Vectors have AdamW's moments alone.  GPT-2's blocks have matrices of 768 x 2304, 768 x 768, 768 x 3072 and 3072 x 768, all of
 * whose sides have a preconditioner and an eigenbasis.  The tables of 50257 x 768 and 1024 x 768: one side, and two. */
static void soap_keeps_four_squares_of_a_matrix(void **state)
{
    const int64_t a = 768 * 768, q = 2304 * 2304, f = 3072 * 3072, context = 1024 * 1024;
    const int64_t squares = 12 * (2 * (a + q) + 2 * (a + a) + 2 * (a + f) + 2 * (f + a)) + 2 * a + 2 * (context + a);

    (void)state;
    json_t *j = soap("gpt2", "ddp");
    struct schedules s = { 0 };
    struct ledger l;
    struct plan p;
    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(lower(&p, 0, &s), 0);
    ledger_run(&s, &l);
    assert_int_equal(l.persistent[CAT_OPTIMIZER], 8 * p.model.params + 4 * squares);
    schedules_free(&s);
    plan_free(&p);
}

static void soap_is_refused_where_it_fails_or_is_not_known(void **state)
{
    static const struct { const char *strategy, *key, *value, *says; } cases[] = {
        { "fsdp", "unit", "\"block\"", "mixed torch.Tensor and DTensor" },
        { "ddp", "parallel", "{\"tensor\": 2}", "other ranks have a part" },
        { "ddp", "kernels", "\"dpx\"", "not soap" },
        { "ddp", "optimizer_form", "\"fused\"", "one form" },
    };
    char why[512];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *j = soap("llama-3.1-8b", cases[i].strategy);
        json_object_set_new(j, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "plan", &p);
        fail_capture(NULL, 0);
        json_decref(j);
        if (rc == 0 || !strstr(why, cases[i].says))
            fail_msg("%s %s: %s", cases[i].key, cases[i].value, rc == 0 ? "is taken" : why);
    }
}

/* ---- Muon of what FSDP2 shards ---- */

static json_t *muon(const char *model, const char *cluster)
{
    return json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:s}", "dpx_plan", 1, "model", model, "cluster", cluster, "seq", 64,
                     "strategy", "fsdp", "dialect", "torch", "optimizer", "muon");
}

static int add_flops(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    (void)s;
    (void)iteration;
    if (o->kind == OP_OPTIMIZER)
        *(double *)arg += o->u.optimizer.flops;
    return 0;
}

static double flops_of(const char *cluster)
{
    json_t *j = muon("gpt2", cluster);
    struct schedules s = { 0 };
    struct plan p;
    double flops = 0;

    assert_int_equal(plan_from_json(j, "plan", &p), 0);
    json_decref(j);
    assert_int_equal(lower(&p, 0, &s), 0);
    sched_walk(&s, SCHED_STEADY, add_flops, &flops);
    schedules_free(&s);
    plan_free(&p);
    return flops;
}

/* GPT-2's blocks have matrices of 768 x 2304, 768 x 768, 768 x 3072 and 3072 x 768.  On 2 GPUs DTensor gathers for the three wide ones,
 * and each rank takes half of 4 m^2 k + 2 m^3, 5 times; of the tall one the Gram matrix is a sum, and its square is each rank's whole. */
static void products_are_divided_among_ranks(void **state)
{
    const double m = 768, all = m * m * m, wide = 4 * (3 + 1 + 4) * all + 3 * 2 * all, tall = 4 * 4 * all;

    (void)state;
    assert_true(flops_of("1xh100") == 12 * 5 * (wide + tall + 2 * all));
    assert_true(flops_of("2xh100") == 12 * 5 * (wide / 2 + tall / 2 + 2 * all));
}

static void what_muon_is_not_planned_for_is_refused(void **state)
{
    static const struct { const char *cluster, *key, *value, *says; } cases[] = {
        { "2x8xh100", "shard_group", "8", "HSDP" },
        { "8xh100", "parallel", "{\"tensor\": 2}", "tensor" },
        { "8xh100", "parallel", "{\"pipeline\": 2}", "pipeline" },
        { "8xh100", "fsdp", "{\"cpu_offload\": true}", "cpu_offload" },
        { "8xh100", "framework_version", "\"2.9\"", "2.15" },
        { "8xh100", "fp8", "\"tensorwise\"", "fp8" },
        { "256x8xh100", "kernels", "\"torch-sdpa\"", "1024 rows, fewer than 2048 ranks" },
        { "8xh100", "strategy", "\"zero1\"", "ZeroRedundancyOptimizer" },
        { "8xh100", "dialect", "\"torch-fsdp1\"", "FSDP1" },
        { "8xh100", "dialect", "\"deepspeed\"", "framework_version to" },
    };
    char why[512];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *j = muon("llama-3.1-8b", cases[i].cluster);
        json_object_set_new(j, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        if (!strcmp(cases[i].value, "\"deepspeed\""))
            json_object_set_new(j, "strategy", json_string("zero2"));
        fail_capture(why, sizeof why);
        int rc = plan_from_json(j, "plan", &p);
        fail_capture(NULL, 0);
        json_decref(j);
        if (rc == 0 || !strstr(why, cases[i].says))
            fail_msg("%s %s: %s", cases[i].key, cases[i].value, rc == 0 ? "is taken" : why);
    }
}

/* transformers 5.24.0, training_args.py: OptimizerNames, of those that a plan may have. */
static bool is_of_trainer(const char *word)
{
    static const char *const names[] = {
        "adamw_torch", "adamw_torch_fused", "adafactor", "adamw_torch_4bit", "adamw_torch_8bit", "sgd", "adamw_bnb_8bit", "lion_8bit",
        "lion_32bit", "paged_adamw_32bit", "paged_adamw_8bit", "paged_lion_32bit", "paged_lion_8bit",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], word))
            return true;
    return false;
}

/* The word behind "optim: " of the export of a plan with LoRA in bf16; "": refused. */
static void exported_optimizer(const char *optimizer, char word[64])
{
    json_t *j = plan_of("ddp", optimizer);
    char line[256], why[512];
    FILE *f = tmpfile();
    struct plan p;

    word[0] = '\0';
    json_object_set_new(j, "precision", json_string("bf16"));
    json_object_set_new(j, "train", json_string("lora"));
    json_object_set_new(j, "ddp", json_pack("{s:s}", "model_dtype", "bf16"));
    fail_capture(why, sizeof why);
    if (plan_from_json(j, "plan", &p) == 0) {
        if (export_plan(&p, "llamafactory", f) == 0) {
            rewind(f);
            while (fgets(line, sizeof line, f))
                sscanf(line, "optim: %63s", word);
        }
        plan_free(&p);
    }
    fail_capture(NULL, 0);
    json_decref(j);
    fclose(f);
}

static void exports_name_optimizers_that_the_trainer_has(void **state)
{
    const char *const *words = knob_words("optimizer");
    int named = 0;

    (void)state;
    for (int i = 0; words[i]; i++) {
        char word[64];
        exported_optimizer(words[i], word);
        if (word[0] && !is_of_trainer(word))
            fail_msg("%s is exported as \"optim: %s\"", words[i], word);
        named += word[0] != '\0';
    }
    assert_true(named >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_those_that_the_packages_make),
        cmocka_unit_test(a_step_takes_what_pytorch_takes),
        cmocka_unit_test(plans_hold_what_tensors_need), cmocka_unit_test(partitions_of_deepspeed_have_codes),
        cmocka_unit_test(what_a_strategy_cannot_shard_is_refused),
        cmocka_unit_test(rounding_by_chance_needs_parameters_in_bf16),
        cmocka_unit_test(others_keep_part_of_the_master_weights),
        cmocka_unit_test(a_step_has_them_of_each_shard),
        cmocka_unit_test(soap_keeps_four_squares_of_a_matrix),
        cmocka_unit_test(soap_is_refused_where_it_fails_or_is_not_known),
        cmocka_unit_test(exports_name_optimizers_that_the_trainer_has),
        cmocka_unit_test(products_are_divided_among_ranks),
        cmocka_unit_test(what_muon_is_not_planned_for_is_refused),
    };
    return cmocka_run_group_tests_name("model/optimizers", tests, NULL, NULL);
}
