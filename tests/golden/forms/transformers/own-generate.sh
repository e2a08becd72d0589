# qlora, scripts/generate.sh, without the options that are its own
python run_clm.py --model_name_or_path EleutherAI/pythia-12b --output_dir ./output --do_train False --do_eval False --do_predict True \
    --predict_with_generate --per_device_eval_batch_size 4 --block_size 512
