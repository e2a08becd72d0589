# open-r1, README.md, with options of its configs.py that TRL's have not
accelerate launch --num_processes 8 src/open_r1/sft.py --model_name_or_path Qwen/Qwen3-0.6B --dataset_name open-r1/Mixture-of-Thoughts \
    --dataset_config all --eos_token '<|im_end|>' --learning_rate 4.0e-5 --num_train_epochs 5 --max_seq_length 32768 --per_device_train_batch_size 2 \
    --gradient_checkpointing --bf16 --output_dir out --benchmarks gpqa --callbacks push_to_hub_revision --overwrite_hub_revision True \
    --push_to_hub_revision True --hub_model_revision main --system_prompt "Think first." --wandb_entity me --wandb_project r1 --wandb_run_group g
