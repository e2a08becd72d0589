/* Which of Liger-Kernel's kernels and losses, and whether Apple's, a recipe of transformers, LLaMA-Factory or axolotl asks for. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/yaml.h"
#include "model/exchange/recipe.h"

static int read_recipe(const char *text, const char *model, struct plan *p, struct notes *notes)
{
    json_t *config = yaml_read(text, strlen(text), "recipe.yml");

    assert_non_null(config);
    memset(p, 0, sizeof *p);
    p->seq = 512;
    assert_int_equal(model_load(model, &p->model), 0);
    assert_int_equal(cluster_load("2xh100", &p->cluster), 0);
    int rc = recipe_read(config, "recipe.yml", p, notes);
    json_decref(config);
    return rc;
}

/* `parts`: of r(ope), n(orms), g(lu), those that are taken; `note`: words of one, or NULL. */
static void gives(const char *text, const char *model, const char *parts, enum loss_kind loss, const char *note)
{
    struct notes notes = { 0 };
    struct plan p;
    bool noted = !note;

    if (read_recipe(text, model, &p, &notes) < 0)
        fail_msg("%s: refused", text);
    for (int i = 0; i < notes.n && note; i++)
        noted |= strstr(notes.text[i], note) != NULL;
    if (p.liger.rope != !!strchr(parts, 'r') || p.liger.rms_norm != !!strchr(parts, 'n') || p.liger.glu_activation != !!strchr(parts, 'g') ||
        p.loss != loss || !noted)
        fail_msg("%s: rope %d, rms_norm %d, glu_activation %d, loss %d, noted %d", text, p.liger.rope, p.liger.rms_norm, p.liger.glu_activation,
                 p.loss, noted);
    plan_free(&p);
}

static void refuses(const char *text, const char *model, const char *what)
{
    struct notes notes = { 0 };
    struct plan p;
    char why[512] = "";

    fail_capture(why, sizeof why);
    int rc = read_recipe(text, model, &p, &notes);
    fail_capture(NULL, 0);
    if (rc == 0 || !strstr(why, what))
        fail_msg("%s: %s", text, why);
}

/* _apply_liger_kernel_to_instance(model, **liger_kernel_config): all of a family's unless told. */
static void the_trainers_key_takes_what_the_family_has(void **state)
{
    (void)state;
    gives("per_device_train_batch_size: 1\nuse_liger_kernel: true\nbf16: true\n", "llama-3.1-8b", "rng", LOSS_FUSED_LINEAR, NULL);
    gives("per_device_train_batch_size: 1\nuse_liger_kernel: false\nbf16: true\n", "llama-3.1-8b", "", LOSS_FP32, NULL);
    gives("per_device_train_batch_size: 1\nuse_liger_kernel: true\nbf16: true\nliger_kernel_config: {rope: false, fused_linear_cross_entropy: false, cross_entropy: true}\n",
          "llama-3.1-8b", "ng", LOSS_LIGER, NULL);
    gives("per_device_train_batch_size: 1\nuse_liger_kernel: true\nbf16: true\nliger_kernel_config: {swiglu: false, fused_linear_cross_entropy: false}\n",
          "llama-3.1-8b", "rn", LOSS_FP32, NULL);
    gives("per_device_train_batch_size: 1\nliger_kernel_config: {rope: true}\nbf16: true\n", "llama-3.1-8b", "", LOSS_FP32, NULL);
    gives("per_device_train_batch_size: 1\nuse_liger_kernel: true\nbf16: true\n", "gpt2", "", LOSS_FP32, "Liger-Kernel has no kernels for gpt2");
    gives("model_name_or_path: x\nfinetuning_type: full\npure_bf16: true\nbf16: true\nenable_liger_kernel: true\n", "mixtral-8x7b", "rn", LOSS_FUSED_LINEAR, "experts for mixtral are not modelled");
    gives("per_device_train_batch_size: 1\nuse_liger_kernel: true\nbf16: true\nliger_kernel_config: {cross_entropy: true, fused_linear_cross_entropy: false}\n", "mistral-7b",
          "rng", LOSS_FP32, "a class that transformers 5 does not call");
    refuses("per_device_train_batch_size: 1\nuse_liger_kernel: true\nbf16: true\nliger_kernel_config: {cross_entropy: true}\n", "llama-3.1-8b", "cannot both be True");
}

static void llama_factorys_key_knows_fewer_families(void **state)
{
    (void)state;
    gives("model_name_or_path: x\nenable_liger_kernel: true\nbf16: true\nfinetuning_type: full\n", "llama-3.1-8b", "rng", LOSS_FUSED_LINEAR, NULL);
    gives("model_name_or_path: x\nenable_liger_kernel: true\nbf16: true\n", "llama-3.1-8b", "rng", LOSS_FUSED_LINEAR, NULL);
    gives("model_name_or_path: x\nenable_liger_kernel: true\nbf16: true\nfinetuning_type: full\n", "smollm3-3b", "", LOSS_FP32,
          "LLaMA-Factory applies no Liger kernels to smollm3");
    gives("model_name_or_path: x\nuse_liger_kernel: true\nbf16: true\nfinetuning_type: full\n", "llama-3.1-8b", "rng", LOSS_FUSED_LINEAR, NULL);
}

#define AXOLOTL "base_model: x\nmicro_batch_size: 1\nbf16: true\nflash_attention: true\n"
#define PLUGIN  "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
#define CUT     "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"

/* Its keys are false unless they are set, and nothing without their plugin; the plugin of Apple's loss takes it by itself. */
static void axolotls_keys_need_their_plugin(void **state)
{
    (void)state;
    gives(AXOLOTL PLUGIN "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\nliger_fused_linear_cross_entropy: true\n",
          "llama-3.1-8b", "rng", LOSS_FUSED_LINEAR, NULL);
    gives(AXOLOTL PLUGIN "liger_rms_norm: true\n", "llama-3.1-8b", "n", LOSS_FP32, NULL);
    gives(AXOLOTL PLUGIN "liger_swiglu: true\nliger_cross_entropy: true\n", "llama-3.1-8b", "g", LOSS_LIGER, NULL);
    gives(AXOLOTL "liger_rope: true\nliger_fused_linear_cross_entropy: true\n", "llama-3.1-8b", "", LOSS_FP32, "they do nothing");
    gives(AXOLOTL CUT, "llama-3.1-8b", "", LOSS_CUT, NULL);
    gives(AXOLOTL CUT "cut_cross_entropy: false\n", "llama-3.1-8b", "", LOSS_FP32, NULL);
    gives(AXOLOTL "cut_cross_entropy: true\n", "llama-3.1-8b", "", LOSS_FP32, "it does nothing");
    refuses(AXOLOTL "plugins: [axolotl.integrations.liger.LigerPlugin, axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
            "liger_fused_linear_cross_entropy: true\n", "llama-3.1-8b", "set one of them");
    refuses(AXOLOTL PLUGIN "liger_cross_entropy: true\nliger_fused_linear_cross_entropy: true\n", "llama-3.1-8b", "cannot both be True");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trainers_key_takes_what_the_family_has),
        cmocka_unit_test(llama_factorys_key_knows_fewer_families),
        cmocka_unit_test(axolotls_keys_need_their_plugin),
    };
    return cmocka_run_group_tests_name("model/exchange/recipe liger", tests, NULL, NULL);
}
