# after examples/scripts/train_ppo_ray_hybrid_engine.sh
set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_ppo_ray \
   --actor.model_name_or_path meta-llama/Meta-Llama-3-8B \
   --train.batch_size 128
EOF

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
