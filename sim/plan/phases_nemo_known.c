/* phases_nemo_known.c -- the keys that NeMo-RL has: what a section has beside them may be misspelt; and which of them no plan follows.
 *
 * Source: examples/configs and nemo_rl's TypedDicts of August 2026. */
#include "sim/plan/phases_nemo.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

#define GEN "policy.generation."

/* Those of sections that decide. */
static const struct { const char *section, *keys; } known[] = {
    { "policy", " model_name tokenizer hf_config_overrides train_global_batch_size train_micro_batch_size generation_batch_size logprob_batch_size "
                "max_total_sequence_length precision logprob_chunk_size offload_optimizer_for_logprob dtensor_cfg megatron_cfg draft dynamic_batching sequence_packing "
                "make_sequence_length_divisible_by max_grad_norm optimizer scheduler generation reward_model_cfg activation_checkpointing_enabled quantization router_replay "
                "weights_path value quant_cfg quant_calib_data quant_calib_size quant_batch_size quant_sequence_length disable_modelopt_layer_spec refit_buffer_size_gb is_vlm "
                "dequantize_base_checkpoint lm_head_precision " },
    { "policy.dtensor_cfg", " _v2 enabled cpu_offload sequence_parallel activation_checkpointing tensor_parallel_size context_parallel_size expert_parallel_size "
                            "dp_replicate_size custom_parallel_plan automodel_kwargs lora_cfg env_vars clear_cache_every_n_steps defer_fsdp_grad_sync moe_parallelizer checkpoint " },
    { "policy.generation", " backend max_new_tokens temperature top_p top_k val_temperature val_top_p val_top_k stop_token_ids stop_strings bad_words mcore_generation_config "
                           "vllm_cfg vllm_kwargs colocated port_range_low port_range_high trtllm_cfg trtllm_kwargs sglang_cfg dynamo_cfg quant_cfg real_quant "
                           "real_quant_export_cpu_offload real_quant_ignore use_async_rollouts refit_transport refit_cfg model_name " },
    { "policy.generation.colocated", " enabled resources " },
    { "policy.generation.vllm_cfg", " async_engine precision kv_cache_dtype logprobs_mode tensor_parallel_size pipeline_parallel_size expert_parallel_size "
                                    "gpu_memory_utilization max_model_len enforce_eager use_tqdm use_deep_gemm num_last_layers_in_bf16 num_first_layers_in_bf16 "
                                    "is_mx quantization_ignored_layer_kws pow2_weight_scaling_factors pow2_activation_scaling_factors enable_vllm_metrics_logger vllm_metrics_logger_interval http_refit_api_key_env_var reset_encoder_cache_after_weight_update "
                                    "http_refit_server_port zmq_refit_server_port expose_http_server skip_tokenizer_init load_format http_server_serving_chat_kwargs " },
    { "grpo", " num_prompts_per_step num_generations_per_prompt max_rollout_turns max_num_epochs max_num_steps normalize_rewards use_leave_one_out_baseline val_period "
              "val_start_at val_at_start val_at_end overlong_filtering max_val_samples val_num_generations_per_prompt num_val_generations_per_prompt stop_at_validation_metric "
              "stop_at_validation_threshold val_batch_size seed use_dynamic_sampling dynamic_sampling_max_gen_batches dynamic_sampling_oversample_ratio batch_multiplier "
              "reward_shaping adv_estimator reward_scaling seq_logprob_error_threshold async_grpo advantage_clip_low advantage_clip_high invalid_tool_call_strategy "
              "penalize_invalid_tool_call invalid_tool_call_advantage penalize_malformed_thinking malformed_thinking_advantage skip_reference_policy_logprobs_calculation "
              "calculate_advantages_on_gpu use_best_at_k best_at_k_k best_at_k_m use_combined_training combined_training_weight_mode combined_training_best_at_k_weight "
              "combined_training_pass_at_1_weight deduplicate_multimodal_data debug_payload_metrics zero_variance_prompt_filtering " },
    { "grpo.async_grpo", " enabled max_trajectory_age_steps max_generation_failures in_flight_weight_updates recompute_kv_cache_after_weight_updates " },
    { "ppo", " num_prompts_per_step num_generations_per_prompt max_rollout_turns max_num_epochs max_num_steps ppo_epochs policy_training_start_step val_period val_start_at "
             "val_at_start val_at_end overlong_filtering max_val_samples val_batch_size seed use_dynamic_sampling dynamic_sampling_max_gen_batches batch_multiplier "
             "skip_reference_policy_logprobs_calculation async_ppo reward_shaping adv_estimator reward_scaling seq_logprob_error_threshold normalize_rewards " },
    { "loss_fn", " reference_policy_kl_penalty reference_policy_kl_type kl_input_clamp_value kl_output_clamp_value ratio_clip_min ratio_clip_max ratio_clip_c "
                 "use_on_policy_kl_approximation use_importance_sampling_correction truncated_importance_sampling_type truncated_importance_sampling_ratio "
                 "truncated_importance_sampling_ratio_min sequence_level_importance_ratios token_level_loss force_on_policy_ratio use_kl_in_reward use_cispo disable_ppo_ratio "
                 "positive_example_nll_weight sum_weights_metric " },
};

/* What of it no plan has, and what that does. */
static const struct { const char *path, *what; } beside[] = {
    { "policy.logprob_chunk_size", "log-probabilities in chunks keep less than the plan counts" },
    { "policy.lm_head_precision", "the plan has the head's product in the precision of all others" },
    { "policy.refit_buffer_size_gb", "the plan has NeMo-RL's own buffers of the hand-over" },
};

static bool stands_in(const char *keys, const char *key)
{
    char word[80];

    snprintf(word, sizeof word, " %.70s ", key);
    return strstr(keys, word) != NULL;
}

/* Arguments of vLLM's engine that are its own business: kernels, buffers of pictures, compilation. */
static void tell_engine(struct importing *in)
{
    static const char read[] = " max_num_seqs max_num_batched_tokens ";
    const json_t *given = form_value(in->f->doc, GEN "vllm_kwargs");
    const char *key;
    char some[200] = "";
    size_t n = 0;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)given, key, v)
        if (!stands_in(read, key) && !json_is_null(v) && n + strlen(key) + 3 < sizeof some)
            n += (size_t)snprintf(some + n, sizeof some - n, "%s%s", n ? ", " : "", key);
    if (n)
        notes_add(in->notes, GEN "vllm_kwargs: given to vLLM and not in the plan: %s", some);
}

void nemo_tell_unknown(struct importing *in)
{
    const char *key;
    json_t *v;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        json_object_foreach((json_t *)(uintptr_t)form_value(in->f->doc, known[i].section), key, v)
            if (!stands_in(known[i].keys, key))
                notes_add(in->notes, "%s.%s: not known: is it spelt right?", known[i].section, key);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (form_value(in->f->doc, beside[i].path))
            notes_add(in->notes, "%s: %s", beside[i].path, beside[i].what);
    if (import_flag(in, "policy.dtensor_cfg.enabled", false) && !import_flag(in, "policy.dtensor_cfg._v2", false))
        notes_add(in->notes, "policy.dtensor_cfg._v2: the older worker is planned as the newer one: both shard with FSDP2 from weights in fp32");
    tell_engine(in);
}

int nemo_refuses_beside(struct importing *in)
{
    static const struct { const char *path, *why; } never[] = {
        { GEN "real_quant", "an engine's weights in ModelOpt's 4 or 8 bits are not planned: in bf16 and in blocks of fp8 they are" },
        { GEN "quant_cfg", "weights that ModelOpt quantises are not planned" },
        { "policy.quant_cfg", "training with ModelOpt's fake quantisation is not planned" },
        { GEN "vllm_kwargs.kv_cache_memory_bytes", "a cache of so many bytes is not planned: one by gpu_memory_utilization is" },
        { GEN "vllm_kwargs.speculative_config", "a draft model is not planned" },
    };

    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        const json_t *v = form_value(in->f->doc, never[i].path);
        if (v && !json_is_null(v) && !json_is_false(v))
            return fail("%s: %s: %s", in->f->path, never[i].path, never[i].why);
    }
    return 0;
}
