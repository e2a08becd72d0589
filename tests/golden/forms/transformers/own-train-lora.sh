# FastChat, scripts/train_lora.sh, without the options of its LoraArguments, whose defaults are adapters of rank 8
deepspeed fastchat/train/train_lora.py --model_name_or_path lmsys/vicuna-7b-v1.5 --output_dir ./checkpoints --num_train_epochs 150 --fp16 True \
    --per_device_train_batch_size 2 --save_strategy "steps" --tf32 True --model_max_length 2048 --gradient_checkpointing True
