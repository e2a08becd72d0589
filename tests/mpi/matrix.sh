# matrix.sh -- what the scripts share whose programs run plan after plan (matrix_check.h): source it
# after tests/check.sh.
# shellcheck shell=sh
# shellcheck source=tests/mpi/sanitized.sh
. tests/mpi/sanitized.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# Settings by environment mean the same to Open MPI 4.1 and 5.0; these words differ.
case $(mpirun --version 2>/dev/null) in
*'Open MPI'*' 4.'*) shared=vader more_ranks_than_cores=--oversubscribe ;;
*)                  shared=sm more_ranks_than_cores='--map-by :OVERSUBSCRIBE' ;;
esac
export OMPI_MCA_btl=self,$shared OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# list_plans PROGRAM EXTENT: its plans into $dir/list, what it says of them (none has such a plan) into $dir/refused.
list_plans() {
    $sanitized "$B/tests/mpi/$1" list "$2" >"$dir/list" 2>"$dir/refused" && [ -s "$dir/list" ] || { check 'plans are listed' "no plans: $(cat "$dir/refused")"; finish; }
    echo "$(wc -l <"$dir/list") plans$(sed '1s/^/; /' "$dir/refused")"
}

# launch SECONDS RANKS PROGRAM ARGUMENT...: lines "plan NUMBER NAME", what is wrong with it, "done".
launch() {
    seconds=$1 ranks=$2 program=$B/tests/mpi/$3
    shift 3
    # shellcheck disable=SC2086
    mpirun $more_ranks_than_cores --timeout "$seconds" -n "$ranks" $sanitized "$program" "$@" \
        >"$dir/said" 2>&1 </dev/null
}

# One line a plan: its number, a tab, its name, and after another tab the complaints.
plans() {
    awk '
        /^plan / { if (name != "") print number "\t" name "\t" wrong "it did not end"
                   number = $2; name = $0; sub(/^plan [0-9]+ /, "", name); wrong = ""; next }
        /^done$/ { print number "\t" name "\t" wrong; name = ""; next }
        name != "" { gsub(/\t/, " "); if (length(wrong) < 1000) wrong = wrong $0 "; " }
        END { if (name != "") print number "\t" name "\t" wrong "it did not end" }' "$dir/said"
}

# run_all SECONDS WHAT RANKS PROGRAM ARGUMENT...: checks each plan, "WHAT NAME".  A plan that ends
# the job is one failure; those after it still run: the last argument is where to begin.
tab=$(printf '\t')
run_all() {
    limit=$1 what=$2
    shift 2
    from=0 status=1 launches=0
    while [ $status != 0 ] && [ $launches -lt 5 ]; do
        launch "$limit" "$@" $from
        status=$?
        launches=$((launches + 1))
        plans >"$dir/plans"
        [ -s "$dir/plans" ] || break
        while IFS=$tab read -r number name wrong; do
            check "$what$name" "$wrong"
            from=$((number + 1))
        done <"$dir/plans"
    done
    [ $status = 0 ] || check "all plans of $2 on $1 ranks were reached" \
        "exit status $status from number $from on: $(tail -n 5 "$dir/said")"
}
