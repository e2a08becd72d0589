#!/bin/sh
# tests/mpi/test_quant.sh -- ZeRO++'s codes on the wire, run: calls, bytes and memory as predicted, bytes as they are seen at MPI, losses
# beside those without, and weights that are the same on every rank (a step more on other numbers of ranks would tell).
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/runs.sh
. tests/mpi/runs.sh

# plan NODES RANKS_A_NODE PRECISION KEYS [MICRO_STEPS [RECOMPUTE]]: into $run.plan
plan() {
    cat >"$run.plan" <<END
{ "dpx_plan": 1, "kernels": "dpx", "seq": 64, "micro_batch": 2, "accumulation": ${5:-2}, "recompute": "${6:-none}", "precision": "$3", "clip": 1.0, "dropout": 0,
  "model": { "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256, "n_positions": 64 },
  "cluster": { "name": "pair", "host": true, "nodes": $1, "gpus_per_node": $2, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
    "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } },
  "strategy": "zero3", "dialect": "deepspeed", "deepspeed": { "stage3_param_persistence_threshold": 100,
    "stage3_prefetch_bucket_size": 20000, "reduce_bucket_size": 40000, "stage3_max_reuse_distance": 0$4 } }
END
}

# run WHAT STEPS, then as plan() from PRECISION on: on two nodes of two ranks.
run() {
    next_run
    what=$1 steps=$2
    shift 2
    plan 2 2 "$@"
    later "$what" 4 "$run.plan" --no-db --json --steps "$steps" --seed 3 --threads 1
}

flat() { tr -d ' ,"' <"$run.json"; }

# What the run's own counts and meters say beside the schedule's, of every kind of call.
as_predicted() {
    [ "$writing" ] || flat | awk -F: '
        $1 == "op" { op = $2 } $1 == "group" { group = $2 } $1 == "dtype" { of = op " " group " " $2 }
        $1 == "count" { n = $2 } $1 == "bytes" { b = $2 }
        $1 == "predicted_count" && $2 != n { print of ": " n " calls, " $2 " predicted" }
        $1 == "predicted_bytes" && $2 != b { print of ": " b " bytes, " $2 " predicted" }
        $1 == "predicted_bytes" { kinds++ }
        $1 == "allocated_peak_bytes" { a = $2 } $1 == "predicted_allocated_peak_bytes" && $2 != a { print a " bytes at the peak, " $2 " predicted" }
        END { if (kinds < 5) print kinds " kinds of calls" }'
}

# Calls of a kind and group that the run counted.
calls() { flat | awk -F: -v want="$1" '$1 == "op" { op = $2 } $1 == "group" { op = op " " $2 } $1 == "dtype" { op = op " " $2 }
                                       $1 == "count" && op == want { print $2 }'; }

loss() { [ "$writing" ] || tr -d ' \n' <"$run.json" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/' | tr , '\n' | tail -n 1; }

# near: of the run's last loss and $without.  Codes change it, secondary partitions need not.
near() { echo "$(loss) $without" | awk -v changed="$1" '{ d = $1 / $2 - 1
    if (NF != 2 || d > 0.01 || d < -0.01 || (changed && d == 0)) print "loss " $1 ", without " $2 }'; }

# Bytes that rank 0 sent, at MPI, in one of our communicators.
sent_by_0() { awk -v name="\"dpx $1\" sent" '/^rank 0;/ { n = split($0, part, "; "); for (i = 1; i <= n; i++)
    if (index(part[i], name) == 1) { split(part[i], f, " "); print f[5] } }' "$dir/counts"; }

weights=', "zero_quantized_weights": true'
gradients=', "zero_quantized_gradients": true'
secondary=', "zero_hpz_partition_size": 2'

cases() {
    for precision in fp32 bf16; do
        run "$precision without codes" 6 $precision ''
        without=$(loss)
        for keys in "$weights" "$gradients" "$weights$gradients" "$weights$gradients$secondary"; do
            run "$precision$keys" 6 $precision "$keys"
            judge "$precision$keys: calls, bytes and memory are the schedule's" "$(as_predicted)"
            judge "$precision$keys: losses are those without, nearly" "$(near changed)"
        done
    done

    # Secondary partitions beside recomputation, with one micro-step and with several that repeat.
    for micro in 1 4; do
        run "$micro micro-steps, recomputed, without codes" 3 bf16 '' $micro full
        without=$(loss)
        for keys in "$secondary" "$weights$secondary" "$gradients$secondary" "$weights$gradients$secondary"; do
            run "$micro micro-steps, recomputed$keys" 3 bf16 "$keys" $micro full
            judge "$micro micro-steps, recomputed$keys: calls, bytes and memory are the schedule's" "$(as_predicted)"
            judge "$micro micro-steps, recomputed$keys: losses are those without, nearly" "$(near '')"
        done
    done

    # Adapters beside frozen weights, of which the last key leaves a brace open.
    lora='}, "train": "lora", "lora": { "rank": 8, "target_modules": "all-linear"'
    run 'adapters without codes' 6 bf16 "$lora"
    without=$(loss)
    for keys in "$weights" "$weights$gradients$secondary"; do
        run "adapters$keys" 6 bf16 "$keys$lora"
        judge "adapters$keys: calls, bytes and memory are the schedule's" "$(as_predicted)"
        judge "adapters$keys: losses are those without, nearly" "$(near changed)"
    done

    run 'int4 reductions' 6 fp32 "$gradients"
}

all_runs

# Six steps of two micro-steps: each of the 10 matrices is reduced in each, by two calls in the node and two across.
first=$(loss)
check 'a matrix takes four all-to-alls' "$(for kind in 'node int8' 'node fp32' 'across int8' 'across fp32'; do
    n=$(calls "all_to_all $kind"); [ "$n" = 120 ] || echo "$kind: $n calls"; done)"

# The same by dpxrun itself, with a library before MPI that counts what it is given.
next_run
plan 2 2 fp32 "$gradients"
# shellcheck disable=SC2086
check 'dpxrun runs with its calls counted' "$(DPX_MPI_COUNTS=$dir/counts mpirun $more_ranks_than_cores --timeout 120 \
    -x LD_PRELOAD="$B/tests/mpi/pmpi_count.so" -x DPX_MPI_COUNTS -n 4 \
    "$B/dpxrun" "$run.plan" --no-db --json --steps 6 --seed 3 --threads 1 2>"$run.said" >"$run.json" </dev/null || head -n 5 "$run.said")"

# 6 x 2 x (n/2 + 4 groups) bytes in the node, of which half stays, and half as much of it across.
# wte 256 x 64, wpe 64 x 64, of each block 64 x 192, 64 x 64, 64 x 256, 256 x 64; groups 256, 64, 192, 64, 256, 256.
elements=$((256 * 64 + 64 * 64 + 2 * (64 * 192 + 64 * 64 + 64 * 256 + 256 * 64)))
groups=$((256 + 64 + 2 * (192 + 64 + 256 + 256)))
node=$((12 * (elements / 2 + 4 * groups) / 2))
check 'what MPI is given in the node and across it is codes and scales' "$(
    [ "$(sent_by_0 node)" = "$node" ] || echo "node: $(sent_by_0 node) bytes, not $node"
    [ "$(sent_by_0 across)" = $((node / 2)) ] || echo "across: $(sent_by_0 across) bytes, not $((node / 2))")"

# The same numbers on every run.
check 'a run repeats its bits' "$([ "$(loss)" = "$first" ] || echo "$(loss), then $first")"

finish
