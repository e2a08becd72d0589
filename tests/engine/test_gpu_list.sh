#!/bin/sh
# test_gpu_list.sh -- the 40 plans that a lent GPU runs first (`make gpu-check STAGE=engine`): each is made, predicted and followed.
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export XDG_DATA_HOME="$dir/none" TMPDIR="$dir"
ENGINE_DEVICE=dry OUT="$dir/out" tests/gpu/check.sh engine >"$dir/said" 2>&1
got=$?
check 'every plan of the list is predicted, and followed by its engine' "$([ $got = 0 ] || { echo "exit status $got"; grep -v ' OK ' "$dir/said"; })"
check 'the list has 40 plans' "$(n=$(grep -c ' OK .*followed' "$dir/said"); [ "$n" = 40 ] || echo "$n")"
finish
