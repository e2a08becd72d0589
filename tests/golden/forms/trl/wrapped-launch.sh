# a launcher behind a program that hands it on, as in open-instruct's scripts, here of alignment-handbook's program
python submit.py --gpus 8 --num_nodes 1 -- accelerate launch --use_deepspeed --zero_stage 3 --mixed_precision bf16 --num_processes 8 scripts/sft.py \
    --model_name_or_path Qwen/Qwen2.5-1.5B --max_length 2048 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16
