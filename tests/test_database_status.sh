#!/bin/sh
# tests/test_database_status.sh -- what is wrong with a database has one exit status in every program: 2 where
# the file is at fault, 1 where the machine is (calib/README.md, "What goes wrong").
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export XDG_DATA_HOME="$dir/home" ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

plan() {        # CLUSTER KERNELS
    echo "{\"dpx_plan\": 1, \"model\": {\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 1, \"n_head\": 2, \"vocab_size\": 256,
        \"n_positions\": 16}, \"cluster\": \"$1\", \"kernels\": \"$2\", \"seq\": 16, \"strategy\": \"ddp\", \"dialect\": \"torch\"}"
}
plan localhost:2 dpx >"$dir/plan.json"
plan 4xh100 torch-sdpa >"$dir/gpus.json"
cat >"$dir/trace.json" <<'END'
{"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 100},
 {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10, "dur": 50, "args": {"stream": 1}}]}
END

# Each program's ways to a database, named; `reads`: needs one that is there.
cat >"$dir/ways" <<END
eval reads $B/dpxplan eval $dir/gpus.json --db
explain reads $B/dpxplan explain $dir/gpus.json --db
search reads $B/dpxplan search --model gpt2 --cluster 4xh100 --seq 32 --global-batch 4 --strategy ddp --dialect torch --db
report reads $B/dpxreport -o $dir/report --db
report-run reads $B/dpxreport -o $dir/report --run 1 --db
kineto reads $B/dpxreport --kineto $dir/trace.json --plan $dir/gpus.json --db
show reads $B/dpxcal show --db
export reads $B/dpxcal export $dir/exported.json --db
import writes $B/dpxcal import $dir/calibration.json --db
calibrate writes $B/dpxcal run --quick --ranks 2 --db
run writes $B/dpxrun $dir/plan.json --steps 1 --db
END
echo '{"dpx_calibrations": 1, "calibrations": []}' >"$dir/calibration.json"

# all CAUSE STATUS DATABASE WORDS [WAY]: every way (or those that only read) at once, for a lock takes ten seconds; complaints.
all() {
    while read -r name way command; do
        [ "${5:-$way}" = "$way" ] || continue
        {
            # shellcheck disable=SC2086
            timeout 120 $command "$3" >"$dir/$name.out" 2>"$dir/$name.said" </dev/null
            echo $? >"$dir/$name.status"
        } &
    done <"$dir/ways"
    wait
    while read -r name way command; do
        [ "${5:-$way}" = "$way" ] || continue
        status=$(cat "$dir/$name.status")
        [ "$status" = "$2" ] || { echo "$name: exit status $status instead of $2:"; head -n 3 "$dir/$name.said"; }
        grep -q "^dpx: .*$4" "$dir/$name.said" || { echo "$name: not said: $4"; head -n 3 "$dir/$name.said"; }
    done <"$dir/ways"
}

echo 'no database, but longer than the hundred bytes of the header of one, so that it is read as a whole, header and all' \
    >"$dir/text"
check 'a file that is no database is bad input' "$(all text 2 "$dir/text" 'not an SQLite database')"
check 'so is a folder' "$(all folder 2 "$dir" 'folder')"
check 'and one that is not there, where it is read' "$(all missing 2 "$dir/none" 'No such file' reads)"

if command -v sqlite3 >/dev/null; then
    "$B/dpxcal" import "$dir/calibration.json" --db "$dir/good" >/dev/null 2>&1
    sqlite3 "$dir/good" 'PRAGMA wal_checkpoint(TRUNCATE)' >/dev/null
    cp "$dir/good" "$dir/newer"
    sqlite3 "$dir/newer" 'PRAGMA user_version = 1000'
    check 'so is one of a newer schema' "$(all newer 2 "$dir/newer" 'has schema 1000')"
    sqlite3 "$dir/other" 'CREATE TABLE recipes (name TEXT)'
    check 'and another program'"'"'s' "$(all other 2 "$dir/other" "another program")"

    # Held until the file `held` goes.
    : >"$dir/held"
    { echo 'PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; CREATE TABLE held (x);'
      echo ".system touch $dir/locked; while [ -e $dir/held ]; do sleep 0.2; done"
      echo 'ROLLBACK;'; } | sqlite3 "$dir/good" >/dev/null 2>&1 &
    n=0
    while [ ! -e "$dir/locked" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
    check 'one that another process keeps locked is no fault of the input' "$(all locked 1 "$dir/good" 'keeps it locked')"
    rm "$dir/held"
    wait
    check 'and is good afterwards' "$("$B/dpxcal" show --db "$dir/good" >"$dir/out" 2>&1 || cat "$dir/out")"
else
    skip 'newer schemas, other programs, locks' 'needs sqlite3'
fi
finish
