#!/bin/sh
# tests/everywhere/install.sh -- make install, uninstall and dist: what is installed answers and is found by pkg-config in a library folder of the
# distribution; uninstalling leaves no file; the archive of HEAD has every tracked file.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
into="DESTDIR=$tmp/root PREFIX=/usr LIBDIR=/usr/lib/any-linux-gnu PYTHONDIR=/usr/lib/python3/dist-packages"
# shellcheck disable=SC2086 # settings
made() { ${MAKE:-make} --no-print-directory B="$B" $into "$1" >"$tmp/log" 2>&1 || tail -5 "$tmp/log"; }
check 'make install' "$(made install)"
check 'what is installed answers, and finds its fits from both folders' "$(
    LD_LIBRARY_PATH=$tmp/root/usr/lib/any-linux-gnu XDG_DATA_HOME=/nonexistent "$tmp/root/usr/bin/dpxplan" fit llama-3.2-1b h100 >"$tmp/out" 2>&1 || cat "$tmp/out"
    [ -n "$(ls "$tmp/root/usr/share/dpx/measured/"*.fits 2>/dev/null)" ] || echo 'no fits'
    grep -q '^libdir=/usr/lib/any-linux-gnu$' "$tmp/root/usr/lib/any-linux-gnu/pkgconfig/dpx.pc" || echo 'dpx.pc names another folder'
    grep -q '/usr/lib/any-linux-gnu/libdpx.so.0' "$tmp/root/usr/lib/python3/dist-packages/dpx.py" || echo 'dpx.py names another folder')"
check 'make uninstall leaves nothing' "$(made uninstall; find "$tmp/root" ! -type d)"
if git rev-parse HEAD >/dev/null 2>&1; then
    check 'make dist has every tracked file' "$(made dist
        tar -tzf "$B"/dpx-*.tar.gz | sed 's,^[^/]*/,,; /\/$/d; /^$/d' | sort >"$tmp/in"
        git ls-tree -r --name-only HEAD | sort | diff - "$tmp/in" | head)"
else
    skip 'make dist has every tracked file' 'not a tree of git'
fi
finish
