#!/bin/sh
# compare.sh BASE [PLANS] -- does a commit change any figure, schedule or program of any plan?
#
# Builds dpxplan of commit BASE and of the working tree and compares four things of both:
#   figures    eval --json of the same PLANS plans (4000: all cells, precisions, units, worlds, meshes, micro-steps, several
#              models), or the whole message where a plan is refused; lists the JSON paths that differ
#   schedules  explain --schedule of these plans: every entry of init, first and steady with its stream, waits, events and
#              buffers; prints the first entries that moved
#   layouts    what the executor reads beside that: flags, what copies do, which elements of which tensors an entry reads and writes
#   programs   every kernel of the programs of 370 other plans
# Moves and redesigns must print "the same" four times; a mend says in its message which paths or entries it was expected to
# change and by how much.
# Exit status 0: the same, 1: different, or not comparable, 2: misuse.
set -u
base=${1:-} plans=${2:-4000}
B=${B:-build}
[ -n "$base" ] && git rev-parse -q --verify "$base^{commit}" >/dev/null || {
    echo "compare.sh: BASE must name a commit, such as HEAD~1: make compare BASE=HEAD~1" >&2
    exit 2
}
work=$(mktemp -d) || exit 1
trap 'git worktree remove --force "$work/tree" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

git worktree add -q --detach "$work/tree" "$base" || exit 1
(cd "$work/tree" && make --no-print-directory CUDA=0 B=build build/dpxplan) >"$work/log" 2>&1 || {
    tail -n 5 "$work/log" >&2
    exit 1
}

# Calibrations would be part of the answer: this machine's, and those that come with each tree.
export XDG_DATA_HOME="$work/none" DPX_MEASURED="$work/none"
"$B/tests/compare/print_plans" "$plans" >"$work/plans" || exit 1

# evaluate PROGRAM NAME: one line a plan, its JSON on one line or the message, to $work/NAME.
evaluate() {
    while IFS= read -r plan; do
        printf '%s\n' "$plan" >"$work/$2.json"
        "$1" eval --json "$work/$2.json" 2>&1 | sed '/^ *"version": /d' | sed "s/^ *//; s,$work/$2.json,plan.json,g" | tr '\n' ' '
        echo
    done <"$work/plans" >"$work/$2"
}
evaluate "$work/tree/build/dpxplan" before &
evaluate "$B/dpxplan" after
wait

status=0
count=$(wc -l <"$work/plans")
answered=$(grep -c '^{' "$work/after")
if "$B/tests/compare/differences" "$work/before" "$work/after"; then
    echo "figures: $count plans, $answered of them answered: the same"
else
    echo "figures: $count plans, $answered of them answered: DIFFERENT from $base"
    status=1
fi

# schedules PROGRAM NAME: the schedules of each plan below a line "@ PLAN", or the message, to the pipe $work/NAME.
schedules() {
    n=0
    while IFS= read -r plan; do
        n=$((n + 1))
        printf '%s\n' "$plan" >"$work/$2.json"
        echo "@ line $n: $plan"
        "$1" explain --schedule "$work/$2.json" 2>&1 |
            awk -v file="$work/$2.json" '/^[a-z]+ \{$/ { inside = 1 } inside; /^\}/ { inside = 0; any = 1 } { last = $0 }
                END { gsub(file, "plan.json", last); if (!any) print last }'
    done <"$work/plans" >"$work/$2"
}
compared() {
    if "$B/tests/compare/moved" "$work/$2" "$work/$3"; then
        echo "$1: the same"
    else
        echo "$1: DIFFERENT from $base"
        status=1
    fi
}
mkfifo "$work/schedules-before" "$work/schedules-after" || exit 1
schedules "$work/tree/build/dpxplan" schedules-before &
schedules "$B/dpxplan" schedules-after &
compared schedules schedules-before schedules-after
wait

# What prints layouts and programs is this tree's, built with the base's libraries.
cp tests/compare/print_layouts.c tests/compare/print_programs.c "$work/tree/tests/compare/" &&
    cp tests/model/random_plan.h "$work/tree/tests/model/" || exit 1

# printed WHAT: what print_WHAT of both trees prints of the plans.
printed() {
    if (cd "$work/tree" && make --no-print-directory CUDA=0 B=build "build/tests/compare/print_$1") >"$work/log" 2>&1; then
        rm -f "$work/$1-before" "$work/$1-after"
        mkfifo "$work/$1-before" "$work/$1-after" || exit 1
        "$work/tree/build/tests/compare/print_$1" <"$work/plans" >"$work/$1-before" 2>/dev/null &
        "$B/tests/compare/print_$1" <"$work/plans" >"$work/$1-after" 2>/dev/null &
        compared "$1" "$1-before" "$1-after"
        wait
    else
        tail -n 5 "$work/log" >&2
        echo "$1: NOT COMPARED: tests/compare/print_$1.c does not build at $base"
        status=1
    fi
}
printed layouts
printed programs
exit $status
