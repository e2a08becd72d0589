# after volcengine/verl, examples/sft/gsm8k/run_seed_oss_36b_sft.sh
nproc_per_node=$1
save_path=$2
shift 2
torchrun --standalone --nnodes=1 --nproc_per_node=$nproc_per_node \
     -m verl.trainer.fsdp_sft_trainer \
    data.train_files=$HOME/data/gsm8k/train.parquet \
    data.val_files=$HOME/data/gsm8k/test.parquet \
    data.prompt_key=extra_info \
    data.response_key=extra_info \
    optim.lr=1e-4 \
    data.prompt_dict_keys=['question'] \
    +data.response_dict_keys=['answer'] \
    data.micro_batch_size=4 \
    model.partial_pretrain=ByteDance-Seed/Seed-OSS-36B-Base \
    trainer.default_local_dir=$save_path \
    trainer.project_name=gsm8k-sft \
    trainer.experiment_name=gsm8k-sft-seed-oss-36b \
    trainer.logger=console \
    trainer.total_training_steps=1 \
    ulysses_sequence_parallel_size=2 \
    use_remove_padding=true $@
