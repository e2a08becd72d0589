/* The number format of a step, by whoever says it: the Trainer's bf16 and fp16, DeepSpeed's file as accelerate completes it, accelerate's own config, the
 * checkpoint.  What DeepSpeed's sections become was recorded with transformers 5.24 and accelerate 1.15: HfTrainerDeepSpeedConfig.trainer_config_process()
 * of these flags, then DeepSpeedPlugin.set_mixed_precision(). */
#include "tests/model/recipes.h"

#include <stdio.h>

static int read_launched(const char *text, const char *launch, struct plan *p, struct notes *notes, char why[1024])
{
    json_t *config = yaml_read(text, strlen(text), "recipe.yml"), *by = launch ? yaml_read(launch, strlen(launch), "accelerate.yaml") : NULL;

    assert_non_null(config);
    memset(p, 0, sizeof *p);
    assert_int_equal(model_load("qwen3-0.6b", &p->model), 0);
    assert_int_equal(cluster_load("8xh100", &p->cluster), 0);
    fail_capture(why, 1024);
    int rc = recipe_read_launched(config, "recipe.yml", by, by ? "accelerate.yaml" : NULL, p, notes);
    fail_capture(NULL, 0);
    json_decref(config);
    json_decref(by);
    return rc;
}

/* "fp32", "bf16", "fp16" is the plan's precision; else the refusal has these words. */
static void becomes(const char *text, const char *launch, const char *wanted)
{
    struct notes notes = { 0 };
    struct plan p;
    char why[1024] = "";
    int rc = read_launched(text, launch, &p, &notes, why);
    bool is = !strcmp(wanted, "fp32") || !strcmp(wanted, "bf16") || !strcmp(wanted, "fp16");

    if (is ? rc < 0 || strcmp(dtype_name(p.precision), wanted) != 0 : rc == 0 || !strstr(why, wanted))
        fail_msg("%s%s%s: wanted %s: %s", text, launch ? "--- " : "", launch ? launch : "", wanted, rc < 0 ? why : dtype_name(p.precision));
    plan_free(&p);
}

#define BASE "model_name_or_path: Qwen/Qwen3-0.6B\nper_device_train_batch_size: 1\n"
static const char *const trainers[] = {
    BASE "block_size: 512\nnum_train_epochs: 1\n", BASE "max_length: 512\n", BASE "stage: sft\ndo_train: true\nfinetuning_type: full\ncutoff_len: 512\n",
    "base_model: Qwen/Qwen3-0.6B\nmicro_batch_size: 1\nsequence_len: 512\nattn_implementation: flash_attention_2\n",
};
static const char *const flags[] = { "bf16: false\nfp16: false\n", "bf16: true\n", "bf16: false\nfp16: true\n" };
#define COUNT(list) (sizeof (list) / sizeof *(list))

/* Of each section: what becomes of it by neither flag, by bf16, by fp16. */
static void deepspeeds_file_is_completed_by_accelerate(void **state)
{
    static const char stops[] = "where the Trainer stops", both[] = "cannot both be enabled";
    static const struct { const char *sections, *wanted[3]; } rows[] = {
        { "", { "fp32", "bf16", "fp16" } },
        { ", bf16: {enabled: auto}", { "fp32", "bf16", "fp16" } },
        { ", fp16: {enabled: auto}", { "fp32", "bf16", "fp16" } },
        { ", bf16: {enabled: auto}, fp16: {enabled: auto}", { "fp32", "bf16", "fp16" } },
        { ", bf16: {enabled: false}", { "fp32", stops, "fp16" } },
        { ", fp16: {enabled: false}", { "fp32", "bf16", stops } },
        { ", bf16: {enabled: true}", { stops, "bf16", both } },
        { ", fp16: {enabled: true}", { stops, both, "fp16" } },
    };
    char text[1024];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(trainers); k++)
            for (size_t f = 0; f < COUNT(flags); f++)
                for (int stage = 1; stage <= 3; stage++) {
                    snprintf(text, sizeof text, "%s%sdeepspeed: {zero_optimization: {stage: %d}%s}\n", trainers[k], flags[f], stage, rows[i].sections);
                    becomes(text, NULL, rows[i].wanted[f]);
                }
}

/* axolotl writes ACCELERATE_MIXED_PRECISION itself (utils/trainer.py). */
static void accelerates_config_decides_where_no_flag_is_set(void **state)
{
    static const char *const mixed[] = { "no", "bf16", "fp16" }, *const words[] = { "fp32", "bf16", "fp16" };
    static const char *const kinds[] = { "MULTI_GPU", "FSDP" };
    char launch[512];

    (void)state;
    for (size_t k = 0; k < COUNT(trainers); k++)
        for (size_t f = 0; f < COUNT(flags); f++)
            for (size_t m = 0; m < COUNT(mixed); m++) {
                for (size_t t = 0; t < COUNT(kinds); t++) {
                    snprintf(launch, sizeof launch, "distributed_type: %s\nmixed_precision: '%s'\n%s", kinds[t], mixed[m],
                             t ? "fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_reshard_after_forward: true}\n" : "");
                    char text[512];
                    snprintf(text, sizeof text, "%s%s", trainers[k], flags[f]);
                    if (k == 3 && f == 2 && t == 0)             /* a model in fp16 under autocast, which has no scaler that takes it */
                        continue;
                    becomes(text, launch, words[f ? f : k == 3 ? 0 : m]);
                }
                snprintf(launch, sizeof launch, "distributed_type: DEEPSPEED\nmixed_precision: '%s'\ndeepspeed_config: {zero_stage: 2}\n", mixed[m]);
                char text[512];
                snprintf(text, sizeof text, "%s%s", trainers[k], flags[f]);
                becomes(text, launch, f ? words[f] : m && k < 3 ? "where the Trainer stops" : "fp32");
            }
}

/* LLaMA-Factory: full fine-tuning is in fp32 (init_adapter() casts what trains), adapters stand beside weights of the checkpoint's dtype. */
static void without_flags_factorys_adapters_train_in_the_checkpoints_dtype(void **state)
{
    static const char lora[] = BASE "stage: sft\ndo_train: true\ncutoff_len: 512\nfinetuning_type: lora\nlora_target: q_proj,v_proj\n";
    static const char *const bases[] = { "", "quantization_bit: 4\n", "quantization_bit: 8\n" };
    char text[512];

    (void)state;
    becomes(trainers[2], NULL, "fp32");
    for (size_t b = 0; b < COUNT(bases); b++) {
        struct notes notes = { 0 };
        struct plan p;
        char why[1024];
        snprintf(text, sizeof text, "%s%s", lora, bases[b]);
        assert_int_equal(read_launched(text, NULL, &p, &notes, why), 0);
        assert_int_equal(p.precision, DT_BF16);
        assert_int_equal(p.ddp.model_dtype, DT_BF16);
        assert_true(noted(&notes, "checkpoint's own dtype, taken as bf16, without autocast"));
        /* two copies of a block's input, as each block is computed again: 2 x 1024 numbers of 512 tokens, in 4 bytes */
        assert_true(noted(&notes, "up to 0.00419 GB more"));
        plan_free(&p);
        snprintf(text, sizeof text, "%s%sbf16: true\n", lora, bases[b]);
        memset(&notes, 0, sizeof notes);
        assert_int_equal(read_launched(text, NULL, &p, &notes, why), 0);
        assert_false(noted(&notes, "without autocast"));
        plan_free(&p);
        snprintf(text, sizeof text, "%s%sdeepspeed: {zero_optimization: {stage: 2}}\n", lora, bases[b]);
        becomes(text, NULL, b ? "base_dtype" : "neither bf16 nor fp16");
    }
    snprintf(text, sizeof text, "%sfsdp: full_shard auto_wrap\n", lora);
    becomes(text, NULL, "neither bf16 nor fp16");
    snprintf(text, sizeof text, "%sdeepspeed: {zero_optimization: {stage: 3}}\n", lora);        /* zero.Init makes them fp32 */
    becomes(text, NULL, "fp32");
    becomes(lora, "distributed_type: MULTI_GPU\nmixed_precision: bf16\n", "bf16");
}

static void axolotls_full_has_no_autocast(void **state)
{
    struct notes notes = { 0 };
    struct plan p;
    char why[1024], text[512];

    (void)state;
    snprintf(text, sizeof text, "%sbf16: full\nadapter: lora\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n", trainers[3]);
    assert_int_equal(read_launched(text, NULL, &p, &notes, why), 0);
    assert_true(noted(&notes, "axolotl turns no autocast on") && noted(&notes, "the adapters, in fp32, keep copies of their inputs"));
    plan_free(&p);
    snprintf(text, sizeof text, "%sbf16: full\ndeepspeed: {zero_optimization: {stage: 2}, bf16: {enabled: auto}}\n", trainers[3]);
    becomes(text, NULL, "bf16");                /* bf16_full_eval fills it in */
    snprintf(text, sizeof text, "%sbf16: full\ndeepspeed: {zero_optimization: {stage: 2}}\n", trainers[3]);
    becomes(text, NULL, "accelerate leaves DeepSpeed in fp32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepspeeds_file_is_completed_by_accelerate), cmocka_unit_test(accelerates_config_decides_where_no_flag_is_set),
        cmocka_unit_test(without_flags_factorys_adapters_train_in_the_checkpoints_dtype), cmocka_unit_test(axolotls_full_has_no_autocast),
    };

    return cmocka_run_group_tests_name("model/recipe precision", tests, NULL, NULL);
}
