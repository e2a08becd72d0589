#!/bin/sh
# tests/lab/failures.sh -- `make lab-failures`: ranks on two emulated nodes (lab.sh) are killed by a seeded clock, dpxrun is started again with
# --resume each time, and the share of time that counts is held against what dpxplan bill predicts.
#
#     SECONDS_KILLED=600    how long    KILLS=20    in that time    EVERY=10    steps between checkpoints    SEED=1
#
# KILLS moments are drawn evenly over the time, as a Poisson process has them given their number, each for a rank that is drawn too; a moment
# in a restart kills the restart.  What a save takes is measured on the same nodes before.  A step (between two checkpoints that no kill
# parts) and a restart (from a kill to the first step again) are measured in the same time, for a machine that others use is faster in one
# minute than in the next; what is predicted from them is how much is lost, done again and restarted.  Held:
#     - after every kill the run goes on from the last checkpoint that was whole at the kill, or a later one;
#     - useful steps / time is what dpxplan bill predicts within 5 points;
#     - the last checkpoint's files are, byte by byte, those of a run on one machine that nothing killed.
# Nothing else should run.  Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/lab/lab.sh
. tests/lab/lab.sh
lab_begin 'goodput of a run that is killed'
can_hold
: "${SECONDS_KILLED:=600}" "${KILLS:=20}" "${EVERY:=10}" "${SEED:=1}"
case $B in /*) ;; *) B=$PWD/$B ;; esac
export LAB_SECONDS=100000 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
STEPS=1000000                           # never reached

lab_llama "$lab_dir/config.json"
cat >"$lab_dir/plan.json" <<PLAN
{ "dpx_plan": 1, "model": "$lab_dir/config.json", "kernels": "dpx", "seq": 32, "micro_batch": 1, "strategy": "fsdp", "dialect": "torch",
  "precision": "fp32", "cluster": { "name": "lab", "host": true, "nodes": 2, "gpus_per_node": 1,
    "gpu": { "name": "cpu", "memory_bytes": 2000000000 }, "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } } }
PLAN

# ---- times and processes ----

now() { date +%s.%N; }
calc() { awk "BEGIN { printf \"%.9g\", $1 }"; }
# of a checkpoint: when it was whole
whole_at() { find "$1/checkpoint.json" -printf '%T@\n' 2>/dev/null; }
newest() { find "$saved" -maxdepth 1 -name 'step-*[0-9]' 2>/dev/null | sort | tail -n 1; }
step_of() { s=${1##*step-}; s=${s#"${s%%[!0]*}"}; echo "${s:-0}"; }

# The program's processes on both nodes that are rank $1; of "launcher": those that are none.
of_rank() {
    for p in $(ip netns pids "$lab-a" 2>/dev/null; ip netns pids "$lab-b" 2>/dev/null); do
        case $(readlink "/proc/$p/exe") in */dpxrun) ;; *) continue ;; esac
        r=$(tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
        [ "${r:-launcher}" = "$1" ] && echo "$p"
    done
}

# kill_one RANK: that rank; where a restart has none yet, what starts it.
kill_one() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        for who in "$1" launcher; do
            for p in $(of_rank "$who"); do
                kill -9 "$p" 2>/dev/null && { killed=$((killed + 1)); return; }
            done
        done
        sleep 0.1
    done
}

# ---- a run that is started again whenever it ends ----

# again FOLDER LOG: until LOG.stop is there.
again() {
    while [ ! -e "$2.stop" ]; do
        lab_run 1 "$B/dpxrun" "$lab_dir/plan.json" --steps $STEPS --no-db --threads 1 --checkpoint-every "$EVERY" --checkpoint-dir "$1" \
            --resume >/dev/null 2>>"$2"
    done
}
begin() {
    saved=$1 log=$2
    : >"$log"
    again "$saved" "$log" &
    loop=$!
}
end() {
    : >"$log.stop"
    while [ -n "$(of_rank 0; of_rank 1; of_rank launcher)" ]; do
        for p in $(of_rank launcher; of_rank 0; of_rank 1); do kill -9 "$p" 2>/dev/null; done
        sleep 0.2
    done
    wait $loop
}

# await_new STEP: until a checkpoint of a later step is whole; $when.
await_new() {
    until n=$(newest) && [ -n "$n" ] && [ "$(step_of "$n")" -gt "$1" ] && when=$(whole_at "$n") && [ "$when" ]; do sleep 0.05; done
}

# Lines "STEP TIME" of whole checkpoints, as they come.
watch() {
    seen=
    while [ ! -e "$log.stop" ]; do
        n=$(newest)
        [ "$n" != "$seen" ] && t=$(whole_at "$n") && [ "$t" ] && echo "$(step_of "$n") $t" && seen=$n
        sleep 0.05
    done >"$lab_dir/whole"
}

# ---- what a save takes ----

killed=0
check 'a save is measured' "$(
    lab_run 1 "$B/dpxrun" "$lab_dir/plan.json" --steps $((6 * EVERY + 1)) --no-db --threads 1 --json --checkpoint-every "$EVERY" \
        --checkpoint-dir "$lab_dir/first" >"$lab_dir/first.json" 2>"$lab_dir/said" || head -n 5 "$lab_dir/said")"
hold_answer "$lab_dir/first.json" dpxrun
save_s=$(lab_figure "$lab_dir/first.json" save_s)

bill() { "$B/dpxplan" bill "$lab_dir/plan.json" --samples 100m --every "$EVERY" --json "$@" 2>&1; }
predict() {
    bytes=$(bill --storage 1GB/s >"$lab_dir/bill.json"; hold_answer "$lab_dir/bill.json" dpxplan bill; lab_figure "$lab_dir/bill.json" bytes)
    bill --storage "$(calc "$bytes / $save_s / 1e6")MB/s" --step "${step_s}s" --recover "$(calc "$recover_s - $save_s")s" \
        --mtbf "$(calc "2 * $SECONDS_KILLED / $KILLS")s" >"$lab_dir/bill.json"       # of one of two ranks; loading is added
    lab_figure "$lab_dir/bill.json" goodput
}
# ---- the clock ----

# KILLS lines "SECONDS RANK" in order: a linear congruential generator (Numerical Recipes), so that a seed means the same everywhere.
clock() {
    x=$SEED
    for k in $(seq "$KILLS"); do
        x=$(((1664525 * x + 1013904223) % 4294967296))
        at=$x
        x=$(((1664525 * x + 1013904223) % 4294967296))
        echo "$(calc "$at / 4294967296 * $SECONDS_KILLED") $((x / 65536 % 2))"
    done | sort -n
}
clock >"$lab_dir/clock"

resumes() { grep -c 'goes on from' "$log"; }
begin "$lab_dir/killed" "$lab_dir/killed.log"
await_new 0                             # the clock begins with a checkpoint that is whole
watch &
watcher=$!
began=$when first=$(step_of "$(newest)") killed=0
: >"$lab_dir/kills"
while read -r at r; do
    left=$(calc "$began + $at - $(now)")
    case $left in -*) ;; *) sleep "$left" ;; esac
    echo "$(resumes) $(step_of "$(newest)") $(now)" >>"$lab_dir/kills"
    kill_one "$r"
done <"$lab_dir/clock"
left=$(calc "$began + $SECONDS_KILLED - $(now)")
case $left in -*) ;; *) sleep "$left" ;; esac
# The time ends, as it began, with a checkpoint that is whole.
await_new "$(step_of "$(newest)")"
ended=$when last=$n
until [ "$(resumes)" -gt "$(tail -n 1 "$lab_dir/kills" | cut -d' ' -f1)" ]; do sleep 0.1; done
end
wait $watcher

# "STEP RESTART": the means of intervals without a kill, and of restarts that no other kill ended.
measure() {
    awk -v every="$EVERY" -v save="$save_s" '
        FILENAME ~ /kills$/ { kill[++n] = $3; next }
        { step[++m] = $1; at[m] = $2 }
        END {
            for (i = 2; i <= m; i++) {
                hit = 0
                for (k = 1; k <= n; k++) hit += kill[k] > at[i - 1] && kill[k] <= at[i]
                if (!hit && step[i] == step[i - 1] + every) { sum += at[i] - at[i - 1]; intervals++ }
            }
            s = (sum / intervals - save) / every
            for (k = 1; k <= n; k++) {
                for (i = 1; i <= m && at[i] <= kill[k]; i++) ;
                if (i <= m && (k == n || kill[k + 1] > at[i])) { lost += at[i] - kill[k] - every * s - save; restarts++ }
            }
            printf "%.6f %.6f\n", s, lost / restarts
        }' "$lab_dir/kills" "$lab_dir/whole"
}
measure >"$lab_dir/figures"
read -r step_s recover_s <"$lab_dir/figures"
predicted=$(predict)
printf '#  a step %.3f s, a save %.3f s, a restart %.2f s; a kill every %.1f s, a checkpoint every %.1f s\n' "$step_s" "$save_s" "$recover_s" \
    "$(calc "$SECONDS_KILLED / $KILLS")" "$(calc "$EVERY * $step_s + $save_s")" >&2

check "$KILLS of $KILLS kills met a process" "$([ "$killed" = "$KILLS" ] || echo "$killed of $KILLS")"
check 'after each the run goes on from the last checkpoint that was whole' "$(
    while read -r before step _; do
        from=$(grep 'goes on from' "$log" | sed -n "$((before + 1))s/.*step-0*//p")
        [ "${from:-0}" -ge "$step" ] || echo "step $step was whole, the run went on from ${from:-the first}"
    done <"$lab_dir/kills")"
steps=$(($(step_of "$last") - first))
measured=$(calc "$steps * $step_s / ($ended - $began)")
printf '#  %d steps in %.0f s: measured goodput %.3f, predicted %.3f\n' "$steps" "$(calc "$ended - $began")" "$measured" "$predicted" >&2
check 'measured goodput is the predicted one within 5 points' "$(awk -v m="$measured" -v p="$predicted" 'BEGIN {
    d = m - p; if (!(m > 0 && p > 0 && d < 0.05 && d > -0.05)) print "measured " m ", predicted " p }')"

# ---- nothing was lost ----

last=$(newest)
step=$(step_of "$last")
"$B/dpxrun" "$lab_dir/plan.json" --steps $STEPS --no-db --threads 1 --checkpoint-every "$step" --checkpoint-dir "$lab_dir/never" \
    >"$lab_dir/out" 2>&1 </dev/null &
witness=$!
until [ -e "$lab_dir/never/${last##*/}/checkpoint.json" ] || ! kill -0 $witness 2>/dev/null; do sleep 0.5; done
kill $witness 2>/dev/null
wait $witness 2>/dev/null
check "after $KILLS kills the state of step $step is that of a run that was never killed" "$(
    for r in 0 1; do cmp "$last/rank-0000$r.state" "$lab_dir/never/${last##*/}/rank-0000$r.state" 2>&1; done)"
finish
