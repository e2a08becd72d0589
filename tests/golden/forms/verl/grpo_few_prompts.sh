# an iteration of 32 prompts, below the mini-batch: with dynamic batches a step takes all of them
python3 -u train.py algorithm.adv_estimator=grpo data.train_batch_size=32 data.max_prompt_length=512 data.max_response_length=1024 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=6144 actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.name=vllm \
    trainer.n_gpus_per_node=8 trainer.nnodes=1
