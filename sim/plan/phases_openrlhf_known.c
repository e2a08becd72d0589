/* phases_openrlhf_known.c -- the options that OpenRLHF's train_ppo_ray has, or had: its argparse stops at any other.
 *
 * Source: every version of openrlhf/cli/train_ppo_ray.py up to August 2026. */
#include "sim/plan/phases_import.h"

#include <inttypes.h>
#include <string.h>

static const struct form_row rows[] = {
    { "bf16", ROW_READ, NULL }, { "load_in_4bit", ROW_READ, NULL }, { "ds.load_in_4bit", ROW_READ, NULL },
    { "actor.entropy_coef", ROW_READ, NULL }, { "actor.gradient_checkpointing_enable", ROW_READ, NULL }, { "actor.max_norm", ROW_READ, NULL },
    { "actor.model_name_or_path", ROW_READ, NULL }, { "actor.num_gpus_per_node", ROW_READ, NULL }, { "actor.num_nodes", ROW_READ, NULL },
    { "actor.optim", ROW_READ, NULL }, { "actor_num_gpus_per_node", ROW_READ, NULL }, { "actor_num_nodes", ROW_READ, NULL },
    { "adam_offload", ROW_READ, NULL }, { "advantage_estimator", ROW_READ, NULL }, { "agent_func_path", ROW_READ, NULL },
    { "algo.advantage.estimator", ROW_READ, NULL }, { "algo.dynamic_filtering_enable", ROW_READ, NULL }, { "algo.kl.init_coef", ROW_READ, NULL },
    { "async_queue_size", ROW_READ, NULL }, { "async_train", ROW_READ, NULL }, { "attn_implementation", ROW_READ, NULL },
    { "colocate_actor_ref", ROW_READ, NULL }, { "colocate_all_models", ROW_READ, NULL }, { "colocate_critic_reward", ROW_READ, NULL },
    { "critic.model_name_or_path", ROW_READ, NULL }, { "critic.num_gpus_per_node", ROW_READ, NULL }, { "critic.num_nodes", ROW_READ, NULL },
    { "critic.optim", ROW_READ, NULL }, { "critic_num_gpus_per_node", ROW_READ, NULL }, { "critic_num_nodes", ROW_READ, NULL },
    { "critic_pretrain", ROW_READ, NULL }, { "data.max_images_per_prompt", ROW_READ, NULL }, { "data.max_len", ROW_READ, NULL },
    { "deepcompile", ROW_READ, NULL }, { "deepspeed_enable_sleep", ROW_READ, NULL }, { "ds.adam_offload", ROW_READ, NULL },
    { "ds.attn_implementation", ROW_READ, NULL }, { "ds.deepcompile", ROW_READ, NULL }, { "ds.enable_sleep", ROW_READ, NULL },
    { "ds.grad_accum_dtype", ROW_READ, NULL }, { "ds.lora.alpha", ROW_READ, NULL },
    { "ds.lora.dropout", ROW_READ, NULL }, { "ds.lora.rank", ROW_READ, NULL }, { "ds.lora.target_modules", ROW_READ, NULL },
    { "ds.overlap_comm", ROW_READ, NULL }, { "ds.packing_samples", ROW_READ, NULL }, { "ds.param_dtype", ROW_READ, NULL },
    { "ds.ring_attn_size", ROW_READ, NULL }, { "ds.tensor_parallel_size", ROW_READ, NULL }, { "ds.use_liger_kernel", ROW_READ, NULL },
    { "ds.zero_stage", ROW_READ, NULL }, { "ds.zpg", ROW_READ, NULL }, { "ds_tensor_parallel_size", ROW_READ, NULL }, { "dynamic_filtering", ROW_READ, NULL },
    { "enable_ema", ROW_READ, NULL }, { "enforce_eager", ROW_READ, NULL }, { "entropy_loss_coef", ROW_READ, NULL }, { "generate_max_len", ROW_READ, NULL },
    { "grad_accum_dtype", ROW_READ, NULL }, { "gradient_checkpointing", ROW_READ, NULL }, { "init_kl_coef", ROW_READ, NULL },
    { "lora_alpha", ROW_READ, NULL }, { "lora_dropout", ROW_READ, NULL }, { "lora_rank", ROW_READ, NULL }, { "max_epochs", ROW_READ, NULL },
    { "max_len", ROW_READ, NULL }, { "max_norm", ROW_READ, NULL }, { "micro_rollout_batch_size", ROW_READ, NULL },
    { "micro_train_batch_size", ROW_READ, NULL }, { "n_samples_per_prompt", ROW_READ, NULL }, { "optim", ROW_READ, NULL }, { "optimizer", ROW_READ, NULL },
    { "overlap_comm", ROW_READ, NULL }, { "packing_samples", ROW_READ, NULL }, { "param_dtype", ROW_READ, NULL }, { "pretrain", ROW_READ, NULL },
    { "prompt_max_len", ROW_READ, NULL }, { "ref.num_gpus_per_node", ROW_READ, NULL }, { "ref.num_nodes", ROW_READ, NULL }, { "ref.offload", ROW_READ, NULL },
    { "ref_num_gpus_per_node", ROW_READ, NULL }, { "ref_num_nodes", ROW_READ, NULL }, { "ref_reward_offload", ROW_READ, NULL },
    { "remote_rm_url", ROW_READ, NULL }, { "reward.model_name_or_path", ROW_READ, NULL }, { "reward.num_gpus_per_node", ROW_READ, NULL },
    { "reward.num_nodes", ROW_READ, NULL }, { "reward.offload", ROW_READ, NULL }, { "reward.remote_url", ROW_READ, NULL },
    { "reward_num_gpus_per_node", ROW_READ, NULL }, { "reward_num_nodes", ROW_READ, NULL }, { "reward_pretrain", ROW_READ, NULL },
    { "ring_attn_size", ROW_READ, NULL }, { "rollout.batch_size", ROW_READ, NULL }, { "rollout.max_new_tokens", ROW_READ, NULL },
    { "rollout.max_tokens_per_gpu", ROW_READ, NULL }, { "rollout.micro_batch_size", ROW_READ, NULL }, { "rollout.n_samples_per_prompt", ROW_READ, NULL },
    { "rollout.vllm_generate_batch_size", ROW_READ, NULL }, { "rollout_batch_size", ROW_READ, NULL }, { "rollout_max_tokens_per_gpu", ROW_READ, NULL },
    { "target_modules", ROW_READ, NULL }, { "torch_compile", ROW_READ, NULL }, { "train.agent_func_path", ROW_READ, NULL },
    { "train.async_enable", ROW_READ, NULL }, { "train.async_queue_size", ROW_READ, NULL }, { "train.batch_size", ROW_READ, NULL },
    { "train.colocate_actor_ref", ROW_READ, NULL }, { "train.colocate_all", ROW_READ, NULL }, { "train.colocate_critic_reward", ROW_READ, NULL },
    { "train.dynamic_batch_enable", ROW_READ, NULL }, { "train.enable_ema", ROW_READ, NULL }, { "train.max_epochs", ROW_READ, NULL },
    { "train.max_tokens_per_gpu", ROW_READ, NULL }, { "train.micro_batch_size", ROW_READ, NULL }, { "train_batch_size", ROW_READ, NULL },
    { "train_max_tokens_per_gpu", ROW_READ, NULL }, { "use_dynamic_batch", ROW_READ, NULL }, { "use_liger_kernel", ROW_READ, NULL },
    { "vllm.enable_sleep", ROW_READ, NULL }, { "vllm.enforce_eager", ROW_READ, NULL }, { "vllm.gpu_memory_utilization", ROW_READ, NULL },
    { "vllm.num_engines", ROW_READ, NULL }, { "vllm.sync_backend", ROW_READ, NULL }, { "vllm.tensor_parallel_size", ROW_READ, NULL },
    { "vllm_enable_sleep", ROW_READ, NULL }, { "vllm_generate_batch_size", ROW_READ, NULL }, { "vllm_gpu_memory_utilization", ROW_READ, NULL },
    { "vllm_num_engines", ROW_READ, NULL }, { "vllm_sync_backend", ROW_READ, NULL }, { "vllm_tensor_parallel_size", ROW_READ, NULL },
    { "zero_stage", ROW_READ, NULL }, { "zpg", ROW_READ, NULL }, { "train.full_determinism_enable", ROW_MATTERS, "deterministic kernels, which take longer" },
    { "full_determinism", ROW_MATTERS, "deterministic kernels, which take longer" }, { "actor.aux_loss_coef", ROW_MATTERS, "a loss that balances experts" },
    { "aux_loss_coef", ROW_MATTERS, "a loss that balances experts" }, { "ds.experts_implementation", ROW_MATTERS, "which kernels compute experts" },
    { "actor.freeze_visual_encoder", ROW_MATTERS, "the part that sees pictures has no gradients" },
    { "freeze_visual_encoder", ROW_MATTERS, "the part that sees pictures has no gradients" },
    { "train.partial_rollout_enable", ROW_MATTERS, "responses go on while weights come in" },
    { "partial_rollout", ROW_MATTERS, "responses go on while weights come in" },
    { "vllm.sync_with_ray", ROW_MATTERS, "weights go to the engines by way of the host" },
    { "vllm_sync_with_ray", ROW_MATTERS, "weights go to the engines by way of the host" },
    { "pretrain_data", ROW_MATTERS, "a batch of pretraining data beside each micro-step, another forward and backward" },
    { "actor.adam.betas", ROW_SILENT, NULL }, { "actor.adam.eps", ROW_SILENT, NULL }, { "actor.adam.lr", ROW_SILENT, NULL },
    { "actor.adam.weight_decay", ROW_SILENT, NULL }, { "actor.dual_clip", ROW_SILENT, NULL }, { "actor.eps_clip", ROW_SILENT, NULL },
    { "actor.eps_clip_low_high", ROW_SILENT, NULL }, { "actor.gradient_checkpointing_reentrant", ROW_SILENT, NULL },
    { "actor.lr_scheduler", ROW_SILENT, NULL }, { "actor.lr_warmup_ratio", ROW_SILENT, NULL }, { "actor.min_lr_ratio", ROW_SILENT, NULL },
    { "actor.muon.lr", ROW_SILENT, NULL }, { "actor.muon.momentum", ROW_SILENT, NULL }, { "actor.muon.nesterov", ROW_SILENT, NULL },
    { "actor.muon.no_nesterov", ROW_SILENT, NULL }, { "actor.muon.ns_steps", ROW_SILENT, NULL }, { "actor.policy_loss_type", ROW_SILENT, NULL },
    { "actor_init_on_gpu", ROW_SILENT, NULL }, { "actor_learning_rate", ROW_SILENT, NULL }, { "adam_betas", ROW_SILENT, NULL },
    { "algo.advantage.gamma", ROW_SILENT, NULL }, { "algo.advantage.is_correction_enable", ROW_SILENT, NULL },
    { "algo.advantage.is_correction_threshold", ROW_SILENT, NULL }, { "algo.advantage.is_correction_type", ROW_SILENT, NULL },
    { "algo.advantage.lambd", ROW_SILENT, NULL }, { "algo.advantage.no_std_norm", ROW_SILENT, NULL }, { "algo.dynamic_filtering_range", ROW_SILENT, NULL },
    { "algo.kl.estimator", ROW_SILENT, NULL }, { "algo.kl.horizon", ROW_SILENT, NULL }, { "algo.kl.target", ROW_SILENT, NULL },
    { "algo.kl.use_loss", ROW_SILENT, NULL }, { "apply_chat_template", ROW_SILENT, NULL }, { "best_metric_key", ROW_SILENT, NULL },
    { "ckpt.best_metric_key", ROW_SILENT, NULL }, { "ckpt.disable_ds", ROW_SILENT, NULL }, { "ckpt.load_enable", ROW_SILENT, NULL },
    { "ckpt.max_mem", ROW_SILENT, NULL }, { "ckpt.max_num", ROW_SILENT, NULL }, { "ckpt.output_dir", ROW_SILENT, NULL }, { "ckpt.path", ROW_SILENT, NULL },
    { "ckpt.save_hf", ROW_SILENT, NULL }, { "ckpt.save_steps", ROW_SILENT, NULL }, { "ckpt_path", ROW_SILENT, NULL },
    { "critic.adam.betas", ROW_SILENT, NULL }, { "critic.adam.eps", ROW_SILENT, NULL }, { "critic.adam.lr", ROW_SILENT, NULL },
    { "critic.adam.weight_decay", ROW_SILENT, NULL }, { "critic.freezing_steps", ROW_SILENT, NULL }, { "critic.lr_scheduler", ROW_SILENT, NULL },
    { "critic.lr_warmup_ratio", ROW_SILENT, NULL }, { "critic.max_norm", ROW_SILENT, NULL }, { "critic.min_lr_ratio", ROW_SILENT, NULL },
    { "critic.muon.lr", ROW_SILENT, NULL }, { "critic.muon.momentum", ROW_SILENT, NULL }, { "critic.muon.nesterov", ROW_SILENT, NULL },
    { "critic.muon.no_nesterov", ROW_SILENT, NULL }, { "critic.muon.ns_steps", ROW_SILENT, NULL }, { "critic.save_value_network", ROW_SILENT, NULL },
    { "critic.value_clip", ROW_SILENT, NULL }, { "critic_learning_rate", ROW_SILENT, NULL }, { "data.apply_chat_template", ROW_SILENT, NULL },
    { "data.dataloader_num_workers", ROW_SILENT, NULL }, { "data.disable_fast_tokenizer", ROW_SILENT, NULL }, { "data.image_key", ROW_SILENT, NULL },
    { "data.input_key", ROW_SILENT, NULL }, { "data.input_template", ROW_SILENT, NULL }, { "data.label_key", ROW_SILENT, NULL },
    { "data.max_samples", ROW_SILENT, NULL }, { "data.prompt_dataset", ROW_SILENT, NULL }, { "data.prompt_probs", ROW_SILENT, NULL },
    { "data.prompt_split", ROW_SILENT, NULL }, { "dataloader_num_workers", ROW_SILENT, NULL }, { "disable_ds_ckpt", ROW_SILENT, NULL },
    { "disable_fast_tokenizer", ROW_SILENT, NULL }, { "disable_trace_cache", ROW_SILENT, NULL }, { "ds.ring_attn_head_stride", ROW_SILENT, NULL },
    { "ds.use_universal_ckpt", ROW_SILENT, NULL }, { "ds.value_head_prefix", ROW_SILENT, NULL }, { "dual_clip", ROW_SILENT, NULL },
    { "dynamic_filtering_reward_range", ROW_SILENT, NULL }, { "ema_beta", ROW_SILENT, NULL }, { "enable_prefix_caching", ROW_SILENT, NULL },
    { "enable_vllm_is_correction", ROW_SILENT, NULL }, { "eps_clip", ROW_SILENT, NULL }, { "eps_clip_low_high", ROW_SILENT, NULL },
    { "eval.dataset", ROW_SILENT, NULL }, { "eval.n_samples_per_prompt", ROW_SILENT, NULL }, { "eval.split", ROW_SILENT, NULL },
    { "eval.steps", ROW_SILENT, NULL }, { "eval.temperature", ROW_SILENT, NULL }, { "eval_dataset", ROW_SILENT, NULL },
    { "eval_n_samples_per_prompt", ROW_SILENT, NULL }, { "eval_split", ROW_SILENT, NULL }, { "eval_steps", ROW_SILENT, NULL },
    { "eval_temperature", ROW_SILENT, NULL }, { "flash_attn", ROW_SILENT, NULL }, { "freezing_actor_steps", ROW_SILENT, NULL }, { "gamma", ROW_SILENT, NULL },
    { "gradient_checkpointing_use_reentrant", ROW_SILENT, NULL }, { "image_key", ROW_SILENT, NULL }, { "input_key", ROW_SILENT, NULL },
    { "input_template", ROW_SILENT, NULL }, { "kl_estimator", ROW_SILENT, NULL }, { "kl_horizon", ROW_SILENT, NULL }, { "kl_target", ROW_SILENT, NULL },
    { "label_key", ROW_SILENT, NULL }, { "lambd", ROW_SILENT, NULL }, { "load_checkpoint", ROW_SILENT, NULL }, { "local_rank", ROW_SILENT, NULL },
    { "logger.logging_steps", ROW_SILENT, NULL }, { "logger.tensorboard_dir", ROW_SILENT, NULL }, { "logger.wandb.group", ROW_SILENT, NULL },
    { "logger.wandb.key", ROW_SILENT, NULL }, { "logger.wandb.org", ROW_SILENT, NULL }, { "logger.wandb.project", ROW_SILENT, NULL },
    { "logger.wandb.run_name", ROW_SILENT, NULL }, { "logging_steps", ROW_SILENT, NULL }, { "lr_scheduler", ROW_SILENT, NULL },
    { "lr_warmup_ratio", ROW_SILENT, NULL }, { "max_ckpt_mem", ROW_SILENT, NULL }, { "max_ckpt_num", ROW_SILENT, NULL },
    { "max_images_per_prompt", ROW_SILENT, NULL }, { "max_new_tokens", ROW_SILENT, NULL }, { "max_samples", ROW_SILENT, NULL },
    { "max_tokens_per_gpu", ROW_SILENT, NULL }, { "no_advantage_std_norm", ROW_SILENT, NULL }, { "normalize_reward", ROW_SILENT, NULL },
    { "num_episodes", ROW_SILENT, NULL }, { "overlong_buffer_len", ROW_SILENT, NULL }, { "overlong_penalty_factor", ROW_SILENT, NULL },
    { "perf", ROW_SILENT, NULL }, { "policy_loss_type", ROW_SILENT, NULL }, { "pretrain_data_probs", ROW_SILENT, NULL },
    { "pretrain_split", ROW_SILENT, NULL }, { "prompt_data", ROW_SILENT, NULL }, { "prompt_data_probs", ROW_SILENT, NULL },
    { "prompt_split", ROW_SILENT, NULL }, { "ptx_coef", ROW_SILENT, NULL }, { "reward.clip_range", ROW_SILENT, NULL },
    { "reward.normalize_enable", ROW_SILENT, NULL }, { "reward.overlong_buffer_len", ROW_SILENT, NULL },
    { "reward.overlong_penalty_factor", ROW_SILENT, NULL }, { "reward.stop_properly_penalty_coef", ROW_SILENT, NULL },
    { "reward_clip_range", ROW_SILENT, NULL }, { "ring_head_stride", ROW_SILENT, NULL }, { "rollout.temperature", ROW_SILENT, NULL },
    { "rollout.top_p", ROW_SILENT, NULL }, { "save_hf_ckpt", ROW_SILENT, NULL }, { "save_path", ROW_SILENT, NULL }, { "save_steps", ROW_SILENT, NULL },
    { "save_value_network", ROW_SILENT, NULL }, { "seed", ROW_SILENT, NULL }, { "stop_properly_penalty_coef", ROW_SILENT, NULL },
    { "temperature", ROW_SILENT, NULL }, { "top_p", ROW_SILENT, NULL }, { "train.ema_beta", ROW_SILENT, NULL }, { "train.num_episodes", ROW_SILENT, NULL },
    { "train.seed", ROW_SILENT, NULL }, { "universal_ckpt", ROW_SILENT, NULL }, { "use_ds_universal_ckpt", ROW_SILENT, NULL },
    { "use_icepop", ROW_SILENT, NULL }, { "use_kl_loss", ROW_SILENT, NULL }, { "use_linger_kernel", ROW_SILENT, NULL }, { "use_ms", ROW_SILENT, NULL },
    { "use_tensorboard", ROW_SILENT, NULL }, { "use_wandb", ROW_SILENT, NULL }, { "value_clip", ROW_SILENT, NULL }, { "value_head_prefix", ROW_SILENT, NULL },
    { "vllm.enable_prefix_caching", ROW_SILENT, NULL }, { "vllm_is_correction_type", ROW_SILENT, NULL }, { "vllm_is_truncated_threshold", ROW_SILENT, NULL },
    { "wandb_group", ROW_SILENT, NULL }, { "wandb_org", ROW_SILENT, NULL }, { "wandb_project", ROW_SILENT, NULL }, { "wandb_run_name", ROW_SILENT, NULL },
    { "wandb_*", ROW_SILENT, NULL },
};

/* The value under the name that the file has, of the new one and that of before 0.10. */
static const char *given(const struct importing *in, const char *new, const char *old)
{
    return form_value(in->f->doc, new) ? new : form_value(in->f->doc, old) ? old : NULL;
}

/* Its gradient is as large as the logits in fp32, beside that of the log-probabilities (models/actor.py: compute_entropy(), compiled). */
static void tell_entropy(struct importing *in)
{
    const char *path = given(in, "actor.entropy_coef", "entropy_loss_coef");
    double logits = (double)(in->actor.micro_batch * in->actor.seq) * (double)in->actor.model.vocab * 4;

    if (path && import_number(in, path, 0) != 0)
        notes_add(in->notes, "%s: the entropy's gradient, as large as the logits in fp32, is there beside the other and not in the plan: %.3g GB in the update", path, logits / 1e9);
}

static void tell_backend(struct importing *in)
{
    const char *path = given(in, "vllm.sync_backend", "vllm_sync_backend"), *word = path ? import_text(in, path, "nccl") : "nccl";

    if (word && strcmp(word, "nccl") != 0)
        notes_add(in->notes, "%s: weights are handed over as by nccl: %.20s, which goes by way of the host, takes several times as long", path, word);
}

static void tell_queue(struct importing *in)
{
    const char *path = given(in, "train.async_queue_size", "async_queue_size");
    int64_t ahead = path ? import_count(in, path, 1, 1) : 1;

    if (ahead > 1)
        notes_add(in->notes, "%s: generation is planned one batch ahead of training, not %" PRId64 ": samples are older, and neither side is faster in the long run", path, ahead);
}

void phases_openrlhf_known(struct importing *in)
{
    tell_entropy(in);
    tell_backend(in);
    tell_queue(in);
    form_list_rest(in->f, rows, FORM_COUNT(rows), in->notes);
}
