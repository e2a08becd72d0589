# after examples/scripts/train_sft.sh with adam_offload, without recompute
set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --ckpt.save_steps -1 \
   --eval.steps -1 \
   --ds.param_dtype bf16 \
   --train.max_epochs 1 \
   --ds.packing_samples \
   --train.batch_size 256 \
   --train.micro_batch_size 2 \
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \
   --ds.zero_stage 3 \
   --ds.adam_offload \
   --data.max_len 4096
EOF

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
