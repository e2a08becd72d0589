#!/bin/sh
# demo/demo.sh -- what dpxplan says about a few plans of real models.  $B is
# where it was built.
dpxplan=${B:-build}/dpxplan

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
run limits --memory 80GB --world 64 --states-only
