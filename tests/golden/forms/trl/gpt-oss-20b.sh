# values of trl, examples/scripts/sft_gpt_oss.py
accelerate launch --config_file zero3.yaml examples/scripts/sft_gpt_oss.py --dtype bfloat16 --model_name_or_path openai/gpt-oss-20b \
  --packing --attn_implementation kernels-community/vllm-flash-attn3 --max_length 4096 --per_device_train_batch_size 2 --num_train_epochs 1
