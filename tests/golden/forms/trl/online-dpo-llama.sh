# the options of TRL's online DPO, started by a script of somebody's own
python train.py --model_name_or_path meta-llama/Llama-3.2-1B-Instruct --per_device_train_batch_size 4 --gradient_accumulation_steps 32 --max_length 1024 \
    --learning_rate 5e-7 --beta 0.1 --max_new_tokens 53 --missing_eos_penalty 1.0
