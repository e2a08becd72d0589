# values of re-instruct, README.md
torchrun --nproc_per_node=8 --master_port=2404 re_instruct/train/sft.py --model_name_or_path huggyllama/llama-7b --model_max_length 2048 \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --bf16 True --optim adamw_torch --fsdp "full_shard auto_wrap" \
  --tf32 True --gradient_checkpointing True
