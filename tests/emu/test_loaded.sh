#!/bin/sh
# tests/emu/test_loaded.sh -- a dpxrun with CUDA starts without cuBLASLt and NCCL, and says which it lacks; a file that is not the library is none.
. tests/check.sh
B=${B:-build}
"$B/dpxrun" --version 2>/dev/null | grep -q 'with CUDA [0-9]' || { skip 'cuBLASLt and NCCL are loaded, not linked' 'dpxrun was built without CUDA'; finish; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

check 'neither is linked' "$(readelf -d "$B/dpxrun" "$B/dpxcal" | grep -iE 'needed.*(nccl|cublas|cudart)|(rpath|runpath).*cuda')"
check 'without them it starts, and names them' "$(
    said=$(DPX_CUBLASLT=$tmp/none DPX_NCCL=$tmp/none "$B/dpxrun" --version 2>&1) || echo "exit $?"
    echo "$said" | grep -q 'cuBLASLt (not on this machine), NCCL (not on this machine)' || echo "$said"
    DPX_CUBLASLT=$tmp/none DPX_NCCL=$tmp/none "$B/dpxrun" demo/10m/ddp.json --steps 1 --no-db --brief >"$tmp/out" 2>&1 || cat "$tmp/out")"
echo 'int ncclGetVersion(int *v) { return *v = 1; }' >"$tmp/x.c"
check 'a library without its functions is not taken' "$(
    ${CC:-cc} -shared -fPIC -o "$tmp/x.so" "$tmp/x.c" || exit
    DPX_NCCL=$tmp/x.so "$B/dpxrun" --version 2>&1 | grep -q 'NCCL (not on this machine)' || DPX_NCCL=$tmp/x.so "$B/dpxrun" --version 2>&1)"
if [ -e /usr/local/cuda/lib64/libcublasLt.so ]; then
    check 'where they are they are found, as the version says' "$(
        "$B/dpxrun" --version | grep -qE 'cuBLASLt [0-9]+\.[0-9]+' || "$B/dpxrun" --version)"
else
    skip 'where they are they are found' 'no toolkit in /usr/local/cuda'
fi
finish
