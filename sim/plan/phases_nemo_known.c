/* phases_nemo_known.c -- the keys that NeMo-RL has: what a section has beside them may be misspelt; and which of them no plan follows.
 *
 * Source: examples/configs and nemo_rl's TypedDicts of August 2026. */
#include "sim/plan/phases_nemo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/exchange/unread.h"
#include "model/plan/environment.h"

#define GEN "policy.generation."
#define DEFERS "policy.dtensor_cfg.defer_fsdp_grad_sync"

/* Of each section that decides its keys: one behind '-' says nothing of a step, one behind '!' matters and is in no plan, all others are read. */
static const struct { const char *section, *keys; } known[] = {
    { "", " async_rl -checkpointing cluster -data -data_plane defaults distillation dpo env grpo -logger loss_fn on_policy_distillation policy ppo -reward_penalties rm sft value "
          "value_loss_fn reward_model -eval -sif_dir -teacher -teachers -_teachers " },
    { "cluster", " gpus_per_node num_nodes -segment_size -master_port_range_low -master_port_range_high " },
    { "policy", " model_name -tokenizer !hf_config_overrides train_global_batch_size train_micro_batch_size -generation_batch_size logprob_batch_size "
                "max_total_sequence_length precision logprob_chunk_size offload_optimizer_for_logprob dtensor_cfg megatron_cfg draft dynamic_batching sequence_packing "
                "-make_sequence_length_divisible_by max_grad_norm optimizer -scheduler generation -reward_model_cfg !activation_checkpointing_enabled quantization router_replay "
                "-weights_path -value quant_cfg -quant_calib_data -quant_calib_size -quant_batch_size -quant_sequence_length -disable_modelopt_layer_spec refit_buffer_size_gb -is_vlm "
                "-dequantize_base_checkpoint lm_head_precision " },
    { "policy.draft", " enabled -loss_weight -aux_layer_indices -model_name -num_layers " },
    { "policy.router_replay", " !enabled " },
    { "policy.optimizer", " name kwargs " },
    { "policy.optimizer.kwargs", " -lr -betas -eps -weight_decay foreach fused exp_avg_dtype exp_avg_sq_dtype master_weights store_param_remainders " },
    { "policy.sequence_packing", " enabled train_mb_tokens logprob_mb_tokens -algorithm -microbatch_order -sequence_length_round -fuse_loss " },
    { "policy.dynamic_batching", " enabled train_mb_tokens logprob_mb_tokens -sequence_length_round " },
    { "policy.dtensor_cfg", " _v2 enabled cpu_offload sequence_parallel activation_checkpointing tensor_parallel_size context_parallel_size expert_parallel_size "
                            "dp_replicate_size custom_parallel_plan automodel_kwargs lora_cfg env_vars !clear_cache_every_n_steps -defer_fsdp_grad_sync moe_parallelizer -checkpoint " },
    { "policy.dtensor_cfg.lora_cfg", " enabled dim alpha dropout target_modules match_all_linear exclude_modules -dropout_position -lora_A_init -use_triton " },
    { "policy.dtensor_cfg.automodel_kwargs", " attn_implementation use_liger_kernel force_hf backend !freeze_config -use_sdpa_patching " },
    { "policy.dtensor_cfg.automodel_kwargs.backend", " -_target_ attn linear rms_norm experts dispatcher -enable_deepep -fake_balanced_gate -enable_hf_state_dict_adapter "
                                                     "enable_fsdp_optimizations gate_precision rope_fusion " },
    { "policy.dtensor_cfg.moe_parallelizer", " ignore_router_for_ac reshard_after_forward wrap_outer_model !lm_head_precision " },
    { "policy.megatron_cfg", " enabled activation_checkpointing recompute_granularity recompute_modules tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
                             "expert_model_parallel_size expert_tensor_parallel_size num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage sequence_parallel "
                             "apply_rope_fusion bias_activation_fusion gradient_accumulation_fusion attention_backend moe_token_dispatcher_type moe_shared_expert_overlap moe_permute_fusion "
                             "moe_grouped_gemm moe_router_dtype freeze_moe_router cuda_graph_impl mtp_num_layers fine_grained_activation_offloading use_fused_linear_logprobs peft optimizer "
                             "distributed_data_parallel_config fp8_cfg env_vars model_overrides "
                             "!moe_enable_deepep !moe_flex_dispatcher_backend !moe_hybridep_num_sms !moe_router_load_balancing_type !first_last_layers_bf16 !num_layers_at_start_in_bf16 "
                             "!num_layers_at_end_in_bf16 !transformer_impl !use_fused_weighted_squared_relu !freeze_config !moe_router_num_groups !moe_router_group_topk "
                             "-calculate_per_token_loss -moe_aux_loss_coeff -moe_router_enable_expert_bias "           /* NeMo-RL reads none of these */
                             "-_override_ -checkpoint -clear_memory_caches_before_refit -converter_type -cp_normalize -cuda_graph_modules -cuda_graph_warmup_steps defer_fp32_logits "
                             "-do_not_average_loss empty_unused_memory_level -force_reconvert_from_hf -freeze_sound_encoder -freeze_sound_projection -freeze_vision_model "
                             "-freeze_vision_projection -fused_linear_logprobs_chunk_size -moe_per_layer_logging -moe_router_bias_update_rate -mtp_detach_heads "
                             "-mtp_loss_scaling_factor -mtp_use_repeated_layer -offload_modules pipeline_dtype -radio_force_cpe_eval_mode -scale_loss_by_dp_cp_size -scheduler "
                             "-track_moe_metrics -train_iters -use_gloo_process_groups -inference_moe_token_dispatcher_type -inference_grouped_gemm_backend "
                             "-moe_pad_experts_for_cuda_graph_inference -hybridep_num_ranks_per_nvlink_domain -hybridep_use_mnnvl " },
    { "policy.megatron_cfg.peft", " enabled target_modules exclude_modules dim alpha dropout dropout_position a2a_experimental -lora_A_init_method -lora_B_init_method !lora_dtype " },
    { "policy.megatron_cfg.optimizer", " optimizer use_distributed_optimizer use_precision_aware_optimizer clip_grad optimizer_cpu_offload -lr -min_lr -weight_decay bf16 fp16 params_dtype "
                                       "-adam_beta1 -adam_beta2 -adam_eps -sgd_momentum -optimizer_offload_fraction -overlap_cpu_optimizer_d2h_h2d " },
    { "policy.megatron_cfg.distributed_data_parallel_config", " grad_reduce_in_fp32 overlap_grad_reduce overlap_param_gather use_custom_fsdp -data_parallel_sharding_strategy "
                                                              "-average_in_collective " },                      /* false whatever it says */
    { "policy.megatron_cfg.fp8_cfg", " enabled fp8 fp8_recipe fp8_param -force_clear_fp8_caches " },
    { "policy.generation", " backend max_new_tokens -temperature top_p top_k -val_temperature -val_top_p -val_top_k -stop_token_ids -stop_strings -bad_words -mcore_generation_config "
                           "vllm_cfg vllm_kwargs colocated -port_range_low -port_range_high -trtllm_cfg -trtllm_kwargs -sglang_cfg -dynamo_cfg quant_cfg real_quant "
                           "-real_quant_export_cpu_offload -real_quant_ignore -use_async_rollouts !refit_transport -refit_cfg -model_name " },
    { "policy.generation.colocated", " enabled resources " },
    { "policy.generation.colocated.resources", " gpus_per_node num_nodes " },
    { "policy.generation.vllm_cfg", " async_engine precision kv_cache_dtype -logprobs_mode tensor_parallel_size pipeline_parallel_size expert_parallel_size "
                                    "gpu_memory_utilization max_model_len enforce_eager -use_tqdm !use_deep_gemm num_last_layers_in_bf16 num_first_layers_in_bf16 "
                                    "is_mx quantization_ignored_layer_kws -pow2_weight_scaling_factors -pow2_activation_scaling_factors -enable_vllm_metrics_logger "
                                    "-vllm_metrics_logger_interval -http_refit_api_key_env_var -reset_encoder_cache_after_weight_update -http_refit_server_port -zmq_refit_server_port "
                                    "-expose_http_server -skip_tokenizer_init -load_format -http_server_serving_chat_kwargs -cap_max_tokens_to_context -enable_thinking "
                                    "-enforce_monotonicity -reasoning_parser_plugin -limit_mm_per_prompt -video !distributed_executor_backend !enable_expert_parallel "
                                    "!enable_prefix_caching !max_num_seqs !env_vars " },
    { "grpo", " num_prompts_per_step num_generations_per_prompt max_rollout_turns -max_num_epochs -max_num_steps -normalize_rewards -use_leave_one_out_baseline -val_period "
              "-val_start_at -val_at_start -val_at_end -overlong_filtering -max_val_samples -val_num_generations_per_prompt -num_val_generations_per_prompt -stop_at_validation_metric "
              "-stop_at_validation_threshold -val_batch_size -seed use_dynamic_sampling -dynamic_sampling_max_gen_batches -dynamic_sampling_oversample_ratio batch_multiplier "
              "-reward_shaping -adv_estimator -reward_scaling seq_logprob_error_threshold async_grpo -advantage_clip_low -advantage_clip_high -invalid_tool_call_strategy "
              "-penalize_invalid_tool_call -invalid_tool_call_advantage -penalize_malformed_thinking -malformed_thinking_advantage -skip_reference_policy_logprobs_calculation "
              "-calculate_advantages_on_gpu -use_best_at_k -best_at_k_k -best_at_k_m -use_combined_training -combined_training_weight_mode -combined_training_best_at_k_weight "
              "-combined_training_pass_at_1_weight -deduplicate_multimodal_data -debug_payload_metrics !zero_variance_prompt_filtering " },
    { "grpo.async_grpo", " enabled max_trajectory_age_steps -max_generation_failures -in_flight_weight_updates -recompute_kv_cache_after_weight_updates " },
    { "async_rl", " sampler min_groups_for_streaming_train -recompute_kv_cache_after_weight_updates -max_inflight_prompts -max_buffered_rollouts -diagnostics -rollout_failure "
                  "-stall_watchdog -generation_fleet_health -generation_router " },
    { "async_rl.sampler", " name max_staleness_versions max_lookahead_versions -sample_freshest_first -target " },
    { "ppo", " num_prompts_per_step num_generations_per_prompt max_rollout_turns -max_num_epochs -max_num_steps ppo_epochs -policy_training_start_step -val_period -val_start_at "
             "-val_at_start -val_at_end -overlong_filtering -max_val_samples -val_batch_size -seed use_dynamic_sampling -dynamic_sampling_max_gen_batches batch_multiplier "
             "skip_reference_policy_logprobs_calculation async_ppo -reward_shaping -adv_estimator -reward_scaling seq_logprob_error_threshold -normalize_rewards " },
    { "ppo.async_ppo", " enabled max_trajectory_age_steps -in_flight_weight_updates -recompute_kv_cache_after_weight_updates -drop_incomplete_targets_on_restore "
                       "-warmup_generation_lead_steps " },
    { "loss_fn", " reference_policy_kl_penalty -reference_policy_kl_type -kl_input_clamp_value -kl_output_clamp_value -ratio_clip_min -ratio_clip_max -ratio_clip_c "
                 "-use_on_policy_kl_approximation -use_importance_sampling_correction -truncated_importance_sampling_type -truncated_importance_sampling_ratio "
                 "-truncated_importance_sampling_ratio_min -sequence_level_importance_ratios -token_level_loss force_on_policy_ratio -use_kl_in_reward -use_cispo -disable_ppo_ratio "
                 "-positive_example_nll_weight -sum_weights_metric " },
    { "value_loss_fn", " -scale -cliprange " },
    { "dpo", " -max_num_epochs -max_num_steps -val_period -val_batches -val_global_batch_size -val_micro_batch_size -val_at_start -val_at_end -seed -reference_policy_kl_penalty "
             "-preference_average_log_probs -sft_average_log_probs -preference_loss_weight -sft_loss_weight -gt_reward_scale -preference_loss " },
    { "sft", " -max_num_epochs -max_num_steps -val_period -val_batches -val_global_batch_size -val_micro_batch_size -val_at_start -val_at_end -seed -only_unmask_final " },
    { "rm", " -max_num_epochs -max_num_steps -val_period -val_batches -val_global_batch_size -val_micro_batch_size -val_at_start -val_at_end -seed " },
    { "checkpointing", " -enabled -checkpoint_dir -metric_name -higher_is_better -save_period -keep_top_k -ft_keep_latest_k -ft_save_period -checkpoint_must_save_by "
                       "-pretrained_checkpoint -save_optimizer -model_save_format -save_consolidated -model_cache_dir -model_repo_id -is_peft -peft_config -is_async " },
    { "checkpointing.pretrained_checkpoint", " -path -format " },
    { "data", " -max_input_seq_length -add_bos -add_eos -add_generation_prompt -add_system_prompt -shuffle -num_workers -use_multiple_dataloader "
              "-num_prompts_per_dataloader -custom_dataloader -train -validation -default -_override_ -prompt_file -system_prompt_file -dataset_name -processor "
              "-repeat -problem_key -solution_key -split -file_format -env_name " },
    { "data.train", " -dataset_name -data_path -input_key -output_key -subset -split -prompt_file -system_prompt_file -env_name -processor -download_dir "
                    "-split_validation_size -seed -num_frames -video_sampling_style -video_target_num_patches -video_temporal_patch_size -video_maintain_aspect_ratio "
                    "-min_generation_tokens -prompt_key -chosen_key -rejected_key -allowed_problem_types -characters_per_sample -chat_key -data_files -extract_answer "
                    "-file_format -language -max_samples -media_data_dir -problem_key -repeat -require_valid -solution_key -system_key -system_prompt -text_key "
                    "-tool_key -use_preserving_dataset -variant -verifiable_only " },
    { "logger", " -log_dir -wandb_enabled -swanlab_enabled -tensorboard_enabled -mlflow_enabled -wandb -tensorboard -swanlab -mlflow -monitor_gpus -gpu_monitoring "
                "-num_val_samples_to_print " },
    { "logger.wandb", " -project -name -entity -log_nemo_gym_full_result_tables -group -tags -notes -id -resume -mode -dir " },
    { "logger.swanlab", " -project -name -workspace -mode -logdir " },
    { "logger.tensorboard", " -log_dir " },
    { "logger.mlflow", " -experiment_name -run_id -run_name -tracking_uri -artifact_location " },
    { "logger.gpu_monitoring", " -collection_interval -flush_interval " },
    { "data_plane", " -enabled -impl -backend -storage_capacity -num_storage_units -claim_meta_poll_interval_s -global_segment_size -local_buffer_size "
                    "-controller_address -ack_timeout_ms -observability " },
    { "reward_penalties", " -penalize_duplicated_reasoning -penalize_empty_final_answer -penalize_unwanted_tokens -penalize_malformed_think_tag -token_ids " },
    { "reward_penalties.token_ids", " -unwanted -think_open -think_close " },
    { "policy.tokenizer", " -name -chat_template -chat_template_kwargs -audio -video -use_processor -use_fastokens " },
    { "policy.reward_model_cfg", " -enabled -reward_model_type " },
    { "policy.scheduler", " -name -kwargs -milestones " },
    { "policy.scheduler.kwargs", " -start_factor -end_factor -total_iters -T_max -eta_min -factor -last_epoch -gamma -step_size -milestones -power -lr_lambda -T_0 "
                                 "-T_mult -max_lr -total_steps -pct_start -num_warmup_steps -num_training_steps " },
    { "policy.megatron_cfg.scheduler", " -start_weight_decay -end_weight_decay -weight_decay_incr_style -lr_decay_style -lr_decay_iters -lr_decay_samples "
                                       "-lr_wsd_decay_style -lr_wsd_decay_iters -lr_wsd_decay_samples -lr_warmup_fraction -lr_warmup_iters -lr_warmup_samples "
                                       "-lr_warmup_init -override_opt_param_scheduler -use_checkpoint_opt_param_scheduler " },
    { "policy.megatron_cfg.checkpoint", " -async_save -ckpt_assume_constant_structure -ckpt_fully_parallel_save_process_group -ckpt_fully_parallel_load_process_group "
                                        "-ckpt_fully_parallel_load_exchange_algo " },
    { "grpo.adv_estimator", " -name -normalize_rewards -use_leave_one_out_baseline -minus_baseline -reward_weights -normalize_advantages -gae_lambda -gae_gamma "
                            "-gae_lambda_value -gae_lambda_policy -length_adaptive_alpha " },
    { "grpo.reward_shaping", " -enabled -overlong_buffer_length -overlong_buffer_penalty -max_response_length -stop_properly_penalty_coef " },
    { "grpo.reward_scaling", " -enabled -source_min -source_max -target_min -target_max " },
    { "env", " should_use_nemo_gym -should_log_nemo_gym_responses reward_model -math_default -math -math_multi_reward -code -code_jaccard -vlm -nemo_gym -sliding_puzzle_game "
             "-clevr-cogent -geometry3k -refcoco -dapo -mmpr-tiny " },
    { "on_policy_distillation", " enabled -non_colocated_teachers -deduplicate_shared_teacher_checkpoints -default_teacher_alias -orm_advantage_weight -strict_agent_name_match "
                                "-teacher_model_by_agent_name -use_orm_advantage " },
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

/* The keys of a section; a critic's are the policy's, a data set's those of the data to train on, and PPO shapes rewards as GRPO does.  NULL: anything may stand in it. */
static const char *keys_of(const char *section)
{
    static const char *const same[][2] = { { "data.validation", "data.train" }, { "data.default", "data.train" }, { "ppo.adv_estimator", "grpo.adv_estimator" },
                                           { "ppo.reward_shaping", "grpo.reward_shaping" }, { "ppo.reward_scaling", "grpo.reward_scaling" } };
    char of[200];
    bool critic = !strncmp(section, "value", 5) && (!section[5] || section[5] == '.');

    snprintf(of, sizeof of, "%s%s", critic ? "policy" : section, critic ? section + 5 : "");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!strcmp(same[i][0], of))
            snprintf(of, sizeof of, "%s", same[i][1]);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].section, of))
            return known[i].keys;
    return NULL;
}

/* 'r': it is read; '-' and '!' as in the table; 0: NeMo-RL has no such key there. */
static char class_of(const char *keys, const char *key)
{
    static const char marks[] = "-!";
    char word[80];

    if (stands_in(keys, key))
        return 'r';
    for (size_t i = 0; marks[i]; i++) {
        snprintf(word, sizeof word, "%c%.70s", marks[i], key);
        if (stands_in(keys, word))
            return marks[i];
    }
    return 0;
}

char nemo_class(const char *section, const char *key)
{
    const char *keys = keys_of(section);

    return keys ? class_of(keys, key) : '?';
}

/* Is the section of the other worker, which is not there? */
static bool is_off(const json_t *section) { return json_is_false(json_object_get(section, "enabled")); }

/* Keys of mixtures, which the usual files have for every model, ask nothing of a policy without experts. */
static bool is_of_mixtures(const struct importing *in, const char *key) { return !strncmp(key, "moe_", 4) && in->actor.model.experts == 0; }

/* Of a section and those in it what NeMo-RL has not, and what no plan has. */
static void tell_section(struct importing *in, struct unread *left, const char *section, const json_t *v)
{
    const char *keys = keys_of(section), *key;
    json_t *each;
    size_t k;

    if (keys && v && !json_is_object(v) && !json_is_array(v) && !json_is_null(v))
        import_refuse(in, section, "a section of keys");
    json_array_foreach(keys ? v : NULL, k, each)            /* schedulers one after the other, data sets beside each other */
        tell_section(in, left, section, each);
    json_object_foreach((json_t *)(uintptr_t)(keys ? v : NULL), key, each) {
        char at[200], class = class_of(keys, key);
        snprintf(at, sizeof at, "%.140s%s%.50s", section, *section ? "." : "", key);
        if (!class)
            notes_add(in->notes, "%s: not known: is it spelt right?", at);
        else if (class == '!' && !unread_asks_nothing(each) && !is_off(v) && !is_of_mixtures(in, key))
            unread_add(left, at, NULL, false);
        else
            tell_section(in, left, at, each);
    }
}

/* Arguments of vLLM's engine that are its own business, and what some of them do. */
static const struct { const char *key, *what; } of_vllm[] = {
    { "compilation_config", "the plan has vLLM's usual CUDA graphs: with others, or none, tokens of small batches take longer, and graphs another share of memory" },
    { "attention_backend", "attention by other kernels takes another time" }, { "moe_backend", "experts' products by other kernels take another time" },
};

static const char *does(const char *key)
{
    for (size_t i = 0; i < sizeof of_vllm / sizeof *of_vllm; i++)
        if (!strcmp(key, of_vllm[i].key))
            return of_vllm[i].what;
    return NULL;
}

static void tell_engine(struct importing *in)
{
    static const char read[] = " max_num_seqs max_num_batched_tokens ";
    const json_t *given = form_value(in->f->doc, GEN "vllm_kwargs");
    const char *key;
    char some[200] = "";
    size_t n = 0;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)given, key, v) {
        if (stands_in(read, key) || json_is_null(v))
            continue;
        if (does(key))
            notes_add(in->notes, GEN "vllm_kwargs.%s: %s", key, does(key));
        else if (n + strlen(key) + 3 < sizeof some)
            n += (size_t)snprintf(some + n, sizeof some - n, "%s%s", n ? ", " : "", key);
    }
    if (n)
        notes_add(in->notes, GEN "vllm_kwargs: given to vLLM and not in the plan: %s", some);
}

void nemo_tell_unknown(struct importing *in)
{
    struct notes given = { 0 };
    struct unread rest = { .notes = &given };

    tell_section(in, &rest, "", in->f->doc);
    unread_end(&rest);
    for (int i = 0; i < given.n && i < (int)(sizeof given.text / sizeof *given.text); i++)
        notes_add(in->notes, "NeMo-RL has it, and no plan: %s", strstr(given.text[i], ": ") + 2);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (form_value(in->f->doc, beside[i].path) && !json_is_null(form_value(in->f->doc, beside[i].path)) && !(i == 0 && nemo_is_megatron(in)))
            notes_add(in->notes, "%s: %s", beside[i].path, beside[i].what);
    if (import_flag(in, "policy.dtensor_cfg.enabled", false) && form_value(in->f->doc, DEFERS))
        notes_add(in->notes, DEFERS ": Automodel's recipes read it, and NeMo-RL's loop does not (models/automodel/train.py): gradients are reduced after each micro-step "
                  "whatever it says");
    if (import_flag(in, "policy.dtensor_cfg.enabled", false) && !import_flag(in, "policy.dtensor_cfg._v2", false))
        notes_add(in->notes, "policy.dtensor_cfg._v2: the older worker: transformers' class, whose MLP, attention and norms are checkpoints of their own");
    tell_engine(in);
}

int nemo_environment(struct importing *in, const char *path, struct plan *p)
{
    const char *name, *why = NULL;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)form_value(in->f->doc, path), name, v) {
        const char *text = json_string_value(v);
        enum environment_answer is = text ? environment_give(p, in->f->path, name, text, &why) : ENVIRONMENT_UNKNOWN;
        if (is == ENVIRONMENT_REFUSED)
            return -1;
        if (is == ENVIRONMENT_UNKNOWN)
            notes_add(in->notes, "%s.%s is not known to change memory or time: it is not in the plan", path, name);
        else if (is == ENVIRONMENT_LEFT)
            notes_add(in->notes, "%s.%s=%.60s is not in the plan: %s", path, name, text, why);
        else if (is == ENVIRONMENT_CHANGED)
            notes_add(in->notes, "%s.%s=%.60s: %s", path, name, text, why);
    }
    return environment_check(p, in->f->path);
}

/* The trainer filters logits as the engine does, in each forward (algorithms/logits_sampling_utils.py: need_top_k_or_top_p_filtering()): for top_p it sorts each
 * token's vocabulary in fp32. */
static int refuses_filters(struct importing *in)
{
    double k = import_number(in, GEN "top_k", -1), p = import_number(in, GEN "top_p", 1);

    if (in->failed || (k <= 0 && p == 1))
        return in->failed ? -1 : 0;
    return fail("%s: " GEN "%s: %g: log-probabilities of filtered logits, for which each token's vocabulary is sorted or searched in each forward, are not planned: "
                "with top_k: null and top_p: 1.0 they are whole", in->f->path, k > 0 ? "top_k" : "top_p", k > 0 ? k : p);
}

/* What setup() asserts (algorithms/grpo.py). */
static int refuses_assertions(struct importing *in)
{
    static const char skips[] = "grpo.skip_reference_policy_logprobs_calculation", penalty[] = "loss_fn.reference_policy_kl_penalty";
    int64_t all = import_count(in, "grpo.num_prompts_per_step", 1, 32) * import_count(in, "grpo.num_generations_per_prompt", 1, 16);
    int64_t batch = import_count(in, "policy.train_global_batch_size", 1, all);

    if (!json_is_object(json_object_get(in->f->doc, "grpo")) || json_is_object(json_object_get(in->f->doc, "ppo")))
        return 0;
    if (import_flag(in, skips, false) && import_number(in, penalty, 0) > 0)
        return fail("%s: %s: NeMo-RL stops with it where %s is not 0", in->f->path, skips, penalty);
    if (import_flag(in, "loss_fn.force_on_policy_ratio", false) && batch != all)
        return fail("%s: loss_fn.force_on_policy_ratio: NeMo-RL stops with it where policy.train_global_batch_size, %" PRId64 ", is not all %" PRId64 " responses of a step",
                    in->f->path, batch, all);
    return in->failed ? -1 : 0;
}

int nemo_refuses_beside(struct importing *in)
{
    static const struct { const char *path, *why; } never[] = {
        { GEN "real_quant", "an engine's weights in ModelOpt's 4 or 8 bits are not planned: in bf16 and in blocks of fp8 they are" },
        { GEN "quant_cfg", "weights that ModelOpt quantises are not planned" },
        { "policy.megatron_cfg.model_overrides", "fields of Megatron-Bridge's model by their own names are not read" },
        { "policy.quant_cfg", "training with ModelOpt's fake quantisation is not planned" },
        { GEN "vllm_kwargs.kv_cache_memory_bytes", "a cache of so many bytes is not planned: one by gpu_memory_utilization is" },
        { GEN "vllm_kwargs.speculative_config", "a draft model is not planned" },
    };

    static const char *const sizes[] = { "num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                                         "num_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "tie_word_embeddings" };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (json_object_get(form_value(in->f->doc, "policy.hf_config_overrides"), sizes[i]))
            return fail("%s: policy.hf_config_overrides.%s: another size than the model has: give its config.json with --model, and leave it out", in->f->path, sizes[i]);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        const json_t *v = form_value(in->f->doc, never[i].path);
        if (v && !unread_asks_nothing(v))
            return fail("%s: %s: %s", in->f->path, never[i].path, never[i].why);
    }
    return refuses_assertions(in) < 0 ? -1 : refuses_filters(in);
}
