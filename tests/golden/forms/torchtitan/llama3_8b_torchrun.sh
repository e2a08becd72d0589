# run_train.sh's command by itself, of config_registry.py's llama3_8b
torchrun --nproc_per_node=8 --rdzv_backend c10d --rdzv_endpoint="localhost:0" -m torchtitan.train --module llama3 --config llama3_8b "$@"
