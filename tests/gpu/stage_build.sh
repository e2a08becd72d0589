# stage_build.sh -- compiles; what there is.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
make=${MAKE:-make}
$make --no-print-directory B="$B" all gpu-programs >"$dir/make.txt" 2>&1
status=$?
check 'it is built' "$([ $status = 0 ] || tail -n 20 "$dir/make.txt")"
check 'without warnings' "$(grep -i 'warning' "$dir/make.txt" | head -n 5)"
check 'dpxrun has CUDA' "$("$B/dpxrun" --version 2>&1 | grep -q 'with CUDA' || "$B/dpxrun" --version 2>&1)"
{
    "$B/dpxrun" --version
    nvidia-smi 2>&1
    nvcc --version 2>&1 || "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" --version 2>&1
    cc --version 2>&1
    python3 -c 'import torch; print("torch", torch.__version__, torch.version.cuda)' 2>&1 | tail -n 1
    mpirun --version 2>&1 | head -n 1
    uname -a
    nproc
} >"$dir/versions.txt"
cat "$dir/versions.txt"
