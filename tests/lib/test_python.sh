#!/bin/sh
# tests/lib/test_python.sh -- dpx.py from the build tree and installed; the examples of docs/howto/library.md in C and Python,
# compiled and run with what `make install` has put in place.
. tests/check.sh
build=${B:-build}               # as make has it: by another name its files would be made again
B=$(cd "$build" && pwd) || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none DPX_MEASURED=$tmp/none SCRATCH=$tmp DPXPLAN=$B/dpxplan PYTHONDONTWRITEBYTECODE=1
export XDG_DATA_HOME DPX_MEASURED SCRATCH DPXPLAN PYTHONDONTWRITEBYTECODE
root=$tmp/root/opt/dpx

# A sanitizer's runtime has to be the first library of a process: Python's is not.
sanitized=$(nm -D "$B/libdpx.so.0" | grep -oE '__(asan|tsan)_init' | head -n 1)
python=$(command -v python3)

# The unit tests with the module of a folder.
tests_in() {
    DPX_MODULE=$1 DPX_LIBRARY=$2 "$python" tests/lib/python_test.py >"$tmp/said" 2>&1 || tail -n 40 "$tmp/said"
}

if [ -z "$python" ] || [ -n "$sanitized" ]; then
    skip 'the module works from the build tree' "${sanitized:-no python3}"
else
    check 'the module works from the build tree' "$(tests_in "$PWD/lib" "$B/libdpx.so.0")"
fi

if ! make -s B="$build" PREFIX=/opt/dpx DESTDIR="$tmp/root" install >"$tmp/log" 2>&1; then
    check 'make install puts the library in its places' "$(tail -n 5 "$tmp/log")"
    finish
fi
check 'make install puts the library in its places' \
    "$(for f in lib/libdpx.so.0 lib/libdpx.so include/dpx.h lib/pkgconfig/dpx.pc share/dpx/python/dpx.py; do
        [ -s "$root/$f" ] || echo "$f was not installed"
    done
    grep -q '^prefix=/opt/dpx$' "$root/lib/pkgconfig/dpx.pc" || cat "$root/lib/pkgconfig/dpx.pc"
    grep -q '^_INSTALLED = "/opt/dpx/lib/libdpx.so.0"' "$root/share/dpx/python/dpx.py" || grep _INSTALLED "$root/share/dpx/python/dpx.py")"
check 'dpx.h is C and C++' "$(for x in c c++; do
    echo '#include <dpx.h>' | ${CC:-cc} -I"$root/include" -Wall -Wextra -Wpedantic -fsyntax-only -x $x - 2>&1; done)"
if [ -z "$python" ] || [ -n "$sanitized" ]; then
    skip 'the installed module works' "${sanitized:-no python3}"
else
    check 'the installed module works' "$(cd / && cd "$OLDPWD" && tests_in "$root/share/dpx/python" "$root/lib/libdpx.so.0")"
fi

# What was measured on a type of GPU lies beside the library, as it does beside the programs: it finds the file that it
# cannot use.
mkdir -p "$root/share/dpx/measured"
echo '{}' >"$root/share/dpx/measured/h100.fits"
if [ -z "$python" ] || [ -n "$sanitized" ]; then
    skip 'measurements that came with dpx are found' "${sanitized:-no python3}"
else
    check 'measurements that came with dpx are found' \
        "$(env -u DPX_MEASURED PYTHONPATH="$root/share/dpx/python" DPX_LIBRARY="$root/lib/libdpx.so.0" "$python" -c '
import dpx
plan = {"dpx_plan": 1, "model": "gpt2", "cluster": "h100", "seq": 512, "micro_batch": 1, "strategy": "ddp", "precision": "bf16", "kernels": "dpx"}
print(dpx.evaluate(plan)["notes"])' >"$tmp/notes" 2>&1
        grep -q "$root/share/dpx/measured/h100.fits is not used" "$tmp/notes" || grep -q 'share/dpx/measured/h100.fits is not used' "$tmp/notes" || cat "$tmp/notes")"
fi
rm -r "$root/share/dpx/measured"

# Indented blocks of the page: what begins with #include or import is a program, the next one what it prints.
awk -v tmp="$tmp" '
    /^    #include/ && !c { name = tmp "/example.c"; c = 1 }
    /^    import / && !p  { name = tmp "/example.py"; p = 1 }
    /^    /               { if (name == "" && after != "") name = after; if (name != "") { print substr($0, 5) >name; inside = 1 } next }
    /^$/                  { if (inside && name !~ /want$/) print "" >name; next }
                          { if (inside) after = name ~ /want$/ ? "" : name ".want"; name = ""; inside = 0 }' docs/howto/library.md

flags="-I$root/include -L$root/lib -ldpx"
if command -v pkg-config >"$tmp/log"; then
    flags=$(PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tmp/root pkg-config --cflags --libs dpx)
fi
# shellcheck disable=SC2086
check 'the example in C prints what its page shows' \
    "$(${CC:-cc} -Wall -Wextra -o "$tmp/example" "$tmp/example.c" $flags -ljansson ${sanitized:+-fsanitize=address} 2>&1 &&
       LD_LIBRARY_PATH=$root/lib "$tmp/example" 2>&1 | diff "$tmp/example.c.want" - 2>&1)"
if [ -z "$python" ] || [ -n "$sanitized" ]; then
    skip 'the example in Python prints what its page shows' "${sanitized:-no python3}"
else
    check 'the example in Python prints what its page shows' \
        "$(PYTHONPATH=$root/share/dpx/python DPX_LIBRARY=$root/lib/libdpx.so.0 "$python" "$tmp/example.py" 2>&1 | diff "$tmp/example.py.want" - 2>&1)"
fi
finish
