# check.sh -- for test scripts: source it, call check() for each thing that must
# hold, end with `finish`.  Speaks as cmocka does, so that tests/run.sh can count.
#
#     check 'what must hold' "$complaints"       passes when there are none
#     skip  'what must hold' 'why it cannot be tested here'
# shellcheck shell=sh
passed=0 failed=0 skipped=0

check() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
        echo "[       OK ] $1"
    else
        failed=$((failed + 1))
        printf '%s\n' "$2"
        echo "[  FAILED  ] $1"
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "[  SKIPPED ] $1: $2"
}

finish() {
    echo "[==========] $((passed + failed + skipped)) test(s) run."
    echo "[  PASSED  ] $passed test(s)."
    [ $skipped = 0 ] || echo "[  SKIPPED ] $skipped test(s), listed below:"
    [ $failed = 0 ] || echo "[  FAILED  ] $failed test(s), listed below:"
    [ $failed = 0 ]
    exit
}
