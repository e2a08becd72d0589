#!/bin/sh
# tests/bench/test_eval.sh -- no eval, sweep, call or small search takes a fifth more instructions than tests/bench/eval.txt says.
# The figures are of gcc with -O3: other compilers and flags are not compared with them.
. tests/check.sh
B=${B:-build}

what='nothing that people ask most takes 20 % more instructions than it did'
settings=$(cat "$B/settings" 2>/dev/null)
# The first words are the compiler and CFLAGS.
case " $settings " in
*' -fsanitize'* | *' -O0 '* | *' -O1 '* | *' -O2 '* | *' -Os '*) why='built with other flags' ;;
*' -O3 '*) why= ;;
*) why='built with other flags' ;;
esac
# shellcheck disable=SC2086
${settings%% -*} -dM -E - </dev/null 2>/dev/null | grep -q __clang__ && why='built by clang'
command -v valgrind >/dev/null || why='no valgrind'
if [ "$why" ]; then
    skip "$what" "$why"
else
    check "$what" "$(B=$B tests/bench/eval.sh --check 2>&1)"
fi
finish
