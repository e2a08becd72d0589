# after TRL's examples/scripts/sft_vlm_gemma3.py
accelerate launch examples/scripts/sft_vlm_gemma3.py --dataset_name HuggingFaceH4/llava-instruct-mix-vsft --model_name_or_path google/gemma-3-4b-it \
    --per_device_train_batch_size 1 --output_dir gemma-3-4b-it --dtype bfloat16 --use_peft --lora_target_modules all-linear --attn_implementation eager
