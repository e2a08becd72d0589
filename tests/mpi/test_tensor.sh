#!/bin/sh
# tests/mpi/test_tensor.sh -- tensor, sequence and loss parallelism: what ranks that have rows and columns of tensors compute is
# what PyTorch's single process did (tests/golden/parity), and the same as one rank's in fp32: losses within 1e-6, gradients
# within 1e-5.  Files are of whole tensors in Hugging Face's names.
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

# run NAME MODEL RANKS MICRO_BATCH ACCUMULATION KEYS PARALLEL OPTIONS...: NAME.json, NAME.grads, NAME.final
run() {
    name=$dir/$1 model=$2 plan=$dir/$1.plan
    printf '{ "dpx_plan": 1, "model": "%s", "cluster": "localhost:%s", "dialect": "paper", "kernels": "dpx", "seq": 24,
  "micro_batch": %s, "accumulation": %s, "clip": 1.0, %s, "parallel": { %s } }' \
        "$golden/$model" "$3" "$4" "$5" "$6" "$7" >"$plan"
    shift 7
    "$B/dpxrun" "$plan" --no-db --json --data "$golden/tokens.bin" --sequential --init "$golden/$model/init.safetensors" \
        --save-grads "$name.grads" --save "$name.final" --threads 1 "$@" >"$name.json" 2>"$dir/said" </dev/null ||
        { echo "exit status $?"; cat "$dir/said"; }
}

compare() {     # COMPLAINTS SO FAR, then as mpi_parity
    complaints=$1
    shift
    if [ "$complaints" ]; then
        echo "$complaints"
    else
        { "$B/tests/mpi/mpi_parity" "$@" 2>&1 || echo "exit status $?"; } | head -n 5
    fi
}

# like_one WHAT, then as run() without NAME: beside "one", by the tolerances of fp32.
like_one() {
    what=$1
    shift
    said=$(run next "$@" --steps 3)
    check "$what: $1's losses are one rank's" "$(compare "$said" losses "$dir/one.json" "$dir/next.json" 1e-6)"
    check "$what: $1's gradients are one rank's" "$(compare "$said" tensors "$dir/one.grads" "$dir/next.grads" 1e-5)"
    check "$what: calls, bytes and memory as predicted" "$(compare "$said" predicted "$dir/next.json")"
}

torch='--steps 20 --lr 1e-3 --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1'
for model in gpt2 llama; do
    want=$golden/$model
    # shellcheck disable=SC2086
    said=$(run torch $model 2 12 1 '"strategy": "ddp"' '"tensor": 2, "sequence": true, "loss_parallel": true' $torch)
    check "$model on 2 ranks: PyTorch's losses" "$(compare "$said" losses "$want/expected.json" "$dir/torch.json" 1e-5)"
    check "$model on 2 ranks: PyTorch's gradients" \
        "$(compare "$said" tensors "$want/grads.safetensors" "$dir/torch.grads" 1e-5 "$want/expected.json")"
    check "$model on 2 ranks: PyTorch's last weights" \
        "$(compare "$said" tensors "$want/final.safetensors" "$dir/torch.final" 1e-4)"

    # A learning rate of nothing: what was read is written.
    said=$(run still $model 4 6 1 '"strategy": "zero3", "unit": "block"' '"tensor": 2, "sequence": true' --steps 1 --lr 0 \
        --min-lr 0 --weight-decay 0)
    check "$model: --save is --init" "$(compare "$said" tensors "$want/init.safetensors" "$dir/still.final" 0)"

    said=$(run one $model 1 12 1 '"strategy": "ddp", "dropout": 0.1' '' --steps 3)
    check "$model on one rank" "$said"
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
done
run one gpt2 1 12 1 '"strategy": "ddp", "dropout": 0.1' '' --steps 3
like_one '4 tensor-parallel ranks' gpt2 8 6 1 '"strategy": "zero3", "dropout": 0.1' '"tensor": 4, "sequence": true'

said=$(run torch llama 4 6 1 '"strategy": "zero2", "precision": "bf16"' '"tensor": 2, "sequence": true' --steps 20 --lr 1e-3 \
    --min-lr 1e-4 --warmup 5 --betas 0.9,0.95 --weight-decay 0.1)
check 'bf16: losses are near PyTorch'"'"'s' "$(compare "$said" losses "$golden/llama/expected.json" "$dir/torch.json" 1e-2)"
check 'bf16: calls, bytes and memory as predicted' "$(compare "$said" predicted "$dir/torch.json")"
finish
