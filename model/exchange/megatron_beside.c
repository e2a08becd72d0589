/* megatron_beside.c -- options of Megatron-LM that change nothing that a plan describes: schedules of the learning rate, data, tokenizers, logs,
 * checkpoints, and what the model itself says.  Names of megatron/training/arguments.py and megatron-core's configs, 0.16.1 to 0.19, whole: a name
 * that only begins as one of them is told. */
#include <string.h>

#include "model/exchange/megatron_read.h"

static const char *const names[] = {
    "adam_beta1", "adam_beta2", "adam_eps", "add_qkv_bias", "align_param_gather", "apply_layernorm_1p", "apply_query_key_layer_scaling",
    "async_ckpt_cpu_priority", "async_ckpt_io_priority", "async_ckpt_use_cpu_shm", "async_save", "async_strategy",
    "async_tensor_model_parallel_allreduce", "attention_softmax_in_fp32", "auto_detect_ckpt_format", "beta_fast", "beta_slow",
    "cache_mla_latents", "check_weight_hash_across_dp_replicas_interval", "ckpt_assume_constant_structure", "ckpt_convert_format",
    "ckpt_convert_save", "ckpt_convert_update_legacy_dist_opt_format", "ckpt_drop_redundant_extra_state", "ckpt_format",
    "ckpt_fully_parallel_load", "ckpt_fully_parallel_load_exchange_algo", "ckpt_fully_parallel_load_per_rank_objects",
    "ckpt_fully_parallel_load_process_group", "ckpt_fully_parallel_save", "ckpt_fully_parallel_save_process_group",
    "ckpt_load_validate_sharding_integrity", "ckpt_pg_tensors_cache_create", "ckpt_pg_tensors_cache_path", "ckpt_step",
    "cuda_graph_retain_backward_graph", "cuda_graph_use_single_mempool", "cuda_graph_warmup_steps", "data_args_path",
    "data_cache_path", "data_impl", "data_parallel_random_init", "data_parallel_sharding_strategy", "data_path",
    "data_per_class_fraction", "decoupled_lr", "decoupled_min_lr", "decoupled_weight_decay",
    "disable_bias_linear", "disable_gloo_process_groups", "dist_ckpt_format", "dist_ckpt_optim_fully_reshardable",
    "dist_ckpt_save_pre_mcore_014", "dist_ckpt_strictness", "dist_ckpt_workers", "distributed_config_file",
    "distributed_timeout_minutes", "distributed_timeout_seconds_after_init", "end_weight_decay", "error_injection_type",
    "eval_global_batch_size", "eval_interval", "eval_iters", "eval_micro_batch_size", "exit_duration_in_mins", "exit_interval",
    "exit_on_missing_checkpoint", "exit_signal", "exit_signal_handler", "exit_signal_handler_for_dataloader",
    "exit_signal_handler_for_training", "export_default_te_spec", "export_dir", "export_force_local_attention", "export_kd_cfg",
    "export_kd_teacher_load", "export_model_type", "export_te_mcore_model", "finetune", "finetune_hf_dataset",
    "fp8_amax_compute_algo", "fp8_interval", "fp8_margin", "group_query_attention", "hysteresis", "init_method", "init_method_std",
    "init_method_xavier_uniform", "initial_loss_scale", "kv_channels", "layernorm_epsilon", "legacy_tokenizer", "load",
    "load_main_params_from_ckpt", "load_optim", "load_rng", "local_rank", "log_batch_size_to_tensorboard", "log_device_memory_used",
    "log_dir", "log_energy", "log_interval", "log_l2_norm_grad_to_tensorboard", "log_loss_scale_to_tensorboard",
    "log_memory_interval", "log_memory_to_tensorboard", "log_params_norm_per_param", "log_progress", "log_runtime_to_tensorboard",
    "log_straggler", "log_throughput", "log_throughput_to_tensorboard", "log_timers_to_tensorboard",
    "log_validation_ppl_to_tensorboard", "log_world_size_to_tensorboard", "log_zero_guard_type", "log_zero_guard_value",
    "logging_level", "loss_scale_window", "lr", "lr_decay_iters", "lr_decay_samples", "lr_decay_steps", "lr_decay_style",
    "lr_decay_tokens", "lr_warmup_fraction", "lr_warmup_init", "lr_warmup_iters", "lr_warmup_samples", "lr_warmup_steps",
    "lr_wsd_decay_iters", "lr_wsd_decay_samples", "lr_wsd_decay_style", "manual_gc", "manual_gc_eval", "manual_gc_interval",
    "max_position_embeddings", "merge_file", "min_loss_scale", "min_lr", "mock_data", "moe_per_layer_logging",
    "moe_router_bias_update_rate", "moe_router_force_biased", "moe_router_force_load_balancing", "moe_router_topk_scaling_factor",
    "mscale", "mscale_all_dim", "mtp_loss_scaling_factor", "no_align_param_gather", "no_ckpt_fully_parallel_save", "no_create_attention_mask_in_dataloader",
    "no_initialization", "no_load_optim", "no_load_rng", "no_log_learnig_rate_to_tensorboard", "no_log_loss_scale_to_tensorboard",
    "no_masked_softmax_fusion", "no_mmap_bin_files", "no_persist_layer_norm", "no_position_embedding", "no_save_optim",
    "no_save_rng", "norm_epsilon", "normalization", "num_dataset_builder_threads", "num_workers", "nvtx_ranges",
    "original_max_position_embeddings", "override_ckpt_iteration", "override_opt_param_scheduler", "position_embedding_type",
    "profile", "profile_ranks", "profile_step_end", "profile_step_start", "qk_layernorm", "rerun_mode",
    "reset_attention_mask", "reset_position_ids", "rope_scaling", "rope_scaling_factor", "rotary_base", "rotary_interleaved",
    "rotary_percent", "rotary_scaling_factor", "rotary_seq_len_interpolation_factor", "save", "save_activations_interval",
    "save_config_filepath", "save_dgrads_interval", "save_dir", "save_interval", "save_optim", "save_params_interval",
    "save_retain_interval", "save_rng", "save_tokenizer_assets", "save_tokens_per_expert_interval", "save_wgrads_interval", "seed",
    "split", "squared_relu", "start_weight_decay", "straggler", "straggler_ctrlr_port", "straggler_minmax_count", "swiglu",
    "te_rng_tracker", "tensorboard_dir", "tensorboard_log_interval", "tensorboard_logs_path", "tensorboard_queue_size", "test_mode",
    "tiktoken_num_special_tokens", "tiktoken_pattern", "tiktoken_special_tokens", "timing_log_option",
    "tokenizer", "tokenizer_hf_include_special_tokens", "tokenizer_hf_no_include_special_tokens", "tokenizer_hf_no_use_fast",
    "tokenizer_hf_use_fast", "tokenizer_metadata", "tokenizer_model", "tokenizer_prompt_format",
    "tokenizer_sentencepiece_ignore_extra_whitespaces", "tokenizer_sentencepiece_legacy", "tokenizer_special_tokens",
    "tokenizer_type", "train_iters", "train_samples", "untie_embeddings_and_output_weights", "use_checkpoint_args",
    "use_checkpoint_opt_param_scheduler", "use_cpu_initialization", "use_flash_attn", "use_legacy_models", "use_mcore_models",
    "use_persistent_ckpt_worker", "use_rope_scaling", "use_rotary_position_embeddings", "verify_integrity", "vocab_extra_ids",
    "vocab_file", "vocab_size", "wandb_entity", "wandb_exp_name", "wandb_project", "wandb_save_dir", "weight_decay",
    "weight_decay_incr_style",
};

bool megatron_is_beside(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Those of them without a value (arguments.py: store_true, store_false, and fields of configs that are true or false). */
static const char *const bare[] = {
    "add_qkv_bias", "apply_query_key_layer_scaling", "async_ckpt_use_cpu_shm", "async_save", "attention_softmax_in_fp32",
    "auto_detect_ckpt_format", "cache_mla_latents", "ckpt_assume_constant_structure", "ckpt_convert_update_legacy_dist_opt_format",
    "ckpt_drop_redundant_extra_state", "ckpt_fully_parallel_load_per_rank_objects", "ckpt_fully_parallel_save",
    "ckpt_pg_tensors_cache_create", "cuda_graph_retain_backward_graph", "data_parallel_random_init", "dist_ckpt_optim_fully_reshardable",
    "dist_ckpt_save_pre_mcore_014", "exit_on_missing_checkpoint", "exit_signal_handler", "exit_signal_handler_for_dataloader",
    "exit_signal_handler_for_training", "finetune", "group_query_attention", "init_method_xavier_uniform", "load_main_params_from_ckpt",
    "log_device_memory_used", "log_energy", "log_l2_norm_grad_to_tensorboard", "log_memory_to_tensorboard", "log_progress",
    "log_runtime_to_tensorboard", "log_straggler", "log_throughput", "log_throughput_to_tensorboard", "log_timers_to_tensorboard",
    "log_validation_ppl_to_tensorboard", "log_world_size_to_tensorboard", "manual_gc", "mock_data", "moe_per_layer_logging",
    "moe_router_force_load_balancing", "no_align_param_gather", "no_create_attention_mask_in_dataloader", "no_load_optim", "no_load_rng",
    "no_log_loss_scale_to_tensorboard", "no_masked_softmax_fusion", "no_mmap_bin_files", "no_persist_layer_norm", "no_position_embedding",
    "no_save_optim", "no_save_rng", "nvtx_ranges", "qk_layernorm", "reset_attention_mask", "reset_position_ids", "rotary_interleaved",
    "squared_relu", "swiglu", "te_rng_tracker", "test_mode", "tokenizer_hf_no_include_special_tokens", "tokenizer_hf_no_use_fast",
    "tokenizer_sentencepiece_legacy", "untie_embeddings_and_output_weights", "use_checkpoint_args", "use_flash_attn", "use_mcore_models",
    "use_persistent_ckpt_worker", "use_rope_scaling", "use_rotary_position_embeddings", "verify_integrity",
};

bool megatron_is_bare(const char *name)
{
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++)
        if (!strcmp(name, bare[i]))
            return true;
    return false;
}
