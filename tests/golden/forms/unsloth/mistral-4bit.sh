python unsloth-cli.py --model_name "unsloth/mistral-7b-bnb-4bit" --max_seq_length 2048 --load_in_4bit --r 16 --lora_alpha 16 --max_steps 60
