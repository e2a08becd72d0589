# options of accelerate launch (commands/launch.py)
accelerate launch --num_processes 8 --dynamo_backend cudagraphs scripts/sft.py --model_name_or_path Qwen/Qwen2.5-1.5B --max_length 2048 --bf16
