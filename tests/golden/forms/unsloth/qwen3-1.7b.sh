python unsloth-cli.py --model_name Qwen/Qwen3-1.7B --dataset datasets/NetworkSecurity --max_steps 60 --save_model
