# values of a script of math instruction tuning after stanford_alpaca's
torchrun --nproc_per_node=4 train.py --model_name_or_path Qwen/Qwen2.5-1.5B --bf16 True --output_dir out --num_train_epochs 2 \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 32 --learning_rate 5e-6 --fsdp "full_shard auto_wrap" \
  --fsdp_transformer_layer_cls_to_wrap 'Qwen2DecoderLayer' --tf32 True
