#!/bin/sh
# tools/cuda-check.sh KERNELS.cu... -- is what nvcc made complete?  `make cuda-check` builds first.
#
# $B is where it was built, $NVCC the compiler, $FLAGS what it was called with.  Complaints go to
# stdout, one a line, and make the exit status 1; the last line says what was done, and what was not.
# Nothing is run on a device: this passes on a machine that has none.
if [ -z "$NVCC" ]; then
    echo 'skipped: there is no nvcc (with NCCL and cuBLASLt) here'
    exit 0
fi
complaints=$(mktemp) || exit 1
trap 'rm -f "$complaints"' EXIT
say() { echo "$*" >>"$complaints"; }

# cuobjdump reads what is in the program; not every toolkit has it.
find_cuobjdump() {
    for c in "$CUOBJDUMP" "${NVCC%/*}/cuobjdump" "$(command -v cuobjdump)"; do
        [ -x "$c" ] && echo "$c" && return
    done
}
cuobjdump=$(find_cuobjdump)

# ---- the compilers had nothing to say ----

for f in "$@" exec/cuda/*.c; do
    [ -f "$B/$f.o" ] || say "$f: was not compiled"
    [ ! -s "$B/$f.o.warn" ] || say "$(cat "$B/$f.o.warn")"
done

# ---- every kernel, for every device, without spills ----

kernels=0
for f in "$@"; do
    log=$B/$f.o.ptxas
    for sm in sm_80 sm_90; do
        n=$(grep -c "Compiling entry function .* for '$sm'" "$log")
        [ "$n" -gt 0 ] || say "$f: no kernel for $sm"
        [ $sm = sm_80 ] || kernels=$((kernels + n))
    done
    spills=$(LC_ALL=C awk '
        /Compiling entry function/ { name = $0; sub(/.*entry function /, "", name) }
        / bytes spill/ && !/ 0 bytes spill stores, 0 bytes spill loads/ { sub(/^ */, ""); print name ": " $0 }' "$log")
    [ -z "$spills" ] || say "$f: $spills"
done

# ---- all of it is in the program ----

in_program() {
    if [ -n "$cuobjdump" ]; then
        "$cuobjdump" --list-elf --list-ptx "$B/dpxrun" 2>&1
    else            # what the compiler would give to fatbinary
        # shellcheck disable=SC2086
        for f in "$@"; do "$NVCC" $FLAGS --dryrun -c -o /dev/null "$f" 2>&1; done |
            grep fatbinary | tr -s ' "' '\n\n' | sed -n 's/.*kind=elf,sm=\([0-9]*\).*/\1.cubin/p; s/.*kind=ptx,sm=\([0-9]*\).*/\1.ptx/p'
    fi
}
inside=$(in_program "$@")
for wanted in '80.*cubin' '90.*cubin' '90.*ptx'; do
    echo "$inside" | grep -q "$wanted" || say "$B/dpxrun: nothing in it is $wanted"
done

# ---- and what needs no GPU has none ----

needs() { readelf -d "$B/$1" 2>/dev/null | grep -iE 'needed.*(cuda|nccl|cublas)'; }
for p in dpxplan dpxreport dpxrun dpxcal; do
    [ -z "$(needs $p)" ] || say "$B/$p: $(needs $p): they are loaded, not linked"
done
for p in dpxrun dpxcal; do
    ! ldd "$B/$p" 2>/dev/null | grep 'not found' || say "$B/$p: libraries are not found"
done

cat "$complaints"
[ ! -s "$complaints" ] || exit 1
echo "$kernels kernels for sm_80, sm_90 and, as PTX, later devices, without spills$([ -n "$cuobjdump" ] ||
    echo ' (without cuobjdump: as the compiler says)'): compiled and linked; nothing was run: no GPU"
