# a command with options over the registry's values
NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --parallelism.tensor_parallel_degree 2 --compile.enable --activation_checkpoint.mode full
