# values of stanford_alpaca, README.md (512 tokens in train.py)
torchrun --nproc_per_node=4 train.py --model_name_or_path huggyllama/llama-7b --bf16 True --output_dir out --num_train_epochs 3 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --learning_rate 2e-5 --fsdp "full_shard auto_wrap" \
  --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' --tf32 True
