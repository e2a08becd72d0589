#!/bin/sh
# tests/mpi/test_parity.sh [some|all] -- dpxrun computes what PyTorch does: losses of 20 steps, the first
# step's gradients, the last weights, of a small GPT-2 and a small Llama, on one rank and on two; `all`: also with
# context parallelism on four, which test_grid.sh looks at for three steps.
# tests/golden/parity/README.md says where the figures come from and how near they must be.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh
golden=$PWD/tests/golden/parity
extent=${1:-some}

plan() {        # MODEL RANKS MICRO_BATCH ACCUMULATION KEYS: into $run.plan
    cat >"$run.plan" <<END
{ "dpx_plan": 1, "model": "$golden/$1", "cluster": "localhost:$2", "kernels": "dpx", "seq": 24,
  "micro_batch": $3, "accumulation": $4, "clip": 1.0, $5 }
END
}

# run WHAT MODEL RANKS MICRO_BATCH ACCUMULATION KEYS [GRADS_STEP]: what dpxrun prints, gradients and weights into $run.*
run() {
    next_run
    plan "$2" "$3" "$4" "$5" "$6"
    later "$1: $2" "$3" "$run.plan" --no-db --json --steps 20 --data "$golden/tokens.bin" --sequential \
        --init "$golden/$2/init.safetensors" --save-grads "$run.grads" --grads-step "${7:-1}" --save "$run.final" \
        --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --threads 1
    want=$golden/$2
}

like_torch() {  # WHAT MODEL: of a run that left $run.*
    judge "$1: $2's losses in fp32 are PyTorch's" "$(compare losses "$want/expected.json" "$run.json" 1e-5)"
    judge "$1: $2's gradients are PyTorch's" "$(compare tensors "$want/grads.safetensors" "$run.grads" 1e-5 "$want/expected.json")"
    judge "$1: $2's last weights are PyTorch's" "$(compare tensors "$want/final.safetensors" "$run.final" 1e-4)"
}

fp32() {        # as run()
    run "$@"
    like_torch "$1" "$2"
}

bf16() {
    run "$@"
    judge "$1: $2's losses in bf16 are near PyTorch's" "$(compare losses "$want/expected.json" "$run.json" 1e-2)"
}

# half WHAT MODEL RANKS MICRO_BATCH ACCUMULATION KEYS RUN FIRST: fp16 with that first loss scale, against a run of make_fp16.py or of
# make_fp16_deepspeed.py.  PyTorch's fp16 is 3e-5 from fp64 in its losses: two that round in other places may be 1e-4 apart.
half() {
    next_run
    plan "$2" "$3" "$4" "$5" "\"precision\": \"fp16\", $6"
    case $7 in *hot*) init=fp16/hot near=3e-4 ;; *) init=init near=1e-4 ;; esac
    later "$1: $2 in fp16" "$3" "$run.plan" --no-db --json --steps 20 --data "$golden/tokens.bin" --sequential --loss-scale "$8" \
        --init "$golden/$2/$init.safetensors" --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --threads 1
    judge "$1: $2's losses in fp16 are near PyTorch's, $7" "$(compare losses "$golden/$2/fp16/$7.json" "$run.json" $near)"
    judge "$1: $2's loss scales in fp16 are PyTorch's, $7" "$(compare scales "$golden/$2/fp16/$7.json" "$run.json")"
    [ "$7" != quiet ] || judge "$1: $2's calls, bytes and memory in fp16 are the schedule's" "$(compare predicted "$run.json")"
}

# First scales so large that the first steps are skipped, by every strategy once; where none is, what is predicted is what runs.  DDP is under
# autocast, whose products leave fp16 for gradients in fp32; "hot" overflows at GradScaler's own first scale.
halves() {      # MODEL
    forced=16777216
    case $1 in
    gpt2)
        half 'one rank' $1 1 12 1 '"strategy": "ddp", "dialect": "paper"' forced-1 $forced
        half 'two ranks, FSDP' $1 2 6 1 '"strategy": "fsdp", "dialect": "paper"' forced-2 $forced
        half 'two ranks, ZeRO-2' $1 2 6 1 '"strategy": "zero2", "dialect": "paper"' forced-2 $forced
        half 'two ranks, DDP' $1 2 6 1 '"strategy": "ddp", "dialect": "torch"' autocast-2 $forced
        half 'two ranks, DDP, large gradients' $1 2 6 1 '"strategy": "ddp", "dialect": "torch"' autocast-hot-2 65536
        half 'two ranks, DDP' $1 2 3 2 '"strategy": "ddp", "dialect": "torch"' quiet 1024
        half 'two ranks, DeepSpeed' $1 2 6 1 '"strategy": "ddp", "dialect": "deepspeed"' forced-2 $forced
        half 'two ranks, ZeRO-2 of DeepSpeed' $1 2 6 1 '"strategy": "zero2", "dialect": "deepspeed"' deepspeed-2 $forced
        half 'two ranks, ZeRO-3 of DeepSpeed' $1 2 3 2 '"strategy": "zero3", "dialect": "deepspeed"' quiet 1024 ;;
    llama)
        half 'four ranks, ZeRO-1' $1 4 3 1 '"strategy": "zero1", "dialect": "paper"' forced-4 $forced
        half 'two ranks, DDP of the papers' $1 2 6 1 '"strategy": "ddp", "dialect": "paper"' forced-2 $forced
        half 'two ranks, ZeroRedundancyOptimizer' $1 2 6 1 '"strategy": "zero1", "dialect": "torch"' quiet 1024
        half 'two ranks, ZeRO-3' $1 2 3 2 '"strategy": "zero3", "dialect": "paper"' quiet 1024
        half 'two ranks, ZeroRedundancyOptimizer' $1 2 6 1 '"strategy": "zero1", "dialect": "torch"' autocast-2 $forced
        half 'two ranks, FSDP2' $1 2 6 1 '"strategy": "fsdp", "dialect": "torch", "unit": "block"' forced-2-fp32 $forced
        half 'two ranks, ZeRO-1 of DeepSpeed' $1 2 6 1 '"strategy": "zero1", "dialect": "deepspeed"' deepspeed-1 $forced
        half 'two ranks, ZeRO-3 of DeepSpeed' $1 2 6 1 '"strategy": "zero3", "dialect": "deepspeed"' deepspeed-3 $forced ;;
    esac
}

# hook FORMAT TOLERANCE MODEL: two ranks under that compression hook.  Without it the gradients are 1.9e-4 (fp16), 1.7e-3 (bf16) away.
hook() {
    what="two ranks, $1_compress_hook"
    run "$what" "$3" 2 6 1 "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"ddp\": { \"comm_hook\": \"$1_compress_hook\" }"
    judge "$what: $3's losses are PyTorch's" "$(compare losses "$want/hook-$1.json" "$run.json" 1e-5)"
    judge "$what: $3's gradients are PyTorch's" "$(compare tensors "$want/hook-$1.safetensors" "$run.grads" "$2" "$want/hook-$1.json")"
}

# powersgd NAME TOLERANCE MODEL STATE: powerSGD_hook with these arguments, as make_hooks.py has them; gradients of the fifth step.
powersgd() {
    run "two ranks, $1" "$3" 2 6 1 "\"strategy\": \"ddp\", \"dialect\": \"torch\", \"ddp\": { \"comm_hook\": \"powerSGD_hook\",
        \"bucket_cap_mb\": 0.05, \"PowerSGDState\": { $4 } }" 5
    judge "two ranks, $1: $3's losses are PyTorch's" "$(compare losses "$want/hook-$1.json" "$run.json" 1e-5)"
    judge "two ranks, $1: $3's gradients are PyTorch's" "$(compare tensors "$want/hook-$1.safetensors" "$run.grads" "$2" "$want/hook-$1.json")"
    judge "two ranks, $1: $3's calls, bytes and memory are the schedule's" "$(compare predicted "$run.json")"
}

cases() {
    for model in gpt2 llama; do
        each_model
    done
}

each_model() {
    fp32 'one rank' $model 1 12 1 '"strategy": "ddp", "dialect": "paper"'
    fp32 'two ranks, DDP' $model 2 6 1 '"strategy": "ddp", "dialect": "torch"'
    fp32 'two ranks, FSDP2' $model 2 6 1 '"strategy": "fsdp", "dialect": "torch", "unit": "block"'
    fp32 'two ranks, ZeRO-2, two micro-steps' $model 2 3 2 '"strategy": "zero2", "dialect": "deepspeed"'
    fp32 'two ranks, ring' $model 2 12 1 '"strategy": "ddp", "dialect": "paper", "parallel": { "context": 2 }'
    [ "$extent" = some ] || fp32 'four ranks, ring of four, not balanced, FSDP' $model 4 6 2 \
        '"strategy": "fsdp", "dialect": "paper", "parallel": { "context": 4, "context_balance": false }'
    [ "$extent" = some ] || fp32 'four ranks, all-gather, ZeRO-3, recomputed' $model 4 6 1 \
        '"strategy": "zero3", "dialect": "paper", "recompute": "full", "parallel": { "context": 2, "context_method": "all-gather" }'
    fp32 'two ranks, Ulysses, ZeRO-1' $model 2 6 2 \
        '"strategy": "zero1", "dialect": "paper", "parallel": { "context": 2, "context_method": "ulysses" }'
    bf16 'two ranks, ring' $model 2 12 1 '"strategy": "ddp", "dialect": "paper", "precision": "bf16", "parallel": { "context": 2 }'
    bf16 'one rank' $model 1 12 1 '"strategy": "ddp", "dialect": "paper", "precision": "bf16"'
    bf16 'two ranks, DDP with autocast' $model 2 6 1 \
        '"strategy": "ddp", "dialect": "torch", "precision": "bf16"'
    bf16 'two ranks, FSDP2' $model 2 6 1 \
        '"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "bf16"'
    halves $model
    hook bf16 5e-4 $model
    hook fp16 1.5e-4 $model
    powersgd powersgd 1e-5 $model '"matrix_approximation_rank": 2, "start_powerSGD_iter": 2'
    powersgd powersgd4 1e-5 $model '"matrix_approximation_rank": 4, "start_powerSGD_iter": 3, "min_compression_rate": 1'
    powersgd powersgd-cold 1e-5 $model '"matrix_approximation_rank": 3, "start_powerSGD_iter": 2, "min_compression_rate": 1,
        "warm_start": false, "use_error_feedback": false'
}

all_runs

# The same by the program itself, which starts its ranks and hands them its options.
next_run
plan gpt2 2 6 1 '"strategy": "ddp", "dialect": "torch"'
"$B/dpxrun" "$run.plan" --no-db --json --steps 20 --data "$golden/tokens.bin" --sequential --init "$golden/gpt2/init.safetensors" \
    --save-grads "$run.grads" --save "$run.final" --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --threads 1 \
    >"$run.json" 2>"$run.said" </dev/null
check 'dpxrun with ranks that it starts' "$([ $? = 0 ] || cat "$run.said")"
want=$golden/gpt2
like_torch 'with ranks that dpxrun starts' gpt2
finish
