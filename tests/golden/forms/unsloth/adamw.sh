python unsloth-cli.py --model_name Qwen/Qwen2.5-7B --load_in_4bit --optim adamw_torch --gradient_accumulation_steps 1 --per_device_train_batch_size 4 --use_rslora
