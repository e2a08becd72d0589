/* Which layers of a mixture of experts a recipe's adapters are for: LLaMA-Factory and axolotl list nn.Linear layers by name, PEFT's all-linear is
 * its own.  Where each does so is said in model/exchange/recipe_targets.c. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "base/yaml.h"
#include "model/exchange/recipe.h"
#include "model/arch/training.h"

#define AXOLOTL "bf16: true\nadapter: lora\nlora_r: 8\nsequence_len: 512\nmicro_batch_size: 1\n"
#define FACTORY "stage: sft\ndo_train: true\nfinetuning_type: lora\ncutoff_len: 512\nbf16: true\nper_device_train_batch_size: 1\n"
#define TRL "use_peft: true\nmax_length: 512\nbf16: true\ndtype: bfloat16\nper_device_train_batch_size: 1\n"
#define ATTENTION "q_proj,k_proj,v_proj,o_proj"

static int read_recipe(const char *text, struct plan *p, char why[512])
{
    json_t *config = yaml_read(text, strlen(text), "recipe.yml");
    struct notes notes = { 0 };

    assert_non_null(config);
    memset(p, 0, sizeof *p);
    assert_int_equal(model_load(recipe_model(config), &p->model), 0);
    assert_int_equal(cluster_load("8xh100", &p->cluster), 0);
    fail_capture(why, 512);
    int rc = recipe_read(config, "recipe.yml", p, &notes);
    fail_capture(NULL, 0);
    json_decref(config);
    return rc;
}

static void all_linear_layers_are_named(void **state)
{
    static const struct { const char *text, *targets, *parameters; } list[] = {
        { "base_model: mistralai/Mixtral-8x7B-v0.1\nlora_target_linear: true\n" AXOLOTL, ATTENTION, "" },
        { "base_model: openai/gpt-oss-20b\nlora_target_linear: true\n" AXOLOTL, ATTENTION, "" },
        { "base_model: meta-llama/Llama-2-7b-hf\nlora_target_linear: true\n" AXOLOTL, "all-linear", "" },
        { "base_model: Qwen/Qwen3-30B-A3B\nlora_target_modules: [q_proj]\nlora_target_parameters: [experts.gate_up_proj, experts.down_proj]\n" AXOLOTL,
          "q_proj", "experts.gate_up_proj,experts.down_proj" },
        { "model_name_or_path: Qwen/Qwen3-30B-A3B\nlora_target: all\n" FACTORY, ATTENTION, "" },
        { "model_name_or_path: meta-llama/Llama-4-Scout-17B-16E\nlora_target: all\n" FACTORY, ATTENTION ",gate_proj,up_proj,down_proj", "" },
        { "model_name_or_path: openai/gpt-oss-20b\nlora_target_modules: all-linear\nlora_dropout: 0.0\nlora_target_parameters: down_proj\n" TRL,
          "all-linear", "down_proj" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char why[512] = "";
        struct plan p;
        if (read_recipe(list[i].text, &p, why) < 0)
            fail_msg("%s\n%s", list[i].text, why);
        assert_string_equal(p.train.target_modules, list[i].targets);
        assert_string_equal(p.train.target_parameters, list[i].parameters);
        plan_free(&p);
    }
}

static void what_is_not_planned_is_refused(void **state)
{
    static const struct { const char *text, *why; } list[] = {
        { "base_model: meta-llama/Llama-4-Scout-17B-16E\nlora_target_linear: true\n" AXOLOTL, "returns two tensors" },
        { "base_model: Qwen/Qwen3-30B-A3B\nquantize_moe_experts: true\nlora_target_modules: [q_proj]\n" AXOLOTL, "quantize_moe_experts" },
        { "model_name_or_path: Qwen/Qwen3-30B-A3B\nlora_target: all\nuse_kt: true\n" FACTORY, "use_kt" },
        { "model_name_or_path: Qwen/Qwen3-30B-A3B\nlora_target_modules: all-linear\n" TRL, "lora_dropout != 0" },
        { "model_name_or_path: openai/gpt-oss-20b\nlora_target_parameters: [down_proj]\n" TRL, "lora_dropout != 0" },    /* TRL's is 0.05 */
        { "base_model: mistralai/Mixtral-8x7B-v0.1\nlora_target_linear: true\nfsdp: [full_shard, auto_wrap]\nfsdp_config:\n"
          "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_transformer_layer_cls_to_wrap: MixtralSparseMoeBlock\n" AXOLOTL,
          "units that are not whole blocks (MixtralDecoderLayer)" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char why[512] = "";
        struct plan p;
        assert_int_equal(read_recipe(list[i].text, &p, why), -1);
        if (!strstr(why, list[i].why))
            fail_msg("\"%s\" does not say \"%s\"", why, list[i].why);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_linear_layers_are_named),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };
    return cmocka_run_group_tests_name("model/recipes of mixtures", tests, NULL, NULL);
}
