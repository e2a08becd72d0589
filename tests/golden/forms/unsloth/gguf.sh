python unsloth-cli.py --model_name "unsloth/llama-3-8b" --dataset "your_dataset" --save_model --save_gguf --quantization q4_k_m
