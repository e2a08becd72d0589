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

# like_torch WHAT RECORDING OTHER PART: each gradient at most PART as far from PyTorch's as PyTorch's own is from OTHER.  The first losses see
# forward alone.  A number beside a tie that falls to the other side moves by a sixteenth or more, and what follows it: later losses are
# nearer than twice what PyTorch's move by when its first weights do by a rounding.
like_torch() {
    if [ "$3" = no_float8 ]; then first=1e-6 all=4e-3; else first=1e-3 all=6e-3; fi
    judge "$1: the first loss is PyTorch's" "$(compare losses "$golden/$2.json" "$run.json" $first 1)"
    judge "$1: losses are near PyTorch's" "$(compare losses "$golden/$2.json" "$run.json" $all)"
    judge "$1: gradients are PyTorch's" "$(compare tensors "$golden/$2.safetensors" "$run.grads" "$4" "$golden/$2.json" "$3")"
    judge "$1: calls, bytes and memory are the schedule's" "$(compare predicted "$run.json")"
}

losses() { [ "$writing" ] || tr -d ' \n' <"$run.json" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/'; }

gathers='"fsdp": { "enable_fsdp_float8_all_gather": true'

cases() {
    run 'fp32' fp32 ', "fp8": "tensorwise"'
    like_torch 'fp32' fp32 no_float8 0.3
    each=$(losses)
    run 'float8 gathers, fp32' fp32 ", \"fp8\": \"tensorwise\", $gathers }"
    judge 'fp32: codes that are gathered have the bits of weights that are cast when gathered' "$([ "$(losses)" = "$each" ] || echo "$(losses), not $each")"
    judge 'float8 gathers, fp32: calls, bytes and memory are the schedule'"'"'s' "$(compare predicted "$run.json")"
    run 'rows, fp32' fp32 ', "fp8": "rowwise"'
    like_torch 'rows, fp32' rowwise-fp32 no_float8 0.1
    run 'rows, weights in high precision, fp32' fp32 ', "fp8": "rowwise_with_gw_hp"'
    like_torch 'rows, weights in high precision, fp32' gw-hp-fp32 no_float8 0.1
    run 'bf16' bf16 ', "fp8": "tensorwise"'
    like_torch 'bf16' bf16 fp32 1.5
    run 'rows, bf16, recomputed' bf16 ', "fp8": "rowwise", "recompute": "full"'
    like_torch 'rows, bf16, recomputed' rowwise fp32 1.5
    run 'head, but not keys' bf16 ", \"fp8\": \"tensorwise\", \"fp8_filter\": [\"k_proj\"], $gathers }"
    like_torch 'head, but not keys' head fp32 1.5
    run 'float8 gathers' bf16 ", \"fp8\": \"tensorwise\", $gathers }"
    like_torch 'float8 gathers' gathered fp32 1.5
    gathered=$(losses)
    run 'scales behind the optimizer' bf16 ", \"fp8\": \"tensorwise\", $gathers, \"precompute_float8_dynamic_scale_for_fsdp\": true }"
    judge 'scales behind the optimizer: calls, bytes and memory are the schedule'"'"'s' "$(compare predicted "$run.json")"
    judge 'they are the same scales' "$([ "$(losses)" = "$gathered" ] || echo "$(losses), not $gathered")"
    run 'float8 gathers, recomputed' bf16 ", \"fp8\": \"tensorwise\", \"recompute\": \"full\", $gathers }"
    judge 'recomputed casts have the same bits' "$([ "$(losses)" = "$gathered" ] || echo "$(losses), not $gathered")"
}

all_runs

# By dpxrun itself, with a library before MPI that counts what rank 0 sends.
next_run
plan bf16 ", \"fp8\": \"tensorwise\", $gathers }"
# shellcheck disable=SC2086
check 'dpxrun runs with its calls counted' "$(DPX_MPI_COUNTS=$dir/counts mpirun $more_ranks_than_cores --timeout 120 \
    -x LD_PRELOAD="$B/tests/mpi/pmpi_count.so" -x DPX_MPI_COUNTS -n 2 \
    "$B/dpxrun" "$run.plan" --no-db --json --steps 3 --seed 3 --threads 1 2>"$run.said" >"$run.json" </dev/null || head -n 5 "$run.said")"
sent=$(sed -n 's/^rank 0;.*"dpx world" sent [0-9]* \([0-9]*\);.*/\1/p' "$dir/counts")

# Halves of what two ranks gather and reduce, in three steps.  A block has q, o of 64 x 64, k, v of 32 x 64, three of 96 x 64, gathered in a byte each, and
# two norms of 64 in bf16; the root, gathered once, two tables of 112 x 64 and a norm.  Gradients travel in fp32; 7 weights' largest values
# and, at the end, 30 norms as one number each.
weights=$((2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64)) root=$((2 * 112 * 64 + 64))
want=$((3 * (6 * (weights + 2 * 64 * 2) / 2 + root * 2 / 2 + 3 * (weights + 2 * 64) * 4 / 2 + root * 4 / 2 + 6 * 7 * 4 + 30 * 4)))
check 'a byte a weight is gathered' "$([ "$sent" = "$want" ] || echo "$sent bytes, not $want")"

# torchao gathers in float8 with tensorwise scales only.
next_run
plan bf16 ", \"fp8\": \"rowwise\", $gathers }"
"$B/dpxrun" "$run.plan" --no-db --steps 1 >"$run.said" 2>&1 </dev/null
check 'gathers of scales by rows are refused in torchao'"'"'s words' "$([ $? = 2 ] && grep -q 'only supports tensorwise' "$run.said" || head -n 5 "$run.said")"
finish
