# an option of LLaVA's scripts/finetune.sh
torchrun --nproc_per_node 8 train.py --model_name_or_path lmsys/vicuna-13b-v1.5 --freeze_backbone True --bf16 True --output_dir out \
    --per_device_train_batch_size 32 --save_strategy "steps" --model_max_length 2048
