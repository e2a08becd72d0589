python unsloth-cli.py --model_name Qwen/Qwen3-1.7B --dataset datasets/NetworkSecurity --load_in_4bit --per_device_train_batch_size 1 --save_model
