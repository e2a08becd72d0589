#!/bin/sh
# demo/demo.sh -- what dpxplan says about a few plans of real models, and dpxrun really
# training a small one: the same schedules on two ranks of this machine.  $B is where it
# was built.
dpxplan=${B:-build}/dpxplan dpxrun=${B:-build}/dpxrun

# Shows the command, then what it prints.  3 says "does not fit": an answer.
run() {
    printf '\n$ dpxplan %s\n' "$*"
    "$dpxplan" "$@" || [ $? = 3 ]
}

# shellcheck disable=SC2015
run eval demo/8b-ddp.json &&
run eval demo/8b-zero2.json &&
run eval demo/8b-fsdp.json &&
run explain --brief demo/8b-fsdp.json &&
run explain demo/8b-zero2.json demo/8b-fsdp.json &&
run eval demo/405b-zero3.json &&
run limits --memory 80GB --world 64 --states-only || exit

# A model of 10M parameters under every strategy: 20 steps of the same samples.
printf '\n10M parameters, really trained on two ranks, each line a run of the same 20 steps:\n'
for plan in ddp zero1 zero2 zero3 fsdp fsdp-recompute; do
    printf '\n$ dpxrun demo/10m/%s.json --steps 20 --brief\n' "$plan"
    "$dpxrun" "demo/10m/$plan.json" --steps 20 --brief || exit
done
printf '\n$ dpxrun demo/10m/fsdp.json --steps 20\n'
"$dpxrun" demo/10m/fsdp.json --steps 20 || exit
printf '\n$ dpxrun demo/10m/ddp.json --memory 200MB: what the planner says does not fit stops where it says\n'
"$dpxrun" demo/10m/ddp.json --memory 200MB --brief || [ $? = 3 ]
