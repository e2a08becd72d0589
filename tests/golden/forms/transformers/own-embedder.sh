# FlagEmbedding, examples/finetune/embedder/encoder_only/base.sh
torchrun --nproc_per_node 2 -m FlagEmbedding.finetune.embedder.encoder_only.base --model_name_or_path BAAI/bge-large-en-v1.5 --train_data data \
    --train_group_size 8 --query_max_len 512 --passage_max_len 512 --output_dir out --fp16 --per_device_train_batch_size 2 --overwrite_output_dir
