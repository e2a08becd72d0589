#!/bin/sh
# page/third.sh DIR -- jansson and libyaml for WebAssembly, from the distribution's source packages:
# DIR/lib/libjansson.a, DIR/lib/libyaml.a and their headers in DIR/include.
#
# The sources are fetched by apt-get with lists of its own below DIR, so that the machine's stay as they are; or, where
# there is no network, PAGE_SOURCES=FOLDER holds jansson_*.orig.tar.* and libyaml_*.orig.tar.*.  What is missing is said
# by name, exit 1.
dir=${1:?}
[ ! -f "$dir/lib/libjansson.a" ] || [ ! -f "$dir/lib/libyaml.a" ] || exit 0
lists=$dir/apt
mkdir -p "$dir/src" "$dir/include" "$dir/lib" "$lists/state/partial" "$lists/parts" || exit 1

missing() {
    echo "dpx: no page: $1" >&2
    exit 1
}

# Every source of packages of this machine, with its sources.
source_lists() {
    for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        case $f in
        *.sources) sed 's/^Types: deb$/Types: deb-src/' "$f" >"$lists/parts/${f##*/}" ;;
        *.list)    sed -n 's/^deb /deb-src /p' "$f" >"$lists/parts/${f##*/}" ;;
        esac 2>/dev/null
    done
}

ours() {
    apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$lists/parts" -o Dir::State::Lists="$lists/state" \
        -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= "$@" >>"$dir/log" 2>&1
}

fetch() {
    if [ -n "$PAGE_SOURCES" ]; then
        cp "$PAGE_SOURCES"/jansson_*.orig.tar.* "$PAGE_SOURCES"/libyaml_*.orig.tar.* "$dir/src/" ||
            missing "PAGE_SOURCES=$PAGE_SOURCES does not hold jansson_*.orig.tar.* and libyaml_*.orig.tar.*"
        return
    fi
    command -v apt-get >/dev/null || missing 'there is no apt-get for the sources of jansson and libyaml; PAGE_SOURCES=FOLDER names them'
    lists=$(cd "$lists" && pwd) log=$(cd "$dir" && pwd)/log
    source_lists
    ours update
    here=$(cd "$dir" && pwd)
    (cd "$here/src" && dir=$here ours source --download-only jansson libyaml) ||
        missing "apt-get has no sources of jansson and libyaml ($log says why); PAGE_SOURCES=FOLDER names them"
}

unpack() {      # NAME: to $dir/src/NAME
    mkdir -p "$dir/src/$1" && tar xf "$dir"/src/"$1"_*.orig.tar.* --strip-components=1 -C "$dir/src/$1" ||
        missing "the source of $1 does not unpack"
}

compile() {     # NAME ARCHIVE FLAGS...
    name=$1 archive=$2
    shift 2
    mkdir -p "$dir/obj/$name"
    for c in "$dir/src/$name"/src/*.c; do
        emcc -O3 -w -I"$dir/include" -I"$dir/src/$name/src" -I"$dir/src/$name/include" "$@" -c -o "$dir/obj/$name/${c##*/}.o" "$c" ||
            missing "emcc does not compile ${c##*/} of $name"
    done
    emar rcs "$dir/lib/$archive" "$dir/obj/$name"/*.o
}

# What jansson's configure would find.
jansson_config() {
    sed -e 's/@json_inline@/inline/; s/@json_have_long_long@/1/; s/@json_have_localeconv@/1/' \
        -e 's/@json_have_atomic_builtins@/1/; s/@json_have_sync_builtins@/1/' \
        "$dir/src/jansson/src/jansson_config.h.in" >"$dir/include/jansson_config.h"
    sed -i 's/@[a-z_]*@/0/' "$dir/include/jansson_config.h"
    for h in STDINT_H UNISTD_H FCNTL_H LOCALE_H SYS_TYPES_H SYS_TIME_H SYS_STAT_H GETTIMEOFDAY; do
        echo "#define HAVE_$h 1"
    done >"$dir/include/jansson_private_config.h"
    echo '#define INITIAL_HASHTABLE_ORDER 3' >>"$dir/include/jansson_private_config.h"
    cp "$dir/src/jansson/src/jansson.h" "$dir/include/"
}

command -v emcc >/dev/null || missing 'emcc is not there (Debian and Ubuntu: apt-get install emscripten node-acorn)'
fetch
unpack jansson
unpack libyaml
jansson_config
cp "$dir/src/libyaml/include/yaml.h" "$dir/include/"
compile jansson libjansson.a -DHAVE_CONFIG_H
compile libyaml libyaml.a -DYAML_DECLARE_STATIC -DYAML_VERSION_MAJOR=0 -DYAML_VERSION_MINOR=2 -DYAML_VERSION_PATCH=5 \
    '-DYAML_VERSION_STRING="0.2.5"'
