#!/bin/sh
# tests/mpi/test_parity.sh [some|all] -- dpxrun computes what PyTorch does: losses of 20 steps, the first
# step's gradients, the last weights, of a small GPT-2 and a small Llama, on one rank and on two; `all`: also with
# context parallelism on four, which test_grid.sh looks at for three steps.
# tests/golden/parity/README.md says where the figures come from and how near they must be.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
golden=$PWD/tests/golden/parity
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI's own leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

# run MODEL RANKS MICRO_BATCH ACCUMULATION KEYS [GRADS_STEP]: the plan into $dir/plan.json, what it prints,
# gradients and weights beside it.
run() {
    model=$1
    cat >"$dir/plan.json" <<END
{ "dpx_plan": 1, "model": "$golden/$model", "cluster": "localhost:$2", "kernels": "dpx", "seq": 24,
  "micro_batch": $3, "accumulation": $4, "clip": 1.0, $5 }
END
    rm -f "$dir/run.json" "$dir/grads" "$dir/final"
    "$B/dpxrun" "$dir/plan.json" --no-db --json --steps 20 --data "$golden/tokens.bin" --sequential \
        --init "$golden/$model/init.safetensors" --save-grads "$dir/grads" --grads-step "${6:-1}" --save "$dir/final" \
        --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --threads 1 \
        >"$dir/run.json" 2>"$dir/said" </dev/null || { echo "exit status $?"; cat "$dir/said"; }
}

# The first complaints of the program that compares, unless the run failed already.
compare() {
    if [ "$complaints" ]; then
        echo "$complaints"
    else
        { "$B/tests/mpi/mpi_parity" "$@" 2>&1 || echo "exit status $?"; } | head -n 5
    fi
}

fp32() {        # WHAT, then as run()
    what=$1
    shift
    complaints=$(run "$@")
    want=$golden/$1
    check "$what: $1's losses in fp32 are PyTorch's" \
        "$(compare losses "$want/expected.json" "$dir/run.json" 1e-5)"
    check "$what: $1's gradients are PyTorch's" \
        "$(compare tensors "$want/grads.safetensors" "$dir/grads" 1e-5 "$want/expected.json")"
    check "$what: $1's last weights are PyTorch's" \
        "$(compare tensors "$want/final.safetensors" "$dir/final" 1e-4)"
}

bf16() {
    what=$1
    shift
    complaints=$(run "$@")
    check "$what: $1's losses in bf16 are near PyTorch's" \
        "$(compare losses "$golden/$1/expected.json" "$dir/run.json" 1e-2)"
}

# hook FORMAT TOLERANCE MODEL: two ranks under that compression hook.  Without it the gradients are 1.9e-4 (fp16), 1.7e-3 (bf16) away.
hook() {
    complaints=$(run "$3" 2 6 1 "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"ddp\": { \"comm_hook\": \"$1_compress_hook\" }")
    want=$golden/$3
    check "two ranks, $1_compress_hook: $3's losses are PyTorch's" "$(compare losses "$want/hook-$1.json" "$dir/run.json" 1e-5)"
    check "two ranks, $1_compress_hook: $3's gradients are PyTorch's" \
        "$(compare tensors "$want/hook-$1.safetensors" "$dir/grads" "$2" "$want/hook-$1.json")"
}

# powersgd NAME TOLERANCE MODEL STATE: powerSGD_hook with these arguments, as make_hooks.py has them; gradients of the fifth step.
powersgd() {
    complaints=$(run "$3" 2 6 1 "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"ddp\": { \"comm_hook\": \"powerSGD_hook\",
        \"bucket_cap_mb\": 0.05, \"PowerSGDState\": { $4 } }" 5)
    want=$golden/$3
    check "two ranks, $1: $3's losses are PyTorch's" "$(compare losses "$want/hook-$1.json" "$dir/run.json" 1e-5)"
    check "two ranks, $1: $3's gradients are PyTorch's" "$(compare tensors "$want/hook-$1.safetensors" "$dir/grads" "$2" "$want/hook-$1.json")"
    check "two ranks, $1: $3's calls, bytes and memory are the schedule's" "$(compare predicted "$dir/run.json")"
}

for model in gpt2 llama; do
    fp32 'one rank' $model 1 12 1 '"strategy": "ddp", "dialect": "paper"'
    fp32 'two ranks, DDP' $model 2 6 1 '"strategy": "ddp", "dialect": "torch"'
    fp32 'two ranks, FSDP2' $model 2 6 1 '"strategy": "fsdp", "dialect": "torch", "unit": "block"'
    fp32 'two ranks, ZeRO-2, two micro-steps' $model 2 3 2 '"strategy": "zero2", "dialect": "deepspeed"'
    fp32 'two ranks, ring' $model 2 12 1 '"strategy": "ddp", "dialect": "paper", "parallel": { "context": 2 }'
    [ "${1:-some}" = some ] || fp32 'four ranks, ring of four, not balanced, FSDP' $model 4 6 2 \
        '"strategy": "fsdp", "dialect": "paper", "parallel": { "context": 4, "context_balance": false }'
    [ "${1:-some}" = some ] || fp32 'four ranks, all-gather, ZeRO-3, recomputed' $model 4 6 1 \
        '"strategy": "zero3", "dialect": "paper", "recompute": "full", "parallel": { "context": 2, "context_method": "all-gather" }'
    fp32 'two ranks, Ulysses, ZeRO-1' $model 2 6 2 \
        '"strategy": "zero1", "dialect": "paper", "parallel": { "context": 2, "context_method": "ulysses" }'
    bf16 'two ranks, ring' $model 2 12 1 '"strategy": "ddp", "dialect": "paper", "precision": "bf16", "parallel": { "context": 2 }'
    bf16 'one rank' $model 1 12 1 '"strategy": "ddp", "dialect": "paper", "precision": "bf16"'
    bf16 'two ranks, DDP with autocast' $model 2 6 1 \
        '"strategy": "ddp", "dialect": "torch", "precision": "bf16"'
    bf16 'two ranks, FSDP2' $model 2 6 1 \
        '"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "bf16"'
    hook bf16 5e-4 $model
    hook fp16 1.5e-4 $model
    powersgd powersgd 1e-5 $model '"matrix_approximation_rank": 2, "start_powerSGD_iter": 2'
    powersgd powersgd4 1e-5 $model '"matrix_approximation_rank": 4, "start_powerSGD_iter": 3, "min_compression_rate": 1'
    powersgd powersgd-cold 1e-5 $model '"matrix_approximation_rank": 3, "start_powerSGD_iter": 2, "min_compression_rate": 1,
        "warm_start": false, "use_error_feedback": false'
done
finish
