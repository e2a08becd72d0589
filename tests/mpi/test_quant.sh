#!/bin/sh
# tests/mpi/test_quant.sh -- ZeRO++'s codes on the wire, run: calls, bytes and memory as predicted, bytes as they are seen at MPI, losses
# beside those without, and weights that are the same on every rank (a step more on other numbers of ranks would tell).
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

# run NODES RANKS_A_NODE PRECISION STEPS KEYS [MICRO_STEPS [RECOMPUTE]]: into $dir/run.json, what MPI was given into $dir/counts.
run() {
    cat >"$dir/plan.json" <<END
{ "dpx_plan": 1, "kernels": "dpx", "seq": 64, "micro_batch": 2, "accumulation": ${6:-2}, "recompute": "${7:-none}", "precision": "$3", "clip": 1.0, "dropout": 0,
  "model": { "model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256, "n_positions": 64 },
  "cluster": { "name": "pair", "host": true, "nodes": $1, "gpus_per_node": $2, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
    "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } },
  "strategy": "zero3", "dialect": "deepspeed", "deepspeed": { "stage3_param_persistence_threshold": 100,
    "stage3_prefetch_bucket_size": 20000, "reduce_bucket_size": 40000, "stage3_max_reuse_distance": 0$5 } }
END
    rm -f "$dir/run.json" "$dir/counts"
    DPX_MPI_COUNTS=$dir/counts timeout 120 mpirun -x LD_PRELOAD="$B/tests/mpi/pmpi_count.so" -x DPX_MPI_COUNTS -n $(($1 * $2)) \
        "$B/dpxrun" "$dir/plan.json" --no-db --json --steps "$4" --seed 3 --threads 1 >"$dir/run.json" 2>"$dir/said" </dev/null ||
        { echo "exit status $?"; head -n 5 "$dir/said"; }
}

flat() { tr -d ' ,"' <"$dir/run.json"; }

# What the run's own counts and meters say beside the schedule's, of every kind of call.
as_predicted() {
    flat | awk -F: '
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

loss() { tr -d ' \n' <"$dir/run.json" | sed 's/.*"loss":\[\([^]]*\)\].*/\1/' | tr , '\n' | tail -n 1; }

# Bytes that rank 0 sent, at MPI, in one of our communicators.
sent_by_0() { awk -v name="\"dpx $1\" sent" '/^rank 0;/ { n = split($0, part, "; "); for (i = 1; i <= n; i++)
    if (index(part[i], name) == 1) { split(part[i], f, " "); print f[5] } }' "$dir/counts"; }

weights=', "zero_quantized_weights": true'
gradients=', "zero_quantized_gradients": true'
secondary=', "zero_hpz_partition_size": 2'

for precision in fp32 bf16; do
    complaints=$(run 2 2 $precision 6 '')
    check "$precision runs without codes" "$complaints"
    without=$(loss)
    for keys in "$weights" "$gradients" "$weights$gradients" "$weights$gradients$secondary"; do
        complaints=$(run 2 2 $precision 6 "$keys")
        check "$precision$keys: calls, bytes and memory are the schedule's" "${complaints:-$(as_predicted)}"
        check "$precision$keys: losses are those without, nearly" "$(echo "$(loss) $without" |
            awk '{ d = $1 / $2 - 1; if (NF != 2 || d > 0.01 || d < -0.01 || d == 0) print "loss " $1 ", without " $2 }')"
    done
done

# Secondary partitions beside recomputation, with one micro-step and with several that repeat.
for micro in 1 4; do
    complaints=$(run 2 2 bf16 3 '' $micro full)
    check "$micro micro-steps, recomputed, run without codes" "$complaints"
    without=$(loss)
    for keys in "$secondary" "$weights$secondary" "$gradients$secondary" "$weights$gradients$secondary"; do
        complaints=$(run 2 2 bf16 3 "$keys" $micro full)
        check "$micro micro-steps, recomputed$keys: calls, bytes and memory are the schedule's" "${complaints:-$(as_predicted)}"
        check "$micro micro-steps, recomputed$keys: losses are those without, nearly" "$(echo "$(loss) $without" |
            awk '{ d = $1 / $2 - 1; if (NF != 2 || d > 0.01 || d < -0.01) print "loss " $1 ", without " $2 }')"
    done
done

# Six steps of two micro-steps: each of the 10 matrices is reduced in each, by two calls in the node and two across.
complaints=$(run 2 2 fp32 6 "$gradients")
check 'a matrix takes four all-to-alls' "${complaints:-$(for kind in 'node int8' 'node fp32' 'across int8' 'across fp32'; do
    n=$(calls "all_to_all $kind"); [ "$n" = 120 ] || echo "$kind: $n calls"; done)}"

# Of that, at MPI: 6 x 2 x (n/2 + 4 groups) bytes in the node, of which half stays, and half as much of it across.
# wte 256 x 64, wpe 64 x 64, of each block 64 x 192, 64 x 64, 64 x 256, 256 x 64; groups 256, 64, 192, 64, 256, 256.
elements=$((256 * 64 + 64 * 64 + 2 * (64 * 192 + 64 * 64 + 64 * 256 + 256 * 64)))
groups=$((256 + 64 + 2 * (192 + 64 + 256 + 256)))
node=$((12 * (elements / 2 + 4 * groups) / 2))
check 'what MPI is given in the node and across it is codes and scales' "$(
    [ "$(sent_by_0 node)" = "$node" ] || echo "node: $(sent_by_0 node) bytes, not $node"
    [ "$(sent_by_0 across)" = $((node / 2)) ] || echo "across: $(sent_by_0 across) bytes, not $((node / 2))")"

# The same numbers on every run.
first=$(loss)
complaints=$(run 2 2 fp32 6 "$gradients")
check 'a run repeats its bits' "${complaints:-$([ "$(loss)" = "$first" ] || echo "$(loss), then $first")}"

finish
