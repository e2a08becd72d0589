# FastChat, scripts/train_vicuna_7b.sh
torchrun --nproc_per_node=4 --master_port=20001 fastchat/train/train_mem.py --model_name_or_path ~/model_weights/llama-7b --data_path data.json --bf16 True \
    --output_dir output_vicuna_7b --num_train_epochs 3 --per_device_train_batch_size 2 --per_device_eval_batch_size 16 --gradient_accumulation_steps 16 \
    --evaluation_strategy "steps" --save_strategy "steps" --save_total_limit 8 --learning_rate 2e-5 --lr_scheduler_type "cosine" \
    --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' --tf32 True --model_max_length 2048 \
    --gradient_checkpointing True --lazy_preprocess True
