#!/bin/sh
# tests/sim/test_cmd_collectives.sh -- dpxplan collectives as a user meets it.
. tests/check.sh
B=${B:-build}
keep_answers
plan="$B/dpxplan collectives"

# says STATUS TEXT ARGUMENT...: complains unless that is the exit status and TEXT is in what it says.
says() {
    want=$1 text=$2
    shift 2
    # shellcheck disable=SC2086
    got=$($plan "$@" 2>&1)
    status=$?
    [ $status = "$want" ] || echo "exit status $status, expected $want: $got"
    case $got in
    *"$text"*) ;;
    *) echo "no \"$text\" in: $got" ;;
    esac
}

check 'the table names every all-reduce'  "$(for a in parameter-server ring rabenseifner double-binary-tree nvls; do
    says 0 "$a" --op all_reduce --ranks 8 --bytes 1GiB --cluster 8xh100; done)"
check 'NCCL would use NVLS on eight H100' "$(says 0 'NCCL would run nvls' --op all_reduce --bytes 1GiB --cluster 8xh100)"
check 'two tiers have the hierarchical one' "$(says 0 hierarchical --op all-gather --bytes 1GiB --cluster 4x8xa100)"
check 'a host has no NCCL'                "$(says 0 'Expected:' --op broadcast --bytes 1MiB --cluster localhost:4)"
check 'one rank moves nothing'            "$(says 0 'nothing moves' --op gather --ranks 1 --bytes 1 --cluster 8xh100)"
check 'an unknown operation is refused'   "$(says 2 '--op "alltoall"' --op alltoall --bytes 1 --cluster 8xh100)"
check 'more ranks than the cluster has'   "$(says 2 '--ranks 9' --ranks 9 --bytes 1 --cluster 8xh100)"
check 'no bytes'                          "$(says 2 bytes --cluster 8xh100)"
check 'an unknown cluster'                "$(says 2 8xh10 --bytes 1 --cluster 8xh10)"
json='--json is one document with the promised keys'
if command -v python3 >/dev/null; then
check "$json" "$(
    for op in all_reduce all_gather reduce_scatter broadcast reduce scatter gather barrier all_to_all send recv; do
        $plan --op $op --bytes 25MiB --cluster 2x8xa100 --json | python3 -c '
import json, sys
keys = {"name", "time_s", "steps", "sent_bytes_per_rank", "peak_node_bytes", "total_bytes", "algbw", "busbw"}
rows = json.load(sys.stdin)["algorithms"]
assert rows and all(keys <= set(r) and r["time_s"] > 0 for r in rows), rows
' 2>&1 || echo "$op"
    done)"
else
    skip "$json" 'there is no python3'
fi
finish
