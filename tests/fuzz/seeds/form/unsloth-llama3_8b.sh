python unsloth-cli.py --model_name "unsloth/llama-3-8b" --max_seq_length 8192 --dtype None --load_in_4bit \
--r 64 --lora_alpha 32 --lora_dropout 0.1 --bias "none" --use_gradient_checkpointing "unsloth" \
--random_state 3407 --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --warmup_steps 5 \
--max_steps 400 --learning_rate 2e-6 --optim "adamw_8bit" --weight_decay 0.005 \
--lr_scheduler_type "linear" --seed 3407 --output_dir "outputs" --report_to "tensorboard" --save_model
