#!/bin/bash
# Megatron-DeepSpeed's pretrain_gpt.py, by its options
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size 4 --global-batch-size 32 --bf16 --tensor-model-parallel-size 1 --no-pipeline-parallel --zero-stage 1 --deepspeed-config ds.json
