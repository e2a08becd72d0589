#!/bin/sh
# demo/demo.sh -- the whole story: what dpxplan says of large models, then a small one on two ranks
# of this machine: measured, planned under a memory limit that DDP does not meet, really trained
# under every strategy, and reported.  $B is where it was built; what is made goes to $B/demo.
B=${B:-build}
out=$B/demo db=$B/demo/dpx.db
mkdir -p "$out" || exit 1
rm -f "$db" "$db"-wal "$db"-shm "$out/losses"

# Shows the command, then what it prints.  3 says "does not fit": an answer.
run() {
    printf '\n$ %s\n' "$*"
    program=$1
    shift
    "$B/$program" "$@" || [ $? = 3 ]
}

# shellcheck disable=SC2015
run dpxplan eval demo/8b-ddp.json &&
run dpxplan eval demo/8b-zero2.json &&
run dpxplan eval demo/8b-fsdp.json &&
run dpxplan explain demo/8b-fsdp.json &&
run dpxplan explain demo/8b-zero2.json demo/8b-fsdp.json &&
run dpxplan eval demo/405b-zero3.json &&
run dpxplan limits --memory 80GB --world 64 --states-only || exit

printf '\n-- This machine: how fast are its kernels and collectives, two ranks at once? (under a minute)\n'
run dpxcal run --quick --ranks 2 --threads 1 --model demo/10m --seq 128 --micro-batch 1,2,4 --db "$db" || exit

printf '\n-- A model of 10M parameters in 200 MB a rank: DDP does not fit. What does?\n'
run dpxplan search --model demo/10m --cluster localhost:2 --seq 128 --global-batch 8 --kernels dpx --precision fp32 \
    --memory 200MB --headroom 0 --framework torch --top 3 --db "$db" -o "$out/best.json" || exit

printf '\n-- The winner, and one plan of every strategy, really trained: the same 20 steps, the same losses\n'
for plan in "$out/best.json" demo/10m/ddp.json demo/10m/zero1.json demo/10m/zero2.json demo/10m/zero3.json \
    demo/10m/fsdp.json demo/10m/fsdp-recompute.json; do
    run dpxrun "$plan" --steps 20 --threads 1 --clip 1 --brief --db "$db" >"$out/said" 2>&1 || { cat "$out/said"; exit 1; }
    cat "$out/said"
    sed -n 's/.*loss \([0-9.]* -> [0-9.]*\) .*/\1/p' "$out/said" >>"$out/losses"
done
# Sums in another order differ in the last digits of fp32, after 20 steps in the fifth decimal.
awk '{ for (i = 1; i <= 3; i += 2) { d = $i - (NR == 1 ? first[i] = $i : first[i]); worst = d * d > worst ? d * d : worst } }
    END { exit !(NR == 7 && worst <= 1.1e-4 ^ 2) }' "$out/losses" || { echo 'the losses differ:' "$(cat "$out/losses")"; exit 1; }
run dpxrun demo/10m/ddp.json --memory 200MB --brief --db "$db" || exit
run dpxrun "$out/best.json" --steps 20 --threads 1 --clip 1 --db "$db" || exit
run dpxreport --db "$db" -o "$out/report" || exit
printf '\n-- Predicted beside measured\n\n'
sed -n '/^|/p; /^## Where/q' "$out/report/summary.md"
printf '\nThe page: %s\n' "$out/report/index.html"
