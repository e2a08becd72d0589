# after TRL's examples/scripts/ppo/ppo.py
accelerate launch examples/scripts/ppo/ppo.py --dataset_name trl-internal-testing/descriptiveness-sentiment-trl-style --learning_rate 3e-6 --num_ppo_epochs 1 \
    --num_mini_batches 1 --output_dir models/minimal/ppo --per_device_train_batch_size 64 --gradient_accumulation_steps 1 --total_episodes 10000 \
    --model_name_or_path EleutherAI/pythia-1b-deduped --missing_eos_penalty 1.0
