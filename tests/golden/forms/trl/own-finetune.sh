# open-instruct, scripts/train/tulu3/finetune_8b.sh
uv run python mason.py --cluster ai2/jupiter --num_nodes 8 --gpus 8 -- accelerate launch --mixed_precision bf16 --num_processes 8 --use_deepspeed \
    --deepspeed_config_file configs/ds_configs/stage3.conf open_instruct/finetune.py --exp_name tulu3_8b_sft \
    --model_name_or_path meta-llama/Llama-3.1-8B --max_seq_length 4096 --per_device_train_batch_size 1 --gradient_accumulation_steps 2 \
    --learning_rate 5e-06 --gradient_checkpointing --dataset_mixer_list allenai/tulu-3-sft-mixture 512
