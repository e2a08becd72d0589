# values of FastChat, scripts/train_magicoder.sh
torchrun --nproc_per_node=8 --master_port=20001 fastchat/train/train.py --model_name_or_path codellama/CodeLlama-34b-Instruct-hf --bf16 True --num_train_epochs 3 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --learning_rate 2e-5 --weight_decay 0. --lr_scheduler_type cosine \
  --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' --model_max_length 4096 --gradient_checkpointing True
