#!/bin/sh
# tests/sim/test_bits.sh [fused] -- a prediction is the same, bit for bit, however many threads make it; `fused` (make test-bits):
# and whatever machine does, for it builds the simulator once more, which takes minutes.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

search() {
    "$B/dpxplan" search --model gpt2 --cluster 2x8xa100-80gb --seq 1024 --global-batch 64 --top 20 --json "$@" |
        grep -v '"search_s"'
}

search --threads 1 >"$tmp/1"
for n in 2 3 8; do search --threads $n >"$tmp/$n"; done
check 'one thread finds a plan'   "$(grep -q '"step_s"' "$tmp/1" || echo 'no plan in the answer')"
check 'any number of threads gives the same answer' "$(for n in 2 3 8; do cmp "$tmp/1" "$tmp/$n" 2>&1; done)"

[ "$1" = fused ] || finish

# For a machine that multiplies and adds in one rounding.
fused='-O2 -mfma'
if [ "$(uname -m)" = x86_64 ] && grep -q -w fma /proc/cpuinfo 2>/dev/null && command -v make >/dev/null; then
    make -s B="$tmp/fma" CFLAGS="$fused" "$tmp/fma/dpxplan" >"$tmp/log" 2>&1 || cat "$tmp/log"
    B=$tmp/fma
    search --threads 1 >"$tmp/fma.json"
    check 'fused multiply-add changes nothing' "$(cmp "$tmp/1" "$tmp/fma.json" 2>&1)"
else
    skip 'fused multiply-add changes nothing' 'this machine has none'
fi
finish
