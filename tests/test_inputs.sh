#!/bin/sh
# tests/test_inputs.sh -- a file that a program is given to read: what is not a regular file is refused by its
# kind, in one line with exit status 2, and never waited for.  What the shell has opened (`<(command)`,
# /dev/stdin) is read where one pass suffices.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
mkfifo "$dir/fifo" && mkdir "$dir/folder" || exit 1
export XDG_DATA_HOME="$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
plan=demo/8b-fsdp.json train=demo/10m/fsdp.json
search="--seq 128 --global-batch 8"

# The commands: FILE stands for the input.
cat >"$dir/commands" <<END
dpxplan eval FILE
dpxplan explain $plan FILE
dpxplan eval $plan --db FILE
dpxplan search --model FILE --cluster 8xh100 $search
dpxplan search --model gpt2 --cluster ./FILE.json $search
dpxplan import --ds-config FILE --model gpt2 --cluster 8xh100 --seq 128
dpxplan import --accelerate FILE --model gpt2 --cluster 8xh100 --seq 128
dpxplan import --torchtitan FILE --model llama-3.1-8b --cluster 8xh100
dpxcal import FILE
dpxcal import nccl-tests FILE
dpxcal show --db FILE
dpxreport --db FILE -o $dir/report
dpxreport --kineto FILE --plan $plan -o $dir/report
dpxrun FILE --no-db
dpxrun $train --hostfile FILE --no-db
dpxrun $train --init FILE --no-db
dpxrun $train --data FILE --no-db
dpxrun $train --db FILE
END

# refused KIND FILE: complaints about the commands that do not refuse it, once each, within 20 s.
refused() {
    while read -r program arguments; do
        case $arguments in
        *./FILE.json*) ln -sf "$2" "$dir/link.json"; file=$dir/link.json arguments=$(echo "$arguments" | sed 's,\./FILE\.json,FILE,') ;;
        *)             file=$2 ;;
        esac
        # shellcheck disable=SC2046
        timeout 20 "$B/$program" $(echo "$arguments" | sed "s,FILE,$file,") >"$dir/out" 2>"$dir/said" </dev/null
        status=$?
        [ $status = 2 ] && [ "$(wc -l <"$dir/said")" = 1 ] && grep -qE "^dpx: $file: .*($1|no regular file)" "$dir/said" ||
            { echo "$program $arguments, given $1: status $status, said:"; head -n 5 "$dir/said"; }
    done <"$dir/commands"
}

check 'a FIFO without a writer is refused wherever a file is read' "$(refused 'a FIFO' "$dir/fifo")"
check 'so is a device' "$(refused 'a device' /dev/zero)"
if command -v python3 >/dev/null; then
    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$dir/socket"
    check 'and a socket' "$(refused 'a socket' "$dir/socket")"
else
    skip 'and a socket' 'python3 is missing: the shell makes none'
fi
sed -i '/--model FILE/d' "$dir/commands"        # a folder with a config.json is a model
check 'and a folder' "$(refused 'a folder' "$dir/folder")"

# with_nul SOURCE COMMAND...: a byte of zero in front, inside or behind ends no text: it is named, or malformed; never "empty", never half a file.
with_nul() {
    of=$1 half=$(($(wc -c <"$1") / 2))
    shift
    for at in 0 $half end; do
        { case $at in end) cat "$of" ;; *) head -c $at "$of" ;; esac; printf '\000'; case $at in end) ;; *) tail -c +$((at + 1)) "$of" ;; esac; } \
            >"$dir/nul.${of##*.}"
        # shellcheck disable=SC2046
        "$B/dpxplan" $(echo "$*" | sed "s,FILE,$dir/nul.${of##*.},") >"$dir/out" 2>"$dir/said" </dev/null
        status=$?
        [ $status = 2 ] && grep -q "nul\.${of##*.}.*\(bytes of zero\|malformed JSON\)" "$dir/said" ||
            { echo "dpxplan $*, a zero at $at of $of: status $status, said:"; head -n 3 "$dir/said"; }
    done
}
check 'a byte of zero is named wherever text is read' "$(
    with_nul $plan eval FILE
    with_nul demo/10m/config.json fit FILE h100
    with_nul demo/grpo.json phases FILE
    with_nul demo/qwen3-sft.yaml import FILE --cluster 8xh100
    with_nul demo/qwen3-sft.yaml admit demo/job.sbatch --recipe FILE
    with_nul demo/job.sbatch admit FILE --recipe demo/qwen3-sft.yaml
    with_nul demo/job.sbatch import FILE --cluster 8xh100
    with_nul tests/everywhere/jobs/trainjob.yaml admit FILE --recipe demo/qwen3-sft.yaml
    cp tests/fuzz/seeds/accelerate/fsdp2 "$dir/accelerate.yaml"
    "$B/dpxplan" export $plan --to torchtitan-0.2.2 >"$dir/torchtitan.toml"
    with_nul "$dir/accelerate.yaml" import --accelerate FILE --model gpt2 --cluster 8xh100 --seq 128
    with_nul "$dir/torchtitan.toml" import --torchtitan FILE --model llama-3.1-8b --cluster 8xh100
    with_nul demo/ds-zero3.json import --ds-config FILE --model gpt2 --cluster 8xh100 --seq 128
    with_nul demo/rtx4090.json search --model gpt2 --cluster FILE $search)"

check 'a plan is read from a pipe and from standard input' "$(
    "$B/dpxplan" eval $plan >"$dir/want"
    "$B/dpxplan" eval /dev/stdin <$plan 2>&1 | diff "$dir/want" -
    # shellcheck disable=SC2002
    cat $plan | "$B/dpxplan" eval /dev/stdin 2>&1 | diff "$dir/want" -
    # shellcheck disable=SC2002
    cat $plan | "$B/dpxplan" eval /dev/fd/0 2>&1 | diff "$dir/want" -)"
check 'a pipe is waited for as long as its writer takes' "$(
    { sleep 1; cat $plan; } | "$B/dpxplan" eval /dev/stdin 2>&1 | diff "$dir/want" -)"
check 'a plan that every rank must read is refused from a pipe' "$(
    # shellcheck disable=SC2002
    cat $train | timeout 20 "$B/dpxrun" /dev/stdin --no-db >"$dir/out" 2>"$dir/said"
    [ $? = 2 ] && grep -q '^dpx: /dev/stdin: is a FIFO' "$dir/said" || cat "$dir/said")"
finish
