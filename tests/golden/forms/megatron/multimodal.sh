# after examples/multimodal/nvlm/sft_34b_internvit.sh: another program
OPTIONS=" --tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --num-layers 60 --hidden-size 7168 --ffn-hidden-size 20480 \
    --num-attention-heads 56 --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --use-rotary-position-embeddings \
    --seq-length 1024 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128 --bf16 --vocab-size 64000 "
torchrun --nproc_per_node 8 examples/multimodal/train.py ${OPTIONS}
