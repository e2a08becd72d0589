# values of trl, trl/scripts/sft.py, LoRA
python trl/scripts/sft.py --model_name_or_path Qwen/Qwen2-0.5B --learning_rate 2.0e-4 --num_train_epochs 1 --packing \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --use_peft --lora_r 32 --lora_alpha 16 --output_dir Qwen2-0.5B-SFT
