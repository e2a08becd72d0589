#!/bin/sh
# tests/mpi/test_tune.sh -- dpxrun fine-tunes as PyTorch and PEFT do: sgd, Lion and Adafactor, some tensors, adapters; losses
# of 20 steps against tests/golden/tune/runs, on one rank and on two, and what is predicted.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
golden=$PWD/tests/golden/tune/runs
parity=$PWD/tests/golden/parity
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI's own leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

number() { sed -n "s/^ \"$1\": \([0-9.e-]*\),*\$/\1/p" "$golden/$case/expected.json"; }

# run RANKS MICRO_BATCH ACCUMULATION KEYS [OPTION...]: $case, whose model is $model and whose plan has $keys.
run() {
    cat >"$dir/plan.json" <<END
{ "dpx_plan": 1, "model": "$parity/$model", "cluster": "localhost:$1", "kernels": "dpx", "seq": 24,
  "micro_batch": $2, "accumulation": $3, "clip": 1.0, $keys, $4 }
END
    shift 4
    rm -rf "$dir/run.json" "$dir/out"
    adapters=
    [ -d "$golden/$case/adapters" ] && adapters="--adapters $golden/$case/adapters --save $dir/out"
    # shellcheck disable=SC2086
    "$B/dpxrun" "$dir/plan.json" --no-db --json --steps 20 --data "$parity/tokens.bin" --sequential \
        --init "$parity/$model/init.safetensors" $adapters --lr "$(number lr)" --min-lr "$(number min_lr)" --warmup 5 --threads 1 \
        "$@" >"$dir/run.json" 2>"$dir/said" </dev/null || { echo "exit status $?"; cat "$dir/said"; }
}

# The first complaints of the program that compares, unless the run failed already.
compare() {
    if [ "$complaints" ]; then
        echo "$complaints"
    else
        { "$B/tests/mpi/mpi_parity" "$@" 2>&1 || echo "exit status $?"; } | head -n 5
    fi
}

# one WHAT, then as run()
one() {
    what=$1
    shift
    complaints=$(run "$@")
    check "$case, $what: losses are PyTorch's" "$(compare losses "$golden/$case/expected.json" "$dir/run.json" 1e-5)"
    [ -d "$golden/$case/adapters" ] &&
        check "$case, $what: what was trained is PEFT's" \
            "$(compare tensors "$golden/$case/trained.safetensors" "$dir/out/adapter_model.safetensors" 1e-4)"
    check "$case, $what: bytes and memory are as predicted" "$(compare predicted "$dir/run.json")"
}

# tune CASE MODEL KEYS [OPTION...]
tune() {
    case=$1 model=$2 keys=$3
    shift 3
    one 'two ranks, ddp' 2 6 1 '"strategy": "ddp", "dialect": "paper"' "$@"
    one 'two ranks, DDP' 2 3 2 '"strategy": "ddp", "dialect": "torch", "sync_every_micro_step": false' "$@"
}

# And with states, gradients and parameters divided.
divided() {
    tune "$@"
    shift 3
    one 'two ranks, ZeRO-1' 2 3 2 '"strategy": "zero1", "dialect": "paper"' "$@"
    one 'two ranks, ZeRO-2, recomputed' 2 6 1 '"strategy": "zero2", "dialect": "paper", "recompute": "full"' "$@"
    one 'two ranks, FSDP' 2 6 1 '"strategy": "fsdp", "dialect": "paper", "recompute": "selective"' "$@"
}

divided sgd gpt2 '"optimizer": "sgd"' --weight-decay 0.1
divided lion llama '"optimizer": "lion_32bit"'
tune adafactor llama '"optimizer": "adafactor"'
tune adafactor-gpt2 gpt2 '"optimizer": "adafactor"'
divided mlp llama '"train": ["*.mlp.*", "*input_layernorm*"]'
tune down llama '"train": ["*.down_proj.*"], "optimizer": "sgd"'
tune bias gpt2 '"train": ["*.bias"]'
tune tokens gpt2 '"train": ["*wte*", "*.ln_2.*"]'
divided lora llama '"train": "lora", "lora": { "rank": 4, "alpha": 8, "target_modules": "all-linear" }'
tune lora-attention llama '"train": "lora", "lora": { "rank": 3, "alpha": 5 }, "optimizer": "lion_32bit"'
tune lora-head llama '"train": "lora", "optimizer": "sgd", "lora": { "rank": 4, "alpha": 4,
  "target_modules": ["o_proj", "gate_proj"], "modules_to_save": ["lm_head"] }'
divided lora-gpt2 gpt2 '"train": "lora"'
tune lora-conv1d gpt2 '"train": "lora", "optimizer": "adafactor", "lora": { "rank": 2, "alpha": 6, "target_modules": ["c_attn", "c_proj", "c_fc"] }'
finish
