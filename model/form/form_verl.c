/* form_verl.c -- verl's PPO, GRPO and their like (verl.trainer.main_ppo): the update of the actor, one phase of its iteration.  A command
 * of hydra's words (actor_rollout_ref.actor.ppo_mini_batch_size=256), or the YAML that they change.
 *
 * The actor is FSDP1 (strategy fsdp) or FSDP2, a unit a block, weights in fsdp_config.model_dtype (fp32), compute in bf16, gradients
 * reduced in fp32 (verl/workers/fsdp_workers.py).  Log-probabilities are flash-attn's cross-entropy
 * (utils/torch_functional.py).  A step of the optimizer takes ppo_mini_batch_size prompts x rollout.n samples, over
 * all ranks; a sample is a prompt and its response. */
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "model/arch/recorded.h"
#include "model/exchange/unread.h"
#include "model/form/form_verl.h"
#include "model/plan/liger.h"

#define MEGATRON VERL_ACTOR "megatron."
#define ROLLOUT "actor_rollout_ref.rollout."
#define REF "actor_rollout_ref.ref."
#define ALGORITHM "algorithm."
#define VERL_LORA "actor_rollout_ref.model.lora."
#define VERL_ATTENTION "actor_rollout_ref.model.override_config.attn_implementation"

static const struct form_row rows[] = {
    { "actor_rollout_ref.model.path", ROW_READ, NULL }, { VERL_ATTENTION, ROW_READ, NULL }, { "actor_rollout_ref.model.enable_gradient_checkpointing", ROW_READ, NULL },
    { "actor_rollout_ref.model.lora_rank", ROW_READ, NULL }, { "actor_rollout_ref.model.lora_alpha", ROW_READ, NULL },
    { "actor_rollout_ref.model.target_modules", ROW_READ, NULL },
    { "actor_rollout_ref.model.lora_adapter_path", ROW_READ, NULL },
    { "actor_rollout_ref.model.lora.rank", ROW_READ, NULL }, { VERL_LORA "alpha", ROW_SILENT, NULL }, { VERL_LORA "merge", ROW_SILENT, NULL },
    { VERL_LORA "dropout", ROW_SILENT, NULL }, { VERL_LORA "type", ROW_SILENT, NULL }, { VERL_LORA "dtype", ROW_SILENT, NULL }, { VERL_LORA "target_modules", ROW_SILENT, NULL },
    { VERL_LORA "exclude_modules", ROW_SILENT, NULL }, { VERL_LORA "adapter_path", ROW_SILENT, NULL },
    { "actor_rollout_ref.model.use_remove_padding", ROW_READ, NULL },
    { "actor_rollout_ref.model.override_config.max_position_embeddings", ROW_SILENT, NULL },
    { "actor_rollout_ref.model.use_fused_kernels", ROW_READ, NULL }, { "actor_rollout_ref.model.fused_kernel_options.impl_backend", ROW_READ, NULL },
    { "actor_rollout_ref.model.use_liger", ROW_READ, NULL },
    { "actor_rollout_ref.model.enable_activation_offload", ROW_MATTERS, "checkpoints wait in host memory" },
    { "actor_rollout_ref.model.trust_remote_code", ROW_SILENT, NULL }, { "actor_rollout_ref.model.use_shm", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.strategy", ROW_READ, NULL }, { "actor_rollout_ref.actor.ppo_mini_batch_size", ROW_READ, NULL },
    { "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", ROW_READ, NULL },
    { "actor_rollout_ref.actor.ppo_micro_batch_size", ROW_READ, NULL },
    { "actor_rollout_ref.actor.use_dynamic_bsz", ROW_READ, NULL }, { "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", ROW_READ, NULL },
    { "actor_rollout_ref.actor.grad_clip", ROW_READ, NULL },
    { "actor_rollout_ref.actor.ulysses_sequence_parallel_size", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", ROW_READ, NULL }, { "config_name", ROW_READ, NULL }, { "defaults", ROW_READ, NULL },
    { VERL_ACTOR "calculate_sum_pi_squared", ROW_READ, NULL },
    { VERL_ACTOR "sum_pi_squared_checkpointing", ROW_READ, NULL },
    { VERL_ACTOR "use_prefix_grouper", ROW_REFUSED, "prompts that several responses share are not planned" },
    { "env.actor.model.*", ROW_REFUSED, "a model of actions is not planned" },
    { "config_path", ROW_SILENT, NULL },
    { MEGATRON "tensor_model_parallel_size", ROW_READ, NULL }, { MEGATRON "pipeline_model_parallel_size", ROW_READ, NULL },
    { MEGATRON "virtual_pipeline_model_parallel_size", ROW_READ, NULL }, { MEGATRON "context_parallel_size", ROW_READ, NULL },
    { MEGATRON "expert_model_parallel_size", ROW_READ, NULL }, { MEGATRON "expert_tensor_parallel_size", ROW_READ, NULL },
    { MEGATRON "sequence_parallel", ROW_READ, NULL }, { MEGATRON "use_distributed_optimizer", ROW_READ, NULL },
    { MEGATRON "override_transformer_config.*", ROW_READ, NULL }, { MEGATRON "override_ddp_config.*", ROW_READ, NULL },
    { MEGATRON "use_mbridge", ROW_READ, NULL }, { MEGATRON "vanilla_mbridge", ROW_READ, NULL }, { MEGATRON "dtype", ROW_READ, NULL },
    { MEGATRON "param_offload", ROW_MATTERS, "between phases weights wait in host memory: in the update they are on the device" },
    { MEGATRON "grad_offload", ROW_MATTERS, "between phases gradients' buffers are freed: in the update they are on the device" },
    { MEGATRON "optimizer_offload", ROW_MATTERS, "between phases states wait in host memory: in the update they are on the device" },
    { MEGATRON "seed", ROW_SILENT, NULL }, { MEGATRON "use_dist_checkpointing", ROW_SILENT, NULL }, { MEGATRON "dist_checkpointing_path", ROW_SILENT, NULL },
    { MEGATRON "dist_checkpointing_prefix", ROW_SILENT, NULL }, { MEGATRON "use_remove_padding", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.optim.override_optimizer_config.*", ROW_READ, NULL },
    { "actor_rollout_ref.model.mtp.enable", ROW_REFUSED, "layers that predict further tokens are not planned of verl's actor" },
    { "actor_rollout_ref.actor.veomni.*", ROW_REFUSED, "an actor on VeOmni is not read" },
    { "actor_rollout_ref.actor.fsdp_config.fsdp_size", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.model_dtype", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.forward_prefetch", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.offload_policy", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.reshard_after_forward", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.param_offload", ROW_MATTERS, "between phases weights wait in host memory: in the update they are on the device" },
    { "actor_rollout_ref.actor.fsdp_config.optimizer_offload", ROW_MATTERS, "between phases states wait in host memory: in the update they are on the device" },
    { "actor_rollout_ref.actor.use_kl_loss", ROW_MATTERS, "a reference model's log-probabilities come in a phase of their own" },
    { "actor_rollout_ref.actor.entropy_from_logits_with_chunking", ROW_READ, NULL }, { "actor_rollout_ref.actor.entropy_checkpointing", ROW_READ, NULL },
    { "actor_rollout_ref.actor.optim.optimizer", ROW_READ, NULL }, { "actor_rollout_ref.actor.optim.optimizer_impl", ROW_READ, NULL },
    { "actor_rollout_ref.actor.optim.clip_grad", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.optim.betas", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.entropy_coeff", ROW_READ, NULL }, { "actor_rollout_ref.actor.calculate_entropy", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.use_orig_params", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.strategy", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.wrap_policy.min_num_params", ROW_REFUSED, "units of a size are not read: blocks are units" },
    { "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", ROW_READ, NULL }, { "actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype", ROW_READ, NULL },
    { "actor_rollout_ref.actor.fsdp_config.dtype", ROW_READ, NULL },
    { "trainer.n_gpus_per_node", ROW_READ, NULL }, { "trainer.nnodes", ROW_READ, NULL },
    { "actor_rollout_ref.actor.optim.lr", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.optim.weight_decay", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.optim.lr_warmup_steps", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.clip_ratio", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.clip_ratio_low", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.clip_ratio_high", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.clip_ratio_c", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.kl_loss_coef", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.kl_loss_type", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.loss_agg_mode", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.ppo_epochs", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.use_torch_compile", ROW_READ, NULL },
    { "actor_rollout_ref.actor.shuffle", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.policy_loss.loss_mode", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.n", ROW_READ, NULL },
    { "actor_rollout_ref.rollout.gpu_memory_utilization", ROW_MATTERS, "the engine keeps this share of the memory, unless it sleeps in the update" },
    { "actor_rollout_ref.rollout.name", ROW_READ, NULL }, { "actor_rollout_ref.rollout.mode", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.tensor_model_parallel_size", ROW_READ, NULL },
    { "actor_rollout_ref.rollout.temperature", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.load_format", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.calculate_log_probs", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.layered_summon", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.data_parallel_size", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.expert_parallel_size", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.disable_log_stats", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.multi_turn.*", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.trace.*", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.engine_kwargs.*", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.agent.*", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.checkpoint_engine.*", ROW_SILENT, NULL }, { "actor_rollout_ref.nccl_timeout", ROW_SILENT, NULL },
    { "rollout.nnodes", ROW_MATTERS, "nodes of the engine alone, beside those that train: the plan's GPUs train" }, { "rollout.n_gpus_per_node", ROW_SILENT, NULL },
    { "rollout.total_rollout_steps", ROW_SILENT, NULL }, { "rollout.total_epochs", ROW_SILENT, NULL }, { "rollout.test_freq", ROW_SILENT, NULL },
    { "async_training.*", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.log_prob_micro_batch_size", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.enforce_eager", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.free_cache_engine", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.max_num_batched_tokens", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.enable_chunked_prefill", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.max_model_len", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.max_num_seqs", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.top_p", ROW_SILENT, NULL },
    { "actor_rollout_ref.rollout.top_k", ROW_SILENT, NULL }, { "actor_rollout_ref.rollout.val_kwargs.*", ROW_SILENT, NULL },
    { "actor_rollout_ref.hybrid_engine", ROW_SILENT, NULL },
    { REF "strategy", ROW_SILENT, NULL }, { REF "rollout_n", ROW_SILENT, NULL }, { REF "use_torch_compile", ROW_SILENT, NULL },
    { REF "log_prob_micro_batch_size", ROW_SILENT, NULL }, { REF "log_prob_micro_batch_size_per_gpu", ROW_SILENT, NULL },
    { REF "log_prob_use_dynamic_bsz", ROW_SILENT, NULL }, { REF "log_prob_max_token_len_per_gpu", ROW_SILENT, NULL },
    { REF "ulysses_sequence_parallel_size", ROW_SILENT, NULL }, { REF "entropy_from_logits_with_chunking", ROW_SILENT, NULL },
    { REF "entropy_checkpointing", ROW_SILENT, NULL }, { REF "load_weight", ROW_SILENT, NULL }, { REF "use_remove_padding", ROW_SILENT, NULL },
    { REF "use_fused_kernels", ROW_SILENT, NULL }, { REF "profiler.*", ROW_SILENT, NULL }, { REF "router_replay.*", ROW_SILENT, NULL },
    { REF "model.*", ROW_SILENT, NULL }, { REF "tiled_mlp.*", ROW_SILENT, NULL }, { REF "fsdp_config.param_offload", ROW_SILENT, NULL },
    { REF "fsdp_config.optimizer_offload", ROW_SILENT, NULL }, { REF "fsdp_config.offload_policy", ROW_SILENT, NULL },
    { REF "fsdp_config.reshard_after_forward", ROW_SILENT, NULL }, { REF "fsdp_config.fsdp_size", ROW_SILENT, NULL },
    { REF "fsdp_config.forward_prefetch", ROW_SILENT, NULL }, { REF "fsdp_config.model_dtype", ROW_SILENT, NULL },
    { REF "fsdp_config.use_orig_params", ROW_SILENT, NULL }, { REF "fsdp_config.seed", ROW_SILENT, NULL }, { REF "fsdp_config.full_determinism", ROW_SILENT, NULL },
    { REF "fsdp_config.ulysses_sequence_parallel_size", ROW_SILENT, NULL }, { REF "fsdp_config.forward_only", ROW_SILENT, NULL },
    { REF "fsdp_config.strategy", ROW_SILENT, NULL }, { REF "fsdp_config.dtype", ROW_SILENT, NULL }, { REF "fsdp_config.use_torch_compile", ROW_SILENT, NULL },
    { REF "fsdp_config.entropy_from_logits_with_chunking", ROW_SILENT, NULL }, { REF "fsdp_config.entropy_checkpointing", ROW_SILENT, NULL },
    { REF "fsdp_config.mixed_precision.*", ROW_SILENT, NULL }, { REF "fsdp_config.wrap_policy.*", ROW_SILENT, NULL }, { REF "megatron.param_offload", ROW_SILENT, NULL },
    { REF "megatron.grad_offload", ROW_SILENT, NULL }, { REF "megatron.optimizer_offload", ROW_SILENT, NULL },
    { REF "megatron.tensor_model_parallel_size", ROW_SILENT, NULL }, { REF "megatron.pipeline_model_parallel_size", ROW_SILENT, NULL },
    { REF "megatron.virtual_pipeline_model_parallel_size", ROW_SILENT, NULL }, { REF "megatron.context_parallel_size", ROW_SILENT, NULL },
    { REF "megatron.expert_model_parallel_size", ROW_SILENT, NULL }, { REF "megatron.expert_tensor_parallel_size", ROW_SILENT, NULL },
    { REF "megatron.sequence_parallel", ROW_SILENT, NULL }, { REF "megatron.use_distributed_optimizer", ROW_SILENT, NULL },
    { REF "megatron.use_dist_checkpointing", ROW_SILENT, NULL }, { REF "megatron.dist_checkpointing_path", ROW_SILENT, NULL },
    { REF "megatron.dist_checkpointing_prefix", ROW_SILENT, NULL }, { REF "megatron.seed", ROW_SILENT, NULL }, { REF "megatron.override_ddp_config.*", ROW_SILENT, NULL },
    { REF "megatron.override_transformer_config.*", ROW_SILENT, NULL }, { REF "megatron.override_mcore_model_config.*", ROW_SILENT, NULL },
    { REF "megatron.use_mbridge", ROW_SILENT, NULL }, { REF "megatron.vanilla_mbridge", ROW_SILENT, NULL }, { REF "megatron.use_remove_padding", ROW_SILENT, NULL },
    { REF "megatron.forward_only", ROW_SILENT, NULL }, { REF "megatron.dtype", ROW_SILENT, NULL },
    { "actor_rollout_ref.actor.checkpoint.*", ROW_SILENT, NULL }, { "actor_rollout_ref.actor.profiler.*", ROW_SILENT, NULL },
    { "data.max_prompt_length", ROW_READ, NULL }, { "data.max_response_length", ROW_READ, NULL },
    { "data.train_batch_size", ROW_READ, NULL }, { "data.gen_batch_size", ROW_SILENT, NULL }, { "data.apply_chat_template_kwargs.*", ROW_SILENT, NULL },
    { "data.filter_overlong_prompts_workers", ROW_SILENT, NULL }, { "data.dataloader_num_workers", ROW_SILENT, NULL }, { "data.sampler.*", ROW_SILENT, NULL },
    { "data.train_files", ROW_SILENT, NULL }, { "data.val_files", ROW_SILENT, NULL }, { "data.filter_overlong_prompts", ROW_SILENT, NULL },
    { "data.truncation", ROW_SILENT, NULL }, { "data.shuffle", ROW_SILENT, NULL }, { "data.prompt_key", ROW_SILENT, NULL },
    { "data.return_raw_chat", ROW_SILENT, NULL }, { "data.val_batch_size", ROW_SILENT, NULL }, { "data.image_key", ROW_REFUSED, "training on pictures is not planned" RECORDED_WAY },
    { "data.video_key", ROW_REFUSED, "training on pictures is not planned" RECORDED_WAY },
    { "data.reward_fn_key", ROW_SILENT, NULL }, { "data.seed", ROW_SILENT, NULL },
    { "critic.model.path", ROW_READ, NULL }, { "critic.model.fsdp_config.grad_offload", ROW_READ, NULL }, { "actor_rollout_ref.actor.fsdp_config.grad_offload", ROW_READ, NULL },
    { ROLLOUT "n_agent", ROW_READ, NULL },
    { "critic.strategy", ROW_SILENT, NULL }, { "critic.enable", ROW_SILENT, NULL }, { "critic.rollout_n", ROW_SILENT, NULL },
    { "critic.ppo_mini_batch_size", ROW_SILENT, NULL }, { "critic.ppo_micro_batch_size", ROW_SILENT, NULL },
    { "critic.ppo_micro_batch_size_per_gpu", ROW_SILENT, NULL }, { "critic.use_dynamic_bsz", ROW_SILENT, NULL },
    { "critic.ppo_max_token_len_per_gpu", ROW_SILENT, NULL }, { "critic.forward_max_token_len_per_gpu", ROW_SILENT, NULL },
    { "critic.forward_micro_batch_size", ROW_SILENT, NULL }, { "critic.forward_micro_batch_size_per_gpu", ROW_SILENT, NULL },
    { "critic.ppo_epochs", ROW_SILENT, NULL }, { "critic.shuffle", ROW_SILENT, NULL }, { "critic.data_loader_seed", ROW_SILENT, NULL },
    { "critic.cliprange_value", ROW_SILENT, NULL }, { "critic.loss_agg_mode", ROW_SILENT, NULL },
    { "critic.ulysses_sequence_parallel_size", ROW_SILENT, NULL }, { "critic.grad_clip", ROW_SILENT, NULL },
    { "critic.model.tokenizer_path", ROW_SILENT, NULL }, { "critic.model.override_config", ROW_SILENT, NULL },
    { "critic.model.external_lib", ROW_SILENT, NULL }, { "critic.model.trust_remote_code", ROW_SILENT, NULL },
    { "critic.model.use_shm", ROW_SILENT, NULL }, { "critic.model.enable_gradient_checkpointing", ROW_SILENT, NULL },
    { "critic.model.enable_activation_offload", ROW_SILENT, NULL }, { "critic.model.use_remove_padding", ROW_SILENT, NULL },
    { "critic.model.lora_rank", ROW_SILENT, NULL }, { "critic.model.lora_alpha", ROW_SILENT, NULL },
    { "critic.model.target_modules", ROW_SILENT, NULL }, { "critic.model.fsdp_config.param_offload", ROW_SILENT, NULL },
    { "critic.model.fsdp_config.optimizer_offload", ROW_SILENT, NULL }, { "critic.model.fsdp_config.fsdp_size", ROW_SILENT, NULL },
    { "critic.model.fsdp_config.forward_prefetch", ROW_SILENT, NULL }, { "critic.model.fsdp_config.offload_policy", ROW_SILENT, NULL },
    { "critic.model.fsdp_config.reshard_after_forward", ROW_SILENT, NULL },
    { "critic.model.fsdp_config.wrap_policy.min_num_params", ROW_SILENT, NULL }, { "critic.optim.lr", ROW_SILENT, NULL },
    { "critic.optim.lr_warmup_steps", ROW_SILENT, NULL }, { "critic.optim.lr_warmup_steps_ratio", ROW_SILENT, NULL },
    { "critic.optim.total_training_steps", ROW_SILENT, NULL }, { "critic.optim.weight_decay", ROW_SILENT, NULL },
    { "critic.optim.betas", ROW_SILENT, NULL }, { "critic.optim.optimizer", ROW_SILENT, NULL },
    { "critic.optim.optimizer_impl", ROW_SILENT, NULL }, { "critic.optim.min_lr_ratio", ROW_SILENT, NULL },
    { "critic.optim.warmup_style", ROW_SILENT, NULL }, { "critic.optim.lr_scheduler_type", ROW_SILENT, NULL },
    { "critic.optim.num_cycles", ROW_SILENT, NULL }, { "critic.checkpoint.*", ROW_SILENT, NULL },
    { "critic.profiler.*", ROW_SILENT, NULL }, { "critic.megatron.*", ROW_SILENT, NULL },
    { "reward_model.enable", ROW_MATTERS, "a reward model scores samples in a phase of its own; in the update its weights are on the GPUs unless "
                                          "reward_model.model.fsdp_config.param_offload sends them to the host" },
    { "reward_model.enable_resource_pool", ROW_MATTERS, "the reward model has GPUs of its own beside those that train" },
    { "reward_model.reward_manager", ROW_SILENT, NULL }, { "reward_model.reward_kwargs.*", ROW_SILENT, NULL }, { "reward_model.use_reward_loop", ROW_SILENT, NULL },
    { "reward_model.model.*", ROW_SILENT, NULL }, { "reward_model.rollout.*", ROW_SILENT, NULL }, { "reward_model.num_workers", ROW_SILENT, NULL },
    { "reward_model.micro_batch_size", ROW_SILENT, NULL }, { "reward_model.micro_batch_size_per_gpu", ROW_SILENT, NULL }, { "reward_model.max_length", ROW_SILENT, NULL },
    { "reward_model.use_dynamic_bsz", ROW_SILENT, NULL }, { "reward_model.forward_max_token_len_per_gpu", ROW_SILENT, NULL }, { "reward_model.strategy", ROW_SILENT, NULL },
    { "reward_model.n_gpus_per_node", ROW_SILENT, NULL }, { "reward_model.nnodes", ROW_SILENT, NULL }, { "reward_model.launch_reward_fn_async", ROW_SILENT, NULL },
    { "reward_model.overlong_buffer.*", ROW_SILENT, NULL }, { "reward_model.sandbox_fusion.*", ROW_SILENT, NULL }, { "reward_model.profiler.*", ROW_SILENT, NULL },
    { "reward_model.ulysses_sequence_parallel_size", ROW_SILENT, NULL }, { "reward_model.input_tokenizer", ROW_SILENT, NULL },
    { "custom_reward_function.*", ROW_SILENT, NULL },
    { ALGORITHM "adv_estimator", ROW_SILENT, NULL }, { ALGORITHM "gamma", ROW_SILENT, NULL }, { ALGORITHM "lam", ROW_SILENT, NULL },
    { ALGORITHM "norm_adv_by_std_in_grpo", ROW_SILENT, NULL }, { ALGORITHM "use_kl_in_reward", ROW_SILENT, NULL }, { ALGORITHM "kl_penalty", ROW_SILENT, NULL },
    { ALGORITHM "kl_ctrl.type", ROW_SILENT, NULL }, { ALGORITHM "kl_ctrl.kl_coef", ROW_SILENT, NULL }, { ALGORITHM "kl_ctrl.horizon", ROW_SILENT, NULL },
    { ALGORITHM "kl_ctrl.target_kl", ROW_SILENT, NULL }, { ALGORITHM "use_pf_ppo", ROW_SILENT, NULL }, { ALGORITHM "pf_ppo.reweight_method", ROW_SILENT, NULL },
    { ALGORITHM "pf_ppo.weight_pow", ROW_SILENT, NULL }, { ALGORITHM "filter_groups.enable", ROW_SILENT, NULL }, { ALGORITHM "filter_groups.metric", ROW_SILENT, NULL },
    { ALGORITHM "filter_groups.max_num_gen_batches", ROW_SILENT, NULL }, { ALGORITHM "rollout_correction.rollout_is", ROW_SILENT, NULL },
    { ALGORITHM "rollout_correction.rollout_is_threshold", ROW_SILENT, NULL }, { ALGORITHM "rollout_correction.rollout_is_batch_normalize", ROW_SILENT, NULL },
    { ALGORITHM "rollout_correction.rollout_rs", ROW_SILENT, NULL }, { ALGORITHM "rollout_correction.rollout_rs_threshold", ROW_SILENT, NULL },
    { ALGORITHM "rollout_correction.rollout_rs_threshold_lower", ROW_SILENT, NULL }, { ALGORITHM "rollout_correction.rollout_token_veto_threshold", ROW_SILENT, NULL },
    { ALGORITHM "rollout_correction.bypass_mode", ROW_SILENT, NULL }, { ALGORITHM "rollout_correction.loss_type", ROW_SILENT, NULL },
    { ALGORITHM "rollout_is", ROW_SILENT, NULL }, { ALGORITHM "rollout_is_threshold", ROW_SILENT, NULL }, { ALGORITHM "rollout_is_threshold_lower", ROW_SILENT, NULL },
    { ALGORITHM "rollout_is_level", ROW_SILENT, NULL }, { ALGORITHM "rollout_is_mode", ROW_SILENT, NULL }, { ALGORITHM "rollout_is_veto_threshold", ROW_SILENT, NULL },
    { "trainer.critic_warmup", ROW_SILENT, NULL }, { "trainer.logger", ROW_SILENT, NULL },
    { "trainer.project_name", ROW_SILENT, NULL }, { "trainer.experiment_name", ROW_SILENT, NULL },
    { "trainer.save_freq", ROW_SILENT, NULL }, { "trainer.test_freq", ROW_SILENT, NULL }, { "trainer.total_epochs", ROW_SILENT, NULL },
    { "trainer.val_before_train", ROW_SILENT, NULL }, { "trainer.resume_mode", ROW_SILENT, NULL },
    { "trainer.balance_batch", ROW_SILENT, NULL }, { "trainer.log_val_generations", ROW_SILENT, NULL },
    { "trainer.default_local_dir", ROW_SILENT, NULL }, { "trainer.default_hdfs_dir", ROW_SILENT, NULL },
    { "trainer.total_training_steps", ROW_SILENT, NULL }, { "trainer.device", ROW_SILENT, NULL },
    { "trainer.max_actor_ckpt_to_keep", ROW_SILENT, NULL }, { "trainer.max_critic_ckpt_to_keep", ROW_SILENT, NULL },
    { "trainer.validation_data_dir", ROW_SILENT, NULL }, { "trainer.rollout_data_dir", ROW_SILENT, NULL },
    { "trainer.val_only", ROW_SILENT, NULL }, { "trainer.ray_wait_register_center_timeout", ROW_SILENT, NULL },
    { "trainer.use_legacy_worker_impl", ROW_SILENT, NULL },
    { "ray_kwargs.*", ROW_SILENT, NULL }, { "ray_init.*", ROW_SILENT, NULL }, { "global_profiler.*", ROW_SILENT, NULL },
};

static bool claims(const struct form_file *f) { return json_is_object(form_value(f->doc, "actor_rollout_ref.actor")); }

/* examples/split_placement gives actor and critic half of the GPUs each. */
static int check(const struct form_file *f)
{
    if (form_runs(f, "main_ppo_split.py"))
        return fail("%s: main_ppo_split.py: an actor on a part of the GPUs is not planned: main_ppo is", f->path);
    return verl_check_program(f);
}

/* A script may leave it empty. */
static const char *model(const struct form_file *f)
{
    const char *path = json_string_value(form_value(f->doc, "actor_rollout_ref.model.path"));

    return path && *path ? path : NULL;
}

#define ACTOR VERL_ACTOR
#define FSDP  ACTOR "fsdp_config."

/* Ranks that share positions; 1: none do.  Ulysses is patched into transformers' flash attention, of samples without padding. */
static int64_t read_ulysses(struct form_reading *r, const struct plan *p)
{
    int64_t old = form_count(r, ACTOR "ulysses_sequence_parallel_size", 1), ranks = form_count(r, FSDP "ulysses_sequence_parallel_size", old);

    if (old > 1 && ranks != old)
        form_fail(r, FSDP "ulysses_sequence_parallel_size: %lld, but actor.ulysses_sequence_parallel_size, its older name, says %lld", (long long)ranks,
                  (long long)old);
    if (ranks == 1)
        return 1;
    if (p->cluster.world_size % ranks) {
        form_fail(r, ACTOR "ulysses_sequence_parallel_size: %lld does not divide the %lld GPUs", (long long)ranks, (long long)p->cluster.world_size);
        return 1;
    }
    if (!verl_true_of_late(r, "actor_rollout_ref.model.use_remove_padding"))
        form_fail(r, ACTOR "ulysses_sequence_parallel_size: verl has it with actor_rollout_ref.model.use_remove_padding alone");
    form_set(r, "parallel.context", json_integer(ranks));
    form_set(r, "kernels", json_string("torch-sdpa"));
    return ranks;
}

bool verl_fuses(struct form_reading *r) { return form_true(r, "actor_rollout_ref.model.use_fused_kernels", false); }

/* models/transformers/monkey_patch.py: the patched forward of the model gives log-probabilities and entropies; the chunks' backward has more operations where the
 * entropy has a gradient, Triton's kernel always makes it. */
static void read_fused(struct form_reading *r)
{
    static const char *const backends[] = { "torch", "triton", NULL };
    bool kernel = form_word(r, "actor_rollout_ref.model.fused_kernel_options.impl_backend", backends, 0) == 1;

    if (!kernel && form_number(r, ACTOR "entropy_coeff", 0) != 0)
        form_fail(r, ACTOR "entropy_coeff: beside use_fused_kernels of torch its gradient is not planned: without it, or impl_backend: triton, the step is");
    form_set(r, "loss", json_string(kernel ? "actor-triton" : "actor-chunks"));
}

/* calculate_sum_pi_squared_from_logits(), compiled: nothing of it is in the loss, but `outputs` has its result, whose graph has the logits, until the next
 * micro-step's. */
static void read_squares(struct form_reading *r)
{
    if (!form_true(r, ACTOR "calculate_sum_pi_squared", false))
        return;
    if (!form_true(r, ACTOR "use_torch_compile", true) || form_true(r, ACTOR "sum_pi_squared_checkpointing", false))
        form_fail(r, ACTOR "calculate_sum_pi_squared: planned compiled and without sum_pi_squared_checkpointing: its copies of the logits are not");
    form_set(r, "logits_kept", json_string("as-made"));
    notes_add(r->notes, ACTOR "calculate_sum_pi_squared: the logits are kept until the next micro-step's are there; the kernel that reads them is not in the plan");
}

/* dp_actor.py: the entropy of the logits is in the loss by entropy_coeff, or computed for its figure alone (calculate_entropy).  Without it the gradient of
 * log-probabilities is written over the logits. */
static void read_loss(struct form_reading *r)
{
    if (verl_fuses(r)) {
        if (form_true(r, ACTOR "calculate_sum_pi_squared", false))
            form_fail(r, ACTOR "calculate_sum_pi_squared: verl refuses it beside use_fused_kernels");
        read_fused(r);
        return;
    }
    static const struct { const char *key; bool is, usual; const char *why; } others[] = {
        { ACTOR "entropy_from_logits_with_chunking", false, false, "an entropy that comes chunk by chunk" },
        { ACTOR "entropy_checkpointing", false, false, "an entropy that backward computes again" },
        { "actor_rollout_ref.model.use_remove_padding", true, true, "an entropy of padded samples" },
    };
    bool always = verl_has_entropy_always(r), in_loss = always || form_number(r, ACTOR "entropy_coeff", 0) != 0, computed = in_loss || form_true(r, ACTOR "calculate_entropy", false);

    for (size_t i = 0; computed && i < sizeof others / sizeof *others; i++)
        if (form_true(r, others[i].key, others[i].usual) != others[i].is)
            form_fail(r, "%s: %s is not planned: without " ACTOR "%s the rest of the step is", others[i].key, others[i].why, in_loss ? "entropy_coeff" : "calculate_entropy");
    if (computed && !in_loss)
        notes_add(r->notes, ACTOR "calculate_entropy: the entropy's forward is not in the plan, which trains without it");
    bool compiled = form_true(r, ACTOR "use_torch_compile", true);
    read_squares(r);
    form_set(r, "loss", json_string(in_loss ? compiled ? "fused-entropy" : "fused-entropy-eager" : computed ? "fused" : "fused-in-place"));
}

void verl_refuse_entropy(struct form_reading *r)
{
    static const char *const keys[] = { ACTOR "entropy_coeff", ACTOR "calculate_entropy" };

    for (int i = 0; i < 2; i++)
        if (i == 0 ? form_number(r, keys[i], 0) > 0 : form_true(r, keys[i], false))
            form_fail(r, "%s: the entropy's own copies of the logits are not planned: without it", keys[i]);
}

struct verl_batch verl_batch_of(struct form_reading *r, const struct plan *p, int64_t sharing, int64_t context)
{
    int64_t world = p->cluster.world_size / sharing, length = form_count(r, "data.max_prompt_length", 512) + form_count(r, "data.max_response_length", 512);
    int64_t micro = form_count(r, ACTOR "ppo_micro_batch_size_per_gpu", 0), all = form_count(r, ACTOR "ppo_micro_batch_size", 0);
    bool megatron = verl_is_megatron(r->file);
    int64_t samples = verl_prompts_of_a_step(r, megatron ? world : p->cluster.world_size, megatron ? micro : 1) * form_count(r, ROLLOUT "n", 1), each = samples / world;

    micro = micro ? micro : all / world;
    if (form_true(r, ACTOR "use_dynamic_bsz", false)) {
        /* rearrange_micro_batches() (utils/seqlen_balancing.py): as few parts as the tokens need, of as many samples each as can be, whatever that is in tokens */
        int64_t most = context * form_count(r, ACTOR "ppo_max_token_len_per_gpu", 16384), parts = (each * length + most - 1) / most;
        parts = parts > each ? each : parts;
        micro = parts > 0 ? (each + parts - 1) / parts : 1;
        int64_t steps = (each + micro - 1) / micro;
        notes_add(r->notes, "use_dynamic_bsz: samples are dealt out evenly to as few micro-steps as ppo_max_token_len_per_gpu allows for their sum, %lld of the longest "
                  "length: planned as %lld of %lld samples, which the fullest has", (long long)parts, (long long)steps, (long long)micro);
        each = steps * micro;
    }
    micro = p->micro_batch > 0 ? p->micro_batch : micro;
    if (micro < 1)
        form_fail(r, ACTOR "ppo_micro_batch_size_per_gpu: the file gives none and no use_dynamic_bsz: give --micro-batch");
    else if (each < 1 || each % micro)
        form_fail(r, ACTOR "ppo_mini_batch_size: %lld samples (x rollout.n) on %lld GPUs do not divide by %lld a micro-step", (long long)samples,
                  (long long)world, (long long)micro);
    return (struct verl_batch){ .seq = length, .micro = micro > 0 ? micro : 1, .steps = micro > 0 && each >= micro ? each / micro : 1 };
}

static struct verl_batch read_batch(struct form_reading *r, const struct plan *p, int64_t sharing)
{
    struct verl_batch b = verl_batch_of(r, p, sharing, sharing);

    form_set(r, "seq", json_integer(b.seq));
    form_set(r, "micro_batch", json_integer(b.micro));
    form_set(r, "accumulation", json_integer(b.steps));
    return b;
}

/* get_fsdp_wrap_policy() makes each lora_A and lora_B a unit. */
static void read_adapters(struct form_reading *r, bool two)
{
    const json_t *targets = form_value(r->file->doc, "actor_rollout_ref.model.target_modules");

    if (!two)
        form_set(r, "fsdp.wrap_adapters", json_true());
    form_set(r, "train", json_string("lora"));
    form_set(r, "lora.rank", json_integer(form_count(r, "actor_rollout_ref.model.lora_rank", 8)));
    form_set(r, "lora.alpha", json_real(form_number(r, "actor_rollout_ref.model.lora_alpha", 16)));
    form_set(r, "lora.target_modules", targets ? json_deep_copy(targets) : json_string("all-linear"));
}

/* The config that the words are over: hydra's option, or the first of a file's defaults. */
static const char *base_config(const struct form_file *f)
{
    const char *first = json_string_value(json_array_get(form_value(f->doc, "defaults"), 0)), *named = json_string_value(form_value(f->doc, "config_name"));

    return named ? named : first && strcmp(first, "_self_") != 0 ? first : "ppo_trainer";
}

bool verl_is_megatron(const struct form_file *f)
{
    const char *strategy = json_string_value(form_value(f->doc, ACTOR "strategy"));

    return strstr(base_config(f), "megatron") || form_value(f->doc, "actor_rollout_ref.actor.megatron") || (strategy && !strcmp(strategy, "megatron"));
}

/* What verl's own config sets is known, what another sets is not. */
static void note_base(struct form_reading *r)
{
    static const char megatron[] = "ppo_megatron_trainer", fsdp[] = "ppo_trainer";
    const char *config = base_config(r->file);
    bool own = !strncmp(config, fsdp, sizeof fsdp - 1) || (verl_is_megatron(r->file) && !strncmp(config, megatron, sizeof megatron - 1));

    if (!own)
        notes_add(r->notes, "config_name: %.60s is not read: what it sets is not in the plan", config);
}

/* The file's number of ranks beside the cluster's, unless a variable says it that is set where the script runs. */
static void note_ranks(struct form_reading *r, const struct plan *p)
{
    static const char *const keys[] = { "trainer.n_gpus_per_node", "trainer.nnodes" };
    bool states = false;

    for (int i = 0; i < 2; i++) {
        const json_t *v = form_value(r->file->doc, keys[i]);
        const char *word = json_string_value(v);
        if (word && (!*word || *word == '$')) {
            notes_add(r->notes, "%s: %.60s is set where the script runs: the GPUs are those of --cluster", keys[i], *word ? word : "an empty variable");
            return;
        }
        states = states || v;
    }
    int64_t gpus = form_count(r, keys[0], 8) * form_count(r, keys[1], 1);
    if (states)
        unread_ranks(r->notes, form_value(r->file->doc, keys[0]) ? keys[0] : keys[1], gpus, p->cluster.world_size);
}

/* config/model/hf_model.yaml: true.  Padded samples are as long as they may be. */
static void note_padding(struct form_reading *r)
{
    static const char key[] = "actor_rollout_ref.model.use_remove_padding";

    if (verl_true_of_late(r, key))
        notes_add(r->notes, "%s%s: verl runs samples without padding: shorter ones than data.max_prompt_length and max_response_length take less than planned", key,
                  form_value(r->file->doc, key) ? "" : " (usual: true)");
}

/* _apply_liger_kernel_to_instance(model): the loss is verl's all the same, for the model is given no labels and returns logits. */
void verl_read_liger(struct form_reading *r, const struct plan *p, const char *path)
{
    struct liger_options of;
    enum loss_kind loss;
    const char *lacks;

    if (!form_true(r, path, false))
        return;
    if (!liger_usual(&p->model, &of, &loss, &lacks)) {
        notes_add(r->notes, "%s: Liger-Kernel has no kernels for %s: none are taken", path, p->model.family);
        return;
    }
    form_set(r, "liger.rope", json_boolean(of.rope));
    form_set(r, "liger.rms_norm", json_boolean(of.rms_norm));
    form_set(r, "liger.glu_activation", json_boolean(of.glu_activation));
    if (lacks)
        notes_add(r->notes, "%s: Liger-Kernel's %s for %s are not modelled: taken as transformers', which keep more", path, lacks, p->model.family);
}

static void read_rest(struct form_reading *r, const struct plan *p)
{
    static const char *const optimizers[] = { "AdamW", NULL }, *const from[] = { "torch.optim", NULL }, *const dtypes[] = { "bfloat16", "bf16", NULL };

    form_word(r, ACTOR "optim.optimizer", optimizers, 0);
    form_word(r, ACTOR "optim.optimizer_impl", from, 0);
    form_word(r, FSDP "dtype", dtypes, 0);
    read_loss(r);
    verl_read_liger(r, p, "actor_rollout_ref.model.use_liger");
    note_ranks(r, p);
    note_base(r);
    note_padding(r);
}

/* actor.strategy is that of fsdp_workers.py, fsdp_config's that of the engine's workers (engine_workers.py). */
static bool read_strategy(struct form_reading *r)
{
    static const char *const words[] = { "fsdp", "fsdp2", NULL };
    int actor = form_word(r, ACTOR "strategy", words, 0), engine = form_word(r, FSDP "strategy", words, actor);

    if (actor != engine)
        notes_add(r->notes, FSDP "strategy: %s with the engine's workers alone: planned with actor.strategy, %s", words[engine], words[actor]);
    return actor == 1;
}

/* apply_fsdp2(): one word for blocks and root, which PyTorch frees after forward from 2.9 on; an untied embedding is a unit. */
void verl_read_units(struct form_reading *r, const struct plan *p, bool reshards)
{
    form_set(r, "fsdp.root_reshard_after_forward", json_boolean(reshards));
    if (!reshards)
        form_set(r, "fsdp.reshard_after_forward", json_false());
    if (!p->model.tied)
        form_set(r, "fsdp.root_units", json_string("embed"));
}

static void read_sharing(struct form_reading *r, const struct plan *p, bool two, int64_t sharing)
{
    int64_t group = form_integer(r, FSDP "fsdp_size", -1);

    if (!two) {
        form_set(r, "fsdp.use_orig_params", json_boolean(form_true(r, FSDP "use_orig_params", false)));
        form_set(r, "fsdp.forward_prefetch", json_boolean(form_true(r, FSDP "forward_prefetch", false)));
    } else if (form_true(r, FSDP "offload_policy", false)) {
        form_set(r, "fsdp.cpu_offload", json_true());
    }
    if (two && sharing > 1)             /* FSDP1 has no other */
        form_set(r, "parallel.context_method", json_string("ulysses"));
    if (two)
        verl_read_units(r, p, form_true(r, FSDP "reshard_after_forward", true));
    if (group > 0 && group < p->cluster.world_size) {
        if (group % sharing)
            form_fail(r, FSDP "fsdp_size: %lld is not a multiple of the %lld ranks that share positions", (long long)group, (long long)sharing);
        form_set(r, "shard_group", json_integer(group));
        if (!two)
            form_set(r, "fsdp.sharding_strategy", json_string("HYBRID_SHARD"));
    }
}

/* Is a value left to a variable that nobody has set? */
static bool is_open(const struct form_reading *r, const char *path)
{
    const char *word = json_string_value(form_value(r->file->doc, path));

    return word && strchr(word, '$');
}

static bool actor_generates(const struct form_file *f)
{
    const char *name = json_string_value(form_value(f->doc, ROLLOUT "name"));

    return name && !strcmp(name, "hf");
}

/* The engine (workers/rollout/base.py; "hf" until 2025, which is the actor itself), and what no plan of the update has of it. */
static void check_engine(struct form_reading *r)
{
    static const char *const engines[] = { "vllm", "sglang", "trtllm", "hf", NULL }, *const counts[] = { ROLLOUT "tensor_model_parallel_size", "data.train_batch_size" };

    if (!is_open(r, ROLLOUT "name"))
        form_word(r, ROLLOUT "name", engines, 0);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!is_open(r, counts[i]) && form_integer(r, counts[i], 1) < (i == 0))           /* 0 samples at once: fully_async_policy's */
            form_fail(r, "%s: expected a number of %s", counts[i], i == 0 ? "GPUs" : "samples");
    if (actor_generates(r->file))
        notes_add(r->notes, ROLLOUT "name: hf: the actor itself generates, and no engine is beside it: verl has no such rollout since it has servers alone");
}

static int read(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char *const dtypes[] = { "fp32", "float32", "bf16", "bfloat16", NULL };
    struct form_reading r;

    form_begin(&r, f, rows, FORM_COUNT(rows), notes);
    check_engine(&r);
    if (verl_is_megatron(f)) {
        note_base(&r);
        note_ranks(&r, p);
        note_padding(&r);
        notes_add(notes, "the plan is the actor's update alone: generation, log-probabilities, rewards and the engine's share of the memory are not in it");
        return verl_read_megatron(&r, p);
    }
    bool two = read_strategy(&r), narrow = form_word(&r, FSDP "model_dtype", dtypes, 0) > 1;
    int64_t rank = form_integer(&r, "actor_rollout_ref.model.lora_rank", 0);
    int64_t sharing = read_ulysses(&r, p);
    form_set(&r, "strategy", json_string("fsdp"));
    form_set(&r, "dialect", json_string(two ? "torch" : "torch-fsdp1"));
    form_set(&r, "precision", json_string("bf16"));
    if (form_word(&r, FSDP "mixed_precision.param_dtype", dtypes, 2) < 2 || form_word(&r, FSDP "mixed_precision.buffer_dtype", dtypes, 0) > 1)
        form_fail(&r, FSDP "mixed_precision: planned with parameters in bf16 and buffers in fp32");
    form_set(&r, "reduce_dtype", json_string(form_word(&r, FSDP "mixed_precision.reduce_dtype", dtypes, 0) > 1 ? "bf16" : "fp32"));
    if (narrow || rank > 0)               /* beside adapters bf16 may be usual */
        form_set(&r, "fsdp.model_dtype", json_string(narrow ? "bf16" : "fp32"));
    read_sharing(&r, p, two, sharing);
    form_set(&r, "clip", json_real(form_number(&r, ACTOR "grad_clip", 1)));
    if (verl_true_of_late(&r, "actor_rollout_ref.model.enable_gradient_checkpointing"))
        form_set(&r, "recompute", json_string("full"));
    struct verl_batch b = read_batch(&r, p, sharing);
    if (rank > 0)
        read_adapters(&r, two);
    else if (form_value(f->doc, "actor_rollout_ref.model.lora_adapter_path"))
        form_fail(&r, "actor_rollout_ref.model.lora_adapter_path: adapters train, and what they are is in that folder: give lora_rank and target_modules");
    read_rest(&r, p);
    verl_read_beside(&r, p, &b);
    const char *attention = form_text(&r, VERL_ATTENTION, "flash_attention_2");     /* fsdp_workers.py, workers/config/model.py */
    if (!strcmp(attention, "eager"))
        form_set(&r, "kernels", json_string("torch-eager"));
    notes_add(notes, "the plan is the actor's update alone: generation, log-probabilities, rewards and the engine's share of the memory are not in it");
    if (form_end(&r, p) < 0)
        return -1;
    form_put_attention(p, VERL_ATTENTION, attention, notes);
    return 0;
}

/* An engine on the actor's own GPUs: main_ppo's.  Of fully_async_policy and one_step_off_policy, which ask for hybrid_engine=False, it has others. */
static bool has_engine_beside(const struct form_file *f)
{
    const json_t *hybrid = form_value(f->doc, "actor_rollout_ref.hybrid_engine");
    const char *word = json_string_value(hybrid), *way = json_string_value(form_value(f->doc, "actor_rollout_ref.rollout.checkpoint_engine.backend"));

    return !json_is_false(hybrid) && !(word && !strcasecmp(word, "false")) && (!way || !strcmp(way, "naive"));
}

/* set_expandable_segments(True) ends each hand-over of weights (workers/fsdp_workers.py, megatron_workers.py, engine_workers.py).  PyTorch's
 * _set_allocator_settings() gives every option that it does not name its default again: no variable is left. */
static void allocator(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char set[] = "expandable_segments:True";
    char *own = p->environment.alloc_conf;

    if (!has_engine_beside(f) || actor_generates(f))
        return;
    if (*own && strcmp(own, set) != 0)
        notes_add(notes, "PYTORCH_ALLOC_CONF=%.60s holds until verl's first hand-over of weights, which sets %s alone: so does the plan's environment", own, set);
    else if (!*own)
        notes_add(notes, "verl trains with %s, which each hand-over of weights to the engine sets: it is in the plan's environment", set);
    memcpy(own, set, sizeof set);
}

const struct form form_verl = {
    .name = "verl", .sign = "actor_rollout_ref.actor",
    .claims = claims, .check = check, .model = model, .read = read, .allocator = allocator, .rows = rows, .nrows = FORM_COUNT(rows),
};
