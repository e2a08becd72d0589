# open-r1, recipes/Qwen2.5-1.5B-Instruct/grpo/config_demo_code.yaml, as a command
accelerate launch --num_processes 8 src/open_r1/grpo.py --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct --dataset_name open-r1/codes \
    --max_prompt_length 1024 --max_completion_length 2048 --per_device_train_batch_size 16 --gradient_accumulation_steps 4 \
    --gradient_checkpointing --bf16 --output_dir out --reward_funcs code format --code_provider e2b --e2b_router_url here:8000 \
    --code_eval_test_batch_size 1 --parallel_code_exec_per_proc 2 --dataset_prompt_column prompt --num_completions_to_print 4
