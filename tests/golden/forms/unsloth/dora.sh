# an option of unsloth-cli.py
python unsloth-cli.py --model_name "unsloth/llama-3-8b" --max_seq_length 2048 --use_dora
