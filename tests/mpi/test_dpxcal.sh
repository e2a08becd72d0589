#!/bin/sh
# tests/mpi/test_dpxcal.sh -- dpxcal on two ranks: a calibration of a small model, interrupted and
# continued, shown, exported, imported, and read by dpxplan.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
cat >"$dir/tiny.json" <<'END'
{"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "vocab_size": 256, "n_positions": 64}
END
run="$B/dpxcal run --quick --ranks 2 --model $dir/tiny.json --micro-batch 1,2 --seconds 2 --db $dir/cal.db"

# Kinds and numbers of series, "kernel 40" a line.
kinds() {
    awk '/"kind"/ { }
        { n = gsub(/"kind": *"/, "&"); s = $0
          while (match(s, /"kind": *"[a-z]*"/)) {
              k = substr(s, RSTART, RLENGTH); gsub(/"kind": *|"/, "", k); count[k]++; s = substr(s, RSTART + RLENGTH) } }
        END { for (k in count) print k, count[k] }' "$1" | sort
}

# Killed half way, it is continued: what it had recorded is not timed again.
# shellcheck disable=SC2086
timeout -s KILL 3 $run >"$dir/said" 2>&1 </dev/null
# shellcheck disable=SC2086
timeout 120 $run >"$dir/said" 2>&1 </dev/null
check 'dpxcal measures on two ranks' "$([ $? = 0 ] && ! grep dpx: "$dir/said" || cat "$dir/said")"
"$B/dpxcal" export "$dir/cal.json" --db "$dir/cal.db" 2>"$dir/said"
kinds "$dir/cal.json" >"$dir/kinds"
check 'all kinds of series are there' "$(for k in kernel pass collective overlap own; do
        grep -q "^$k " "$dir/kinds" || echo "no series of kind $k"
    done)"
# 2 micro-batches of a program of 32 kernels; 6 passes and 7 overheads of known number.
check 'every kernel of the program was timed' "$("$B/dpxcal" show --model "$dir/tiny.json" --micro-batch 1,2 --ranks 2 \
    --db "$dir/cal.db" | grep -v 'all measured$')"
check 'what another micro-batch misses is said' "$("$B/dpxcal" show --model "$dir/tiny.json" --micro-batch 4 --ranks 2 \
    --db "$dir/cal.db" | grep -q 'kernels are not measured' || echo 'nothing is missing')"
check 'show says what is known' "$("$B/dpxcal" show --db "$dir/cal.db" | grep -q 'all_reduce, ring' ||
    echo 'no all_reduce in it')"
"$B/dpxcal" import "$dir/cal.json" --db "$dir/other.db" >"$dir/said" 2>&1
check 'another database takes it in' "$(grep -q ': [12] calibrations\{0,1\} taken in, 0 were known' "$dir/said" ||
    cat "$dir/said")"
"$B/dpxcal" export "$dir/again.json" --db "$dir/other.db" 2>/dev/null
kinds "$dir/again.json" >"$dir/kinds.again"
check 'with every series' "$(diff "$dir/kinds" "$dir/kinds.again")"
check 'the probe is a time' "$("$B/dpxcal" probe --ranks 2 --for 0.1 | grep -qE '^[0-9.]+e-0[0-9]$' || echo 'no number')"
check 'a device that is not there is refused' "$("$B/dpxcal" run --device cuda --db "$dir/cal.db" 2>&1 |
    grep -q 'without CUDA' || echo 'not refused')"
check 'a file that is not there is named' "$("$B/dpxcal" import nccl-tests "$dir/none.log" --db "$dir/cal.db" 2>&1 |
    grep -q 'none.log: No such file' || echo 'not named')"
finish
