#!/bin/sh
# tests/run.sh STATUS TEST... -- runs every test, counts what they counted.
#
# STATUS is how the build ended.  A test is a program or a script that closes
# with cmocka's lines ("[  PASSED  ] 4 test(s).", "[  FAILED  ] 1 test(s), ...").
# One that was not built, dies, hangs, or ends badly without a failure of its
# own counts as one failed.  The last lines are the ten that took longest, how
# long the lanes were, and the sum.
#
# Two lanes, in each one test after the other: in the first what starts ranks,
# which wait for each other most of the time, in the second what has one thread, or
# waits for calibrations and timeouts.  The longest come first, and a lane that is done takes from the other's
# end.  The emulated cluster, whose nodes have the cores for themselves, comes after both.  What
# they say is printed in the order in which they are named.  TEST_LANES=1: all one
# by one.
build=$1
shift
work=$(mktemp -d) || exit 1
trap 'kill $lanes 2>/dev/null; wait; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0 bad= lanes=

for lane in ranks others alone; do : >"$work/$lane"; done
n=0
for t in "$@"; do
    n=$((n + 1)) lane=others
    case $t in
    tests/lab/*) lane=alone ;;
    tests/mpi/test_dpxcal.sh | tests/mpi/test_*faults.sh) ;;
    tests/mpi/* | tests/emu/test_strategies.sh) lane=ranks ;;
    esac
    [ "${TEST_LANES:-2}" = 1 ] && lane=alone
    case $t in
    */test_matrix.sh | */test_grid.sh | */test_device.sh | */test_dpxcal.sh | */test_comm.sh | */test_strategies.sh) long=0 ;;
    *) long=1 ;;
    esac
    echo "$long $n $t" >>"$work/$lane"
done
for lane in ranks others alone; do
    sort -s -n -k1,1 "$work/$lane" | cut -d' ' -f2- >"$work/$lane.sorted"
    mv "$work/$lane.sorted" "$work/$lane"
done

# tests_of LANE: its own, then those of the other lane from the end; whoever makes N.taken has test N.
tests_of() {
    cat "$work/$1"
    case $1 in
    ranks) tac "$work/others" ;;
    others) tac "$work/ranks" ;;
    esac
}

# run_lane LANE [AFTER...].  Result N is the file N.end, "STATUS SECONDS", when N.out is whole.  The shell has
# what runs in the background ignore SIGINT: tests that send it need it.
run_lane() {
    trap 'kill $test 2>/dev/null; exit' TERM
    lane=$1
    shift
    for after in "$@"; do
        until [ -e "$work/$after.done" ]; do sleep 0.1; done
    done
    since=$(date +%s)
    tests_of "$lane" >"$work/$lane.all"
    while read -r n t; do
        mkdir "$work/$n.taken" 2>/dev/null || continue
        begun=$(date +%s)
        env --default-signal=INT timeout -k 10 "${TEST_TIMEOUT:-600}" "$t" >"$work/$n.out" 2>&1 </dev/null &
        test=$!
        wait $test
        echo "$? $(($(date +%s) - begun))" >"$work/$n.part"
        mv "$work/$n.part" "$work/$n.end"
    done <"$work/$lane.all"
    echo $(($(date +%s) - since)) >"$work/$lane.seconds"
    : >"$work/$lane.done"
}
run_lane ranks &
lanes=$!
run_lane others &
lanes="$lanes $!"
run_lane alone ranks others &
lanes="$lanes $!"

if [ "$build" != 0 ]; then
    failed=1 bad=' build'
fi
n=0
for t in "$@"; do
    n=$((n + 1))
    echo "== $t"
    until [ -e "$work/$n.end" ]; do sleep 0.05; done
    read -r status took <"$work/$n.end"
    echo "$took s  $t" >>"$work/took"
    cat "$work/$n.out"
    # A group's name may stand before the count.
    counts=$(LC_ALL=C awk '
        / test\(s\)/ { n = $0; sub(/ test\(s\).*/, "", n); sub(/.* /, "", n) }
        /^\[  PASSED  \].* test\(s\)/ { p += n; seen = 1 }
        /^\[  FAILED  \].* test\(s\), listed/ { f += n }
        /^\[  SKIPPED \].* test\(s\), listed/ { s += n }
        END { print p + 0, f + 0, s + 0, seen + 0 }' "$work/$n.out")
    # shellcheck disable=SC2086
    set -- $counts
    passed=$((passed + $1)) skipped=$((skipped + $3))
    wrong=$2
    if [ "$wrong" = 0 ] && { [ "$status" != 0 ] || [ "$4" = 0 ]; }; then
        echo "$t: exit status $status$([ "$4" = 0 ] && echo ', no closing line')"
        wrong=1
    fi
    failed=$((failed + wrong))
    [ "$wrong" = 0 ] || bad="$bad $t"
    rm "$work/$n.out"
done

echo
echo 'longest:'
sort -rn "$work/took" | head -n "${TEST_LONGEST:-10}"
until [ -e "$work/alone.done" ]; do sleep 0.05; done
echo "lanes: ranks $(cat "$work/ranks.seconds") s, others $(cat "$work/others.seconds") s, alone $(cat "$work/alone.seconds") s"
[ -z "$bad" ] || echo "failed:$bad"
echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ $failed = 0 ]
