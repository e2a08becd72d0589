# after run_qwen2-7b.sh with another optimizer
set -x
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=1024 \
    data.max_prompt_length=512 \
    data.max_response_length=1024 \
    actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40 \
    actor_rollout_ref.rollout.n=5 \
    actor_rollout_ref.actor.optim.optimizer=AdamW8bit \
    actor_rollout_ref.actor.optim.optimizer_impl=torchao.optim \
    trainer.n_gpus_per_node=8 \
    trainer.nnodes=1 $@
