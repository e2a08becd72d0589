#!/bin/sh
# tests/mpi/test_cores.sh -- ranks of one machine keep to cores of their own (exec/device/cores.h), as the
# kernel says: asked by the ranks themselves (mpi_cores.c), and in /proc while dpxrun runs.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
dir=$(mktemp -d) && dir=$(cd "$dir" && pwd -P) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"

# What a rank complains of; mpirun itself binds up to two ranks unless asked not to.
complaints() {  # N ARGUMENT...
    n=$1
    shift
    mpirun --bind-to none --map-by slot:OVERSUBSCRIBE --timeout 60 -n "$n" "$B/tests/mpi/mpi_cores" "$@" \
        >"$dir/said" 2>&1 </dev/null || echo "exit status $?" >>"$dir/said"
    head -n 20 "$dir/said"
}
for n in 1 2 3 4; do
    check "$n ranks divide the machine's cores" "$(complaints $n)"
done
check 'a rank that was bound keeps its core, the others divide theirs' "$(complaints 3 bound)"

# ---- dpxrun ----

cp "$B/dpxrun" "$dir/dpxrun" && mkfifo "$dir/weights" || exit 1
sed 's/"vocab_size": 97/"vocab_size": 10000/' tests/golden/parity/llama/config.json >"$dir/config.json"
echo '{"dpx_plan": 1, "model": "'"$dir"'/config.json", "cluster": "localhost:2", "kernels": "dpx", "seq": 24, "micro_batch": 1,
    "strategy": "ddp", "dialect": "torch", "precision": "fp32"}' >"$dir/plan.json"

# The CPUs of each rank, while rank 0 waits for a reader of the weights (3 MB, more than a pipe takes).
# If dpxrun ends without writing, the pipe is opened all the same.
cpus() {        # OPTION...
    { timeout 60 "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --save "$dir/weights" "$@" >"$dir/said" 2>&1 </dev/null ||
        { cat "$dir/said"; : 1<>"$dir/weights"; }; } &
    exec 3<"$dir/weights"
    for p in $(find /proc -maxdepth 2 -name exe -lname "$dir/dpxrun" 2>/dev/null | cut -d/ -f3); do
        grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$p/environ" && sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$p/status"
    done
    cat <&3 >/dev/null
    exec 3<&-
    wait $!
}
# What is wrong with it, if it is not so many lists of CPUs, each of so many ranks.
want() {        # RANKS LISTS
    sort | uniq -c | awk -v ranks="$1" -v lists="$2" '{ seen = seen $0 "\n" } $1 == ranks { n++ }
        END { if (n + 0 != lists || NR != lists) printf "%s", NR ? seen : "no rank was seen\n" }'
}
if [ $(($(env -u OMP_NUM_THREADS nproc) % 2)) = 0 ]; then
    check 'ranks of dpxrun each have their own' "$(cpus | want 1 2)"
else
    skip 'ranks of dpxrun each have their own' 'two ranks cannot divide the cores here'
fi
check 'or, with --share-cores, all the same' "$(cpus --share-cores | want 2 1)"
finish
