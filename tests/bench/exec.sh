#!/bin/sh
# tests/bench/exec.sh -- the executor's speed: what a step is made of; ZeRO-3 on two ranks with cores of
# their own and on whatever cores the kernel chooses; tokens/s of DDP and FSDP on two ranks of one
# thread beside PyTorch's with gloo.  What is compared is taken in turns.  $B is where it was built,
# $PYTHON a Python with torch and transformers; without one the last part is left out.
B=${B:-build} PYTHON=${PYTHON:-python3} STEPS=${STEPS:-6} ROUNDS=${ROUNDS:-2}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

config() {      # NAME LAYERS HIDDEN HEADS VOCAB
    mkdir -p "$tmp/$1"
    printf '{"model_type":"gpt2","n_layer":%s,"n_embd":%s,"n_head":%s,"n_positions":1024,"vocab_size":%s,' \
        "$2" "$3" "$4" "$5" >"$tmp/$1/config.json"
    printf '"embd_pdrop":0.0,"attn_pdrop":0.0,"resid_pdrop":0.0}\n' >>"$tmp/$1/config.json"
}

plan() {        # NAME STRATEGY RANKS MICRO_BATCH [DIALECT]
    printf '{"dpx_plan":1,"model":"%s/%s/config.json","cluster":"localhost:%s","strategy":"%s","dialect":"%s","kernels":"dpx","seq":256,"micro_batch":%s,"precision":"fp32","clip":1.0,"dropout":0}\n' \
        "$tmp" "$1" "$3" "$2" "${5:-torch}" "$4" >"$tmp/$1-$2-$3.json"
}

ours() {        # NAME STRATEGY: tokens/s
    OMP_NUM_THREADS=1 "$B/dpxrun" "$tmp/$1-$2-2.json" --steps $((STEPS + 2)) --threads 1 --no-db --json |
        sed -n 's/.*"tokens_per_s": \([0-9.]*\).*/\1/p'
}

theirs() {      # NAME STRATEGY MICRO_BATCH: tokens/s
    OMP_NUM_THREADS=1 "$PYTHON" -m torch.distributed.run --nproc-per-node 2 --standalone tests/bench/torch_train.py \
        "$2" "$tmp/$1/config.json" 256 "$3" "$STEPS" 2>/dev/null
}

config gpt2-10m 8 320 5 512
config gpt2-124m 12 768 12 50257
for model in ${MODELS:-gpt2-10m gpt2-124m}; do
    batch=4; [ $model = gpt2-124m ] && batch=2
    plan $model ddp 1 $batch
    printf '%-10s one rank: ' $model
    OMP_NUM_THREADS=1 "$B/tests/bench/exec_gemm" "$tmp/$model-ddp-1.json" 4 1 || exit
done
# From the table that is printed: eight in ten steps of a run lie between.
steps() {       # [--share-cores]: ms
    OMP_NUM_THREADS=1 "$B/dpxrun" "$tmp/gpt2-10m-zero3-2.json" --steps 25 --threads 1 --no-db "$@" 2>/dev/null |
        sed -n 's/.*measured 10 to 90 %: \([0-9.]*\) to \([0-9.]*\) s.*/\1 \2/p' |
        awk '{ printf "%.0f to %.0f ms", 1e3 * $1, 1e3 * $2 }'
}
plan gpt2-10m zero3 2 2 paper
round=1
while [ $round -le "$ROUNDS" ]; do
    own=$(steps) any=$(steps --share-cores)
    [ -n "$own" ] && [ -n "$any" ] || exit
    echo "gpt2-10m   ZeRO-3 two ranks, 10 to 90 % of steps: cores of their own $own, any core $any"
    round=$((round + 1))
done
if ! "$PYTHON" -c 'import torch, transformers' 2>/dev/null; then
    echo "no torch and transformers in $PYTHON: not compared with PyTorch"
    exit 0
fi
for model in ${MODELS:-gpt2-10m gpt2-124m}; do
    batch=4; [ $model = gpt2-124m ] && batch=2
    for how in ddp fsdp; do
        plan $model $how 2 $batch
        round=1
        while [ $round -le "$ROUNDS" ]; do
            a=$(ours $model $how) b=$(theirs $model $how $batch)
            [ -n "$a" ] && [ -n "$b" ] || { echo "$model $how: dpxrun or PyTorch did not run" >&2; exit 1; }
            awk -v m=$model -v h=$how -v a="$a" -v b="$b" \
                'BEGIN { printf "%-10s %-4s two ranks: dpxrun %8.1f tokens/s, PyTorch with gloo %8.1f: %.2f times\n", m, h, a, b, a / b }'
            round=$((round + 1))
        done
    done
done
