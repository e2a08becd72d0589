#!/bin/sh
# tests/test_architecture.sh -- what no compiler checks: who includes whom, what
# the programs link, where names may occur, and that the sources stay readable.
# Runs from the root of the tree; $B is where it was built.
. tests/check.sh
B=${B:-build}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
named=$scratch/named

# Text files of the tree, of the names given.
sources() {
    for name in "$@"; do
        find . \( -path './build*' -o -path "./$B" -o -path ./carry -o -path ./.git -o -path ./.venv \) -prune -o -type f -name "$name" -print
    done | sed 's,^\./,,' | sort
}

# The rooms of the Makefile, a line each: NAME, then the rooms that it may use.
rooms() {
    sed -n 's/^\$(call room, *\([a-z0-9_/]*\), *\(.*\))$/\1 \2/p' Makefile
}

# The files of a room but those of main programs, which may use every room that they link.
files() {
    find "$1" -maxdepth 1 -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | grep -vE '/dpx[a-z_]*\.[ch]$' | sort
}
below() {
    find "$@" -type f \( -name '*.[ch]' -o -name '*.cu' \) | grep -vE '/dpx[a-z_]*\.[ch]$' | sort
}

# Includes of our own headers from rooms that the room's row does not name.
includes() {
    rooms | while read -r room may; do
        # shellcheck disable=SC2046
        awk -v room="$room" -v may=" $room $may " '
            /^[ \t]*#[ \t]*include[ \t]*"/ {
                split($0, quoted, "\""); header = quoted[2]
                if (header == "dpx_version.h" && FILENAME == "base/version.c" || header ~ /^tests\/emu\//)
                    next
                from = header; sub(/\/[^\/]*$/, "", from)
                if (!index(may, " " from " "))
                    print FILENAME ":" FNR ": " room " includes " header
            }' $(files "$room")
    done
}

# Functions and variables that a room uses of rooms that its row does not name.
symbols() {
    rooms | while read -r room may; do
        [ ! -f "$B/$room.a" ] || nm -A -g "$B/$room.a" 2>/dev/null | awk -v room="$room" -v may="$may" '
            NF == 3 && $2 ~ /^[TDBRCV]$/ { print "D", $3, room }
            NF == 3 && $2 == "U" { split($1, part, ":"); print "U", $3, room, part[2], may }'
    done | awk '
        $1 == "D" { home[$2] = $3 }
        $1 == "U" { n++; symbol[n] = $2; user[n] = $3; file[n] = $4; $1 = $2 = $3 = $4 = ""; may[n] = " " user[n] " " $0 " " }
        END {
            for (i = 1; i <= n; i++)
                if (symbol[i] in home && !index(may[i], " " home[symbol[i]] " "))
                    print user[i] "/" file[i] " uses " symbol[i] " of " home[symbol[i]]
        }'
}

# Functions that only their own file calls.  Called are those that another object asks for; and what tests, CUDA's sources, Python and
# JavaScript name, whose objects may not be there.
only_here() {
    find "$B" -name '*.o' ! -path "$B/fuzz/*" -exec nm -A -g {} + 2>/dev/null >"$scratch/symbols"
    {
        awk '$2 == "U" { print "called", $3 }' "$scratch/symbols"
        find exec lib page tests -type f \( -path 'exec/cuda/*' -o -name '*.cu' -o -name '*.cc' -o -name '*.py' -o -name '*.js' -o -path 'tests/*.[ch]' \) -exec cat {} + |
            tr -c 'A-Za-z0-9_' '\n' | sort -u | sed 's/^/called /'
        awk -v built="$B/" '$2 == "T" && $3 !~ /^_|^main$|^(nccl|cublasLt)[A-Z]/ && index($1, built "tests/") != 1 {
            split($1, at, ":"); sub(/\.o$/, "", at[1]); print substr(at[1], length(built) + 1) ": " $3 }' "$scratch/symbols"
    } | awk '$1 == "called" { called[$2]; next } !($2 in called)'
}

# Rooms that are not above the room that may use them; rows of folders that are not there; folders without a row.
order() {
    rooms | awk '{ for (i = 2; i <= NF; i++) if (!($i in above)) print $1 " may use " $i ", which is not above it"; above[$1] }'
    rooms | while read -r room may; do [ -d "$room" ] || echo "$room is no folder"; done
    find base model sim exec calib reports -name '*.c' | sed 's,/[^/]*$,,' | sort -u |
        grep -vxE 'calib|reports|exec/nompi|exec/nodnnl|calib/nodb' | while read -r folder; do
        rooms | grep -q "^$folder " || echo "$folder is no room of the Makefile"
    done
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
check 'every folder of sources is a room, and rooms use only rooms above them' "$(order)"
check 'a room includes headers only of rooms that its row names' "$(includes)"
check 'a room uses functions only of rooms that its row names' "$(symbols)"
check 'rooms of model are open to no other library' \
    "$(rooms | awk '$1 ~ /^(base|model)/' | grep -E ' (sim|exec|calib|reports)/')"
# LitGPT has names and block classes of its own for two families.
check 'what a family does is in its file: no other compares its name' \
    "$(grep -nE 'strn?cmp\([^,]*family, *"' $(below base model sim exec reports) /dev/null | grep -v '^model/form/form_litgpt.c:')"
check 'a family is told by its whole name' "$(grep -nE 'strncmp\([^,]*family,' $(below base model sim exec reports) /dev/null)"
check 'planning uses nothing that runs' "$(rooms | awk '$1 ~ /^sim/' | grep -E ' (exec|reports)/')"

check 'model knows no clock, MPI, CUDA or SQL, and threads only through parallel_each()' \
    "$(grep -nE '#[[:space:]]*include <(time|sys/time|pthread|threads|mpi|cuda.*|nccl|sqlite3)\.h>' $(below base model) /dev/null |
        grep -v '^base/parallel.c:')"
check 'what is sorted keeps its ties in order: no qsort(), whose ties differ from library to library' \
    "$(without_comments $(below base model sim calib reports) $(find base model sim calib reports -name 'dpx*.c') | grep -E '[^a-z_]qsort\(')"
check 'SQL only in calib' \
    "$(grep -nE '#[[:space:]]*include <sqlite3' $(below base model sim exec reports) /dev/null)"
# exec/engine/ starts frameworks, whose interfaces are told by these very names.
executor=$(below exec | grep -v '^exec/engine/')
check 'neither clock, prices nor executor ask for strategy, dialect or version' \
    "$(without_comments $(below sim/clock sim/price) $executor |
        grep -E '(->|[.])(strategy|dialect)([^a-z_]|$)|(^|[^A-Z_])(STRAT|DIALECT)_|plan_version|plan_has_deepspeed|framework_version')"
# Examples of --help name files of demo/.
check 'no strategy is named in exec outside comments' \
    "$(without_comments $executor $(find exec -name 'dpx*.c') | grep -v 'OPTS_EXAMPLE("dpxrun demo/' |
        grep -iE '(^|[^a-z])(strat_|ddp|zero_?-?[123]|fsdp[12]?|hsdp|deepspeed)|"dp"')"
}

if [ -x "$B/dpxplan" ]; then
    check 'dpxplan links neither MPI nor CUDA' \
        "$(readelf -d "$B/dpxplan" | grep -i 'needed.*\(mpi\|cuda\|nccl\|cublas\)')"
elif [ -f sim/plan/dpxplan.c ]; then
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

check 'every test that is a script can be run' "$(for t in tests/test_*.sh tests/*/test_*.sh; do [ -x "$t" ] || echo "$t is not executable"; done)"

check 'what only its own file calls is static' "$(only_here)"

check 'every header has its own include guard' \
    "$(for h in $(ours); do
        guard=$(sed -n 's/^#ifndef \(DPX_[A-Z0-9_]*\)$/\1/p; /^#ifndef/q' "$h")
        [ -n "$guard" ] && grep -q "^#define $guard\$" "$h" || echo "$h: no #ifndef DPX_..._H with its #define"
    done; ours | xargs sed -n 's/^#ifndef \(DPX_[A-Z0-9_]*_H\)$/\1: a guard used twice/p' | sort | uniq -d)"

check 'every header compiles by itself' \
    "$(for h in $(ours | grep -E '^(base|model|sim|exec|calib|reports|lib|tests)/' | grep -v '_body\.h'); do
        case $h in
        tests/emu/fiber.h|tests/emu/internal.h)
            ${CXX:-g++} -std=c++17 -DDPX_EMU -I. -Itests/emu/include -fsyntax-only -x c++ "$h" 2>&1 ;;
        tests/emu/*)
            ${MPICC:-mpicc} -std=c17 -D_POSIX_C_SOURCE=200809L -DDPX_EMU -I. -I"$B" -Itests/emu/include -fsyntax-only -x c "$h" 2>&1 ;;
        *)
            ${MPICC:-mpicc} -std=c17 -D_POSIX_C_SOURCE=200809L -I. -I"$B" -fsyntax-only -x c "$h" 2>&1 ;;
        esac
    done)"

check 'no path of somebody'"'"'s machine' \
    "$(sources Makefile '*.[ch]' '*.cu' '*.sh' '*.md' '*.py' '*.js' '*.css' '*.html' '*.json' '*.yaml' '*.txt' .gitignore run |
        xargs grep -nE '(^|[^[:alnum:]_./-])/((home|Users|root|work|workspace|mnt|scratch)/|tmp/[^ "]*/tests/)' |
        cut -c 1-200 | head -n 20)"

check 'no source of more than 700 lines, unless generated' \
    "$(for f in $(sources '*.[ch]' '*.cu' '*.sh' '*.py' '*.js' '*.css' '*.html' Makefile); do
        n=$(wc -l <"$f")
        [ "$n" -le 700 ] || head -n 3 "$f" | grep -qi 'generated by' || echo "$f: $n lines"
    done)"

check 'every source of ours says first what it is for' \
    "$(for f in $(sources '*.c' '*.cu' '*.js'); do
        case $(head -c 2 "$f") in '/*'|'//') ;; *) echo "$f" ;; esac
    done)"

check 'every folder with sources has a README.md' \
    "$(for d in base model sim exec calib reports lib page tests; do
        [ -z "$(find $d -name '*.c' 2>/dev/null | head -n 1)" ] || [ -f $d/README.md ] || echo "$d/README.md is missing"
    done)"

# The page: what is in it, and that texts of others reach it as text.
check 'every script of the page is in it' \
    "$(for f in page/*.js; do grep -q "$f" page/make.sh || echo "$f is not joined by page/make.sh"; done)"
check 'the page makes no markup of texts, and runs none' \
    "$(grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|[^a-z_]eval\(|new Function' page/*.js)"
check 'the page asks no host' \
    "$(grep -nE 'fetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|https?://' page/*.js page/*.css page/index.html | grep -v "^page/chart.js:[0-9]*:const SVG = " |
        grep -vF "const r = await fetch('/ask/' + call, {")"

# Rows of tests/README.md's last table as SOURCE TEST..., a line each.
source_tests() {
    sed -n '/^## Sources and their tests/,$p' tests/README.md | awk -F ' *[|] *' '
        $2 != "room" && $2 !~ /^-/ && NF == 5 { n = split($3, f, " "); for (i = 1; i <= n; i++) print $2 "/" f[i], $4 }'
}
check 'a make target that a page names is there' "$(
    grep -rhoE '(`|^    (\$ )?)make ([A-Z0-9]+=[^ `]+ )*[a-z][a-z0-9-]+' README.md $(find docs -name "*.md") ./*/README.md tests/*/README.md |
        grep -oE '[a-z][a-z0-9-]+$' | sort -u | while read -r target; do grep -qE "^([a-z0-9 -]+ )?$target( [a-z0-9 -]*)?:" Makefile || echo "make $target"; done)"

check 'tests/README.md names the tests of every source' \
    "$(source_tests | while read -r source tests; do
        for s in $source; do echo "$s" >&3; done        # *.c: all of a folder
        [ -n "$tests" ] || echo "$source: no test"
        for t in $tests; do [ -f "tests/$t" ] || echo "$source: there is no tests/$t"; done
    done 3>"$named"
    sort "$named" | uniq -d | sed 's/$/: twice/'
    find base model sim exec calib reports lib page \( -name '*.c' -o -name '*.cu' \) | grep -v '^exec/no' | sort >"$named.all"
    sort -u "$named" | diff "$named.all" - | sed -n 's/^< \(.*\)/\1: not in the table/p; s/^> \(.*\)/\1: no such source/p')"

# What a file's externals may begin with beside words of its name: short forms of a family of files, and what two
# files of one concept share.
prefixes='schedule: sched coll
tape_ops: op
torch_parts tape_loss tape_liger: op
framework: dialect plan
program_dpx: dpx
program_dpx_block: dpx
lower_zero12*: z12
lower_zero3* zero3*: z3
ddp_buckets lower_ddp: zro
transformer hf_config hf_write builtin: model
host: cluster
query: db
op_cost: cost
issue_cost: op
timeline: run
series: calibration
instances: inst view act
evaluate: evaluation
exec_coll exec_compute exec_copy exec_finite exec_kernel exec_memory exec_optim exec_quant exec_low_rank: executor
kernels_attention: attention host
kernels_linear kernels_host_rows: host
kernels_host_rows: rows
estimators: estimate
plan: dialect strategy
program: piece
schedule_print: sched
kernels_open: dropout
embed norms loss: rows
sums: elements
size: count length
pinned: pageable
dtype: checked
opts_value opts_json: opts
opts_format: commands'
check 'externals begin with a word of their file, or end as its enumerations do' \
    "$(rooms | while read -r room may; do
        [ ! -f "$B/$room.a" ] || nm -A -g "$B/$room.a" 2>/dev/null | awk -v room="$room" -v short="$prefixes" '
            BEGIN {
                lines = split(short, line, "\n")
                for (i = 1; i <= lines; i++) {
                    split(line[i], part, ":"); n = split(part[1], of, " "); k = split(part[2], form, " ")
                    for (a = 1; a <= n; a++) for (b = 1; b <= k; b++) other[of[a]] = other[of[a]] " " form[b]
                }
            }
            function begins(s, word) { sub(/s$/, "", word); return s == word || index(s, word "_") == 1 || s == word "s" || index(s, word "s_") == 1 }
            $1 ~ /:loaded\.c/ && $3 ~ /^(nccl|cublasLt)[A-Z]/ { next }     # stand for the functions of libraries that it loads
            NF == 3 && $2 ~ /^[TDBR]$/ && $3 !~ /^_Z|_(name|words)$/ {
                split($1, where, ":"); file = where[2]; sub(/\..*/, "", file)
                more = other[file]
                for (f in other)
                    if (f ~ /\*$/ && index(file, substr(f, 1, length(f) - 1)) == 1) more = more other[f]
                n = split(file more, word, /[_ ]/); ok = 0
                for (i = 1; i <= n; i++) ok = ok || begins($3, word[i])
                if (!ok) print room "/" where[2] ": " $3
            }'
    done)"

finish
