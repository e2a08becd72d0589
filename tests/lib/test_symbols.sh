#!/bin/sh
# tests/lib/test_symbols.sh -- what libdpx shows, and what it keeps: only dpx_*, and nothing that two calls could share.
. tests/check.sh
B=${B:-build}
so=$B/libdpx.so.0
if [ ! -f "$so" ]; then
    check 'the library was built' "$so is missing"
    finish
fi

check 'only dpx_* can be called, by version' \
    "$(nm -D --defined-only "$so" | awk '$2 != "A" && $3 !~ /^dpx_[a-z]+@@DPX_1$/' | grep -vE ' (_init|_fini|__asan_|__tsan_|__odr_asan)')"
check 'dpx.map and dpx.h name the same functions' \
    "$(sed -n 's/^ *\(dpx_[a-z]*\);$/\1/p' lib/dpx.map | sort >"$B/libdpx.map.names"
       grep -oE '^(int|void|const char \*) ?\*?dpx_[a-z]+\(' lib/dpx.h | sed 's/.*\(dpx_[a-z]*\)(/\1/' | sort | diff "$B/libdpx.map.names" -
       rm -f "$B/libdpx.map.names")"
check 'its name for the loader is libdpx.so.0' \
    "$(readelf -d "$so" | grep -q 'SONAME.*\[libdpx.so.0\]' || readelf -d "$so" | grep SONAME)"
check 'it links neither MPI nor CUDA' "$(readelf -d "$so" | grep -i 'needed.*\(mpi\|cuda\|nccl\|cublas\)')"

# A library that prints would spoil the output of the program that it is in.  fail() and notes_say() have stderr for
# threads that have not set a place for messages: every call of the library sets one.
check 'it cannot print on standard output, end the program, or set a signal handler' \
    "$(nm -D --undefined-only "$so" | awk '{ sub(/@.*/, "", $2); print $2 }' | grep -xE 'stdout|v?printf|puts|putchar|exit|_exit|signal|sigaction|setlocale')"

# kept.c: the fits that came with dpx, which the first call that needs them reads under a lock and none changes.
# Writable data: the compiler's own start-up code has completed.0, and sanitizers theirs.  What a thread has for itself
# (.tbss, .tdata) is not shared.  Tables with addresses are .data.rel.ro, read-only once loaded.
if nm -D "$so" | grep -qE '__(asan|tsan)_init'; then
    skip 'no state is shared by two calls' 'a sanitizer has tables of its own'
else
    check 'no state is shared by two calls' \
        "$(objdump -t "$so" | awk '$4 ~ /^\.(data|bss)$/ || $3 ~ /^\.(data|bss)$/ { print $NF }' |
            grep -vxE 'completed\.0|kept_lock|kept_files|__TMC_END__|__dso_handle|\.data|\.bss|__bss_start|_edata|_end')"
fi
# The same of every object that programs and the library share, so that a new static buffer is seen at once, in the
# library or not.  opts*.c: tables of the manual page; output.c: files to remove when a signal ends a program; progress.c:
# whether Ctrl-C was pressed; answer.c: whether --json was asked for; cmd_*.c: a command runs once; kept.c: as above; http.c: functions of a library that is loaded once.
check 'rooms for planning keep no state' \
    "$(find "$B/base" "$B/model" "$B/sim" "$B/calib/store" -name '*.c.o' | while read -r o; do
        case $o in
        "$B"/base/answer.c.o|"$B"/base/opts.c.o|"$B"/base/opts_format.c.o|"$B"/base/output.c.o|"$B"/sim/plan/progress.c.o|"$B"/sim/plan/cmd_list.c.o|"$B"/sim/serve/http.c.o|"$B"/calib/store/kept.c.o) continue ;;
        esac
        source=${o#"$B"/}
        [ -f "${source%.o}" ] || continue              # left over from a source that is gone
        objdump -t "$o" | awk -v o="$o" '
            { section = $4 ~ /^\./ ? $4 : $3 }
            section ~ /^\.(data|bss)(\.|$)/ && section !~ /rel\.ro/ && $NF !~ /^(\.|__)/ { print o ": " $NF }'
    done | grep -vE '__(asan|tsan|odr)')"
finish
