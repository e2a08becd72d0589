# after OpenRLHF 0.9, train_sft_llama.sh with its --use_liger_kernel
deepspeed --module openrlhf.cli.train_sft --max_len 2048 --dataset Open-Orca/OpenOrca --input_key question --output_key response \
   --train_batch_size 256 --micro_train_batch_size 2 --max_samples 500000 --pretrain meta-llama/Meta-Llama-3-8B \
   --save_path ./checkpoint/llama3-8b-sft --save_steps -1 --logging_steps 1 --eval_steps -1 --zero_stage 2 --max_epochs 1 \
   --bf16 --flash_attn --use_liger_kernel --learning_rate 5e-6 --load_checkpoint --packing_samples --gradient_checkpointing
