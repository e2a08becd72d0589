# pretrain_gpt.py with layers of state spaces
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
    --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 --bf16 --hybrid-override-pattern M-M-M*- \
    --normalization RMSNorm --swiglu --disable-bias-linear --ffn-hidden-size 14336 --group-query-attention --num-query-groups 8
