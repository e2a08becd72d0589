#!/bin/sh
# tests/test_run.sh -- that tests/run.sh counts what it is given, and fails when
# it should.
. tests/check.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# test_of NAME LINES...: a script that does that.
test_of() {
    name=$1
    shift
    { echo '#!/bin/sh'; printf '%s\n' "$@"; } >"$dir/$name"
    chmod +x "$dir/$name"
}

test_of good    'echo "[  PASSED  ] 4 test(s)."'
test_of named   'echo "[  PASSED  ] model/size: 3 test(s)." >&2'
test_of twice   'echo "[  PASSED  ] 1 test(s)."; echo "[  PASSED  ] 2 test(s)."'
test_of bad     'echo "[  PASSED  ] 5 test(s)."; echo "[  FAILED  ] 2 test(s), listed below:"' \
                'echo "[  FAILED  ] a_name"; exit 2'
test_of skipped 'echo "[  PASSED  ] 0 test(s)."; echo "[  SKIPPED ] 2 test(s), listed below:"'
test_of crash   'echo "[ RUN      ] a_name"; kill -SEGV $$'
test_of silent  'exit 0'
test_of late    'echo "[  PASSED  ] 1 test(s)."; exit 1'
test_of hang    'sleep 60'

# counts WANTED STATUS TEST...: the last line of a run, and whether it failed.
counts() {
    wanted=$1 build=$2
    shift 2
    got=$(cd "$dir" && TEST_TIMEOUT="${limit:-1}" "$run" "$build" "$@" 2>&1)
    rc=$?
    last=$(echo "$got" | tail -n 1)
    [ "$last" = "$wanted" ] || echo "got '$last', not '$wanted'"
    case $wanted in
    *' 0 failed'*) [ $rc = 0 ] || echo "status $rc" ;;
    *)             [ $rc != 0 ] || echo 'status 0 in spite of failures' ;;
    esac
}
run=$PWD/tests/run.sh

check 'passed tests are added up' \
    "$(counts '10 passed, 0 failed' 0 ./good ./named ./twice)"
check 'one failing program does not hide the others' \
    "$(counts '9 passed, 2 failed' 0 ./bad ./good)"
check 'skipped tests are counted' \
    "$(counts '4 passed, 0 failed, 2 skipped' 0 ./skipped ./good)"
check 'a crash is one failure' \
    "$(counts '4 passed, 1 failed' 0 ./crash ./good)"
check 'silence is one failure' \
    "$(counts '4 passed, 1 failed' 0 ./silent ./good)"
check 'a bad end after a good closing line is one failure' \
    "$(counts '1 passed, 1 failed' 0 ./late)"
check 'a hang is one failure' \
    "$(counts '4 passed, 1 failed' 0 ./hang ./good)"
check 'what was not built is one failure' \
    "$(counts '4 passed, 1 failed' 0 ./missing ./good)"
check 'a broken build is one failure' \
    "$(counts '4 passed, 1 failed' 2 ./good)"

# Each makes a folder that can be made once, the first waits for another test: a lane that is done takes from the other.
mkdir -p "$dir/tests/mpi"
for name in first second; do
    test_of tests/mpi/$name "mkdir ran_$name || exit 1" "[ $name = second ] || until [ -e beside ]; do sleep 0.1; done" \
        'echo "[  PASSED  ] 1 test(s)."'
done
test_of beside_them 'echo "[  PASSED  ] 1 test(s)."' ': >beside'
check 'tests that start ranks run beside all others, each once' \
    "$(limit=30; counts '3 passed, 0 failed' 0 tests/mpi/first tests/mpi/second ./beside_them)"
check 'what they say is in the order in which they were named' \
    "$(cd "$dir" && "$run" 0 tests/mpi/first ./good 2>&1 | grep "^==" | tr -d "\n" | grep -vxF "== tests/mpi/first== ./good")"
finish
