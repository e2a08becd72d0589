#!/bin/sh
# tests/sim/test_cmd_pictures.sh -- explain -o: memory over a step by category, in a figure; --snapshot: the step as PyTorch's memory snapshot.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME

drawn() {
    "$B/dpxplan" explain "$@" -o "$tmp/a.svg" >"$tmp/out" 2>"$tmp/err" || cat "$tmp/err"
    for word in '<svg' optimizer activations usable 'Memory over one step'; do
        grep -q "$word" "$tmp/a.svg" || echo "$*: no $word"
    done
}
check 'memory over a step is drawn by category, of a pipeline where it is asked for' "$(
    drawn demo/8b-fsdp.json
    drawn demo/8b-pipeline.json --draw memory)"
refused() {
    words=$1
    shift
    "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? = 2 ] && grep -q -- "$words" "$tmp/err" && [ "$(grep -c . "$tmp/err")" = 1 ] ||
        { echo "not refused with '$words': $*"; cat "$tmp/out" "$tmp/err"; }
}
check 'what cannot be drawn or written is refused' "$(
    refused '--draw goes with -o' "$B/dpxplan" explain demo/8b-fsdp.json --draw memory
    refused 'give --json alone' "$B/dpxplan" explain demo/8b-fsdp.json --json --snapshot "$tmp/x"
    refused '--snapshot is of one' "$B/dpxplan" explain demo/8b-fsdp.json demo/8b-ddp.json --snapshot "$tmp/x"
    refused 'of PyTorch' "$B/dpxplan" explain demo/10m/ddp.json --snapshot "$tmp/x"
    [ ! -e "$tmp/x" ] || echo 'a refused snapshot was written')"

# A plan, and what snapshot_check.py is to find of it.
snapshot() {
    ends=$1
    shift
    "$B/dpxplan" explain "$@" --snapshot "$tmp/s" >"$tmp/out" 2>"$tmp/err"
    "$B/dpxplan" eval "$@" --json >"$tmp/eval" 2>"$tmp/err"
    said=$("${PYTHON:-python3}" tests/sim/snapshot_check.py "$tmp/s" "$tmp/eval" 2>&1)
    case $said in
    "skip$ends" | "drawn$ends") ;;
    *) echo "$*: $said" ;;
    esac
}
check 'a snapshot is sound: FSDP2, FSDP1, DeepSpeed, DDP' "$(
    snapshot '' demo/8b-fsdp.json
    snapshot '' demo/8b-fsdp.json --set dialect=torch-fsdp1
    snapshot '' demo/405b-zero3.json --set model=llama-3.1-8b
    snapshot '' demo/8b-zero2.json --set model=llama-3.2-1b)"
check 'of a plan that runs out of memory it ends with the request that fails' "$(snapshot ' oom' demo/8b-ddp.json)"
check 'a stage and a rank have snapshots of their own' "$(
    "$B/dpxplan" explain demo/8b-fsdp.json --rank 3 --snapshot "$tmp/s" >"$tmp/out" 2>&1 || cat "$tmp/out"
    [ -s "$tmp/s" ] || echo 'none of rank 3')"
finish
