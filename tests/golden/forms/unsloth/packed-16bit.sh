# without load_in_4bit unsloth takes the original of a packed checkpoint (models/loader_utils.py)
python unsloth-cli.py --model_name "unsloth/llama-3-8b-bnb-4bit" --max_seq_length 2048 --r 16 --lora_alpha 16
