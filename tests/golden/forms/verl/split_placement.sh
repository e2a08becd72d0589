# after examples/split_placement/run_deepseek7b_llm.sh
python3 main_ppo_split.py algorithm.adv_estimator=gae data.max_prompt_length=512 data.max_response_length=512 \
    actor_rollout_ref.model.path=deepseek-ai/deepseek-llm-7b-chat actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=4 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 critic.model.path=deepseek-ai/deepseek-llm-7b-chat critic.ppo_micro_batch_size_per_gpu=8 \
    trainer.n_gpus_per_node=8 trainer.nnodes=1
