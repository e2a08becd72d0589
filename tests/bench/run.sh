#!/bin/sh
# tests/bench/run.sh BENCH... -- every benchmark, then `dpxplan eval` as a whole
# process: the largest plan of the demo, against a dpxplan that only starts.
# $B is where it was built.
dpxplan=${B:-build}/dpxplan
plan=demo/405b-zero3.json
runs=20

# Milliseconds of one run of a command, the mean of $runs.
mean_ms() {
    start=$(date +%s%N)
    i=0
    while [ $i -lt $runs ]; do
        "$@" >/dev/null || [ $? = 3 ] || exit 1
        i=$((i + 1))
    done
    echo $((($(date +%s%N) - start) / 10000 / runs)) | sed 's/..$/.&/; s/^\./0./'
}

status=0
for bench in "$@"; do
    echo "== $bench"
    "$bench" || status=1
done
[ -x "$dpxplan" ] || { echo 'no dpxplan yet: its timing is left out'; exit $status; }
echo "== dpxplan eval $plan"
started=$(mean_ms "$dpxplan" --version) && evaluated=$(mean_ms "$dpxplan" eval "$plan") || exit 1
awk -v s="$started" -v e="$evaluated" 'BEGIN {
    printf "starting a process %.2f ms, evaluating %.2f ms: %.1f times, of at most 50 ms\n", s, e, e / s }'
exit $status
