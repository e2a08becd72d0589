# after examples/scripts/train_dpo_llama.sh
set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_dpo \
   --ckpt.save_steps -1 \
   --eval.steps -1 \
   --ds.param_dtype bf16 \
   --train.max_epochs 1 \
   --ds.packing_samples \
   --model.gradient_checkpointing_enable \
   --train.batch_size 256 \
   --train.micro_batch_size 1 \
   --model.model_name_or_path OpenRLHF/Llama-3-8b-sft-mixture \
   --data.max_len 8192 \
   --ds.zero_stage 3 \
   --model.beta 0.1
EOF

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
