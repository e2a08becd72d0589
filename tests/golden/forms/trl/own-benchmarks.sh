# an option of open-r1's in a script that is not open-r1's
accelerate launch --num_processes 8 mine/sft.py --model_name_or_path Qwen/Qwen3-0.6B --dataset_name open-r1/Mixture-of-Thoughts --max_length 1024 \
    --per_device_train_batch_size 4 --bf16 --output_dir out --benchmarks gpqa
