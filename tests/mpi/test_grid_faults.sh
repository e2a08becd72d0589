#!/bin/sh
# tests/mpi/test_grid_faults.sh [some|all] -- a rank that is killed or stopped, whatever its stage and its place in the mesh, ends
# the run as faults.sh has it: one line that names it, status 1, nothing left.  `some`, the default: of one mesh a rank
# of each stage is killed, the others are stopped; `all`: each rank of several meshes is killed, and stopped.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/mpi/faults.sh
. tests/mpi/faults.sh
extent=${1:-some}

# mesh RANKS PARALLEL: what start_long runs.
mesh() {
    ranks=$1
    echo "{\"dpx_plan\": 1, \"model\": \"tests/golden/parity/grid/llama/config.json\", \"cluster\": \"localhost:$1\", \"kernels\": \"dpx\",
        \"seq\": 24, \"micro_batch\": 1, \"accumulation\": 4, \"strategy\": \"ddp\", \"dialect\": \"paper\", \"precision\": \"fp32\",
        \"parallel\": { $2 } }" >"$dir/plan.json"
}

# killed WHAT RANK, stopped WHAT RANK
killed() {
    start_long --threads 1
    kill_rank 9 "$2"
    check "$1: rank $2 killed in the middle of the steps ends the run" "$(judge 10 1 "rank $2 .*signal 9")"
}

stopped() {
    export DPX_TIMEOUT=3
    start_long --threads 1
    kill_rank STOP "$2"
    check "$1: rank $2 stopped is found and named" "$(judge 12 1 "rank $2 .*stopped")"
    unset DPX_TIMEOUT
}

# Rank SILENT is as silent, but only since it waits for the one that is stopped.
stopped_beside() {      # WHAT RANK SILENT
    export DPX_TIMEOUT=3
    rm -f "$dir/silent"
    start env DPX_SILENT="$3" DPX_SILENT_SINCE="$dir/silent" ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" \
        LD_PRELOAD="$B/tests/mpi/pmpi_die.so" "$dir/dpxrun" "$dir/plan.json" --steps 100000000 --save-grads "$dir/grads" --threads 1 --no-db
    await 30 exists "$dir/grads" || echo 'no first step in 30 s' >"$dir/late"
    : >"$dir/silent"
    kill_rank STOP "$2"
    check "$1: rank $2 stopped is named, not rank $3, which waits for it" "$(judge 14 1 "rank $2 .*stopped")"
    unset DPX_TIMEOUT
}

each() {        # WHAT: every rank of the mesh
    for r in $(seq 0 $((ranks - 1))); do
        killed "$1" "$r"
        stopped "$1" "$r"
    done
}

mesh 4 '"tensor": 2, "pipeline": 2'
if [ "$extent" = some ]; then
    killed 'tensor 2 x pipeline 2' 0
    killed 'tensor 2 x pipeline 2' 3
    stopped 'tensor 2 x pipeline 2' 1
    stopped 'tensor 2 x pipeline 2' 2
    stopped_beside 'tensor 2 x pipeline 2' 2 1
    stopped_beside 'tensor 2 x pipeline 2' 2 0
else
    each 'tensor 2 x pipeline 2'
    mesh 4 '"context": 2, "pipeline": 2, "pipeline_schedule": "interleaved"'
    each 'context 2 x pipeline 2, interleaved'
    mesh 4 '"tensor": 2'
    each 'tensor 2 x data 2'
    mesh 4 '"context": 2, "context_method": "ulysses"'
    each 'context 2 x data 2, ulysses'
    mesh 3 '"pipeline": 3'
    each 'pipeline 3'
fi
finish
