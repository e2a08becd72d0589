# values of trl, trl/scripts/kto.py, QLoRA
python trl/scripts/kto.py --model_name_or_path=Qwen/Qwen1.5-1.8B --per_device_train_batch_size 8 --num_train_epochs 1 \
  --gradient_accumulation_steps 1 --output_dir=kto-aligned-model-lora --use_peft --load_in_4bit --lora_target_modules=all-linear --lora_r=16 --lora_alpha=16
