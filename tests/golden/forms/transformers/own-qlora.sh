# qlora, qlora.py: full_finetune is false unless said, and then adapters train
python qlora.py --model_name_or_path huggyllama/llama-7b --output_dir ./output --model_max_length 1024 --per_device_train_batch_size 4 \
    --save_strategy steps --bf16 True --full_finetune False
