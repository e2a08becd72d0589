#!/bin/sh
# tests/mpi/test_dpxcal.sh -- dpxcal on two ranks: a calibration of a small model, killed, interrupted
# and continued, on a disk that gets full, two at once; shown, exported, imported, and read by dpxplan.
# What it refuses is in tests/calib/test_dpxcal_words.sh.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
dir=$(mktemp -d) || exit 1
leave() {
    umount "$dir/small" 2>/dev/null
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
export COLUMNS=300       # tables with all of their columns
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

check 'ranks whose clocks differ measure the same, and none waits for ever' "$(
    mpirun --map-by slot:OVERSUBSCRIBE --timeout 120 -n 2 "$B/tests/mpi/mpi_bench" "$dir/bench.db" 2>&1 </dev/null || echo "exit status $?")"

# Killed half way, it is continued: what it had recorded is not timed again.
# shellcheck disable=SC2086
timeout -s KILL 3 $run >"$dir/said" 2>&1 </dev/null
# shellcheck disable=SC2086
timeout 120 $run --json >"$dir/answer" 2>"$dir/said" </dev/null
check 'dpxcal measures on two ranks' "$([ $? = 0 ] && ! grep dpx: "$dir/said" && grep -q '"calibration": ' "$dir/answer" || cat "$dir/said" "$dir/answer")"
"$B/dpxcal" export "$dir/cal.json" --db "$dir/cal.db" 2>"$dir/said"
kinds "$dir/cal.json" >"$dir/kinds"
check 'all kinds of series are there' "$(for k in kernel pass collective overlap own; do
        grep -q "^$k " "$dir/kinds" || echo "no series of kind $k"
    done)"
check 'so are host AdamW and files' "$(for k in host_adamw disk_read disk_write; do
        grep -q "\"$k\"" "$dir/cal.json" || echo "no series of $k"
    done)"
# 2 micro-batches of a program of 32 kernels; 6 passes and 7 overheads of known number.
check 'every kernel of the program was timed' "$("$B/dpxcal" show --model "$dir/tiny.json" --micro-batch 1,2 --ranks 2 \
    --db "$dir/cal.db" >"$dir/shown" 2>&1; [ -s "$dir/shown" ] || echo 'nothing is shown'; grep -v 'all measured$' "$dir/shown")"
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
check 'a device that is not there is refused' "$(CUDA_VISIBLE_DEVICES='' "$B/dpxcal" run --device cuda --db "$dir/cal.db" 2>&1 |
    grep -qE 'without CUDA|no CUDA device' || echo 'not refused')"
check 'a file that is not there is named' "$("$B/dpxcal" import nccl-tests "$dir/none.log" --db "$dir/cal.db" 2>&1 |
    grep -q 'none.log: No such file' || echo 'not named')"

# ---- what a calibration leaves behind ----

"$B/dpxcal" show --fits --db "$dir/cal.db" >"$dir/fits"
check 'laws are kept with residuals and range' "$(for law in 'all_reduce, ring .* us + .* GB/s .* 1 KiB to 64 MiB' \
        'linear .* GFLOP/s .* MFLOP' 'gemm beside all_reduce .* times as long' 'handover .* us '; do
        grep -q "^  $law" "$dir/fits" || echo "no '$law'"
    done)"
grep -o '"ended":null' "$dir/cal.json" >"$dir/open"
check 'the killed calibration was continued, not begun again' "$([ ! -s "$dir/open" ] || echo 'one has no end')"

# ---- threads ----

cat >"$dir/plan.json" <<END
{"dpx_plan": 1, "model": "$dir/tiny.json", "cluster": "localhost:2", "kernels": "dpx", "seq": 64, "micro_batch": 1,
 "strategy": "ddp", "dialect": "torch", "precision": "fp32"}
END
threads=$(awk '{ for (i = 1; i < NF; i++) if ($i == "fp32" && !n) n = $(i + 2) } END { print n }' "$dir/fits")
"$B/dpxrun" "$dir/plan.json" --steps 2 --threads "$threads" --db "$dir/cal.db" --json >"$dir/same" 2>"$dir/said" </dev/null
# Beside other work the calibration says that the machine was busy: another warning.
check 'a run with the threads that were calibrated is not warned' "$(grep -q '"warning": \(null\|"this machine was busy\)' "$dir/same" &&
    ! grep '^warning: .*was calibrated with' "$dir/said" || head -n 20 "$dir/said")"
"$B/dpxrun" "$dir/plan.json" --steps 2 --threads $((threads + 2)) --db "$dir/cal.db" --json >"$dir/other" \
    2>"$dir/said" </dev/null
check 'with others it is, in a line and in JSON' "$(
    [ "$(grep -c "^warning: .*calibrated with 2 ranks x $threads thread.*this is 2 x $((threads + 2))" "$dir/said")" = 1 ] &&
        grep -q "\"warning\": \".*this machine was calibrated with" "$dir/other" || head -n 20 "$dir/said")"
check 'so is a plan' "$(OMP_NUM_THREADS=$((threads + 2)) "$B/dpxplan" eval "$dir/plan.json" --db "$dir/cal.db" 2>&1 >/dev/null |
    grep -q "^warning: .*this is 2 x $((threads + 2))" || echo 'no warning')"

# ---- fp16 ----

"$B/dpxcal" run --quick --ranks 2 --threads 1 --model "$dir/tiny.json" --micro-batch 1 --precision fp16 --seconds 3 --db "$dir/half.db" \
    >"$dir/said" 2>&1 </dev/null
check 'dpxcal measures fp16' "$([ $? = 0 ] && ! grep dpx: "$dir/said" || cat "$dir/said")"
check 'every kernel of the program was timed in fp16' "$("$B/dpxcal" show --model "$dir/tiny.json" --micro-batch 1 --precision fp16 --ranks 2 \
    --db "$dir/half.db" >"$dir/shown" 2>&1; [ -s "$dir/shown" ] || echo 'nothing is shown'; grep -v 'fp16: .* all measured$' "$dir/shown")"
check 'so were sums over ranks' "$("$B/dpxcal" show --db "$dir/half.db" >"$dir/shown"; for op in all_reduce reduce_scatter; do
        grep -qE "^ *$op, ring +fp16 " "$dir/shown" || echo "no $op in fp16"
    done)"
sed 's/fp32/fp16/; s/"strategy": "ddp", "dialect": "torch"/"strategy": "zero1", "dialect": "paper"/' "$dir/plan.json" >"$dir/half.json"
OMP_NUM_THREADS=1 "$B/dpxplan" eval "$dir/half.json" --db "$dir/half.db" --json >"$dir/eval" 2>"$dir/said"
check 'a plan in fp16 rests on it' "$(tr -d ' \n' <"$dir/eval" | grep -q '"basis":"measured".*"missing":\[\],' ||
    { cat "$dir/said"; tr -d ' \n' <"$dir/eval" | grep -o '"missing":\[[^]]*\]'; })"
"$B/dpxplan" eval "$dir/half.json" --db "$dir/cal.db" >"$dir/shown" 2>/dev/null
check 'on a calibration without fp16 it says what was not measured' "$(grep -q '^ *not measured: ' "$dir/shown" || cat "$dir/shown")"

# ---- interrupted ----

# The shell has what runs in the background ignore SIGINT.
long="env --default-signal=INT $B/dpxcal run --quick --ranks 2 --model $dir/tiny.json --seconds"

# begin SECONDS DB FILE: in the background, until it has recorded something.
begin() {
    # shellcheck disable=SC2086
    $long "$1" --db "$2" >"$dir/$3" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 200); do
        "$B/dpxcal" show --db "$2" 2>/dev/null | grep -q ' fp32 ' && return
        sleep 0.1
    done
    echo 'nothing recorded in 20 s' >>"$dir/$3"
}
# What is recorded, without its end.
recorded() {
    "$B/dpxcal" export /dev/stdout --db "$1" 2>/dev/null | sed 's/"ended":[^,]*,//; s/\]}\]}$//' | tr -d '\n'
}
begin 30 "$dir/int.db" said
recorded "$dir/int.db" >"$dir/before"
kill -INT $pid
wait $pid
status=$?
check 'Ctrl-C ends it, and says that it can be continued' "$(
    [ $status = 130 ] && grep -q 'interrupted.*the same command goes on' "$dir/said" || { echo "status $status:"; cat "$dir/said"; })"
# shellcheck disable=SC2086
timeout 120 $long 30 --db "$dir/int.db" >"$dir/said" 2>&1 </dev/null &
pid=$!
for _ in $(seq 200); do         # until it measures; some machines take seconds to start ranks
    grep -q '^continuing' "$dir/said" && break
    sleep 0.1
done
sleep 1
kill -INT $pid
wait $pid
recorded "$dir/int.db" >"$dir/after"
check 'nothing of what it had is lost or measured again' "$(
    grep -q '^continuing calibration 1' "$dir/said" || cat "$dir/said"
    head -c "$(wc -c <"$dir/before")" "$dir/after" | cmp - "$dir/before" || wc -c "$dir/before" "$dir/after"
    [ "$(grep -o '"series":' "$dir/after" | wc -l)" = 1 ] || echo 'more than one calibration')"

# ---- a database that is removed meanwhile ----

begin 5 "$dir/gone.db" said
rm -f "$dir/gone.db" "$dir/gone.db-wal" "$dir/gone.db-shm"
wait $pid
status=$?
check 'a database that is removed meanwhile is missed' "$(
    [ $status = 1 ] && grep -q 'gone.db: was removed while it was written' "$dir/said" || { echo "status $status:"; cat "$dir/said"; })"

# ---- two at once ----

begin 12 "$dir/two.db" first
# shellcheck disable=SC2086
timeout 300 $long 2 --db "$dir/two.db" >"$dir/second" 2>&1 </dev/null
status=$?
wait $pid
both=$?
check 'two calibrations at once: both are recorded, and it is said' "$(
    [ "$status $both" = '0 0' ] && grep -q 'another dpxcal measures' "$dir/second" || cat "$dir/first" "$dir/second"
    "$B/dpxcal" show --db "$dir/two.db" | grep -q 'calibrated 2 times$' || "$B/dpxcal" show --db "$dir/two.db")"

# ---- a disk that gets full ----

mkdir "$dir/small"
if mount -t tmpfs -o size=512k dpx-test "$dir/small" 2>/dev/null; then
    # shellcheck disable=SC2086
    timeout 60 $long 4 --db "$dir/small/cal.db" >"$dir/said" 2>&1 </dev/null
    status=$?
    check 'a full disk ends it with one line' "$(
        [ $status = 1 ] && [ "$(grep -c '^dpx: ' "$dir/said")" = 1 ] &&
            grep -q 'cal.db: .*the disk is full; nothing recorded before is lost' "$dir/said" || { echo "status $status:"; cat "$dir/said"; })"
    check 'what was recorded before can be read' "$("$B/dpxcal" show --db "$dir/small/cal.db" 2>&1 | grep -q ' fp32 ' ||
        "$B/dpxcal" show --db "$dir/small/cal.db" 2>&1)"
    mount -o remount,size=32m "$dir/small"
    # shellcheck disable=SC2086
    timeout 60 $long 4 --db "$dir/small/cal.db" >"$dir/said" 2>&1 </dev/null
    check 'with room again it goes on from there' "$(grep -q '^continuing calibration 1' "$dir/said" || cat "$dir/said")"
    umount "$dir/small"
else
    for what in 'a full disk ends it with one line' 'what was recorded before can be read' 'with room again it goes on from there'; do
        skip "$what" 'only root can make a small disk'
    done
fi
finish
