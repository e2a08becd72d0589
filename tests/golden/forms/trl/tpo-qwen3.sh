# the options of TRL's examples/scripts/tpo.py, started by a script of somebody's own
python train.py --model_name_or_path Qwen/Qwen3-0.6B --per_device_train_batch_size 2 --max_steps 1000 --learning_rate 5e-7 --gradient_accumulation_steps 8 \
    --beta 0.01 --tpo_alpha 1.0 --output_dir Qwen3-0.6B-TPO
