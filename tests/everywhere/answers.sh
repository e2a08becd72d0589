#!/bin/sh
# tests/everywhere/answers.sh -- what the longer tests of tests/mpi and tests/sim print under --json has the shapes of docs/schemas, too.  Most test
# scripts hold their answers themselves (keep_answers of tests/check.sh); these are run here with programs that keep theirs.
. tests/check.sh
B=${B:-build}
keep_answers
for test in mpi/test_deterministic mpi/test_dpxcal mpi/test_float8 mpi/test_given mpi/test_grid_files mpi/test_growth \
            mpi/test_memory mpi/test_parity mpi/test_quant mpi/test_resume mpi/test_tensor sim/test_cmd_phases_import; do
    said=$(B=$B sh "tests/$test.sh" 2>&1)
    check "$test.sh passes with programs that keep their answers" "$(echo "$said" | grep -A12 '^not ok\|FAILED' | head -12)"
done
finish
