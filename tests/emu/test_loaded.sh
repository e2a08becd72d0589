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
# Where there is no driver: CPU ranks ran above; who asks for a GPU is told each thing that is not there.
asked() {       # PATTERN PROGRAM ARGUMENTS: exit 1 or 2, one sentence a rank that has the pattern
    pattern=$1; shift
    "$@" >"$tmp/out" 2>&1 && echo "exit 0: $*"
    grep -q -- "$pattern" "$tmp/out" || head -3 "$tmp/out"
}
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
    skip 'without a driver a GPU is refused, by the name of what is not there' 'this machine has a driver'
else
    check 'without a driver a GPU is refused, by the name of what is not there' "$(
        asked 'there is no libcuda\.so\.1' "$B/dpxrun" demo/10m/ddp.json --steps 1 --no-db --device cuda
        asked 'there is no libcuda\.so\.1' "$B/dpxcal" run --quick --device cuda --db "$tmp/x.db"
        DPX_CUBLASLT=$tmp/none asked 'libcuda\.so\.1.*nor is cuBLASLt on this machine' "$B/dpxrun" demo/10m/ddp.json --steps 1 --no-db --device cuda)"
fi
if [ -e /usr/local/cuda/lib64/libcublasLt.so ]; then
    check 'where they are they are found, as the version says' "$(
        "$B/dpxrun" --version | grep -qE 'cuBLASLt [0-9]+\.[0-9]+' || "$B/dpxrun" --version)"
else
    skip 'where they are they are found' 'no toolkit in /usr/local/cuda'
fi
finish
