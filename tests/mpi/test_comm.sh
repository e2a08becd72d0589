#!/bin/sh
# tests/mpi/test_comm.sh -- the collectives of exec/ on real ranks: their values, their
# rounding, groups that run side by side, being stopped; and their bytes, as two witnesses
# outside see them: a library that stands before MPI (pmpi_count.c) and Open MPI's own
# monitoring, which counts what really goes from rank to rank.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# Settings by environment mean the same to Open MPI 4.1 and 5.0; these words differ.
case $(mpirun --version 2>/dev/null) in
*'Open MPI'*' 4.'*) shared=vader more_ranks_than_cores=--oversubscribe ;;
*)                  shared=sm more_ranks_than_cores='--map-by :OVERSUBSCRIBE' ;;
esac
export OMPI_MCA_btl=self,$shared OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI's own leaks; and the library that counts comes before that of the sanitizer.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0:verify_asan_link_order=0}"

ranks() {       # N PROGRAM ARGUMENT...
    n=$1 program=$B/tests/mpi/$2
    shift 2
    # shellcheck disable=SC2086
    mpirun $more_ranks_than_cores --timeout 120 -n "$n" "$program" "$@"
}

# What a program on n ranks complains of: all it says, and its exit status.
complaints() {
    ranks "$@" >"$dir/said" 2>&1 </dev/null || echo "exit status $?" >>"$dir/said"
    head -n 20 "$dir/said"
}

for n in 1 2 3 4 5 6 8; do
    check "every collective and algorithm gives the right values and bytes on $n ranks" \
        "$(complaints $n mpi_values)"
done
for n in 2 3; do
    check "so do pieces of full length on $n ranks" "$(complaints $n mpi_values long)"
done
for n in 2 3 8; do
    check "so do calls of Open MPI's own that are cut because they are too long for it on $n ranks" \
        "$(complaints $n mpi_values cut)"
done
for n in 1 2 3; do
    check "tensors held in parts by $n ranks are put together in pieces of any length" \
        "$(complaints $n mpi_gather "$dir/tensors")"
done
for n in 1 2 3 4 8; do
    check "sums are made in the order and rounded as stated on $n ranks" "$(complaints $n mpi_rounding)"
done
check 'groups that overlap work side by side in threads' "$(complaints 4 mpi_groups)"

check 'messages find their receives in either order, beside collectives' "$(complaints 2 mpi_messages)"

check 'a layer whose rows are split over two ranks is summed inside its block' "$(complaints 2 mpi_inside)"

# ---- schedules by hand ----

# What a program complains of; what it says to stdout is left in $dir/said.
complaints_only() {
    ranks "$@" >"$dir/said" 2>"$dir/complaints" </dev/null || echo "exit status $?" >>"$dir/complaints"
    head -n 20 "$dir/complaints"
}
check 'two stages send each other micro-steps, and both begin with a send' "$(complaints_only 2 mpi_schedule pipeline)"
for algo in ring halving direct library; do
    check "an all-to-all of unequal parts by $algo" "$(complaints_only 4 mpi_schedule exchange $algo)"
done
check 'one process can play a stage, and counts as if the other were there' "$(complaints_only 1 mpi_schedule null)"
check 'ranks that mean other messages are told apart before the first step' "$(complaints_only 2 mpi_schedule differ)"

# ends SECONDS PATTERN: what is wrong with how $dir/said ended.
ends() {
    awk -v took=$(($(date +%s) - began)) -v most="$1" 'BEGIN { if (took > most) print "it took " took " seconds" }'
    [ "$status" != 0 ] || echo 'exit status 0'
    grep -qE "$2" "$dir/said" || { echo "nothing of \"$2\":"; head -n 20 "$dir/said"; }
}
failing() {
    began=$(date +%s) status=0
    ranks "$@" >"$dir/said" 2>&1 </dev/null || status=$?
}
failing 2 mpi_schedule die
check 'a rank killed before it sends ends the one that receives' "$(ends 20 'signal 9|Killed')"
export DPX_TIMEOUT=3
failing 2 mpi_schedule stall
unset DPX_TIMEOUT
check 'one that never sends is found by the watchdog' "$(ends 30 'recv \(reduce stream')"

# It ends by MPI_Abort, which mpirun remarks upon.
ranks 2 mpi_stop >"$dir/said" 2>&1 </dev/null
check 'a call whose peer never comes can be stopped' "$(grep -qx stopped "$dir/said" || cat "$dir/said")"

# ---- TCP ----

# The socket's buffer and the flags (send 1, put 2, in place 8) that Open MPI has, if not as wanted.
expect() {      # WANTED SETTING...
    wanted=$1
    shift
    has=$(env OMPI_MCA_btl=self,tcp "$@" mpirun -n 1 "$B/tests/mpi/mpi_tcp" 2>&1 </dev/null)
    [ "$has" = "$wanted" ] || echo "Open MPI has $has"
}
check 'long messages go over TCP in fragments' "$(expect '131072 9')"
check 'unless the user wants them otherwise' \
    "$(expect '0 3' OMPI_MCA_btl_tcp_sndbuf=0 OMPI_MCA_btl_tcp_flags=send,put)"

# ---- bytes, as seen from outside ----

preload=$B/tests/mpi/pmpi_count.so

# witnessed N PROGRAM ARGUMENT...: what must be sent to whom, as the program says, into
# $dir/expected, what pmpi_count.so saw into $dir/counts, monitoring into $dir/monitored.*
witnessed() {
    n=$1 program=$B/tests/mpi/$2
    shift 2
    rm -f "$dir"/counts "$dir"/monitored.*
    # shellcheck disable=SC2086
    OMPI_MCA_pml_monitoring_enable=2 OMPI_MCA_pml_monitoring_enable_output=3 \
    OMPI_MCA_pml_monitoring_filename=$dir/monitored DPX_MPI_COUNTS=$dir/counts \
        mpirun $more_ranks_than_cores --timeout 120 -x LD_PRELOAD="$preload" -x DPX_MPI_COUNTS -n "$n" \
        "$program" "$@" >"$dir/said" 2>&1 </dev/null || echo "exit status $?" >>"$dir/said"
    sort "$dir/said" >"$dir/expected"
}

# FROM TO BYTES of our own communicator, from pmpi_count's lines.
counted() {
    tr ';' '\n' <"$dir/counts" | awk '
        $1 == "rank" { rank = $2 }
        /^ "dpx world" to / && $6 > 0 { print rank, $4, $6 }' | sort
}

# FROM TO BYTES of lines marked E (messages of the program) or I (inside collectives).
monitored() {
    cat "$dir"/monitored.* | awk -v mark="$1" '$1 == mark { print $2, $3, $4 }' | sort
}

# The same without what opening the group sends: a few integers to agree on its number.
monitored_less_opening() {
    monitored E | awk -v opening="$dir/opening" '
        BEGIN { while ((getline line < opening) > 0) { split(line, f, " "); less[f[1] " " f[2]] = f[3] } }
        { bytes = $3 - less[$1 " " $2] }
        bytes > 0 { print $1, $2, bytes }'
}

differ() {
    diff "$dir/expected" - >"$dir/differ" || cat "$dir/differ"
}

lacking='this Open MPI has no component pml monitoring'
if [ -f "$preload" ]; then
    if ompi_info 2>/dev/null | grep -q 'pml: monitoring'; then
        monitoring=yes
    fi
    witnessed 4 mpi_peers none
    monitored E >"$dir/opening"
    check 'opening a group sends next to nothing' "$(awk '$3 > 1000' "$dir/opening")"
    for algo in ring halving direct server; do
        witnessed 4 mpi_peers $algo
        check "at the MPI calls each rank sends each other what $algo must" "$(counted | differ)"
        if [ "$monitoring" ]; then
            check "Open MPI's monitoring sees the same of $algo" "$(monitored_less_opening | differ)"
        else
            skip "Open MPI's monitoring sees the same of $algo" "$lacking"
        fi
    done
    witnessed 2 mpi_schedule pipeline
    check 'at the MPI calls two stages send each other what their schedules say' "$(counted | differ)"
    for algo in ring halving direct; do
        witnessed 4 mpi_schedule exchange $algo
        check "so do ranks with unequal parts by $algo" "$(counted | differ)"
    done
    witnessed 4 mpi_peers library
    check "Open MPI's own calls are one each, and we send nothing beside them" "$(counted
        for call in Allreduce Allgather Reduce_scatter Bcast Reduce Scatter Gather Alltoall; do
            [ "$(grep -c "\"dpx world\" MPI_$call 1 " "$dir/counts")" = 4 ] ||
                echo "MPI_$call: not one on each rank"
        done)"
    if [ "$monitoring" ]; then
        check 'monitoring sees into them: no less than any algorithm must move' "$(monitored I |
            awk -v file="$dir/expected" '
                BEGIN { getline line < file; split(line, f, " "); least = f[2] }
                { sum += $3 }
                END { if (!(least > 0 && sum >= least)) print sum " bytes, not " least " at least" }')"
    else
        skip 'monitoring sees into them' "$lacking"
    fi
else
    check 'the library that counts MPI calls was built' "$preload is missing"
fi
finish
