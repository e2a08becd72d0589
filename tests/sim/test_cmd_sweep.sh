#!/bin/sh
# tests/sim/test_cmd_sweep.sh -- a sweep's points are those of eval and search, in every format; what was done before
# Ctrl-C is kept.
. tests/check.sh
B=${B:-build}
keep_answers
COLUMNS=1000                    # no line wraps
export COLUMNS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME

cat >"$tmp/plan.json" <<'PLAN'
{ "dpx_plan": 1, "model": "gpt2", "cluster": "2x8xa100-80gb", "seq": 1024, "micro_batch": 4,
  "strategy": "ddp", "dialect": "torch", "precision": "bf16" }
PLAN
number() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" "$2" | head -1; }

check 'a point is what eval says of the plan with these keys' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1..4*2 seq=512,1k --json >"$tmp/out" 2>&1
    [ "$(grep -c '"at"' "$tmp/out")" = 6 ] && [ "$(grep -c '"at":{"seq":\(512\|1024\),"nodes":[124]}' "$tmp/out")" = 6 ] || cat "$tmp/out"
    for nodes in 1 2 4; do
        "$B/dpxplan" eval --json "$tmp/plan.json" --set nodes=$nodes seq=1k >"$tmp/eval" 2>&1
        grep "\"nodes\":$nodes}" "$tmp/out" | grep '"seq":1024,' >"$tmp/row"
        awk -v a="$(number step_s "$tmp/row")" -v b="$(number step_s "$tmp/eval")" \
            'BEGIN { if (!(a > 0) || a / b > 1 + 1e-12 || b / a > 1 + 1e-12) print a " s, eval says " b }'
        [ "$(number sent_bytes_per_rank "$tmp/row")" = "$(number sent_bytes_per_rank "$tmp/eval")" ] || { cat "$tmp/row"; grep sent "$tmp/eval"; }
    done)"
# Points that differ in the network alone are lowered once.
check 'a point of another network is what eval says of it, whatever was lowered before' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over seq=512,1k network=50,400 --json >"$tmp/out" 2>&1
    for seq in 512 1024; do for network in 50 400; do
        "$B/dpxplan" eval --json "$tmp/plan.json" --set network=$network seq=$seq >"$tmp/eval" 2>&1
        grep "\"seq\":$seq,.*network\":$network\|network\":$network,\"seq\":$seq" "$tmp/out" >"$tmp/row"
        awk -v a="$(number step_s "$tmp/row")" -v b="$(number step_s "$tmp/eval")" \
            'BEGIN { if (!(a > 0) || a / b > 1 + 1e-12 || b / a > 1 + 1e-12) print a " s, eval says " b }'
    done; done)"
# A ring's all-reduce sends 2 (N - 1) / N of it; GPT-2's gradients are fp32 of 124,439,808 parameters.
check 'what a rank sends is a column, in the table where it is wide enough, in CSV and JSON' "$(
    "$B/dpxplan" sweep "$tmp/plan.json" --over nodes=1,2 --csv "$tmp/csv" >"$tmp/out" 2>&1
    grep -q '  sent/rank ' "$tmp/out" && grep -q '^sent/rank: ' "$tmp/out" || cat "$tmp/out"
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "sent_bytes_per_rank") at = i } NR > 1 { n = 8 * $1; print $at - int(2 * (n - 1) / n * 4 * 124439808) }' "$tmp/csv" |
        grep -qv '^0$' && cat "$tmp/csv"
    "$B/dpxplan" sweep "$tmp/plan.json" --set nodes=1 gpus_per_node=1 --over seq=512 | grep sent)"
check 'a plan that is refused is swept over what mends it, also from standard input, and not over another key' "$(
    sed 's/"micro_batch": 4/"micro_batch": 0/' "$tmp/plan.json" >"$tmp/none.json"
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over micro_batch=1,2 --json 2>/dev/null | grep '"at"' >"$tmp/want"
    for from in "$tmp/none.json" -; do
        "$B/dpxplan" sweep --all "$from" --over micro_batch=1,2 --json 2>/dev/null <"$tmp/none.json" | grep '"at"' | diff - "$tmp/want"
    done
    "$B/dpxplan" sweep --all "$tmp/none.json" --over seq=512 >"$tmp/out" 2>&1
    [ $? = 2 ] && grep -q "none.json: .*micro_batch" "$tmp/out" || cat "$tmp/out")"
# 2.15 reduces in fp32, 2.11 in bf16 unless the plan says in what: another step there, the same under 2.15.
check 'a version is swept with what the plan says' "$(
    for says in '"reduce_dtype": "fp32",' ''; do
        echo '{ "dpx_plan": 1, "model": "gpt2", "cluster": "2x8xl40s", "seq": 64, "micro_batch": 1,' "$says" \
             '"strategy": "fsdp", "dialect": "torch", "precision": "bf16" }' >"$tmp/fsdp.json"
        "$B/dpxplan" sweep --all "$tmp/fsdp.json" --over framework_version=2.11,2.15 --json 2>/dev/null | sed -n 's/.*"step_s":\([0-9.e+-]*\),.*/\1/p'
    done | tr '\n' ' ' | awk '{ if (NF != 4 || $1 == $3 || $2 != $4) print "steps (2.11 and 2.15 with fp32 said, and not): " $0 }')"
check 'efficiency is tokens/s of a GPU against the first point of the series' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1,2,4 seq=512,1k --csv "$tmp/csv" >"$tmp/out" 2>&1 || cat "$tmp/out"
    awk -F, 'NR > 1 { if ($2 == 1) base = $6 + 0 == 0 ? 0 : $9; e = $9 / base; if (e - $13 > 1e-6 || $13 - e > 1e-6) print $0 }
             END { if (NR != 7) print NR " lines" }' "$tmp/csv")"
check 'efficiency is of numbers of GPUs alone, and no memory is a number without its unit' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over network=100,3200 --csv "$tmp/csv" >"$tmp/out" 2>&1
    grep -q efficiency "$tmp/out" && cat "$tmp/out"
    awk -F, 'NR > 1 && $12 != "" { print "efficiency over networks: " $0 }' "$tmp/csv"
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over cluster=8xh100,2x8xh100,8xa100 >"$tmp/out" 2>&1
    [ "$(grep -c '%$\|% .*%' "$tmp/out")" = 2 ] || cat "$tmp/out"
    for of in 'sweep --over network=100,400 --metric efficiency' 'eval --set memory=80' 'eval --set host_memory=128' 'eval --host-memory 80' 'sweep --over memory=40,80'; do
        set -- $of
        command=$1
        shift
        "$B/dpxplan" "$command" "$tmp/plan.json" "$@" >"$tmp/out" 2>&1
        [ $? = 2 ] && grep -q 'did you mean\|number of GPUs' "$tmp/out" || { echo "$of"; cat "$tmp/out"; }
    done)"
check 'a search at each point is the search of that question' "$(
    "$B/dpxplan" sweep --all --model gpt2 --seq 1k --over cluster=8xh100,8xa100 --global-batch 64 --framework torch --json >"$tmp/out" 2>&1
    "$B/dpxplan" search --model gpt2 --seq 1k --cluster 8xa100 --global-batch 64 --framework torch --json >"$tmp/eval" 2>&1
    [ "$(grep '8xa100' "$tmp/out" | sed 's/.*"step_s":\([0-9.e-]*\).*/\1/')" = "$(number step_s "$tmp/eval")" ] || cat "$tmp/out")"
check 'a point that cannot be is a row with its reason, and the others stay' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over strategy=ddp,nonsense,fsdp >"$tmp/out" 2>&1 || echo "exit $?"
    grep -q 'nonsense .*expected one of' "$tmp/out" && [ "$(grep -c ' s .*% ' "$tmp/out")" = 2 ] || cat "$tmp/out")"
refused() {
    words=$1
    shift
    "$B/dpxplan" sweep --all "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? = 2 ] && grep -q -- "$words" "$tmp/err" || { echo "not refused with '$words': $*"; cat "$tmp/out" "$tmp/err"; }
}
check 'axes that are none are refused' "$(
    refused 'upwards' "$tmp/plan.json" --over nodes=8..1
    refused 'micro_batch' "$tmp/plan.json" --over micro_bach=1
    refused 'missing' "$tmp/plan.json" --over nodes=1,,2
    refused 'a search chooses it' --model gpt2 --cluster 8xh100 --seq 1k --global-batch 8 --over unit=block
    refused 'a figure is .svg' "$tmp/plan.json" --over nodes=1 -o "$tmp/x.pdf"
    refused 'over is missing' "$tmp/plan.json"
    refused 'more than 500000' "$tmp/plan.json" --over nodes=1..2000 seq=1..2000
    refused 'beside' "$tmp/plan.json" --over nodes=1,2 cluster=8xh100,8xa100
    refused 'twice' "$tmp/plan.json" --over nodes=1,2 nodes=2,4
    refused 'twice' "$tmp/plan.json" --over nodes=1,2 cluster.nodes=2,4
    refused 'twice' "$tmp/plan.json" --over network=100,200 cluster.inter.gb_per_s=25
    refused 'twice' "$tmp/plan.json" --over cluster.inter.gb_per_s=25,50 network=200
    refused 'give --tokens' "$tmp/plan.json" --over nodes=1 --metric days
    refused 'give --price' "$tmp/plan.json" --over nodes=1 --metric cost --tokens 1T
    refused 'more than 0 days' "$tmp/plan.json" --over nodes=1 --days 0 --tokens 1T
    refused 'must be between' "$tmp/plan.json" --over nodes=1e9
    refused 'did you mean fsdp.cpu_offload?' "$tmp/plan.json" --over fsdp.cpu_ofload=true
    refused 'no point can be planned' "$tmp/plan.json" --over micro_batch=0)"
check 'an option that would be ignored is refused' "$(
    refused '--optimizer beside PLAN.json: .* --set optimizer=' "$tmp/plan.json" --optimizer sgd --over nodes=1,2
    refused '--micro-batch beside PLAN.json: .* --set micro_batch=' "$tmp/plan.json" --micro-batch 2 --over nodes=1,2
    refused '--grid beside PLAN.json' "$tmp/plan.json" --grid --over nodes=1,2
    refused '--optimizer beside --over optimizer' --model gpt2 --cluster 8xh100 --seq 1k --global-batch 8 --optimizer sgd --over optimizer=adamw,sgd
    refused '--cluster beside --over cluster' --model gpt2 --cluster 8xh100 --seq 1k --global-batch 8 --over cluster=8xh100,8xa100)"
check 'a value twice is one point, the first; many values are no quadratic work' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1,1,1 --json >"$tmp/out" 2>&1; [ "$(grep -c '"at"' "$tmp/out")" = 1 ] || cat "$tmp/out"
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=2,1,2..3 --json >"$tmp/out" 2>&1
    [ "$(grep -o '"nodes":[0-9]*' "$tmp/out" | tr -d '\n')" = '"nodes":2"nodes":1"nodes":3' ] || cat "$tmp/out"
    refused 'more than 500000' "$tmp/plan.json" --over nodes=1..300000,1..300001)"
check 'a strategy that has no such offload names its key, not one that was not written' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --set strategy=fsdp fsdp.cpu_offload=true --over fsdp.cpu_offload=true,false strategy=zero3,fsdp >"$tmp/out" 2>&1
    grep -q 'true *zero3 .*fsdp.cpu_offload=true: zero3 of deepspeed has no such key' "$tmp/out" && ! grep -q host_threads "$tmp/out" &&
        [ "$(grep -c ' [GM]iB  *yes' "$tmp/out")" = 3 ] || cat "$tmp/out")"
check 'nothing fits: exit 3' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over memory=1GiB,2GiB >"$tmp/out" 2>&1; [ $? = 3 ] || cat "$tmp/out")"
check 'figures are drawn, of numbers and of words' "$(
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1..4*2 -o "$tmp/a.svg" >"$tmp/out" 2>&1 || cat "$tmp/out"
    grep -q '<svg' "$tmp/a.svg" || echo 'no svg'
    "$B/dpxplan" sweep --all "$tmp/plan.json" --over gpu=h100,b200 --metric step_s -o "$tmp/b.svg" >"$tmp/out" 2>&1 || cat "$tmp/out"
    grep -q '>b200</text>' "$tmp/b.svg" || echo 'no b200')"
check 'ASCII where the locale is C, blocks where it is UTF-8, no colour in a file' "$(
    LC_ALL=C "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1,2 >"$tmp/out" 2>&1
    LC_ALL=C grep -n '[^ -~]' "$tmp/out"
    grep -q '####' "$tmp/out" || cat "$tmp/out"
    LC_ALL=C.UTF-8 "$B/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1,2 >"$tmp/out" 2>&1
    grep -q '█' "$tmp/out" || cat "$tmp/out")"
# script(1) is a terminal.
if command -v script >/dev/null; then
    check 'colour on a terminal, and none where NO_COLOR or a dumb terminal says so' "$(
        in_terminal() { env TERM="$1" NO_COLOR="$2" script -qec "$B/dpxplan sweep $tmp/plan.json --over nodes=1,2" /dev/null </dev/null; }
        esc=$(printf '\033')
        in_terminal xterm '' | grep -q "$esc\[" || echo 'no colour'
        in_terminal xterm 1 | grep "$esc\[[0-9;]*m"
        in_terminal dumb '' | grep "$esc\[[0-9;]*m")"
else
    skip 'colour on a terminal, and none where NO_COLOR or a dumb terminal says so' 'there is no script(1)'
fi
# Long enough to be stopped on any machine: 500,000 points.
check 'Ctrl-C keeps what is done; progress is said; memory does not grow' "$(
    "$BUILT/dpxplan" sweep --all "$tmp/plan.json" --over nodes=1..1000 network=1..500 --json --csv "$tmp/csv" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    for _ in $(seq 100); do
        [ "$(grep -c points "$tmp/err")" -ge 1 ] && break
        sleep .2
    done
    first=$(awk '/VmHWM/ { print $2 }' /proc/$pid/status)
    [ "${first:-999999}" -lt 60000 ] || echo "$first kB"
    kill -INT $pid
    wait $pid
    [ $? = 1 ] || echo "exit $?"
    grep -q 'stopped after [0-9]* of 500000 points' "$tmp/err" || cat "$tmp/err"
    done=$(number done "$tmp/out")
    [ "$(grep -c '"at"' "$tmp/out")" = "$done" ] && [ $(($(wc -l <"$tmp/csv") - 1)) = "$done" ] || echo "$done done, others in the files"
    tail -1 "$tmp/out" | grep -qx '}' || tail -3 "$tmp/out")"
finish
