#!/bin/sh
# tools/install-deps.sh GROUP... -- installs what building (build), testing
# (test) and fuzzing (fuzz) need and this machine lacks, and what they can do without (more): Debian and Ubuntu
# packages, as root or through a sudo that asks for no password.
#
# What counts is whether the compiler finds a thing, not what a package
# database says.  Where nothing is missing, nothing is run and nothing said.
# What cannot be installed is named, with what it is for, and the exit is 1; but for what tests can do without (?).
#
# MPI=0, DNNL=0 and CARRY=DIR, as for make: those are then not needed.  CUDA is the user's to install.

# group | packages (with ?: where the distribution has it) | header | library | for
table='
build | gcc libc6-dev            |           |         | the C compiler
build | libjansson-dev           | jansson.h | jansson | JSON: model configs, plans, clusters
build | libyaml-dev              | yaml.h    | yaml    | YAML: accelerate configs
build | libsqlite3-dev           | sqlite3.h | sqlite3 | the database
build | libdnnl-dev              | dnnl.h    | dnnl    | oneDNN: matrix products of dpxrun
build | zlib1g-dev               | zlib.h    | z       | gzip: traces of the PyTorch profiler
build | libopenmpi-dev openmpi-bin | mpi     |         | Open MPI: ranks of dpxrun
build | libmicrohttpd-dev?       | microhttpd.h | microhttpd | dpxplan serve (without it: the page as a file alone)
test  | libcmocka-dev            | cmocka.h  | cmocka  | unit tests
test  | binutils                 | readelf   |         | tests of what the programs link
test  | g++                      | c++       |         | the emulator of CUDA that tests run on
test  | valgrind?                | valgrind  |         | instructions of evaluations (without it: not counted)
fuzz  | clang libclang-rt-dev?   | fuzzer    |         | libFuzzer: make fuzz
wheel | patchelf                 | patchelf  |         | libraries of the wheel that find each other
wheel | binutils                 | readelf   |         | strip and objdump
wheel | python3                  | python3   |         | tools/wheel.py
more  | liburing-dev pkg-config  | liburing.h | uring  | io_uring: files of offloaded buffers (without it: threads)
'

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# compiles HEADERS LIBS: does the compiler find them all?
compiles() {
    {
        # cmocka.h expects these before it.
        printf '#include <%s.h>\n' stdarg stddef stdint setjmp
        for h in $1; do echo "#include <$h>"; done
        echo 'int main(void) { return 0; }'
    } >"$tmp/probe.c"
    # shellcheck disable=SC2046,SC2086
    ${CC:-cc} -o "$tmp/probe" "$tmp/probe.c" $(printf -- '-l%s ' $2) 2>/dev/null
}

fuzzer_works() {
    echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n > 9; }' >"$tmp/probe.c"
    clang -w -fsanitize=fuzzer,address,undefined -o "$tmp/probe" "$tmp/probe.c" 2>/dev/null
}

mpi_works() {
    echo '#include <mpi.h>
        int main(void) { return MPI_THREAD_MULTIPLE == 0; }' >"$tmp/probe.c"
    command -v mpirun >/dev/null && ${MPICC:-mpicc} -o "$tmp/probe" "$tmp/probe.c" 2>/dev/null
}

cxx_works() {
    printf '#include <atomic>\nint main() { return std::atomic<int>(0); }\n' >"$tmp/probe.cc"
    ${CXX:-c++} -std=c++17 -o "$tmp/probe" "$tmp/probe.cc" 2>/dev/null
}

# What make was asked to do without, or to take from elsewhere.
spared() {
    case $1 in
    mpi)     [ "$MPI" = 0 ] ;;
    dnnl.h)  [ "$DNNL" = 0 ] ;;
    sqlite3.h | jansson.h | yaml.h | zlib.h) [ -n "$CARRY" ] && [ -f "$CARRY/include/$1" ] ;;
    *)       false ;;
    esac
}

present() {     # HEADER LIBRARY of a row
    case $1 in
    '')      compiles '' c ;;
    readelf | valgrind | patchelf | python3) command -v "$1" >/dev/null ;;
    mpi)     mpi_works ;;
    c++)     cxx_works ;;
    fuzzer)  fuzzer_works ;;
    *)       compiles "$1" "$2" ;;
    esac
}

# The rows of the groups asked for that are not present, to $tmp/missing.
find_missing() {
    : >"$tmp/missing"
    echo "$table" | while IFS='|' read -r group packages header library purpose; do
        # Every word stands after one space and before the padding.
        [ -n "$group" ] || continue
        case " $groups " in *" ${group%% *} "*) ;; *) continue ;; esac
        header=${header## } library=${library## }
        # shellcheck disable=SC2086
        spared "${header%% *}" || present "${header%% *}" "${library%% *}" || echo $packages '|' $purpose >>"$tmp/missing"
    done
    [ ! -s "$tmp/missing" ]
}

# In the usual case, that all is there, one compilation shows it.
all_there() {
    case " $groups " in
    *' fuzz '* | *' more '* | *' wheel '*) return 1 ;;
    *' test '*) compiles "$build cmocka.h" 'jansson yaml sqlite3 dnnl z microhttpd cmocka' && present readelf && present valgrind && mpi_works && cxx_works ;;
    *)          compiles "$build" 'jansson yaml sqlite3 dnnl z microhttpd' && mpi_works ;;
    esac
}

give_up() {
    {
        echo "dpx: $1"
        echo 'dpx: please install (Debian and Ubuntu names; the compiler must find them):'
        sed 's/?//g; s/ | /    for /; s/^/    /' "$tmp/missing"
        echo "    apt-get install $(packages | sed 's/?//g')"
    } >&2
    exit 1
}

packages() {
    sed 's/ | .*//' "$tmp/missing" | tr '\n' ' '
}

apt() {
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q \
        -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >>"$tmp/log" 2>&1
}

# What the package lists know of, without the marks.
known() {
    for p in $(packages); do
        case $p in
        *'?') apt-cache show "${p%?}" >/dev/null 2>&1 && echo "${p%?}" ;;
        *)    echo "$p" ;;
        esac
    done
}

# Nothing is missing that cannot be done without: rows of which every package has a mark.
only_optional() { ! grep -qvE '^([^ ]+\? )+\|' "$tmp/missing"; }

groups=$*
build='jansson.h yaml.h sqlite3.h dnnl.h zlib.h microhttpd.h'
all_there && exit 0
find_missing && exit 0

command -v apt-get >/dev/null || ! only_optional || exit 0
command -v apt-get >/dev/null || give_up 'something is missing, and there is no apt-get to install it with'
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root='sudo -n'
    $as_root true 2>/dev/null || ! only_optional || exit 0
    $as_root true 2>/dev/null ||
        give_up 'something is missing; installing it needs root, or sudo without a password'
fi
echo 'dpx: installing with apt-get:' >&2
sed 's/?//g; s/ | /    for /; s/^/    /' "$tmp/missing" >&2

# The package lists may be absent or too old: updated only when it fails without.
# shellcheck disable=SC2046
apt install --no-install-recommends $(known) || {
    apt update
    apt install --no-install-recommends $(known)
} || {
    only_optional && exit 0
    tail -n 15 "$tmp/log" >&2
    give_up 'apt-get failed'
}
find_missing || only_optional || give_up 'installed, but the compiler still does not find it'
