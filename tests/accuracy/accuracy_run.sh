#!/bin/sh
# accuracy_run.sh -- `make accuracy`: calibrates this machine, predicts plans that no fit has seen, runs
# them, calibrates again, and prints predictions beside measurements (accuracy_table.c).
#
#     PLANS=64     plans, in 4 groups (< 40: 2)   STEPS=8      optimizer steps a run
#     REPEATS=2    runs of each plan              TRIES=4      of a run whose probe moved
#     SECONDS_CALIBRATION=240 (LAB: 420, over a slow link)    DIR=$B/accuracy
#     PARALLEL=1  plans with tensor, context and pipeline parallelism on 2 and 4 ranks (accuracy_parallel.c): PLANS=48,
#            $B/accuracy-parallel; on a machine of fewer than 4 cores those of 4 ranks share cores, calibrated as they do
#     OFFLOAD=1  plans with states, parameters or activations in host memory and in files (accuracy_away.c): PLANS=24, STEPS=6,
#            $B/accuracy-offload; files lie in $TMPDIR, else /var/tmp
#     LAB=1  on two nodes joined by 1 Gbit/s, emulated (tests/lab/lab.sh, root): PLANS=24, $B/accuracy-lab
#
# Nothing else may run meanwhile, and what was measured tells the machine's noise, too: some 30 minutes.
# Interrupted, it goes on where it was; with ANEW=1 it starts again.  Everything stays in DIR: the
# database with predictions, runs and calibrations, the plans, runs.tsv, table.txt.
#
# A prediction is committed before its run begins (dpxrun), and all of them before the first run
# (predicted.tsv).  Around every run a probe product is timed on all cores; a run whose two probes
# differ by more than 5 % is repeated.
set -eu
LAB=${LAB:-} PARALLEL=${PARALLEL:-} OFFLOAD=${OFFLOAD:-} B=${B:-build} STEPS=${STEPS:-${OFFLOAD:+6}} STEPS=${STEPS:-8} REPEATS=${REPEATS:-2} TRIES=${TRIES:-4}
PLANS=${PLANS:-${LAB:+24}} PLANS=${PLANS:-${PARALLEL:+48}} PLANS=${PLANS:-${OFFLOAD:+24}} PLANS=${PLANS:-64}
CALIBRATION=${SECONDS_CALIBRATION:-${LAB:+420}} CALIBRATION=${CALIBRATION:-${PARALLEL:+480}} CALIBRATION=${CALIBRATION:-240}
DIR=${DIR:-$B/accuracy${LAB:+-lab}${PARALLEL:+-parallel}${OFFLOAD:+-offload}}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
db=$DIR/accuracy.db

die() { echo "accuracy: $*" >&2; exit 1; }

# Ranks on this machine, or one on each node of the lab.
on_ranks() {
    program=$B/$1
    shift
    if [ -n "$LAB" ]; then LAB_SECONDS=1200 lab_run 1 "$program" "$@"; else "$program" "$@"; fi
}
probe() { on_ranks dpxcal probe --ranks 2; }
# moved A B: whether they differ by more than 5 %.
moved() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 1.05 * b || b > 1.05 * a) }'; }

# What is timed: the exact shapes of the models, whole and cut, at the micro-batches that plans have.
calibrate() {
    cuts='--degrees 1'
    [ -z "$PARALLEL" ] || cuts=
    for ranks in 2 ${PARALLEL:+4}; do
        on_ranks dpxcal run --ranks "$ranks" --threads 1 --model "$DIR/gpt.json,$DIR/llama.json" --seq 256 \
            --micro-batch "1,2,4${PARALLEL:+,8}" $cuts --precision fp32 --seconds "$CALIBRATION" --db "$1"
    done
}

models() {
    "$B/tests/accuracy/accuracy_plans" --models "$DIR"
}

plans() {
    [ -s "$DIR/plans.tsv" ] && return
    if [ -n "$LAB" ]; then
        cat >"$DIR/lab.json" <<'CLUSTER'
{ "name": "lab", "host": true, "nodes": 2, "gpus_per_node": 1, "gpu": { "name": "cpu", "memory_bytes": 8000000000 },
  "intra": { "gb_per_s": 4 }, "inter": { "gb_per_s": 0.125 } }
CLUSTER
    fi
    if [ -n "$PARALLEL" ]; then
        "$B/tests/accuracy/accuracy_parallel" "$DIR" "$PLANS" >"$DIR/plans.new"
    elif [ -n "$OFFLOAD" ]; then
        "$B/tests/accuracy/accuracy_away" "$DIR" "$PLANS" >"$DIR/plans.new"
    else
        "$B/tests/accuracy/accuracy_plans" "$DIR" "$PLANS" ${LAB:+"$(cd "$DIR" && pwd)/lab.json"} >"$DIR/plans.new"
    fi
    mv "$DIR/plans.new" "$DIR/plans.tsv"
}

first_calibration() {
    [ -s "$DIR/runs.tsv" ] && return
    before=$(probe)
    calibrate "$db"
    printf 'calibration\t0\t%s\t%s\n' "$before" "$(probe)" >"$DIR/runs.tsv"
}

predictions() {
    [ -s "$DIR/predicted.tsv" ] && return
    cut -f1 "$DIR/plans.tsv" | while read -r plan; do
        "$B/dpxplan" eval "$DIR/$plan.json" --db "$db" --json >"$DIR/eval.json" || die "plan $plan does not fit"
        printf '%s\t%s\n' "$plan" "$(sed -n 's/^ *"step_s": \([0-9.e-]*\),*$/\1/p' "$DIR/eval.json")"
    done >"$DIR/predicted.new"
    mv "$DIR/predicted.new" "$DIR/predicted.tsv"
}

# One run that counts; after TRIES none, which is said: start again when the machine is quiet.
run() {
    try=1
    while :; do
        before=$(probe)
        on_ranks dpxrun "$DIR/$1.json" --steps "$STEPS" --threads 1 --db "$db" --json >"$DIR/run.json" 2>"$DIR/run.err" ||
            die "plan $1: $(tail -1 "$DIR/run.err")"
        after=$(probe)
        moved "$before" "$after" || break
        [ $try -lt "$TRIES" ] || { echo "plan $1: the probe moved in all $TRIES runs: none counts" >&2; return 0; }
        try=$((try + 1))
    done
    id=$(sed -n 's/.*"run_id": *\([0-9]*\).*/\1/p' "$DIR/run.json" | head -1)
    [ -n "$id" ] || die "plan $1: no run_id"
    printf '%s\t%s\t%s\t%s\n' "$1" "$id" "$before" "$after" >>"$DIR/runs.tsv"
}

# Repeats are rounds, so that those of one plan are minutes apart.
runs() {
    n=$(wc -l <"$DIR/plans.tsv")
    round=1
    while [ $round -le "$REPEATS" ]; do
        i=0
        for plan in $(cut -f1 "$DIR/plans.tsv"); do
            i=$((i + 1))
            [ "$(grep -c "^$plan	" "$DIR/runs.tsv")" -lt $round ] || continue
            [ ! -t 2 ] || printf '\rround %d of %d, plan %d of %d ' $round "$REPEATS" $i "$n" >&2
            run "$plan"
        done
        round=$((round + 1))
        [ ! -t 2 ] || echo >&2
    done
}

# Into a database of its own: predictions rest on the first.
second_calibration() {
    [ -e "$DIR/again.done" ] && return
    before=$(probe)
    calibrate "$DIR/again.db"
    printf 'again\t0\t%s\t%s\n' "$before" "$(probe)" >>"$DIR/runs.tsv"
    : >"$DIR/again.done"
}

[ -z "${ANEW:-}" ] || rm -rf "$DIR"
mkdir -p "$DIR"
for need in dpxcal dpxrun dpxplan tests/accuracy/accuracy_plans tests/accuracy/accuracy_parallel tests/accuracy/accuracy_away \
    tests/accuracy/accuracy_table; do
    [ -x "$B/$need" ] || die "$B/$need is not built"
done
if [ -n "$LAB" ]; then
    # shellcheck source=tests/lab/lab.sh
    . tests/lab/lab.sh
    lab_up || die "$lacking"
fi
models
plans
first_calibration
predictions
runs
[ -n "${NO_AGAIN:-}" ] || second_calibration
status=0
"$B/tests/accuracy/accuracy_table" "$DIR" >"$DIR/table.txt" || status=$?
cat "$DIR/table.txt"
echo "kept in $DIR"
exit $status
