# Chinese-LLaMA-Alpaca-2, scripts/training/run_pt.sh
torchrun --nnodes 1 --nproc_per_node 1 run_clm_pt_with_peft.py --model_name_or_path meta-llama/Llama-2-7b-hf --tokenizer_name_or_path chinese \
    --dataset_dir data --per_device_train_batch_size 1 --do_train --fp16 --lr_scheduler_type cosine --gradient_accumulation_steps 8 --block_size 512 \
    --lora_rank 64 --lora_alpha 128 --trainable q_proj,v_proj --lora_dropout 0.05 --modules_to_save embed_tokens,lm_head --torch_dtype float16 \
    --load_in_kbits 16 --gradient_checkpointing
