python unsloth-cli.py --model_name "unsloth/tinyllama-bnb-4bit" --max_seq_length 4096 --load_in_4bit --r 32 --lora_alpha 32 --packing
