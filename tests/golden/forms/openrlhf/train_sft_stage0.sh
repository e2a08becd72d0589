# the same command with ZeRO stage 0, which is not planned of it
set -x

read -r -d '' training_commands <<EOM
openrlhf.cli.train_sft \
   --data.max_len 2048 \
   --data.dataset Open-Orca/OpenOrca \
   --train.batch_size 256 \
   --train.micro_batch_size 2 \
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B \
   --ckpt.save_steps -1 \
   --ds.zero_stage 0 \
   --train.max_epochs 1 \
   --ds.param_dtype bf16 \
   --ds.attn_implementation flash_attention_2 \
   --adam.lr 5e-6 \
   --ds.packing_samples \
   --model.gradient_checkpointing_enable
EOM

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
