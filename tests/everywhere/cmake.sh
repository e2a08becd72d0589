#!/bin/sh
# tests/everywhere/cmake.sh -- find_package(dpx) of an installed prefix: a program of two lines builds by CMake and asks libdpx.
. tests/check.sh
build=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
command -v cmake >/dev/null || { skip 'find_package(dpx)' 'no cmake'; finish; }

mkdir -p "$tmp/dpx/lib/cmake/dpx" "$tmp/dpx/include" "$tmp/use"
cp "$build/libdpx.so.0" "$tmp/dpx/lib/" && cp lib/dpx.h "$tmp/dpx/include/" && cp lib/dpxConfig.cmake "$tmp/dpx/lib/cmake/dpx/"
cat >"$tmp/use/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.16)
project(use C)
find_package(dpx REQUIRED)
add_executable(use use.c)
target_link_libraries(use dpx::dpx)
END
cat >"$tmp/use/use.c" <<'END'
#include <dpx.h>
#include <stdio.h>
int main(void) { return puts(dpx_version()) < 0; }
END
builds() {
    cmake -S "$tmp/use" -B "$tmp/use/b" -DCMAKE_PREFIX_PATH="$tmp/dpx" && cmake --build "$tmp/use/b" && "$tmp/use/b/use" | grep -q '^[0-9]'
}
check 'find_package(dpx) builds a program that asks libdpx' "$(builds >"$tmp/log" 2>&1 || tail -8 "$tmp/log")"
finish
