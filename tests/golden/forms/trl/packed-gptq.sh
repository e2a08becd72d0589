# PEFT, examples/sft/run_peft_fsdp_gptq.sh
python train.py --model_name_or_path "hugging-quants/Meta-Llama-3.1-8B-Instruct-GPTQ-INT4" --max_length 2048 --bf16 True --use_peft_lora True \
    --lora_r 8 --lora_alpha 16 --lora_target_modules "q_proj,k_proj,v_proj" --per_device_train_batch_size 8
