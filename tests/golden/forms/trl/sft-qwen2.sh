# values of trl, trl/scripts/sft.py
python trl/scripts/sft.py --model_name_or_path Qwen/Qwen2-0.5B --learning_rate 2.0e-5 --num_train_epochs 1 --packing \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --eval_strategy steps --output_dir Qwen2-0.5B-SFT
