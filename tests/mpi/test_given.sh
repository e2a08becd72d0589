#!/bin/sh
# tests/mpi/test_given.sh -- what dpxrun is given and cannot run: launchers, ranks that were given different things, files,
# options, weights that are not finite.  One line that names it, the exit status of the contract, nothing
# left behind.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/mpi/faults.sh
. tests/mpi/faults.sh

# ---- launchers ----

start env PATH=/nowhere "$dir/dpxrun" "$dir/plan.json" --no-db
check 'without mpirun it says what to install' "$(judge 10 1 'no mpirun.*openmpi-bin')"

# A plan for PyTorch's kernels: the same shards, collectives and order with dpx's own, and one line that says so.
sed 's/"kernels": *"dpx"/"kernels": "torch-sdpa"/' "$dir/plan.json" >"$dir/torch.json"
check 'a plan for PyTorch runs with other kernels, predicted for those, and says so once' "$(
    cmp -s "$dir/plan.json" "$dir/torch.json" && echo 'the plan names no kernels'
    for p in plan torch; do
        timeout 100 "$dir/dpxrun" "$dir/$p.json" --steps 2 --no-db --json >"$dir/$p.out" 2>"$dir/$p.said" </dev/null || cat "$dir/$p.said"
    done
    [ "$(grep -c 'written for PyTorch.s kernels (torch-sdpa)' "$dir/torch.said")" = 1 ] || cat "$dir/torch.said"
    grep -q 'written for' "$dir/plan.said" && cat "$dir/plan.said"
    for p in plan torch; do
        grep -o '"loss": \[[^]]*\]\|"predicted_allocated_peak_bytes": [0-9]*' "$dir/$p.out" >"$dir/$p.same"
        [ -s "$dir/$p.same" ] || cat "$dir/$p.out"
    done
    diff "$dir/plan.same" "$dir/torch.same")"
check '--kernels refuses it' "$(
    timeout 100 "$dir/dpxrun" "$dir/torch.json" --kernels --no-db >"$dir/out" 2>&1 </dev/null; [ $? = 2 ] || echo "exit status $?"
    grep -q 'the plan has PyTorch.s kernels ("torch-sdpa")' "$dir/out" || cat "$dir/out")"

# shellcheck disable=SC2086
start mpirun $many -n 3 "$dir/dpxrun" "$dir/plan.json" --no-db
check 'another number of ranks than the plan has is refused' "$(judge 10 2 'for 2 ranks, 3 were started' mpirun)"
# shellcheck disable=SC2086
start mpirun $many -n 1 "$dir/dpxrun" "$dir/plan.json" --no-db : -n 1 "$dir/dpxrun" "$dir/ddp.json" --no-db
check 'ranks with different plans are refused' "$(judge 10 2 'rank 1 has the plan.s.strategy "ddp", rank 0 has "fsdp"' mpirun)"

# apart CULPRIT ARGUMENT...: complaints unless two ranks, the second with these arguments as well, are refused.
apart() {
    culprit=$1
    shift
    # shellcheck disable=SC2086
    start mpirun $many -n 1 "$dir/dpxrun" "$dir/plan.json" $common --no-db : -n 1 "$dir/dpxrun" "$dir/plan.json" $common --no-db "$@"
    judge 10 2 "rank 1 has $culprit: all ranks must" mpirun
}
common=
check 'so are ranks with different options' "$(
    apart '--lr 0.001, rank 0 has 0.0006' --lr 1e-3
    apart '--seed 2, rank 0 has 1' --seed 2
    apart '--steps 11, rank 0 has 10' --steps 11
    apart '--save true, rank 0 has false' --save "$dir/w")"
# Files of one size, which differ in one bit of one weight and in one byte.
cp $model/init.safetensors "$dir/init.safetensors"
size=$(wc -c <"$dir/init.safetensors")
{ head -c $((size - 4)) "$dir/init.safetensors"; printf '\001'; tail -c 3 "$dir/init.safetensors"; } >"$dir/other.safetensors"
cmp -s "$dir/init.safetensors" "$dir/other.safetensors" && echo 'the files are the same'
seq 2000 >"$dir/data"
sed 's/^77$/78/' "$dir/data" >"$dir/other"
check 'or different files of one size' "$(
    common="--init $dir/init.safetensors"
    apart "--init.hash \"[0-9a-f]*\", rank 0 has \"[0-9a-f]*\"" --init "$dir/other.safetensors"
    common="--data $dir/data"
    apart "--data.hash \"[0-9a-f]*\", rank 0 has \"[0-9a-f]*\"" --data "$dir/other"
    apart '--data.bytes [0-9]*, rank 0 has [0-9]*' --data "$dir/plan.json")"
check 'files of two names that hold the same are no difference' "$(
    cp "$dir/init.safetensors" "$dir/copy.safetensors"
    # shellcheck disable=SC2086
    start mpirun $many -n 1 "$dir/dpxrun" "$dir/plan.json" --no-db --steps 1 --init "$dir/init.safetensors" \
        : -n 1 "$dir/dpxrun" "$dir/plan.json" --no-db --steps 1 --init "$dir/copy.safetensors"
    judge 20 0 '' mpirun)"

# ---- what it is given ----

refused() {     # WHAT CULPRIT ARGUMENT...
    what=$1 culprit=$2
    shift 2
    start "$dir/dpxrun" "$@" --no-db
    check "$what is refused" "$(judge 20 2 "$culprit")"
}
head -c 20000 $model/init.safetensors >"$dir/short.safetensors"
refused 'a truncated safetensors file' 'short.safetensors: ' "$dir/plan.json" --init "$dir/short.safetensors"
refused 'one of another model' "init.safetensors: .*" "$dir/large.json" --init $model/init.safetensors
refused 'data that is not there' 'nowhere: No such file' "$dir/plan.json" --data "$dir/nowhere"
refused 'a folder as data' "$dir" "$dir/plan.json" --data "$dir"
head -c 100 "$dir/plan.json" >"$dir/half.json"
sed 's/"unit"/"parallel": { "tensor": 8 }, "unit"/' demo/8b-fsdp.json >"$dir/tensor.json"
refused 'a plan that is only planned' 'parallel.tensor 8: dpxrun runs it in dialect paper' "$dir/tensor.json"
refused 'half a plan' 'half.json:1:' "$dir/half.json"
refused 'a place that cannot be written to' 'nowhere/w: ' "$dir/plan.json" --save "$dir/nowhere/w"
refused 'a folder in place of a file' 'is a folder' "$dir/plan.json" --save "$dir"
sed 's/localhost:2/localhost:3/' "$dir/plan.json" >"$dir/three.json"
refused 'halving among three ranks' 'power of two' "$dir/three.json" --algorithm halving

# ---- what is not finite ----

start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --lr 0 --init $model/init.safetensors --save "$dir/w.safetensors"
await 20 ended
# The last four bytes of the file are the last element of its last tensor.
size=$(wc -c <"$dir/w.safetensors")
last=$(head -c 20000 "$dir/w.safetensors" | tr -d '\000' | grep -ao '"[a-z0-9_.]*":{"dtype"' | tail -n 1 | cut -d '"' -f 2)
end_with() { printf '%b' "$1" | dd of="$dir/w.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null; }
end_with '\0000\0000\0300\0177'                 # 0x7fc00000: NaN
start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --init "$dir/w.safetensors"
check 'a NaN in --init is named by tensor, and by the rank that has loaded it' \
    "$(judge 20 1 "rank 1: .*w.safetensors: tensor \"$last\" is NaN or infinite")"
start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --init "$dir/w.safetensors" --no-check-for-nan
check 'and goes through where that is wanted, with a warning' "$(judge 20 0 'NaN or infinite from step 1')"
end_with '\0377\0377\0177\0177'                 # 0x7f7fffff: the largest number, whose products overflow
start "$dir/dpxrun" "$dir/plan.json" --steps 3 --no-db --init "$dir/w.safetensors"
check 'a gradient that overflows is named, with its step' \
    "$(judge 20 1 "step 1: the loss is .*: first in backward: the gradient of $last ")"
# Weight decay of 3e38 * 10: no weight is left finite, the first of the model not either.
start "$dir/dpxrun" "$dir/plan.json" --steps 3 --no-db --lr 3e38 --weight-decay 10
check 'weights that an update has ruined are named at the next step' \
    "$(judge 20 1 'step 2: the loss is .*weights of model.embed_tokens.weight (element 0, rank 0)')"
start "$dir/dpxrun" "$dir/ddp.json" --steps 3 --db "$dir/nan.db" --lr 3e38 --weight-decay 10
check 'so they are by another strategy' "$(judge 20 1 'step 2: the loss is .*weights of model.embed_tokens.weight (element 0, rank 0)')"

plan zero2 "$model/config.json" | sed 's/"torch"/"deepspeed"/
    s/"fp32"/"bf16", "deepspeed": { "reduce_bucket_size": 100000, "allgather_bucket_size": 100000 }/' >"$dir/ds.json"
start "$dir/dpxrun" "$dir/ds.json" --steps 3 --no-db --lr 3e38 --weight-decay 10
check 'and where the overflow check skips the step' "$(judge 20 1 'step 2: the loss is .*weights of model.embed_tokens.weight (element 0, rank 0)')"
if sql "$dir/nan.db" 'SELECT 1' >/dev/null 2>&1; then
    check 'the step that diverged is in the database as the reason' "$(sql "$dir/nan.db" "
        SELECT reason FROM run WHERE outcome = 'failed'" | grep -q 'step 2: the loss is' || sql "$dir/nan.db" 'SELECT outcome, reason FROM run')"
else
    skip 'the step that diverged is in the database as the reason' 'neither sqlite3 nor python3 reads it'
fi
finish
