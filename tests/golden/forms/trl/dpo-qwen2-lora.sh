# values of trl, trl/scripts/dpo.py, LoRA
python trl/scripts/dpo.py --model_name_or_path Qwen/Qwen2-0.5B-Instruct --learning_rate 5.0e-6 --num_train_epochs 1 \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --output_dir Qwen2-0.5B-DPO --use_peft --lora_r 32 --lora_alpha 16
