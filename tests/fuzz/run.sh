#!/bin/sh
# tests/fuzz/run.sh SECONDS TARGET... -- each target under libFuzzer for that
# long, from its seeds.  What it finds on the way stays beside the target, a
# crashing input too; a good one belongs into tests/fuzz/seeds.
seconds=$1
shift
status=0
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1}"
for target in "$@"; do
    name=${target##*/fuzz_}
    mkdir -p "$target.corpus"
    log=$target.log
    case $name in tree_*) most=16384 ;; *) most=4096 ;; esac
    if "$target" -max_total_time="$seconds" -max_len="$most" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$target." \
        "$target.corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        share=$(sed -n 's/^accepted .*inputs, \(.* %\)$/, \1 of them accepted/p' "$log")
        echo "fuzz $name: $runs runs in $seconds s$share, nothing found"
    else
        status=1
        tail -n 40 "$log"
        echo "fuzz $name: FOUND something, see $log"
    fi
done
exit $status
