#!/bin/bash
# Runs something
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
TP=${TP:-4}
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE   # each
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length 4096 --max-position-embeddings 131072 --vocab-size 128256
    --swiglu --normalization RMSNorm --position-embedding-type rope --use-rope-scaling --rotary-base 500000
    --untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0 --hidden-dropout 0
    --norm-epsilon 1e-5
)
TRAINING_ARGS="--micro-batch-size 1 --global-batch-size 64 \
    --bf16 --lr 3e-4"
if [ -n "$DEBUG" ]; then
    EXTRA="--log-interval 1"
fi
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS} \
    --tensor-model-parallel-size $TP --sequence-parallel --use-distributed-optimizer
