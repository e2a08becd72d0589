#!/bin/sh
# tests/bench/eval.sh [--check | --keep] -- instructions of what people ask most: evals, a sweep, ten calls of libdpx, small searches.
#
# Counted by callgrind, so that no other work on the machine changes them; the figures that are kept, in eval.txt, are of gcc with
# -O3.  Without an option: each figure, and how many times the one kept it is.  --check: only those that are more than MOST times as
# many, and exit 1; 10,000 micro-steps are left out, since callgrind takes minutes.  --keep: the figures become those that are kept.
# $B is where it was built.
build=${B:-build}
dpxplan=$build/dpxplan
kept=tests/bench/eval.txt
MOST=1.20
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
XDG_DATA_HOME=$dir LC_ALL=C COLUMNS=100         # no calibration of this machine
export XDG_DATA_HOME LC_ALL COLUMNS
unset DPX_MEASURED

command -v valgrind >/dev/null || { echo "$0: valgrind is missing" >&2; exit 2; }

cat >"$dir/gpt2-ddp.json" <<'PLAN'
{ "dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 1024, "micro_batch": 8, "strategy": "ddp", "precision": "bf16" }
PLAN
cat >"$dir/8b-zero3.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "8xh100", "seq": 4096, "micro_batch": 1, "strategy": "zero3",
  "dialect": "deepspeed", "precision": "bf16" }
PLAN
cat >"$dir/8b-megatron.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "2x8xh100", "seq": 4096, "micro_batch": 1, "accumulation": 16,
  "strategy": "zero1", "dialect": "megatron", "precision": "bf16", "parallel": { "tensor": 4, "pipeline": 4 } }
PLAN

cat >"$dir/8b-10k-steps.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "2x8xh100", "seq": 4096, "micro_batch": 1, "accumulation": 10000,
  "strategy": "fsdp", "precision": "bf16", "parallel": { "pipeline": 16 } }
PLAN
cat >"$dir/8b-10k-megatron.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "2x8xh100", "seq": 4096, "micro_batch": 1, "accumulation": 10000,
  "strategy": "zero1", "dialect": "megatron", "kernels": "te", "precision": "bf16", "parallel": { "pipeline": 16 } }
PLAN
# What grows with micro-steps would not find room.
for plan in 8b-10k-steps 8b-10k-megatron; do
    (ulimit -v 300000; "$dpxplan" eval "$dir/$plan.json" >"$dir/out" 2>&1) || { echo "$0: $plan: 10,000 micro-steps need more than 300 MB" >&2; exit 2; }
done

# count NAME COMMAND...: a line "NAME INSTRUCTIONS".
count() {
    name=$1
    shift
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" >"$dir/out" 2>"$dir/said"
    status=$?
    n=$(sed -n 's/.*Collected : *//p' "$dir/said")
    [ $status = 0 ] && [ "$n" ] || { echo "$name: exit status $status" >&2; tail -n 5 "$dir/said" >&2; exit 2; }
    echo "$name $n"
}

all() {
    count eval-8b-fsdp      "$dpxplan" eval demo/8b-fsdp.json
    count eval-8b-fsdp-conf "$dpxplan" eval demo/8b-fsdp.json --alloc-conf expandable_segments:True
    count eval-gpt2-ddp     "$dpxplan" eval "$dir/gpt2-ddp.json"
    count eval-8b-zero3     "$dpxplan" eval "$dir/8b-zero3.json"
    count eval-8b-megatron  "$dpxplan" eval "$dir/8b-megatron.json"
    [ "$1" = --check ] || count eval-10k-steps "$dpxplan" eval "$dir/8b-10k-steps.json"
    count eval-10k-megatron "$dpxplan" eval "$dir/8b-10k-megatron.json"
    count sweep-3-points    "$dpxplan" sweep demo/8b-fsdp.json --over nodes=1,2,4
    count sweep-100-links   "$dpxplan" sweep demo/8b-fsdp.json --over network=100..1090+10
    count library-10-calls  "$build/tests/bench/eval_calls" demo/8b-fsdp.json
    count search-torch      "$dpxplan" search --model llama-3.2-1b --cluster 2xh100 --seq 4096 --global-batch 16 --framework torch \
        --strategy ddp,fsdp --recompute none --micro-batch 2
    count search-deepspeed  "$dpxplan" search --model gpt2 --cluster 4xh100 --seq 1024 --global-batch 32 --framework deepspeed \
        --strategy zero1,zero2 --micro-batch 4
    count search-megatron   "$dpxplan" search --model gpt2 --cluster 4xh100 --seq 1024 --global-batch 16 --framework megatron \
        --micro-batch 2
}

all "$1" >"$dir/now" || exit 2
if [ "$1" = --keep ]; then
    sed '/^[^#]/d' "$kept" >"$dir/new" && cat "$dir/now" >>"$dir/new" && cp "$dir/new" "$kept"
    exit
fi
awk -v most=$MOST -v check="${1:+1}" '
    NR == FNR { if ($0 !~ /^#/) kept[$1] = $2; next }
    { ratio = $1 in kept ? $2 / kept[$1] : -1; over = ratio < 0 || ratio > most
      beside = ratio < 0 ? "none kept" : sprintf("%.2f times the %.1f M kept", ratio, kept[$1] / 1e6)
      if (!check || over) printf "%-20s %10.1f M instructions, %s\n", $1, $2 / 1e6, beside
      bad += over }
    END { exit bad > 0 }' "$kept" "$dir/now"
status=$?
[ "$1" ] && exit $status
exit 0
