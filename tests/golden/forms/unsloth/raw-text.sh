python unsloth-cli.py --model_name unsloth/llama-3-8b --raw_text_file book.txt --chunk_size 2048 --stride 512 --per_device_eval_batch_size 4
