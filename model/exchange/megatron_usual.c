/* megatron_usual.c -- fields that each config of Megatron-Bridge's that is written whole (run_config.yaml) has, and no option of Megatron-LM that we read: they say
 * nothing where they have their usual value, and are told where they have another.
 *
 * Source: what runs of Megatron-Bridge write (scripts/performance/dryrun_configs/llama, 2026), and the defaults of megatron-core's configs. */
#include <stdlib.h>
#include <string.h>

#include "model/exchange/megatron_read.h"
#include "model/exchange/unread.h"

/* A text or number; NULL: what asks for nothing, false, 0, null. */
static const struct { const char *name, *usual; } fields[] = {
    { "activation_func_fp8_input_store", NULL }, { "apply_residual_connection_post_layernorm", NULL }, { "apply_wd_to_qk_layernorm", NULL },
    { "attention_output_gate", NULL }, { "autocast_dtype", NULL }, { "autocast_enabled", NULL }, { "barrier_with_L1_time", "true" },
    { "batch_invariant_mode", NULL }, { "batch_p2p_comm", "true" }, { "batch_p2p_sync", "true" }, { "check_for_large_grads", NULL },
    { "check_optimizer_step_success", "true" }, { "clone_scatter_output_in_embedding", "true" }, { "config_logger_dir", NULL },
    { "cpu_offloading_activations", "true" }, { "cpu_offloading_double_buffering", NULL }, { "cpu_offloading_num_layers", NULL },
    { "cpu_offloading_retain_pinned_cpu_buffers", NULL }, { "cpu_offloading_weights", NULL }, { "deallocate_pipeline_outputs", "true" },
    { "decrease_batch_size_if_needed", NULL }, { "disable_bf16_reduced_precision_matmul", NULL }, { "disable_parameter_transpose_cache", NULL },
    { "disable_symmetric_registration", NULL }, { "dsa_indexer_head_dim", NULL }, { "dsa_indexer_loss_coeff", NULL }, { "dsa_indexer_n_heads", NULL },
    { "dsa_indexer_topk", NULL }, { "dsa_indexer_use_sparse_loss", NULL }, { "embedding_init_method", NULL }, { "embedding_init_method_std", NULL },
    { "enable_autocast", NULL }, { "ep_overlap_early_attn_memory_release", NULL }, { "experimental_attention_variant", NULL },
    { "finalize_model_grads_func", NULL }, { "flash_decode", NULL }, { "fp16_lm_cross_entropy", NULL }, { "fp32", NULL }, { "fp4_param", NULL },
    { "fp4_quantizer_factory", NULL }, { "fp8_dot_product_attention", NULL }, { "fp8_multi_head_attention", NULL }, { "fp8_param", NULL },
    { "fp8_quantizer_factory", NULL }, { "fp8_wgrad", "true" }, { "fsdp_all_gather_in_start_param_sync", "true" },
    { "fsdp_db_use_persist_buf_on_alloc_fail", NULL }, { "fsdp_double_buffer", NULL }, { "fsdp_manual_registration", NULL },
    { "fused_residual_rmsnorm", NULL }, { "fused_single_qkv_rope", NULL }, { "grad_scale_func", NULL }, { "grad_sync_func", NULL },
    { "gradient_reduce_div_fusion", "true" }, { "hetereogenous_dist_checkpoint", NULL }, { "heterogeneous_block_specs", NULL },
    { "hf_model_id", NULL }, { "hybrid_context_parallel", NULL }, { "inference_disable_triton_nvls_kernels", NULL },
    { "inference_fuse_tp_communication", NULL }, { "inference_grouped_gemm_backend", "auto" }, { "inference_moe_disable_fused_quant_kernels", NULL },
    { "inference_rng_tracker", NULL }, { "inference_sampling_seed", "42" }, { "init_model_with_meta_device", NULL }, { "iterations_to_skip", NULL },
    { "keep_fp8_transpose_cache", NULL }, { "kitchen_attention_backend", "sdpa" }, { "layernorm_zero_centered_gamma", NULL },
    { "linear_attention_freq", NULL }, { "linear_conv_kernel_dim", "4" }, { "linear_key_head_dim", "128" }, { "linear_num_key_heads", "16" },
    { "linear_num_value_heads", "32" }, { "linear_value_head_dim", "128" }, { "lion_beta1", "0.95" }, { "lion_beta2", "0.98" },
    { "masked_softmax_fusion", "true" }, { "max_seqlen_per_dp_cp_rank", NULL }, { "megatron_fsdp_grad_comm_dtype", NULL },
    { "megatron_fsdp_main_grads_dtype", NULL }, { "megatron_fsdp_main_params_dtype", NULL }, { "memory_efficient_layer_norm", NULL },
    { "min_offloaded_tensor_size", "1048576" }, { "mlp_chunks_for_prefill", "1" }, { "moe_deepep_num_sms", "20" }, { "moe_enable_deepep", NULL },
    { "moe_enable_routing_replay", NULL }, { "moe_flex_dispatcher_backend", "deepep" }, { "moe_hybridep_num_sms", "16" },
    { "moe_router_topk_limited_devices", NULL }, { "moe_token_dropping", NULL }, { "mrope_section", NULL }, { "mtp_enabled", NULL },
    { "mtp_standalone", NULL }, { "mtp_use_repeated_layer", NULL }, { "muon_coefficient_type", "quintic" }, { "muon_extra_scale_factor", "1.0" },
    { "muon_fp32_matmul_prec", "medium" }, { "muon_momentum", "0.95" }, { "muon_num_ns_steps", "5" }, { "muon_scalar_optimizer", "adam" },
    { "muon_scale_mode", "spectral" }, { "muon_split_qkv", "true" }, { "muon_tp_mode", "blockwise" }, { "muon_use_nesterov", NULL },
    { "mup_width_mult", "1.0" }, { "nccl_all_reduce_for_prefill", NULL }, { "no_rope_freq", NULL }, { "no_sync_func", NULL },
    { "num_microbatches_with_partial_activation_checkpoints", NULL }, { "offload_modules", NULL }, { "optimizer_offload_fraction", NULL },
    { "outer_dp_sharding_strategy", "no_shard" }, { "output_layer_init_method", NULL }, { "overlap_cpu_optimizer_d2h_h2d", NULL },
    { "overlap_p2p_comm_warmup_flush", NULL }, { "parallel_output", "true" }, { "param_name_patterns_for_fp32_local_accumulation", NULL },
    { "param_sync_func", NULL }, { "params_dtype", NULL }, { "perform_initialization", "true" }, { "persist_layer_norm", "true" },
    { "pin_cpu_grads", "true" }, { "pin_cpu_params", "true" }, { "pipeline_dtype", NULL }, { "pipeline_model_parallel_comm_backend", NULL },
    { "qk_clip", NULL }, { "qk_clip_alpha", "0.5" }, { "qk_clip_threshold", "100" }, { "qk_l2_norm", NULL }, { "quant_recipe", NULL },
    { "reduce_scatter_with_fp32_accumulation", NULL }, { "restore_modelopt_state", NULL }, { "scatter_embedding_sequence_parallel", "true" },
    { "seq_len_interpolation_factor", NULL }, { "sgd_momentum", "0.9" }, { "should_pad_vocab", NULL }, { "skip_sync_grad_norm_across_mp", NULL },
    { "skip_train", NULL }, { "softmax_scale", NULL }, { "suggested_communication_unit_size", NULL }, { "symmetric_ar_type", NULL },
    { "timers", NULL }, { "tp_comm_atomic_ag", NULL }, { "tp_comm_atomic_rs", NULL }, { "tp_comm_bootstrap_backend", "nccl" },
    { "tp_comm_bulk_dgrad", "true" }, { "tp_comm_bulk_wgrad", "true" }, { "tp_comm_overlap_ag", "true" }, { "tp_comm_overlap_disable_fc1", NULL },
    { "tp_comm_overlap_disable_qkv", NULL }, { "tp_comm_overlap_rs", "true" }, { "tp_comm_overlap_rs_dgrad", NULL }, { "tp_comm_split_ag", "true" },
    { "tp_comm_split_rs", "true" }, { "train_sync_interval", NULL }, { "use_arbitrary_attention_mask", NULL },
    { "use_fused_weighted_squared_relu", NULL }, { "use_inference_optimized_layers", NULL }, { "use_kitchen", NULL },
    { "use_kitchen_attention", NULL }, { "use_mamba_mem_eff_path", "true" }, { "use_ring_exchange_p2p", NULL }, { "use_te_activation_func", NULL },
    { "use_te_rng_tracker", NULL }, { "use_torch_optimizer_for_cpu_offload", NULL }, { "use_transformer_engine_full_layer_spec", NULL },
    { "use_transformer_engine_op_fuser", NULL }, { "variable_seq_lengths", NULL }, { "yarn_beta_fast", NULL }, { "yarn_beta_slow", NULL },
    { "yarn_correction_range_round_to_int", NULL }, { "yarn_mscale", NULL }, { "yarn_mscale_all_dim", NULL },
    { "yarn_original_max_position_embeddings", NULL }, { "yarn_rotary_scaling_factor", NULL },
};

static int field_of(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(name, fields[i].name))
            return (int)i;
    return -1;
}

static bool is_format(const json_t *v)
{
    static const char *const formats[] = { "float32", "bfloat16", "float16", "fp32", "bf16", "fp16" };
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "_target_") : v);

    text = text && !strncmp(text, "torch.", 6) ? text + 6 : text;
    return text && unread_is_among(text, formats, sizeof formats / sizeof *formats);
}

bool megatron_is_field(const char *name) { return field_of(name) >= 0; }

/* A number format is the run's own, which other fields say (a class by its name); so is a model's identity. */
bool megatron_field_is_usual(const char *name, const json_t *v)
{
    int i = field_of(name);

    if (i < 0)
        return false;
    const char *usual = fields[i].usual;
    if (!strcmp(name, "hf_model_id") || (strstr(name, "_dtype") && is_format(v)) || (usual ? json_is_null(v) : unread_asks_nothing(v)))
        return true;
    if (!usual)
        return (json_is_array(v) && json_array_size(v) == 0) || (json_is_string(v) && !*json_string_value(v)) || !strcmp(name, "should_pad_vocab");
    return json_is_true(v) ? !strcmp(usual, "true") : json_is_string(v) ? !strcmp(json_string_value(v), usual) :
           json_is_number(v) && !(json_number_value(v) < strtod(usual, NULL) || json_number_value(v) > strtod(usual, NULL));
}
