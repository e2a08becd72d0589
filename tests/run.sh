#!/bin/sh
# tests/run.sh STATUS TEST... -- runs every test, counts what they counted.
#
# STATUS is how the build ended.  A test is a program or a script that closes
# with cmocka's lines ("[  PASSED  ] 4 test(s).", "[  FAILED  ] 1 test(s), ...").
# One that was not built, dies, hangs, or ends badly without a failure of its
# own counts as one failed.  The last lines are the ten that took longest, and
# the sum.
build=$1
shift
passed=0 failed=0 skipped=0 bad=
out=$(mktemp) || exit 1
took=$(mktemp) || exit 1
trap 'rm -f "$out" "$took"' EXIT
trap 'exit 130' INT TERM

if [ "$build" != 0 ]; then
    failed=1 bad=' build'
fi
for t in "$@"; do
    echo "== $t"
    begun=$(date +%s)
    timeout -k 10 "${TEST_TIMEOUT:-600}" "$t" >"$out" 2>&1 </dev/null
    status=$?
    echo "$(($(date +%s) - begun)) s  $t" >>"$took"
    cat "$out"
    # A group's name may stand before the count.
    counts=$(LC_ALL=C awk '
        / test\(s\)/ { n = $0; sub(/ test\(s\).*/, "", n); sub(/.* /, "", n) }
        /^\[  PASSED  \].* test\(s\)/ { p += n; seen = 1 }
        /^\[  FAILED  \].* test\(s\), listed/ { f += n }
        /^\[  SKIPPED \].* test\(s\), listed/ { s += n }
        END { print p + 0, f + 0, s + 0, seen + 0 }' "$out")
    # shellcheck disable=SC2086
    set -- $counts
    passed=$((passed + $1)) skipped=$((skipped + $3))
    wrong=$2
    if [ "$wrong" = 0 ] && { [ $status != 0 ] || [ "$4" = 0 ]; }; then
        echo "$t: exit status $status$([ "$4" = 0 ] && echo ', no closing line')"
        wrong=1
    fi
    failed=$((failed + wrong))
    [ "$wrong" = 0 ] || bad="$bad $t"
done

echo
echo 'longest:'
sort -rn "$took" | head -n 10
[ -z "$bad" ] || echo "failed:$bad"
echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ]
