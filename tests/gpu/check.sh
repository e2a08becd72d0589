#!/bin/sh
# tests/gpu/check.sh STAGE -- `make gpu-check STAGE=...`: what can only be tested on a GPU.
#
#     engine     40 plans run by PyTorch and DeepSpeed themselves (12 minutes; PYTHON= has them): the first to run on a lent GPU
#     build      compile with CUDA; versions, device, compiler
#     kernels    every kernel beside the host's reference: fresh numbers, poisoned outputs
#     parity     strategies on the device beside the host's executor, and beside PyTorch's figures
#     memory     allocated as the ledger says, the driver's figure within 3 %; rank 0 of up to 512
#     calibrate  dpxcal run --device cuda, exported
#     accuracy   plans that no fit has seen, predicted before they are run
#     torch      tokens/s and memory beside PyTorch's on this GPU
#     all        one after the other
#
# Needs no network.  Each stage ends within eight minutes (BUDGET=440 seconds for its work) with
# "N passed, N failed"; one that had no time for all goes on when started again (ANEW=1: from the
# beginning).  JOBS=8 runs so many plans of parity and memory beside each other.  Everything is in OUT (default build/gpu-check): STAGE.log, and a folder for each.  On a
# machine without MPI and oneDNN: make gpu-check MPI=0 DNNL=0 CARRY=carry STAGE=build.
# Exit status: 0 all that ran passed, 1 not, 2 no such stage, 3 there is no GPU.
stage=${1:-all}
case $stage in
engine|build|kernels|parity|memory|calibrate|accuracy|torch) ;;
all)
    status=0
    for s in build engine kernels parity memory calibrate accuracy torch; do
        "$0" "$s" || status=$?
        [ $status != 3 ] || exit 3
    done
    exit $status ;;
*)
    echo "gpu-check: no stage $stage: engine build kernels parity memory calibrate accuracy torch" >&2
    exit 2 ;;
esac

# shellcheck source=tests/check.sh
. tests/check.sh
# shellcheck source=tests/gpu/gpu.sh disable=SC2154
. tests/gpu/gpu.sh

# Without a GPU ENGINE_DEVICE=cpu tries the list of the engine stage on tiny models, and ENGINE_DEVICE=dry all but the runs.
if [ "$gpus" -lt 1 ] && [ "$stage${ENGINE_DEVICE:-}" != enginecpu ] && [ "$stage${ENGINE_DEVICE:-}" != enginedry ]; then
    echo 'gpu-check: there is no GPU here (nvidia-smi -L lists none): nothing was run' >&2
    exit 3
fi
if [ "${ANEW:-}" ] && [ "$stage" != build ]; then
    rm -rf "$dir"
    mkdir -p "$dir"
fi
if [ "$stage" != build ] && [ "$stage" != engine ] && { [ ! -x "$B/dpxrun" ] || ! "$B/dpxrun" --version | grep -q 'with CUDA'; }; then
    echo "gpu-check: $B/dpxrun has no CUDA: make gpu-check STAGE=build first" >&2
    exit 1
fi
{
    echo "== $stage on $gpus x $gpu_name, $(date -u '+%Y-%m-%d %H:%M:%S') UTC"
    (
        # shellcheck source=/dev/null
        . "tests/gpu/stage_$stage.sh"
        finish
    )
    echo "== status $?"
} 2>&1 | tee "$OUT/$stage.log"
LC_ALL=C awk '
    function count() { n = $0; sub(/ test\(s\).*/, "", n); sub(/.* /, "", n); return n }
    /^\[  PASSED  \].* test\(s\)/ { p = count() }
    /^\[  FAILED  \].* test\(s\), listed/ { f = count() }
    /^\[  SKIPPED \].* test\(s\), listed/ { s = count() }
    /^== status/ { bad = $3 }
    END { if (bad && !f) f = 1
          printf "%s: %d passed, %d failed%s\n", STAGE, p, f, s ? ", " s " skipped" : ""
          exit f > 0 }' STAGE="$stage" "$OUT/$stage.log" || exit 1
