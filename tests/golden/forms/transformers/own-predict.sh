# ChatGLM2-6B, ptuning/evaluate_finetune.sh
python3 main.py --do_predict --validation_file dev.json --overwrite_cache --model_name_or_path out --output_dir out --overwrite_output_dir \
    --per_device_eval_batch_size 1 --predict_with_generate --fp16_full_eval
