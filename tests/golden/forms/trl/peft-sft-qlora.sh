# after PEFT's examples/sft/run_peft.sh, whose train.py has keys of its own beside TRL's
python train.py --seed 100 --model_name_or_path "mistralai/Mistral-7B-v0.1" --dataset_name "smangrul/ultrachat-10k-chatml" --chat_template_format "chatml" \
    --add_special_tokens False --append_concat_token False --splits "train,test" --max_length 2048 --num_train_epochs 1 --bf16 True --packing True \
    --learning_rate 1e-4 --per_device_train_batch_size 8 --gradient_accumulation_steps 8 --gradient_checkpointing True --use_reentrant True \
    --use_peft_lora True --lora_r 8 --lora_alpha 16 --lora_dropout 0.1 --lora_target_modules "all-linear" --use_4bit_quantization True \
    --use_nested_quant True --bnb_4bit_compute_dtype "bfloat16" --use_flash_attn True
