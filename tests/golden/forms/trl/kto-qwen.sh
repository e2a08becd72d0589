# values of trl, trl/scripts/kto.py, with the base of its model
python trl/scripts/kto.py --model_name_or_path=Qwen/Qwen1.5-1.8B --per_device_train_batch_size 16 --num_train_epochs 1 \
  --learning_rate 5e-7 --lr_scheduler_type=cosine --gradient_accumulation_steps 1 --output_dir=kto-aligned-model --warmup_steps 0.1
