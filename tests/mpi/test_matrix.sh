#!/bin/sh
# tests/mpi/test_matrix.sh [some|pairs|plain|whole] -- strategies agree: the plans of matrix_plans.h, one launch
# for each world size, every one with the losses of one rank, and bytes and memory as predicted
# (matrix_check.h).  `pairs` is a covering set: every pair of options meets; `some`, the default, has every pair that up to four
# ranks can have, and on 6 and 8 ranks, which take longest on few cores, the plans that bring six pairs or more; `plain`
# has all of them for GPT-2 in fp32, `whole` for every model, precision, clipping and dropout too.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh
case ${1:-some} in
some)  seconds=400 ;;
pairs|plain|whole) seconds=7200 ;;
*)     echo "usage: $0 [some|pairs|plain|whole]" >&2; exit 2 ;;
esac
list_plans mpi_matrix "${1:-some}"
for n in 1 2 3 4 6 8; do
    run_all "$seconds" '' $n mpi_matrix run "$dir/list"
done
finish
