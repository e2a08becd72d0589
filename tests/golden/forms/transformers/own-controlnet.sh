# PEFT, examples/boft_controlnet/train_controlnet.sh
accelerate launch train_controlnet.py --pretrained_model_name_or_path=stabilityai/stable-diffusion-2-1 --output_dir=out --report_to="wandb" \
    --resolution=512 --learning_rate=1e-5 --checkpointing_steps=500 --max_train_steps=50000 --train_batch_size=4 --dataloader_num_workers=2 \
    --lr_scheduler="constant" --use_boft --boft_block_num=8
