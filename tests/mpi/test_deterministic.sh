#!/bin/sh
# tests/mpi/test_deterministic.sh -- "deterministic": the same bits whatever is sharded, how units are
# cut and what is computed anew (mpi_bits.c); and what dpxrun says of a plan that does not fit.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh
model=$PWD/tests/golden/parity/llama
accumulation=2 deterministic=true

plan() {        # STRATEGY RANKS PRECISION MORE
    printf '{"dpx_plan": 1, "model": "%s/config.json", "cluster": "localhost:%s", "strategy": "%s", ' "$model" "$2" "$1"
    printf '"dialect": "paper", "kernels": "dpx", "seq": 24, "micro_batch": 2, "accumulation": %s, "clip": 0.5, ' $accumulation
    printf '"dropout": 0, "deterministic": %s, "precision": "%s"%s}\n' $deterministic "$3" "$4"
}

# first STRATEGY RANKS PRECISION MORE: what those that follow are compared with.
# same WHAT STRATEGY RANKS PRECISION MORE: the same bits; others() other bits.
count=0 like=
put() {         # LIKE WHAT, then as plan()
    count=$((count + 1)) relation=$1 what=$2
    shift 2
    plan "$@" >"$dir/$count.json"
    echo "$2 $count $relation $model/init.safetensors $what" >>"$dir/list"
}
first() {
    put - "$1 on $2 ranks in $3 runs$4" "$@"
    like=$count
}
same() { put =$like "$@"; }
others() { put !$like "$@"; }

for ranks in 2 3; do
    for precision in fp32 bf16; do
        first ddp $ranks $precision ''
        for strategy in zero1 zero2 zero3 fsdp; do
            same "$strategy is ddp on $ranks ranks in $precision, bit for bit" $strategy $ranks $precision ''
        done
    done
    first ddp $ranks fp32 ''
    same "half-block units, computed anew, are ddp on $ranks ranks, bit for bit" fsdp $ranks fp32 ', "unit": "half-block", "recompute": "full"'
done
# Tensor-parallel ranks add up parts of products, which one rank does in another order: the same bits for one degree.
tensor=', "parallel": { "tensor": 2, "sequence": true, "loss_parallel": true }'
first ddp 4 fp32 "$tensor"
for strategy in zero1 zero2 zero3 fsdp; do
    same "$strategy is ddp on 2 x 2 tensor-parallel ranks, bit for bit" $strategy 4 fp32 "$tensor"
done
same 'half-block units, computed anew, are ddp on 2 x 2 tensor-parallel ranks, bit for bit' fsdp 4 fp32 "$tensor"', "unit": "half-block", "recompute": "full"'

# So do the ranks of a sequence, which sum gradients over their own positions first.
for method in ring ulysses; do
    context=", \"parallel\": { \"context\": 2, \"context_method\": \"$method\" }"
    first ddp 4 fp32 "$context"
    for strategy in zero1 zero3; do
        same "$strategy is ddp on 2 ranks x 2 of a sequence ($method), bit for bit" $strategy 4 fp32 "$context"
    done
done

# Stages add up their micro-steps' gradients in ddp's order: the bits of ddp without a pipeline.
whole=$model model=$PWD/tests/golden/parity/grid/llama accumulation=4
pipeline() { printf ', "parallel": { "pipeline": 2, "pipeline_schedule": "%s"%s }' "$@"; }
first ddp 1 fp32 ''
for schedule in gpipe 1f1b interleaved zb1p zbv dualpipev; do
    chunks=
    [ $schedule != interleaved ] || chunks=', "virtual_stages": 2'
    same "a pipeline of 2 stages ($schedule) is ddp on one rank, bit for bit" ddp 2 fp32 "$(pipeline $schedule "$chunks")"
done
for precision in fp32 bf16; do
    first ddp 2 $precision ''
    for strategy in zero1 zero2 fsdp; do
        same "$strategy under a pipeline of 2 stages is ddp on 2 ranks in $precision, bit for bit" $strategy 4 $precision "$(pipeline 1f1b '')"
    done
done
for beside in tensor context; do
    first ddp 2 fp32 ", \"parallel\": { \"$beside\": 2 }"
    same "fsdp under a pipeline beside $beside is ddp beside $beside, bit for bit" fsdp 4 fp32 "$(pipeline zb1p ", \"$beside\": 2")"
done
model=$whole accumulation=2

first ddp 3 fp32 ''
# What makes the bits equal: without it sums over three ranks round in another order.
deterministic=false
others 'without it they differ' ddp 3 fp32 ''
deterministic=true

for n in 1 2 3 4; do
    run_all 500 '' $n mpi_bits "$dir/list" "$dir"
done

plan ddp 2 fp32 '' >"$dir/plan.json"
"$B/dpxrun" "$dir/plan.json" --no-db --json --memory 16900000 >"$dir/over" 2>"$dir/said"
status=$?
check 'a plan that does not fit is an answer: exit 3' "$([ $status = 3 ] || echo "exit $status")"
check 'with one line' "$([ "$(wc -l <"$dir/said")" = 1 ] || cat "$dir/said")"
check 'and the entry and buffer where it stopped' "$(for word in first_over phase op buffer bytes; do
    grep -q "\"$word\"" "$dir/over" || echo "no $word"
done)"
finish
