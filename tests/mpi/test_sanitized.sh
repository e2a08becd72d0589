#!/bin/sh
# tests/mpi/test_sanitized.sh -- dpxrun as the sanitizers see it: AddressSanitizer, with leaks, and
# UBSan where it was built with SAN=1, ThreadSanitizer where with TSAN=1.  `make test-sanitized` runs it in both
# builds, and the covering plans over meshes (test_grid.sh).
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/sanitized.sh
. tests/mpi/sanitized.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

if ! [ -x "$B/dpxrun" ]; then
    check 'dpxrun was built' "$B/dpxrun is missing"
    finish
elif [ -z "$sanitized" ]; then
    skip 'dpxrun under sanitizers' 'this build has none: make test-sanitized'
    finish
fi
# Slow unwinding sees through libraries without frame pointers, so that leaks have owners.
export ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0
export LSAN_OPTIONS="suppressions=$PWD/tests/mpi/lsan.supp:print_suppressions=0"

# RANKS STRATEGY DIALECT PRECISION MODEL [PARALLEL]
complaints() {
    cat >"$dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": "tests/golden/parity/$5/config.json", "cluster": "localhost:$1", "kernels": "dpx", "seq": 24,
  "micro_batch": 2, "accumulation": 2, "strategy": "$2", "dialect": "$3", "precision": "$4", "clip": 1.0, "parallel": { $6 } }
PLAN
    # Leaks of the launcher count as well: it ends by main's return.
    $sanitized timeout 120 "$B/dpxrun" "$dir/plan.json" --steps 2 --threads 1 --db "$dir/db" \
        --save "$dir/weights" --trace "$dir/trace" >"$dir/out" 2>"$dir/said" || echo "exit status $?"
    head -n 40 "$dir/said"
}
for ranks in 1 2 3; do
    for what in 'ddp torch bf16' 'fsdp torch fp32' 'fsdp torch-fsdp1 fp32' 'zero2 deepspeed fp32' 'zero3 deepspeed bf16'; do
        # shellcheck disable=SC2086
        check "$what on $ranks ranks" "$(complaints $ranks $what gpt2)"
    done
done

grid() {        # RANKS STRATEGY DIALECT PRECISION MODEL PARALLEL
    check "$2/$3 in $4 on $1 ranks, $6" "$(complaints "$@")"
}
grid 2 ddp paper fp32 grid/gpt2 '"pipeline": 2'
grid 2 fsdp torch bf16 grid/llama '"pipeline": 2, "pipeline_schedule": "interleaved"'
grid 2 zero1 paper bf16 grid/llama '"pipeline": 2, "pipeline_schedule": "zb1p"'
grid 2 zero2 paper fp32 grid/llama '"context": 2, "context_method": "ring"'
grid 2 zero3 paper bf16 grid/gpt2 '"context": 2, "context_method": "ulysses"'
grid 2 fsdp paper fp32 grid/gpt2-untied '"context": 2, "context_method": "all-gather"'
grid 2 ddp paper bf16 grid/llama '"tensor": 2, "sequence": true, "loss_parallel": true'
grid 4 zero1 paper fp32 grid/gpt2 '"tensor": 2, "pipeline": 2, "pipeline_schedule": "looped-bfs"'
grid 4 ddp paper fp32 grid/llama '"context": 2, "pipeline": 2'
finish
