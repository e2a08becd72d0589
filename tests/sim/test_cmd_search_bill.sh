#!/bin/sh
# tests/sim/test_cmd_search_bill.sh -- search --goal bill: each row is what dpxplan bill says of that plan and that step, rows are in order, a
# plan of a slower step that saves faster ends sooner, and what is missing is asked for.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME
asked='--tokens 1T --mtbf 300h --storage 20GB/s --storage-node 0.5GB/s'

# shellcheck disable=SC2086
{
"$B/dpxplan" search --model gpt2-large --cluster 4x8xh100 --seq 1k --global-batch 256 --framework torch --goal bill $asked --top 6 --json -o "$tmp/best.json" \
    >"$tmp/doc" 2>"$tmp/err"
check 'search --goal bill answers' "$([ $? = 0 ] || cat "$tmp/err")"
python3 - "$tmp/doc" "$tmp" >"$tmp/rows" 2>&1 <<'PY'
import json, sys
rows = json.load(open(sys.argv[1]))["by_bill"]
for i, r in enumerate(rows):
    json.dump(r["plan"], open("%s/plan%d.json" % (sys.argv[2], i), "w"))
    print(i, "%.12g" % r["step_s"], "%.12g" % r["total_s"], r["every_steps"])
PY
as_bill() {
    [ -s "$tmp/rows" ] || echo 'no rows'
    while read -r i step total every; do
        "$B/dpxplan" bill "$tmp/plan$i.json" $asked --step "${step}s" --json >"$tmp/bill" 2>"$tmp/err" || cat "$tmp/err"
        awk -F'[:,]' -v total="$total" -v every="$every" -v i="$i" '
            /"total_s"/ && !t { t = $2 + 0 } /"every_steps"/ && !e { e = $2 + 0 }
            END { d = t / total - 1; if (d > 1e-9 || d < -1e-9 || e != every) print "row " i ": " total " s, bill " t "; every " every ", bill " e }' "$tmp/bill"
    done <"$tmp/rows"
}
check 'each row is what bill says of that plan with that step' "$(as_bill)"
check 'rows behind the first are in the order in which they end' "$(awk 'NR > 2 && $3 < was { print $0 " after " was } { was = $3 }' "$tmp/rows")"
check '-o writes the first of them' "$(python3 -c "
import json
a, b = json.load(open('$tmp/best.json')), json.load(open('$tmp/plan0.json'))
print('' if all(a.get(k) == b.get(k) for k in ('strategy', 'dialect', 'micro_batch', 'recompute')) else 'another plan')" | grep .)"

# DDP: rank 0 writes 774M x 16 bytes at 0.5 GB/s; FSDP2 on four nodes a fourth at each.
total() { "$B/dpxplan" bill gpt2-large --cluster 4x8xh100 --seq 1k --set strategy="$1" dialect=torch $asked --mtbf 100h --step "$2" --json 2>/dev/null | awk -F'[:,]' '/"total_s"/ { print $2 + 0; exit }'; }
check 'a plan whose step is 2 % slower and that saves in a fourth of the time ends sooner' "$(
    awk -v d="$(total ddp 500ms)" -v f="$(total fsdp 510ms)" 'BEGIN { if (!(f > 0 && d > f)) print "ddp " d " s, fsdp " f " s" }')"

says() {        # WORDS ARGUMENT...
    words=$1
    shift
    "$B/dpxplan" search --model gpt2 --cluster 8xh100 --seq 1k --global-batch 64 "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? = 2 ] && [ "$(wc -l <"$tmp/err")" = 1 ] && grep -q -e "$words" "$tmp/err" || { echo "search $*:"; cat "$tmp/err"; }
}
check 'what it needs is asked for, and what is for it alone is refused without it' "$(
    says 'goal bill: of how much training' --goal bill
    says 'goal bill: how often' --goal bill --tokens 1T
    says 'goal bill: where do' --goal bill --tokens 1T --mtbf llama3
    says 'did you mean 25GB/s' --goal bill --tokens 1T --mtbf llama3 --storage 25GBps
    says 'did you mean 1.5TB/s' --goal bill --tokens 1T --mtbf llama3 --storage 1.5T
    says '"slow" is not a rate' --goal bill --tokens 1T --mtbf llama3 --storage slow
    says '--mtbf: is for --goal bill' --mtbf llama3
    says '--async: is for --goal bill' --async)"
}
finish
