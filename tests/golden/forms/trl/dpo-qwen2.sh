# values of trl, trl/scripts/dpo.py
python trl/scripts/dpo.py --model_name_or_path Qwen/Qwen2-0.5B-Instruct --learning_rate 5.0e-7 --num_train_epochs 1 \
  --per_device_train_batch_size 2 --max_steps 1000 --gradient_accumulation_steps 8 --output_dir Qwen2-0.5B-DPO --no_remove_unused_columns
