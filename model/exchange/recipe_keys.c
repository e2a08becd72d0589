/* recipe_keys.c -- the keys of recipes: which are read, which say nothing of a step's memory or time, and what the others do. */
#include <stdio.h>
#include <string.h>

#include "model/exchange/recipe.h"
#include "model/exchange/recipe_liger.h"
#include "model/exchange/unread.h"

/* transformers, LLaMA-Factory, axolotl, TRL.  "a|b": b is an older name, or of PEFT's examples/sft/train.py;
 * a goes before b where a file has both (training_args.py: "used only when the new name is not set"). */
static const char *const keys[NSAYS][RECIPE_TITAN] = {
    [SAYS_MODEL]         = { "model_name_or_path", "model_name_or_path", "base_model", "model_name_or_path" },
    [SAYS_SEQ]           = { NULL, "cutoff_len", "sequence_len", "max_length|max_seq_length" },
    [SAYS_BATCH]         = { "per_device_train_batch_size", "per_device_train_batch_size", "micro_batch_size", "per_device_train_batch_size" },
    [SAYS_ACCUMULATION]  = { "gradient_accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation_steps", "gradient_accumulation_steps" },
    [SAYS_BF16]          = { "bf16", "bf16", "bf16", "bf16" },
    [SAYS_FP16]          = { "fp16", "fp16", "fp16", "fp16" },
    [SAYS_CHECKPOINT]    = { "activation_checkpointing|gradient_checkpointing", NULL, "gradient_checkpointing",
                             "activation_checkpointing|gradient_checkpointing" },
    [SAYS_NO_CHECKPOINT] = { NULL, "disable_gradient_checkpointing", NULL, NULL },
    [SAYS_OPTIM]         = { "optim", "optim", "optimizer", "optim" },
    [SAYS_CLIP]          = { "max_grad_norm", "max_grad_norm", "max_grad_norm", "max_grad_norm" },
    [SAYS_DEEPSPEED]     = { "deepspeed", "deepspeed", "deepspeed", "deepspeed" },
    [SAYS_FSDP]          = { "fsdp", "fsdp", "fsdp", "fsdp" },
    [SAYS_FSDP_CONFIG]   = { "fsdp_config", "fsdp_config", "fsdp_config", "fsdp_config" },
    [SAYS_FSDP_VERSION]  = { NULL, NULL, "fsdp_version", NULL },
    [SAYS_KIND]          = { NULL, "finetuning_type", "adapter", NULL },
    [SAYS_RANK]          = { NULL, "lora_rank", "lora_r", "lora_r" },
    [SAYS_ALPHA]         = { NULL, "lora_alpha", "lora_alpha", "lora_alpha" },
    [SAYS_DROPOUT]       = { NULL, "lora_dropout", "lora_dropout", "lora_dropout" },
    [SAYS_TARGETS]       = { NULL, "lora_target", "lora_target_modules", "lora_target_modules" },
    [SAYS_ALL_LINEAR]    = { NULL, NULL, "lora_target_linear", NULL },
    [SAYS_SAVED]         = { NULL, "additional_target", "lora_modules_to_save", "lora_modules_to_save" },
    [SAYS_4BIT]          = { NULL, NULL, "load_in_4bit", "load_in_4bit|use_4bit_quantization" },
    [SAYS_8BIT]          = { NULL, NULL, "load_in_8bit", "load_in_8bit|use_8bit_quantization" },
    [SAYS_BITS]          = { NULL, "quantization_bit", NULL, NULL },
    [SAYS_DOUBLE]        = { NULL, "double_quantization", NULL, "use_bnb_nested_quant|use_nested_quant" },
    [SAYS_PURE]          = { NULL, "pure_bf16", NULL, NULL },
    [SAYS_BUCKET]        = { "ddp_bucket_cap_mb", "ddp_bucket_cap_mb", "ddp_bucket_cap_mb", "ddp_bucket_cap_mb" },
    [SAYS_UNUSED]        = { "ddp_find_unused_parameters", "ddp_find_unused_parameters", "ddp_find_unused_parameters", "ddp_find_unused_parameters" },
    [SAYS_BUFFERS]       = { "ddp_broadcast_buffers", "ddp_broadcast_buffers", "ddp_broadcast_buffers", "ddp_broadcast_buffers" },
    [SAYS_STATIC]        = { "ddp_static_graph", "ddp_static_graph", NULL, "ddp_static_graph" },
    [SAYS_EAGER]         = { NULL, NULL, "eager_attention", NULL },
    [SAYS_ATTENTION]     = { NULL, "flash_attn", "attn_implementation", "attn_implementation" },
    [SAYS_ADAPTS]        = { NULL, NULL, NULL, "use_peft|use_peft_lora" },
    [SAYS_DTYPE]         = { NULL, NULL, NULL, "dtype|torch_dtype" },
};

/* Is `key` one of the names between bars? */
static bool is_one_of(const char *names, const char *key)
{
    size_t n = strlen(key);

    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (!strncmp(at, key, n) && (at[n] == '\0' || at[n] == '|'))
            return true;
    return false;
}

const char *recipe_key(const json_t *config, enum recipe_form form, enum recipe_word word)
{
    static _Thread_local char name[64], unset[64];
    const char *names = form < RECIPE_TITAN ? keys[word][form] : NULL;

    if (!names || !strchr(names, '|'))
        return names;
    snprintf(unset, sizeof unset, "%.*s", (int)strcspn(names, "|"), names);
    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
        const json_t *v = json_object_get(config, name);
        if (v && !json_is_null(v))
            return name;
        if (v)                              /* null: the file's word, unless another name has a value */
            memcpy(unset, name, sizeof unset);
    }
    return unset;
}

/* What does matter, and why it is not in the plan. */
static const struct { const char *key, *why; } matters[] = {
    { "liger_use_token_scaling", "a softmax of each chunk of logits beside them" },
    { "use_unsloth", "unsloth's kernels are not modelled" },
    { "use_unsloth_gc", "unsloth's checkpoints wait in host memory" },
    { "lora_mlp_kernel", "axolotl's fused adapters keep less; not modelled" },
    { "lora_qkv_kernel", "axolotl's fused adapters keep less; not modelled" },
    { "lora_o_kernel", "axolotl's fused adapters keep less; not modelled" },
    { "relora_steps", "adapters are merged now and then" }, { "relora", "adapters are merged now and then" },
    { "upcast_layernorm", "norms in fp32" }, { "upcast_lmhead_output", "logits in fp32" },
    { "quantization_type", "fp4 takes what nf4 takes" },
    { "auto_find_batch_size", "the micro-batch shrinks until it fits" },
    { "torch_empty_cache_steps", "the allocator's cache is emptied now and then" }, { "gc_steps", "the allocator's cache is emptied now and then" },
    { "batch_flattening", "samples are shorter" }, { "block_diag_attn", "every sample counts as full; its mask is left out" },
    { "noisy_embedding_alpha", "noise as large as the embedding's output" },
    { "group_by_length", "samples are shorter" }, { "train_sampling_strategy", "samples may be shorter" },
    { "shift_attn", "attention sees parts of the sequence" },
    { "resize_vocab", "the embedding may grow" }, { "add_tokens", "the embedding may grow" },
    { "special_tokens", "the embedding may grow" }, { "tokens", "the embedding may grow" },
    { "activation_offloading", "checkpoints wait in host memory" },
    { "stage", "models beside the one that trains are not modelled (sft and pt have none)" },
    { "rl", "models beside the one that trains are not modelled" },
    { "neftune_noise_alpha", "noise as large as the embedding's output" },
    { "assistant_only_loss", "the loss scores fewer positions: planned are all" }, { "completion_only_loss", "the loss scores fewer positions: planned are all" },
    { "sample_packing", "every sample counts as full, packed or not" }, { "packing", "every sample counts as full, packed or not" },
    { "padding_free", "every sample counts as full, padded or not" },
    { "neat_packing", "every sample counts as full; its mask is left out" }, { "optim_target_modules", "GaLore's states are smaller" },
    { "accelerator_config", "gradient accumulation may synchronise each micro-step" },
    { "gradient_checkpointing_kwargs", "but for use_reentrant" },
    { "activation_checkpointing_kwargs", "every_n_layers checkpoints some blocks alone" },
    { "lora_embedding_kernel", "axolotl's fused adapters keep less; not modelled" },
    { "use_liger", "TRL's name of 2024 for use_liger_kernel, whose kernels are faster and keep less" },
    { "use_reentrant", "reentrant checkpoints keep as much, but for the order in backward" },
    { "quantize_moe_experts", "experts' weights packed, too" },
    { "resize_token_embeddings_to_32x", "the embedding may grow" },
    { "fused_attn_kernel", "one kernel for the norms of q and k and their rotation, 7 to 12 % of a step by axolotl" },
    { "full_determinism", "CUDA_LAUNCH_BLOCKING=1, so that the issuing thread waits for every kernel, and deterministic kernels, which take longer" }, { "use_scattermoe", "experts' kernels are not modelled" },
    { "use_sonicmoe", "experts' kernels are not modelled" }, { "experts_implementation", "experts' kernels are not modelled" },
    { "use_distributed_optimizer", "Megatron-LM is not followed: import --megatron" },
    { "use_v1_kernels", "other kernels" }, { "use_kernels", "other kernels" }, { "freeze_vision_tower", "a vision tower is not modelled" },
    { "liger_rms_norm_gated", "Liger-Kernel's norm is not modelled" },
    { "trl", "models beside the one that trains are not modelled" },
    { "adapter_name_or_path", "adapters that are there already" },
    { "lora_on_cpu", "adapters are loaded there first" }, { "peft", "how adapters begin (LoftQ)" },
};

/* Names, or (with *) what they begin with, of keys that say nothing of a step. */
static const char *const silent[] = {
    "bnb_config_kwargs",        /* recipe_import.c reads it, and what else is there is listed */
    "use_reentrant_gc",         /* recipe_checkpoints.c reads it, and says what the plan has not */
    "output_dir", "overwrite_output_dir", "num_train_epochs", "num_epochs", "max_steps", "learning_rate", "weight_decay", "adam_*",
    "optim_args", "warmup_*", "lr_*", "logging_*", "log_*", "plot_loss", "report_to", "run_name", "project",
    "trackio_*", "wandb_*", "mlflow_*", "comet_*", "swanlab_*", "use_swanlab", "use_tensorboard", "hub_*", "push_to_hub", "save_*",
    "eval_*", "do_*", "stage", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "seed", "data_seed",
    "dataset", "datasets", "dataset_*", "test_datasets", "pretraining_dataset", "val_*", "max_samples", "mix_strategy", "interleave_probs",
    "template", "chat_template", "chat_template_jinja", "tokenizer_*", "model_type", "model_revision", "revision_of_model", "trust_remote_code",
    "use_fast_tokenizer", "split_special_tokens", "low_cpu_mem_usage", "cache_dir", "dataloader_*", "preprocessing_*", "overwrite_cache",
    "remove_unused_columns", "label_names", "resume_from_checkpoint", "auto_resume_from_checkpoints", "ignore_data_skip", "early_stopping_patience",
    "ddp_timeout", "ddp_backend", "local_rank", "disable_tqdm", "skip_memory_metrics", "debug", "strict", "tf32", "use_cache",
    "bf16_full_eval", "fp16_full_eval", "per_device_eval_batch_size", "prediction_loss_only", "include_*", "batch_eval_metrics",
    "average_tokens_across_devices", "length_column_name", "is_llama_derived_model", "is_mistral_derived_model", "lora_model_dir",
    "lora_fan_in_fan_out", "train_on_inputs", "xformers_attention", "flash_attention", "sdp_attention", "flex_attention", "loss_watchdog_*",
    "gpu_memory_limit", "shuffle_merged_datasets", "plugins", "world_size", "loraplus_*", "use_rslora", "peft_use_rslora", "pissa_*",
    "create_new_adapter", "use_galore", "use_apollo", "use_badam", "use_llama_pro", "use_muon", "use_adam_mini",
    "mixture_of_depths", "unfrozen_parameters", "qat", "use_kt", "use_mora", "use_dora", "peft_use_dora", "ebft", "gptq",
    "model_quantization_config*", "export_*", "pad_to_sequence_len", "group_by_*", "torch_compile_*", "parallelism_config", "liger_layer_norm",
    "image_*", "video_*", "media_dir", "streaming", "buffer_size", "ref_model*", "reward_model*", "print_param_status", "train_from_scratch",
    "saves_per_epoch", "reinit_weights", "evals_per_epoch", "eot_tokens", "skip_prepare_dataset", "infer_backend", "cosine_*", "eta_min", "hf_use_auth_token",
    "device_map", "use_otel_metrics", "otel_*", "rl_beta", "pref_beta", "pref_loss", "simpo_gamma", "kto_*", "orpo_alpha", "evaluation_strategy", "predict_with_generate",
    "label_smoothing_factor", "use_cpu", "no_cuda", "use_ipex", "use_mps_device", "tpu_num_cores", "sharded_ddp", "mp_parameters", "half_precision_backend",
    "fp16_backend", "fp16_opt_level", "kd_trainer", "dense_mixer", "nemo_gym_enabled", "spectrum_top_fraction", "grokfast_*",
    "use_dft_loss", "use_flash_attn", "use_flash_attention_2", "packing_strategy", "add_special_tokens", "append_concat_token", "use_wandb", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype", "chat_template_format", "splits", "use_eaft_loss", "use_eaft", "eaft_*", "ray_*", "tokenized_path", "print_*", "relora_prune_ratio",
    "jagged_restart_*", "apollo_scale*", "galore_scale", "badam_verbose", "processor_type", "streaming_*", "gptq_disable_exllama",
    "restore_callback_states_from_checkpoint", "enable_jit_checkpoint", "quantization_method", "loss_type", "qlora_sharded_model_loading",
    "batch_size", "block_size", "model_max_length", "fsdp_transformer_layer_cls_to_wrap", "data_path", "lazy_preprocess", "no_remove_unused_columns",
    "eos_token", "sample_packing_bin_size", "sample_packing_eff_est", "sample_packing_group_size", "sample_packing_sequentially",
    "sample_packing_mp_start_method", "multipack_real_batches", "pretrain_multipack_attn", "pretrain_multipack_buffer_size", "excess_length_strategy", "min_sample_len",
    "curriculum_sampling", "use_ray", "use_mlflow", "use_comet", "use_trackio", "profiler_steps", "profiler_steps_start", "trigger_file_path", "loftq_config",
    "is_falcon_derived_model", "is_qwen_derived_model", "type_of_model", "bos_token", "pad_token", "unk_token", "train_on_eos", "train_on_eot", "roles_to_train",
    "default_system_message", "peft_init_lora_weights", "peft_ensure_weight_tying", "lora_alpha_pattern", "relora_cpu_offload", "relora_prune_method",
    "compute_accuracy", "disable_shuffling", "train_on_prompt", "mask_history", "default_system", "enable_thinking", "tool_format", "early_stopping_steps",
    "ignore_pad_token_for_loss", "skip_special_tokens", "max_new_tokens", "num_beams", "length_penalty", "gptq_groupsize", "gptq_model_v1", "max_packed_sequence_len", "push_dataset_to_hub", "torchdistx_path", RECIPE_TRL_PROGRAM, "num_generations*", "max_completion_length", "max_prompt_length", "num_iterations", "epsilon*", "reward_*", "use_vllm",
    "vllm_*", "vllm_device", "vllm_max_model_len", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "beta", "scale_rewards", "mask_truncated_completions",
    "steps_per_generation", "generation_batch_size", "generation_kwargs", "importance_sampling_level", "sync_ref_model",
    "lora_target_parameters", "tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree", "expert_parallel_size", "dp_shard_size", "dp_replicate_size",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size",       /* read, or refused */
};

/* Those of the list that one form alone has: another's program does not know them. */
static const struct { const char *key; enum recipe_form form; } alone[] = {
    { "block_size", RECIPE_TRANSFORMERS }, { "model_max_length", RECIPE_TRANSFORMERS }, { "data_path", RECIPE_TRANSFORMERS }, { "lazy_preprocess", RECIPE_TRANSFORMERS },
    { "batch_size", RECIPE_AXOLOTL }, { "unfrozen_parameters", RECIPE_AXOLOTL }, { "use_eaft", RECIPE_AXOLOTL }, { "xformers_attention", RECIPE_AXOLOTL },
    { "flash_attention", RECIPE_AXOLOTL }, { "flex_attention", RECIPE_AXOLOTL }, { "sdp_attention", RECIPE_AXOLOTL }, { "pad_to_sequence_len", RECIPE_AXOLOTL },
    { "lora_model_dir", RECIPE_AXOLOTL }, { "qat", RECIPE_AXOLOTL }, { "liger_layer_norm", RECIPE_AXOLOTL }, { "reward_model", RECIPE_AXOLOTL },
    { "use_reentrant_gc", RECIPE_FACTORY }, { "use_muon", RECIPE_FACTORY }, { "use_dft_loss", RECIPE_FACTORY }, { "use_eaft_loss", RECIPE_FACTORY },
    { "mix_strategy", RECIPE_FACTORY }, { "quantization_method", RECIPE_FACTORY }, { "train_on_prompt", RECIPE_FACTORY }, { "pref_beta", RECIPE_FACTORY },
    { "loss_type", RECIPE_TRL }, { "use_flash_attn", RECIPE_TRL }, { "use_flash_attention_2", RECIPE_TRL }, { "packing_strategy", RECIPE_TRL },
    { "chat_template_format", RECIPE_TRL }, { "max_prompt_length", RECIPE_TRL }, { "num_iterations", RECIPE_TRL }, { "bnb_4bit_compute_dtype", RECIPE_TRL },
    { "bnb_4bit_quant_storage", RECIPE_TRL }, { "scale_rewards", RECIPE_TRL }, { "steps_per_generation", RECIPE_TRL },
};

/* Of open-r1's programs (src/open_r1/configs.py), whose trainers are TRL's: what is judged after training or rewarded in it, and names.  TRL has none. */
static const char *const open_r1[] = {
    "benchmarks", "callbacks", "overwrite_hub_revision", "push_to_hub_revision", "system_prompt", "num_completions_to_print", "repetition_n_grams",
    "repetition_max_penalty", "code_language", "code_eval_test_batch_size", "code_eval_scoring_mode", "dataset_prompt_column", "parallel_code_exec_per_proc", "e2b_router_url", "morph_router_url", "code_provider",
    "ioi_provider", "max_completion_len", "soft_punish_cache",
};

static bool is_silent(const char *key, enum recipe_form form)
{
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (!strcmp(key, alone[i].key))
            return alone[i].form == form;
    return unread_is_among(key, silent, sizeof silent / sizeof *silent);
}

/* Mappings of which it is known what lies in them. */
static const struct { const char *key, *known[8]; } mappings[] = {
    { "gradient_checkpointing_kwargs", { "use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop" } },
    { "activation_checkpointing_kwargs", { "use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop" } },
    { "bnb_config_kwargs", { "bnb_4bit_use_double_quant", "llm_int8_has_fp16_weight", "llm_int8_threshold", "llm_int8_skip_modules" } },
    { "qat", { "activation_dtype", "weight_dtype", "group_size", "fake_quant_after_n_steps", "quantize_embedding" } },
    { "lr_scheduler_kwargs", { "min_lr", "min_lr_rate", "num_cycles", "power", "num_decay_steps", "lr_end", "decay_type", "min_lr_ratio" } },
};

static void list_within(struct unread *u, const char *key, const json_t *v)
{
    char path[96];
    const char *name;
    bool found = false;
    json_t *each;

    for (size_t i = 0; json_is_object(v) && i < sizeof mappings / sizeof *mappings; i++)
        if (!strcmp(key, mappings[i].key))
            json_object_foreach((json_t *)(uintptr_t)v, name, each) {
                bool known = false;
                for (int k = 0; k < 8 && mappings[i].known[k]; k++)
                    known = known || !strcmp(name, mappings[i].known[k]);
                snprintf(path, sizeof path, "%.40s.%.50s", key, name);
                if (!known)
                    unread_add(u, path, NULL, false);
                found = true;
            }
    if (!found)
        unread_section(u, key, v);
}

/* LLaMA-Factory's stages that train one model alone: dpo by ORPO's loss or SimPO's, as another is refused before (recipe_refers()). */
static bool is_plain_stage(const char *key, const json_t *v)
{
    const char *word = json_string_value(v);

    return !strcmp(key, "stage") && word && (!strcmp(word, "sft") || !strcmp(word, "pt") || !strcmp(word, "dpo"));
}

static const char *why_it_matters(const char *key)
{
    for (size_t i = 0; i < sizeof matters / sizeof *matters; i++)
        if (!strcmp(key, matters[i].key))
            return matters[i].why;
    return NULL;
}

/* What recipe_import.c takes of axolotl's by name: inputs of checkpoints leave where everything trains. */
static bool axolotl_reads(const json_t *config, const char *key)
{
    return !strcmp(key, "bfloat16") || !strcmp(key, "float16") || (!strcmp(key, "activation_offloading") && !json_is_string(json_object_get(config, "adapter"))
                                        && json_is_true(json_object_get(config, key)));
}

static bool is_read(const json_t *config, enum recipe_form form, const char *key)
{
    if (!strcmp(key, "torch_compile") || (form == RECIPE_AXOLOTL && axolotl_reads(config, key)) || (form == RECIPE_TRL && !strcmp(key, "num_processes")))
        return true;
    for (int w = 0; w < NSAYS; w++)
        if (keys[w][form] && is_one_of(keys[w][form], key))
            return true;
    return recipe_liger_reads(form, key);
}

const char *recipe_first_unknown(const json_t *config, enum recipe_form form, size_t *n)
{
    const char *key, *first = NULL;
    json_t *v;

    *n = 0;
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
        if (*key && !is_read(config, form, key) && !why_it_matters(key) && !is_silent(key, form)) {
            first = first ? first : key;
            ++*n;
        }
    return first;
}

void recipe_list_rest(const json_t *config, enum recipe_form form, struct notes *notes)
{
    struct unread u = { .notes = notes };
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)config, key, v) {
        bool silent_here = is_silent(key, form) || (form == RECIPE_TRL && unread_is_among(key, open_r1, sizeof open_r1 / sizeof *open_r1));
        bool known = why_it_matters(key) || silent_here;
        if (is_read(config, form, key))
            continue;
        if (!known || !unread_asks_nothing(v))
            unread_add(&u, key, is_plain_stage(key, v) ? NULL : why_it_matters(key), silent_here);
        if (known)
            list_within(&u, key, v);
    }
    unread_end(&u);
}
