# batches in tokens, as trees after 0.3.0 have them
MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.num_tokens_per_microbatch_per_dp_rank 16384
