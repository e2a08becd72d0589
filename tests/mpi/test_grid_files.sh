#!/bin/sh
# tests/mpi/test_grid_files.sh -- weights go from mesh to mesh by --save and --init, bit for bit: whole tensors in Hugging
# Face's names, whoever wrote the file.  What loads and saves without a step between (a learning rate of 0) has the same file.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build} golden=$PWD/tests/golden/parity/grid
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
# Open MPI's own leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

# pass MODEL RANKS KEYS FROM TO OPTION...: weights of file FROM, trained as the options say, into file TO.
pass() {
    model=$1 from=$4 to=$5
    cat >"$dir/plan.json" <<END
{ "dpx_plan": 1, "model": "$golden/$model", "cluster": "localhost:$2", "kernels": "dpx", "seq": 24, "micro_batch": 1,
  "accumulation": 4, "dialect": "paper", "clip": 0.3, $3 }
END
    shift 5
    "$B/dpxrun" "$dir/plan.json" --no-db --json --threads 1 --sequential --data "$golden/tokens.bin" --init "$from" --save "$to" \
        "$@" >"$dir/out" 2>"$dir/said" </dev/null || { echo "exit status $?"; cat "$dir/said"; }
}
untouched() { pass "$@" --steps 1 --lr 0 --min-lr 0 --weight-decay 0; }

for model in gpt2 llama; do
    what="$model"
    check "$what trained on tensor 2 x pipeline 2 is saved" "$(
        pass $model 4 '"strategy": "zero1", "parallel": { "tensor": 2, "pipeline": 2 }' "$golden/$model/init.safetensors" "$dir/first" --steps 3
        cmp -s "$golden/$model/init.safetensors" "$dir/first" && echo 'the weights that it began with')"
    check "$what: DDP loads and saves the same" "$(
        untouched $model 2 '"strategy": "ddp"' "$dir/first" "$dir/next"; cmp "$dir/first" "$dir/next" 2>&1)"
    check "$what: so does an interleaved pipeline beside context parallelism" "$(
        untouched $model 4 '"strategy": "ddp", "parallel": { "context": 2, "pipeline": 2, "pipeline_schedule": "interleaved" }' \
            "$dir/next" "$dir/then"; cmp "$dir/first" "$dir/then" 2>&1)"
    check "$what: and tensor parallelism that shards" "$(
        untouched $model 4 '"strategy": "fsdp", "parallel": { "tensor": 2 }' "$dir/then" "$dir/last"; cmp "$dir/first" "$dir/last" 2>&1)"
done
finish
