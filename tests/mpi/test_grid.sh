#!/bin/sh
# tests/mpi/test_grid.sh [few|some|whole|every|late [RUNS]] -- plans over meshes train what PyTorch trains: tensor, context and pipeline
# parallelism with every strategy (grid_plans.h), one launch for each number of ranks, every plan with PyTorch's losses,
# gradients and weights, and bytes, calls and memory as predicted (mpi_grid.c).  `some` is a covering set: every
# pair of options meets; `few`, the default, has those of it on up to four ranks and 12 of the others, which take longest on few
# cores: those with most pairs that no other has; `whole` has every mesh with every form, schedule and strategy for one model in fp32
# (4,100 plans), `every` for all three; `late` runs the covering set again and again, RUNS plans or more (500), with messages that are late by random times (pmpi_delay.c): none may
# hang.  What the planner or dpxrun refuses is counted, by reason.
# Runs from the root of the tree; $B is where it was built. GRID_RANKS="1 2 3 4" leaves out what needs more ranks.
# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/mpi/matrix.sh
. tests/mpi/matrix.sh
extent=${1:-few} set=${1:-few}
case $extent in
few | some)  seconds=400 ;;
whole | every) seconds=7200 ;;
late)  seconds=3600 set=some ;;
*)     echo "usage: $0 [some|whole|every|late [RUNS]]" >&2; exit 2 ;;
esac

[ -z "$sanitized" ] || seconds=7200           # much slower
list_plans mpi_grid $set
mkdir "$dir/truth" || exit 1

runs=0
all() {
    for n in ${GRID_RANKS:-1 2 3 4 5 6 7 8}; do
        run_all "$seconds" "$1" $n mpi_grid run "$dir/list" "$dir/truth"
    done
    runs=$((runs + $(wc -l <"$dir/list")))
}

if [ "$extent" = late ]; then
    export DPX_DELAY_US=1000 DPX_DELAY_SEED=0
    while [ $runs -lt "${2:-500}" ]; do
        DPX_DELAY_SEED=$((DPX_DELAY_SEED + 1))
        all "late, seed $DPX_DELAY_SEED: "
    done
else
    all ''
fi
finish
