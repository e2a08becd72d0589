# runs.sh -- many runs of dpxrun in one launch for each number of ranks (mpi_runs.c): source it after tests/check.sh.
#
#     next_run                          $run: the name of the next run's files: $run.json is what dpxrun prints; others are the script's
#     later WHAT RANKS ARGUMENT...      that run, with dpxrun's arguments
#     judge WHAT COMPLAINTS             as check(), once everything has run
#     all_runs                          calls the script's cases(), which calls those above, twice: in the first pass ($writing is
#                                       set) later() writes the runs down, then they are run; in the second judge() judges
#
# $lists: lists that later() may write to, and $list the one that it does; all_runs calls run_list LIST for each.
# shellcheck shell=sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh
lists=runs list=runs writing=

next_run() {
    runs=$((runs + 1))
    run=$dir/$runs
}

later() {
    [ "$writing" ] || return 0
    echo "$2 $runs dpxrun, $1" >>"$dir/$list"
    shift 2
    printf '%s\n' "$@" >"$run.args"
}

judge() { [ "$writing" ] || check "$@"; }

run_list() {    # LIST
    for ranks in $(cut -d' ' -f1 "$dir/$1" | sort -nu); do
        run_all 500 '' "$ranks" mpi_runs "$dir/$1" "$dir"
    done
}

all_runs() {
    runs=0 writing=yes
    cases
    for one_list in $lists; do
        run_list "$one_list"
    done
    runs=0 writing=
    cases
    ! can_hold || keep_runs
}

# Their documents, for finish() to hold.
keep_runs() {
    for args in "$dir"/[0-9]*.args; do
        grep -qx -e --json "$args" || continue
        cp "${args%.args}.json" "$held_in/answers/"
        { echo dpxrun; cat "$args"; } >"$held_in/answers/$(basename "$args" .args).words"
    done
}

# compare ARGUMENT...: the first complaints of mpi_parity.
compare() { [ "$writing" ] || { "$B/tests/mpi/mpi_parity" "$@" 2>&1 || echo "exit status $?"; } | head -n 5; }
