python unsloth-cli.py --model_name unsloth/llama-3-8b --max_seq_length 512 --load_in_4bit --r 32 --lora_alpha 32 --lora_dropout 0.1 --bias "none" \
  --use_gradient_checkpointing True --random_state 3407 --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --warmup_steps 10 \
  --max_steps 500 --learning_rate 2e-5 --optim adamw_8bit --lr_scheduler_type "linear" --weight_decay 0.01 --output_dir "outputs"
