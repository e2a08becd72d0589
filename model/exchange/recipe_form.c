/* recipe_form.c -- whose recipe a document is, told by keys that only that form has.
 *
 * A key that several forms share (model_name_or_path, learning_rate, output_dir) decides nothing.  Keys are those of
 * transformers' TrainingArguments 5.24, LLaMA-Factory's hparams (August 2026), axolotl's utils/schemas and TRL's
 * configs (1.9; alignment-handbook's recipes are TRL's). */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_packed.h"
#include "model/arch/recorded.h"
#include "model/exchange/recipe.h"
#include "model/exchange/recipe_refuses.h"
#include "model/exchange/recipe_rounding.h"
#include "model/exchange/unread.h"

#define COUNT(list) (sizeof (list) / sizeof *(list))

static const char *const axolotls[] = {
    "sequence_len", "micro_batch_size", "datasets", "adapter", "sample_packing", "num_epochs", "val_set_size", "pretraining_dataset",
    "lora_target_linear", "dataset_prepared_path", "train_on_inputs", "rl",
};

static const char *const factorys[] = {
    "finetuning_type", "cutoff_len", "template", "dataset_dir", "lora_target", "lora_rank", "quantization_bit", "pure_bf16", "flash_attn",
    "enable_liger_kernel", "neat_packing", "additional_target", "disable_gradient_checkpointing", "freeze_trainable_layers", "plot_loss",
    "pref_beta", "pref_loss", "double_quantization", "quantization_method", "tokenized_path", "visual_inputs",
    "create_new_adapter", "shift_attn", "mix_strategy", "max_samples",
};

static const char *const trls[] = {
    "use_peft", "use_peft_lora", "max_length", "max_seq_length", "lora_r", "lora_target_modules", "lora_modules_to_save", "load_in_4bit", "load_in_8bit",
    "bnb_4bit_quant_type", "use_bnb_nested_quant", "torch_dtype", "dtype", "dataset_mixer", "dataset_mixture", "dataset_text_field",
    "dataset_kwargs", "dataset_num_proc", "packing_strategy", "assistant_only_loss", "completion_only_loss", "padding_free", "loss_type",
    "max_prompt_length", "max_completion_length", "num_generations", "beta", "chat_template_path", "activation_offloading",
    "precompute_ref_log_probs", "center_rewards_coefficient", "reward_funcs", "lora_task_type", RECIPE_TRL_PROGRAM,
};

static const char *const transformers[] = {
    "per_device_train_batch_size", "per_gpu_train_batch_size", "per_device_eval_batch_size", "gradient_checkpointing_kwargs", "num_train_epochs",
    "lr_scheduler_type", "ddp_find_unused_parameters", "fsdp_transformer_layer_cls_to_wrap", "optim", "save_strategy", "logging_strategy",
    "eval_strategy", "evaluation_strategy", "remove_unused_columns", "dataloader_num_workers", "per_device_batch_size",
};

static bool has_any(const json_t *config, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(config, keys[i]);
        if (v && !(json_is_object(v) && !strcmp(keys[i], "optim")))         /* a section of that name is another's: prime-rl's, verl's */
            return true;
    }
    return false;
}

/* LLaMA-Factory's `stage` is a word; DeepSpeed's is a number, and in another place. */
static bool has_stage(const json_t *config)
{
    static const char *const stages[] = { "pt", "sft", "rm", "ppo", "dpo", "kto" };
    const char *stage = json_string_value(json_object_get(config, "stage"));

    for (size_t i = 0; stage && i < COUNT(stages); i++)
        if (!strcmp(stage, stages[i]))
            return true;
    return false;
}

bool recipe_is_factorys_second(const json_t *config)
{
    static const char *const marks[] = { "train_dataset", "dist_config", "kernel_config", "quant_config", "model_class", "export_dir" };

    return json_is_string(json_object_get(config, "model")) && has_any(config, marks, COUNT(marks));
}

/* axolotl's: a model that is loaded packed, and stays so. */
static const char *packed_by(const json_t *config)
{
    const json_t *v = json_object_get(config, "model_quantization_config");

    if (v && !json_is_null(v) && !json_is_true(json_object_get(json_object_get(config, "model_quantization_config_kwargs"), "dequantize")))
        return "model_quantization_config";
    return json_is_true(json_object_get(config, "gptq")) ? "gptq" : NULL;
}

/* Keys that only recipes of pictures and sound have: axolotl's loader of a processor, LLaMA-Factory's sizes of pictures and its frozen towers. */
int recipe_check_text(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const towers[] = {
        "image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "image_resolution", "video_max_pixels", "video_min_pixels", "video_fps", "video_maxlen",
        "video_resolution", "audio_sampling_rate", "media_dir", "freeze_vision_tower", "freeze_multi_modal_projector", "visual_inputs",
    }, *const processors[] = { "processor_type", "image_size", "image_resize_algorithm", "is_multimodal" };
    const char *const *keys = form == RECIPE_AXOLOTL ? processors : towers;
    const json_t *qat = form == RECIPE_AXOLOTL ? json_object_get(config, "qat") : NULL;
    size_t n = form == RECIPE_AXOLOTL ? COUNT(processors) : form == RECIPE_FACTORY ? COUNT(towers) : 0;

    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(config, keys[i]);
        if (v && !json_is_null(v) && !json_is_false(v))
            return fail("%s: %s: training on pictures or sound is not planned, a recipe of text alone is" RECORDED_WAY, where, keys[i]);
    }
    if (qat && !json_is_null(qat) && !json_is_false(qat) && !recipe_rounds_to_int4(qat))
        return fail("%s: qat: %s", where, !strcmp(json_string_value(json_object_get(qat, "weight_dtype")) ? json_string_value(json_object_get(qat, "weight_dtype")) : "", "nvfp4")
                    ? "torchao refuses what axolotl gives it for nvfp4 (\"Unexpected base config: NVFP4WeightOnlyConfig\"), so such a run does not start"
                    : "of axolotl's fake quantisation int8 with int4 weights is planned (activation_dtype, weight_dtype)");
    const char *model = json_string_value(json_object_get(config, form == RECIPE_AXOLOTL ? "base_model" : "model_name_or_path"));
    if (hf_packed_otherwise(model))
        return fail("%s: %.80s: weights packed before training are not planned", where, model);
    if (form == RECIPE_AXOLOTL && packed_by(config))
        return fail("%s: %s: weights packed before training are not planned", where, packed_by(config));
    return recipe_refuse_step(config, form, where);
}

/* Sections [parallelism], [training] and [model] are many programs'; their keys are torchtitan's alone. */
static bool is_titans(const json_t *config)
{
    static const char *const degrees[] = {
        "data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree", "pipeline_parallel_degree",
        "context_parallel_degree", "expert_parallel_degree", "fsdp_reshard_after_forward", "pipeline_parallel_schedule",
    };
    static const char *const batches[] = { "seq_len", "local_batch_size", "global_batch_size", "mixed_precision_param" };
    const json_t *parallel = json_object_get(config, "parallelism"), *training = json_object_get(config, "training");
    const json_t *model = json_object_get(config, "model");

    return has_any(parallel, degrees, COUNT(degrees)) || has_any(training, degrees, COUNT(degrees))
        || (json_is_object(model) && (json_object_get(model, "flavor") || has_any(training, batches, COUNT(batches))));
}

int recipe_form(const json_t *config)
{
    bool names = json_is_string(json_object_get(config, "model_name_or_path"));

    if (is_titans(config))
        return RECIPE_TITAN;
    if (json_is_string(json_object_get(config, "base_model")) && has_any(config, axolotls, COUNT(axolotls)))
        return RECIPE_AXOLOTL;
    if (has_any(config, factorys, COUNT(factorys)) || has_stage(config) || recipe_is_factorys_second(config))
        return RECIPE_FACTORY;
    if (has_any(config, trls, COUNT(trls)) && (names || has_any(config, transformers, COUNT(transformers))))
        return RECIPE_TRL;
    if (has_any(config, transformers, COUNT(transformers)))
        return RECIPE_TRANSFORMERS;
    return -1;
}

const char *recipe_form_name(enum recipe_form form)
{
    static const char *const names[NRECIPE] = { "transformers", "LLaMA-Factory", "axolotl", "TRL", "torchtitan" };

    return names[form];
}

/* The keys that it is told by. */
static const char *sign_of(enum recipe_form form)
{
    static const char *const signs[NRECIPE] = {
        "per_device_train_batch_size or another TrainingArguments key",
        "finetuning_type, stage, cutoff_len, template",
        "base_model with sequence_len, micro_batch_size, datasets",
        "model_name_or_path with max_length, use_peft, dataset_mixture, torch_dtype",
        "[parallelism], or [training] with [model]",
    };

    return signs[form];
}

int recipe_refuse_unclaimed(const char *where)
{
    char forms[400] = "";
    size_t n = 0;

    for (int f = 0; f < NRECIPE && n < sizeof forms; f++)
        n += (size_t)snprintf(forms + n, sizeof forms - n, "%s%s (%s)", n ? "; " : "", recipe_form_name((enum recipe_form)f),
                              sign_of((enum recipe_form)f));
    return fail("%s: no recipe that is read: none of its keys is one that only such a recipe has: %s", where, forms);
}

/* ---- which of TRL's trainers ---- */

bool recipe_has_preferences(const json_t *config)
{
    return json_is_string(json_object_get(config, "rl")) || json_object_get(config, RECIPE_TRL_PROGRAM);
}

bool recipe_trl_program(const char *program, enum trl_trainer *out)
{
    static const struct { const char *program; enum trl_trainer trainer; } programs[] = {
        { "sft", TRL_SFT }, { "dpo", TRL_DPO }, { "kto", TRL_KTO }, { "reward", TRL_REWARD }, { "grpo", TRL_GRPO }, { "gspo", TRL_GRPO }, { "rloo", TRL_GRPO },
    };

    for (size_t i = 0; i < COUNT(programs); i++) {
        size_t n = strlen(programs[i].program);
        if (!strncmp(program, programs[i].program, n) && (!program[n] || program[n] == '_')) {
            *out = programs[i].trainer;
            return true;
        }
    }
    return false;
}

enum trl_trainer recipe_trl_trainer(const json_t *config)
{
    static const char *const grpos[] = { "num_generations", "max_completion_length", "reward_funcs", "vllm_mode", "epsilon_high", "scale_rewards",
                                         "num_iterations", "use_vllm" };
    static const char *const rewards[] = { "center_rewards_coefficient" };
    static const char *const ktos[] = { "desirable_weight", "undesirable_weight" };
    static const char *const dpos[] = { "beta", "precompute_ref_log_probs", "max_prompt_length", "rpo_alpha", "sync_ref_model", "reference_free",
                                        "ref_model_mixup_alpha", "use_weighting" };
    static const char *const dpo_losses[] = { "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "apo_zero", "apo_down",
                                              "sppo_hard", "aot", "aot_pair", "discopop" };
    const char *program = json_string_value(json_object_get(config, RECIPE_TRL_PROGRAM));
    enum trl_trainer named;
    const json_t *losses = json_object_get(config, "loss_type");
    const char *loss = json_string_value(json_is_array(losses) ? json_array_get(losses, 0) : losses);
    const char *task = json_string_value(json_object_get(config, "lora_task_type"));

    if (program && recipe_trl_program(program, &named))
        return named;
    for (size_t i = 0; loss && i < COUNT(dpo_losses); i++)          /* DPOConfig had max_completion_length, too, from 2024 to 2026 */
        if (!strcmp(loss, dpo_losses[i]))
            return TRL_DPO;
    if (has_any(config, grpos, COUNT(grpos)))
        return TRL_GRPO;
    if (has_any(config, rewards, COUNT(rewards)) || (task && !strcmp(task, "SEQ_CLS")))
        return TRL_REWARD;
    if (has_any(config, ktos, COUNT(ktos)))
        return TRL_KTO;
    return has_any(config, dpos, COUNT(dpos)) ? TRL_DPO : TRL_SFT;
}
