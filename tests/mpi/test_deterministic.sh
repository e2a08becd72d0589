#!/bin/sh
# tests/mpi/test_deterministic.sh -- "deterministic": the same bits whatever is sharded, how units are
# cut and what is computed anew; and what dpxrun says of a plan that does not fit.  The whole
# program, from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build} model=$PWD/tests/golden/parity/llama
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export OMP_NUM_THREADS=1
# Open MPI's own leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

accumulation=2

plan() {        # STRATEGY RANKS PRECISION MORE
    printf '{"dpx_plan": 1, "model": "%s/config.json", "cluster": "localhost:%s", "strategy": "%s", ' "$model" "$2" "$1"
    printf '"dialect": "paper", "kernels": "dpx", "seq": 24, "micro_batch": 2, "accumulation": %s, "clip": 0.5, ' $accumulation
    printf '"dropout": 0, "deterministic": true, "precision": "%s"%s}\n' "$3" "$4"
}

# weights NAME STRATEGY RANKS PRECISION MORE: those after 6 steps, and the losses.
weights() {
    name=$1
    shift
    rm -f "$dir/$name"*
    plan "$@" >"$dir/plan.json"
    "$B/dpxrun" "$dir/plan.json" --steps 6 --no-db --json --threads 1 --init "$model/init.safetensors" \
        --save "$dir/$name" >"$dir/$name.json" 2>&1 || cat "$dir/$name.json"
    sed -n '/"loss": \[/,/\]/p' "$dir/$name.json" >"$dir/$name.loss"
}

same() {        # WHAT NAME: as "first"
    check "$1" "$(cmp "$dir/first" "$dir/$2" 2>&1; cmp "$dir/first.loss" "$dir/$2.loss" 2>&1)"
}

for ranks in 2 3; do
    for precision in fp32 bf16; do
        weights first ddp $ranks $precision ''
        for strategy in zero1 zero2 zero3 fsdp; do
            weights next $strategy $ranks $precision ''
            same "$strategy is ddp on $ranks ranks in $precision, bit for bit" next
        done
    done
    weights first ddp $ranks fp32 ''
    weights next fsdp $ranks fp32 ', "unit": "half-block", "recompute": "full"'
    same "half-block units, computed anew, are ddp on $ranks ranks, bit for bit" next
done
# Tensor-parallel ranks add up parts of products, which one rank does in another order: the same bits for one degree.
tensor=', "parallel": { "tensor": 2, "sequence": true, "loss_parallel": true }'
weights first ddp 4 fp32 "$tensor"
for strategy in zero1 zero2 zero3 fsdp; do
    weights next $strategy 4 fp32 "$tensor"
    same "$strategy is ddp on 2 x 2 tensor-parallel ranks, bit for bit" next
done
weights next fsdp 4 fp32 "$tensor"', "unit": "half-block", "recompute": "full"'
same 'half-block units, computed anew, are ddp on 2 x 2 tensor-parallel ranks, bit for bit' next

# So do the ranks of a sequence, which sum gradients over their own positions first.
for method in ring ulysses; do
    context=", \"parallel\": { \"context\": 2, \"context_method\": \"$method\" }"
    weights first ddp 4 fp32 "$context"
    for strategy in zero1 zero3; do
        weights next $strategy 4 fp32 "$context"
        same "$strategy is ddp on 2 ranks x 2 of a sequence ($method), bit for bit" next
    done
done

# Stages add up their micro-steps' gradients in ddp's order: the bits of ddp without a pipeline.
whole=$model model=$PWD/tests/golden/parity/grid/llama accumulation=4
pipeline() { printf ', "parallel": { "pipeline": 2, "pipeline_schedule": "%s"%s }' "$@"; }
weights first ddp 1 fp32 ''
for schedule in gpipe 1f1b interleaved zb1p zbv dualpipev; do
    chunks=
    [ $schedule != interleaved ] || chunks=', "virtual_stages": 2'
    weights next ddp 2 fp32 "$(pipeline $schedule "$chunks")"
    same "a pipeline of 2 stages ($schedule) is ddp on one rank, bit for bit" next
done
for precision in fp32 bf16; do
    weights first ddp 2 $precision ''
    for strategy in zero1 zero2 fsdp; do
        weights next $strategy 4 $precision "$(pipeline 1f1b '')"
        same "$strategy under a pipeline of 2 stages is ddp on 2 ranks in $precision, bit for bit" next
    done
done
for beside in tensor context; do
    weights first ddp 2 fp32 ", \"parallel\": { \"$beside\": 2 }"
    weights next fsdp 4 fp32 "$(pipeline zb1p ", \"$beside\": 2")"
    same "fsdp under a pipeline beside $beside is ddp beside $beside, bit for bit" next
done
model=$whole accumulation=2

weights first ddp 3 fp32 ''
# What makes the bits equal: without it sums over three ranks round in another order.
plan ddp 3 fp32 '' | sed 's/"deterministic": true/"deterministic": false/' >"$dir/plan.json"
"$B/dpxrun" "$dir/plan.json" --steps 6 --no-db --json --threads 1 --init "$model/init.safetensors" --save "$dir/next" \
    >"$dir/next.json" 2>&1
check 'without it they differ' "$(! cmp -s "$dir/first" "$dir/next" || echo 'the same bits')"

plan ddp 2 fp32 '' >"$dir/plan.json"
"$B/dpxrun" "$dir/plan.json" --no-db --json --memory 16900000 >"$dir/over" 2>"$dir/said"
status=$?
check 'a plan that does not fit is an answer: exit 3' "$([ $status = 3 ] || echo "exit $status")"
check 'with one line' "$([ "$(wc -l <"$dir/said")" = 1 ] || cat "$dir/said")"
check 'and the entry and buffer where it stopped' "$(for word in first_over phase op buffer bytes; do
    grep -q "\"$word\"" "$dir/over" || echo "no $word"
done)"
finish
