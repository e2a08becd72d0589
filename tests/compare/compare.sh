#!/bin/sh
# compare.sh BASE [PLANS] -- does a commit change any figure of any plan?
#
# Builds dpxplan of commit BASE and of the working tree, evaluates the same PLANS plans (4000:
# all cells, precisions, units, worlds, micro-steps, several models) with both and compares the
# whole JSON, or the whole message where a plan is refused.  Moves and redesigns must print "the
# same"; a mend says in its message which paths it was expected to change and by how much.
# Exit status 0: the same, 1: different (the paths are listed), 2: misuse.
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

# Calibrations of this machine would be part of the answer.
export XDG_DATA_HOME="$work/none"
"$B/tests/compare/print_plans" "$plans" >"$work/plans" || exit 1

# evaluate PROGRAM NAME: one line a plan, its JSON on one line or the message, to $work/NAME.
evaluate() {
    while IFS= read -r plan; do
        printf '%s\n' "$plan" >"$work/$2.json"
        "$1" eval --json "$work/$2.json" 2>&1 | sed "s/^ *//; s,$work/$2.json,plan.json,g" | tr '\n' ' '
        echo
    done <"$work/plans" >"$work/$2"
}
evaluate "$work/tree/build/dpxplan" before &
evaluate "$B/dpxplan" after
wait

count=$(wc -l <"$work/plans")
answered=$(grep -c '^{' "$work/after")
if "$B/tests/compare/differences" "$work/before" "$work/after"; then
    echo "$count plans, $answered of them answered: the same"
else
    echo "$count plans, $answered of them answered: DIFFERENT from $base"
    exit 1
fi
