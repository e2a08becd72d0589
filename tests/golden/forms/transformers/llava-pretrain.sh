# LLaVA, scripts/v1_5/pretrain.sh
deepspeed llava/train/train_mem.py --model_name_or_path lmsys/vicuna-13b-v1.5 --version plain --data_path data.json --image_folder images \
    --vision_tower openai/clip-vit-large-patch14-336 --mm_projector_type mlp2x_gelu --tune_mm_mlp_adapter True --bf16 True --output_dir out \
    --per_device_train_batch_size 32 --save_strategy "steps" --learning_rate 1e-3 --model_max_length 2048 --gradient_checkpointing True
