#!/bin/sh
# tests/mpi/test_float8.sh -- float8 linear layers, run: losses of 20 steps and the first step's gradients beside PyTorch's with torchao's
# (tests/golden/float8/README.md has the bounds), calls, bytes and memory as predicted, bytes as they are seen at MPI.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh
golden=$PWD/tests/golden/float8/parity

plan() {        # PRECISION KEYS: into $run.plan
    cat >"$run.plan" <<END
{ "dpx_plan": 1, "model": "$golden", "cluster": "localhost:2", "kernels": "dpx", "seq": 24, "micro_batch": 6, "accumulation": 1, "clip": 1.0,
  "strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "$1"$2 }
END
}

# run WHAT PRECISION KEYS: 20 steps on two ranks, as make_parity.py has them.
run() {
    next_run
    plan "$2" "$3"
    later "$1" 2 "$run.plan" --no-db --json --steps 20 --data "$golden/../../parity/tokens.bin" --sequential --init "$golden/init.safetensors" \
        --save-grads "$run.grads" --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1 --threads 1
}

# like_torch WHAT RECORDING LOSSES GRADIENTS: within these.
like_torch() {
    judge "$1: losses are PyTorch's" "$(compare losses "$golden/$2.json" "$run.json" "$3")"
    judge "$1: gradients are PyTorch's" "$(compare tensors "$golden/$2.safetensors" "$run.grads" "$4" "$golden/$2.json")"
    judge "$1: calls, bytes and memory are the schedule's" "$(compare predicted "$run.json")"
}

tensorwise=', "fp8": "tensorwise"'
gathers='"fsdp": { "enable_fsdp_float8_all_gather": true'

cases() {
    run 'fp32' fp32 "$tensorwise"
    like_torch 'fp32' fp32 1e-3 1e-2
    run 'bf16' bf16 "$tensorwise"
    like_torch 'bf16' bf16 1e-3 1e-1
    run 'float8 gathers' bf16 "$tensorwise, $gathers }"
    like_torch 'float8 gathers' gathered 1e-3 1e-1
    run 'scales behind the optimizer' bf16 "$tensorwise, $gathers, \"precompute_float8_dynamic_scale_for_fsdp\": true }"
    like_torch 'scales behind the optimizer' precomputed 1e-3 1e-1
    run 'head, but not keys' bf16 "$tensorwise, \"fp8_filter\": [\"k_proj\"], $gathers }"
    like_torch 'head, but not keys' head 1e-3 1e-1
    run 'recomputed' bf16 "$tensorwise, \"recompute\": \"full\", $gathers }"
    like_torch 'recomputed' gathered 1e-3 1e-1
}

all_runs
finish
