#!/bin/bash
# DeepSpeed-Domino's pretrain_gpt.py, by its launcher
GPT_ARGS="--num-layers 40 --hidden-size 5120 --num-attention-heads 64 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 16 --global-batch-size 16 --clip-grad 1.0 --fp16 --no-gradient-accumulation-fusion --tensor-model-parallel-size 8"
deepspeed --num_gpus 8 pretrain_gpt.py $GPT_ARGS --lr 0.00015 --train-iters 100
