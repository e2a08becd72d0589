#!/bin/sh
# tests/exec/test_bare_build.sh -- what a machine without MPI and oneDNN builds (MPI=0 DNNL=0): all that
# calls them compiles with the stand-ins.  Only checked, not compiled: it takes seconds.
# Runs from the root of the tree.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}

users=$(grep -lE '#include "(exec|calib)/|#include <(mpi|dnnl)\.h>' $(find exec calib -name "*.c" ! -path "exec/cuda/*"))
check 'the programs compile without MPI and oneDNN' \
    "$(for f in $users; do
        [ "$f" = exec/kernels/kernels_gemm.c ] || [ "$f" = exec/process/launch.c ] ||
            ${CC:-cc} -std=c17 -D_POSIX_C_SOURCE=200809L -DDPX_NO_MPI -DDPX_NO_DNNL -Iexec/nompi -Iexec/nodnnl -I. \
                -I"$B" -Wall -Wextra -fopenmp -fsyntax-only "$f" 2>&1
    done)"

check 'they call no more of MPI than the stand-in has' \
    "$(for f in $users; do
        [ "$f" = exec/process/launch.c ] || grep -ohE '\bMPI_[A-Z][a-z][A-Za-z_]*\(' "$f"
    done | tr -d '(' | sort -u | while read -r call; do
        grep -q "\b$call(" exec/nompi/mpi.h || echo "exec/nompi/mpi.h has no $call"
    done)"

check 'the stand-in for launch.c has all of launch.h' \
    "$(sed -nE 's/^[a-z].*[ *]([a-z_0-9]+)\(.*;$/\1/p' exec/process/launch.h | while read -r name; do
        grep -qE "^[a-z].*\b$name\(" exec/nompi/launch.c || echo "exec/nompi/launch.c has no $name()"
    done)"

asked=$(${MAKE:-make} -n MPI=0 DNNL=0 CARRY=/carried B=/tmp/none /tmp/none/exec/cuda/adafactor.cu.o 2>/dev/null)
if ! echo "$asked" | grep -q nvcc; then
    skip 'nvcc is told where carried headers are' 'there is no nvcc'
else
    check 'nvcc is told where carried headers are' "$(echo "$asked" | grep -q 'nvcc.*-I/carried/include' || echo 'it is not')"
fi
finish
