# after examples/remax_trainer/run_qwen2.5-7b_seq_balance.sh: 128 samples a GPU, of which 24000 tokens hold 15
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=remax data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length=1024 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.rollout.n=4 \
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000 \
    actor_rollout_ref.model.enable_gradient_checkpointing=True trainer.n_gpus_per_node=8 trainer.nnodes=1
