# after examples/scripts/train_sft.sh with the options of train_sft_mixtral_lora.sh
set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --ckpt.save_steps -1 \
   --eval.steps -1 \
   --ds.param_dtype bf16 \
   --train.max_epochs 1 \
   --ds.packing_samples \
   --model.gradient_checkpointing_enable \
   --train.batch_size 128 \
   --train.micro_batch_size 4 \
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \
   --ds.zero_stage 2 \
   --ds.lora.rank 64 \
   --ds.lora.alpha 64
EOF

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
