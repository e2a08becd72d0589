#!/bin/sh
# tests/emu/test_cuda_build.sh -- what nvcc makes of exec/cuda/, as far as can be tested without a
# GPU: all devices, no warnings, no spills, and who is linked with what.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
export B

said=$(${MAKE:-make} --no-print-directory B="$B" cuda-check 2>&1 </dev/null) && status=0 || status=1
case $status:$said in
*skipped:*)
    skip 'the CUDA build is complete' "$(echo "$said" | sed -n 's/^skipped: //p')" ;;
0:*)
    echo "$said" | tail -n 1
    check 'the CUDA build is complete' '' ;;
*)
    check 'the CUDA build is complete' "$said" ;;
esac

check 'dpxplan and dpxreport link no CUDA' \
    "$(for p in dpxplan dpxreport; do
        if [ -x "$B/$p" ]; then
            readelf -d "$B/$p" | grep -iE 'needed.*(cuda|nccl|cublas|stdc)' | sed "s/^/$p: /"
        else
            echo "$B/$p was not built"
        fi
    done)"

finish
