trl sft \
  --model_name_or_path Qwen/Qwen2.5-0.5B \
  --dataset_name stanfordnlp/imdb \
  --max_length 1024 \
  --per_device_train_batch_size 2 \
  --accelerate_config fsdp2
