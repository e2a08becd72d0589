#!/bin/sh
# tests/mpi/test_tensor.sh -- tensor, sequence and loss parallelism: what ranks that have rows and columns of tensors compute is
# what PyTorch's single process did (tests/golden/parity), and the same as one rank's in fp32: losses within 1e-6, gradients
# within 1e-5.  Files are of whole tensors in Hugging Face's names.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh
golden=$PWD/tests/golden/parity

# run WHAT MODEL RANKS MICRO_BATCH ACCUMULATION KEYS PARALLEL OPTIONS...: $run.json, $run.grads, $run.final
run() {
    what=$1 model=$2 ranks=$3
    next_run
    printf '{ "dpx_plan": 1, "model": "%s", "cluster": "localhost:%s", "dialect": "paper", "kernels": "dpx", "seq": 24,
  "micro_batch": %s, "accumulation": %s, "clip": 1.0, %s, "parallel": { %s } }' \
        "$golden/$model" "$ranks" "$4" "$5" "$6" "$7" >"$run.plan"
    shift 7
    later "$what: $model" "$ranks" "$run.plan" --no-db --json --data "$golden/tokens.bin" --sequential \
        --init "$golden/$model/init.safetensors" --save-grads "$run.grads" --save "$run.final" --threads 1 "$@"
}

# one, then as run() without WHAT: what those that follow are compared with.
one() {
    run 'one rank' "$@" --steps 3
    one=$run
}

# like_one WHAT, then as run(): beside one(), by the tolerances of fp32.
like_one() {
    run "$@" --steps 3
    judge "$1: $2's losses are one rank's" "$(compare losses "$one.json" "$run.json" 1e-6)"
    judge "$1: $2's gradients are one rank's" "$(compare tensors "$one.grads" "$run.grads" 1e-5)"
    judge "$1: calls, bytes and memory as predicted" "$(compare predicted "$run.json")"
}

torch='--steps 20 --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1'
each_model() {
    want=$golden/$model
    # shellcheck disable=SC2086
    run "PyTorch's" $model 2 12 1 '"strategy": "ddp"' '"tensor": 2, "sequence": true, "loss_parallel": true' $torch
    judge "$model on 2 ranks: PyTorch's losses" "$(compare losses "$want/expected.json" "$run.json" 1e-5)"
    judge "$model on 2 ranks: PyTorch's gradients" \
        "$(compare tensors "$want/grads.safetensors" "$run.grads" 1e-5 "$want/expected.json")"
    judge "$model on 2 ranks: PyTorch's last weights" \
        "$(compare tensors "$want/final.safetensors" "$run.final" 1e-4)"

    # A learning rate of nothing: what was read is written.
    run "a learning rate of 0" $model 4 6 1 '"strategy": "zero3", "unit": "block"' '"tensor": 2, "sequence": true' --steps 1 --lr 0 \
        --min-lr 0 --weight-decay 0
    judge "$model: --save is --init" "$(compare tensors "$want/init.safetensors" "$run.final" 0)"

    one $model 1 12 1 '"strategy": "ddp", "dropout": 0.1' ''
    like_one 'tensor' $model 2 12 1 '"strategy": "ddp", "dropout": 0.1' '"tensor": 2, "sequence": false, "loss_parallel": false'
    like_one 'sequence' $model 2 12 1 '"strategy": "ddp", "dropout": 0.1' '"tensor": 2, "sequence": true, "loss_parallel": false'
    like_one 'ZeRO-1, whole blocks anew' $model 4 3 2 '"strategy": "zero1", "dropout": 0.1, "recompute": "full"' \
        '"tensor": 2, "sequence": true, "loss_parallel": true'
    like_one 'ZeRO-2, attention anew' $model 4 2 3 '"strategy": "zero2", "dropout": 0.1, "recompute": "selective"' \
        '"tensor": 2, "sequence": false, "loss_parallel": true'
    like_one 'FSDP by half-blocks, anew' $model 8 3 1 \
        '"strategy": "fsdp", "unit": "half-block", "dropout": 0.1, "recompute": "full"' \
        '"tensor": 2, "sequence": true, "loss_parallel": true'
    like_one 'a pipeline of 2' $model 4 3 4 '"strategy": "ddp", "dropout": 0.1' \
        '"tensor": 2, "sequence": true, "loss_parallel": true, "pipeline": 2, "pipeline_schedule": "1f1b"'
}

cases() {
    for model in gpt2 llama; do
        each_model
    done
    others
}

others() {
    one gpt2 1 12 1 '"strategy": "ddp", "dropout": 0.1' ''
    like_one '4 tensor-parallel ranks' gpt2 8 6 1 '"strategy": "zero3", "dropout": 0.1' '"tensor": 4, "sequence": true'

    # Learned positions of a share of the rows of a share of each sample's positions.
    one gpt2 1 12 1 '"strategy": "ddp"' ''
    like_one 'a sequence over 2 ranks as well' gpt2 4 12 1 '"strategy": "fsdp"' \
        '"tensor": 2, "sequence": true, "loss_parallel": true, "context": 2, "context_method": "ring"'

    # shellcheck disable=SC2086
    run 'bf16' llama 4 6 1 '"strategy": "zero2", "precision": "bf16"' '"tensor": 2, "sequence": true' $torch
    judge 'bf16: losses are near PyTorch'"'"'s' "$(compare losses "$golden/llama/expected.json" "$run.json" 1e-2)"
    judge 'bf16: calls, bytes and memory as predicted' "$(compare predicted "$run.json")"
}

all_runs
finish
