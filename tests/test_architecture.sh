#!/bin/sh
# tests/test_architecture.sh -- what no compiler checks: who includes whom, what
# the programs link, where names may occur, and that the sources stay readable.
# Runs from the root of the tree; $B is where it was built.
. tests/check.sh
B=${B:-build}

# Text files of the tree, of the names given.
sources() {
    for name in "$@"; do
        find . \( -path './build*' -o -path "./$B" -o -path ./carry -o -path ./.git -o -path ./.venv \) -prune -o -type f -name "$name" -print
    done | sed 's,^\./,,' | sort
}

# includes FOLDERS FILE...: our own headers that the files take from elsewhere.
includes() {
    allowed=$1
    shift
    [ $# = 0 ] || awk -v allowed=" $allowed " '
        /^[ \t]*#[ \t]*include[ \t]*"/ {
            split($0, quoted, "\""); header = quoted[2]
            if (header == "version.h" && FILENAME == "model/opts.c")
                next
            folder = header; sub(/\/.*/, "", folder)
            if (!index(header, "/") || !index(allowed, " " folder " "))
                print FILENAME ":" FNR ": includes " header
        }' "$@"
}

# The files of a folder but its main program and what else the pattern names.
files() {
    find "$1" -maxdepth 1 -type f \( -name '*.[ch]' -o -name '*.cu' \) 2>/dev/null |
        grep -vE "/dpx[a-z_]*\.[ch]\$${2:+|$2}" | sort
}

# The files without their comments, each line as FILE:LINE:text.
without_comments() {
    [ $# = 0 ] || awk '
        FNR == 1 { inside = 0 }
        {
            line = $0; out = ""
            while (line != "") {
                if (inside) {
                    if (!(at = index(line, "*/"))) break
                    line = substr(line, at + 2); inside = 0
                } else if (match(line, /\/\*|\/\//)) {
                    out = out substr(line, 1, RSTART - 1)
                    if (substr(line, RSTART, 2) == "//") break
                    line = substr(line, RSTART + 2); inside = 1
                } else {
                    out = out line; break
                }
            }
            if (out ~ /[^ \t]/) print FILENAME ":" FNR ":" out
        }' "$@"
}

# shellcheck disable=SC2046
{
check 'model includes model only'            "$(includes 'model' $(files model))"
check 'sim includes sim and model only'      "$(includes 'sim model' $(files sim))"
check 'exec includes exec and model only'    "$(includes 'exec model' $(files exec))"
check 'the store includes calib and model only' "$(includes 'calib model' $(files calib '/bench[^/]*$'))"
check 'the benchmarks include calib, exec and model only' \
    "$(includes 'calib exec model' $(find calib -name 'bench*.[ch]' 2>/dev/null))"
check 'reports include reports, sim, calib and model only' \
    "$(includes 'reports sim calib model' $(files reports))"
check 'dpxplan*.c join model, sim and the store' \
    "$(includes 'model sim calib' $(find sim -name 'dpxplan*.[ch]' 2>/dev/null))"

check 'dpxrun*.c join model, sim, exec and the store' \
    "$(includes 'model sim exec calib' $(find exec -name 'dpxrun*.[ch]' 2>/dev/null))"

check 'model knows no clock, thread, MPI, CUDA or SQL' \
    "$(grep -nE '#[[:space:]]*include <(time|sys/time|pthread|threads|mpi|cuda.*|nccl|sqlite3)\.h>' $(files model) /dev/null)"
check 'SQL only in calib' \
    "$(grep -nE '#[[:space:]]*include <sqlite3' $(files model) $(files sim) $(files exec) $(files reports) /dev/null)"
check 'no strategy is named in exec outside comments' \
    "$(without_comments $(files exec) $(find exec -name 'dpx*.c' 2>/dev/null) |
        grep -iE '(^|[^a-z])(strat_|ddp|zero_?-?[123]|fsdp[12]?|hsdp|deepspeed)|"dp"')"
}

if [ -x "$B/dpxplan" ]; then
    check 'dpxplan links neither MPI nor CUDA' \
        "$(readelf -d "$B/dpxplan" | grep -i 'needed.*\(mpi\|cuda\|nccl\|cublas\)')"
elif [ -f sim/dpxplan.c ]; then
    check 'dpxplan links neither MPI nor CUDA' "$B/dpxplan was not built"
else
    skip 'dpxplan links neither MPI nor CUDA' 'there is no dpxplan yet'
fi

check 'the compiler had nothing to say' \
    "$(find "$B" -path "$B/fuzz" -prune -o -name '*.warn' -size +0 -print | while read -r warn; do
        source=${warn#"$B"/}; source=${source%.o.warn}
        [ ! -f "$source" ] || cat "$warn"
    done)"

# Headers but for those that stand in for other people's.
ours() {
    sources '*.h' | grep -vE '^(tests/emu/include|exec/nompi|exec/nodnnl|tests/gpu/bare)/'
}

check 'every header has its own include guard' \
    "$(for h in $(ours); do
        guard=$(sed -n 's/^#ifndef \(DPX_[A-Z0-9_]*\)$/\1/p; /^#ifndef/q' "$h")
        [ -n "$guard" ] && grep -q "^#define $guard\$" "$h" || echo "$h: no #ifndef DPX_..._H with its #define"
    done; ours | xargs sed -n 's/^#ifndef \(DPX_[A-Z0-9_]*_H\)$/\1: a guard used twice/p' | sort | uniq -d)"

check 'every header compiles by itself' \
    "$(for h in $(ours | grep -E '^(model|sim|exec|calib|reports|tests)/' | grep -v '_body\.h'); do
        case $h in
        tests/emu/fiber.h|tests/emu/internal.h)
            ${CXX:-g++} -std=c++17 -DDPX_EMU -I. -Itests/emu/include -fsyntax-only -x c++ "$h" 2>&1 ;;
        tests/emu/*)
            ${MPICC:-mpicc} -std=c17 -D_POSIX_C_SOURCE=200809L -DDPX_EMU -I. -I"$B" -Itests/emu/include -fsyntax-only -x c "$h" 2>&1 ;;
        *)
            ${MPICC:-mpicc} -std=c17 -I. -I"$B" -fsyntax-only -x c "$h" 2>&1 ;;
        esac
    done)"

check 'no path of somebody'"'"'s machine' \
    "$(sources Makefile '*.[ch]' '*.cu' '*.sh' '*.md' '*.py' '*.json' '*.yaml' '*.txt' .gitignore run |
        xargs grep -nE '(^|[^[:alnum:]_./-])/(home|Users|root|work|workspace|mnt|scratch)/' |
        cut -c 1-200 | head -n 20)"

check 'no source of more than 700 lines, unless generated' \
    "$(for f in $(sources '*.[ch]' '*.cu' '*.sh' '*.py' Makefile); do
        n=$(wc -l <"$f")
        [ "$n" -le 700 ] || head -n 3 "$f" | grep -qi 'generated by' || echo "$f: $n lines"
    done)"

check 'every folder with sources has a README.md' \
    "$(for d in model sim exec calib reports tests; do
        [ -z "$(find $d -name '*.c' 2>/dev/null | head -n 1)" ] || [ -f $d/README.md ] || echo "$d/README.md is missing"
    done)"

finish
