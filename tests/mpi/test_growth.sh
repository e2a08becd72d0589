#!/bin/sh
# tests/mpi/test_growth.sh -- a run of many steps takes no more memory than one of few: bytes in live malloc() blocks
# of each rank, of whatever library, after step 10 and up to step 1000 (alloc_live.c).  A block of 16 bytes
# that is lost in each step would be 15 KB; 4 KiB in all are allowed, for Open MPI's lists may grow once.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
model=tests/golden/parity/llama

# grown RANK: complaints about a run's steps 11 to 1000.
grown() {
    awk -v rank="$1" '$1 == 10 { was = $2 } $1 > 10 && $2 > most { most = $2; at = $1 } { last = $1 }
        END {
            if (last != 1000) print "rank " rank " counted " last " steps instead of 1000"
            else if (most > was + 4096) print "rank " rank ": " most - was " bytes more at step " at " than at step 10"
        }' "$dir/live.$1"
}

case $B in *-san*|*-tsan*) skip '1000 steps take no more memory than 10' 'a sanitizer has a malloc() of its own'; finish ;; esac
for strategy in ddp fsdp; do
    echo "{\"dpx_plan\": 1, \"model\": \"$model/config.json\", \"cluster\": \"localhost:2\", \"kernels\": \"dpx\", \"seq\": 24,
        \"micro_batch\": 1, \"strategy\": \"$strategy\", \"dialect\": \"torch\", \"precision\": \"fp32\"}" >"$dir/plan.json"
    rm -f "$dir"/live.*
    DPX_LIVE="$dir/live" LD_PRELOAD="$B/tests/mpi/alloc_live.so" \
        "$B/dpxrun" "$dir/plan.json" --steps 1000 --db "$dir/db" --json >"$dir/out" 2>"$dir/said" </dev/null || cat "$dir/said"
    check "1000 steps of $strategy take no more memory than 10" "$(grown 0; grown 1)"
done
finish
