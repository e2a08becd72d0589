#!/bin/sh
# test_budget.sh -- dpxrun PLANS... --engine --budget: the fastest predicted runs first, its traces teach, the rest is predicted anew.
# The framework is played: its traces are those of tests/golden/kineto, of a machine that no datasheet has.
. tests/check.sh
B=${B:-build}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR="$dir" XDG_DATA_HOME="$dir/none"
sed 's/"micro_batch": 4/"micro_batch": 4, "optimizer_form": "foreach"/' tests/golden/kineto/plan_fsdp2_h100.json >"$dir/four.json"
sed 's/"micro_batch": 4/"micro_batch": 2/' "$dir/four.json" >"$dir/two.json"
cat >"$dir/python" <<END
#!/bin/sh
case \$1 in -c) echo '{ "torch": "2.15.0", "transformers": "5.0", "gpus": 8 }'; exit ;; esac
out=\$(dirname "\$1")
grep -q '"micro_batch": 2' "\$out/job.json" && s=0.1 || s=0.2
zcat "$PWD/tests/golden/kineto/fsdp2_h100_0.json.gz" | sed "s/\"rank\": *0/\"rank\": \$RANK/" >"\$out/rank\$RANK.trace.json"
{
    echo '{"event": "start", "device": "NVIDIA H100 80GB HBM3", "versions": {"torch": "2.15.0"}}'
    for i in 1 2 3 4 5 6; do echo "{\"event\": \"step\", \"step\": \$i, \"seconds\": \$s, \"loss\": 9.5, \"grad_norm\": null}"; done
    echo '{"event": "end", "driver": null}'
} >>"\$out/rank\$RANK.jsonl"
END
chmod +x "$dir/python"
keep_answers
step_of() { "$B/dpxplan" eval "$1" --db "$dir/db" --json 2>/dev/null | sed -n 's/^ *"step_s": \([0-9.e-]*\).*/\1/p' | head -1; }
run() { "$B/dpxrun" "$@" --engine torch --device cuda --python "$dir/python" --steps 6 --db "$dir/db" >"$dir/out" 2>"$dir/err" </dev/null; }
row() { sed -n '/^plan  /,$p' "$dir/out" | grep "$1.json"; }

run "$dir/four.json" "$dir/two.json" --budget 10min
check 'two plans run' "$([ $? = 0 ] || cat "$dir/err")"
check 'the shorter one runs first' "$(grep '^== ' "$dir/out" | head -1 | grep -q two.json || grep '^== ' "$dir/out")"
check 'measured places are those of the medians' "$(row two | grep -q '0.1000 s,   1' && row four | grep -q '0.2000 s,   2' || cat "$dir/out")"
check 'after that both are predicted by what the traces showed, as dpxplan eval does' "$(for p in two four; do
    awk -v want="$(step_of "$dir/$p.json")" -v p=$p '{ got = $(NF - 2); e = got - want; if (e > 6e-5 || e < -6e-5) print p ": " got ", dpxplan eval " want }' <<END
$(row $p)
END
done; grep -q 'predicted now' "$dir/out" || cat "$dir/out" "$dir/err")"
check 'what it learned is not what the datasheet said' "$(row four | awk '{ if ($2 == $(NF - 2)) print "the same: " $0 }')"
check 'no folder is left' "$(for d in "$dir"/dpx-engine-*; do [ ! -e "$d" ] || echo "$d"; done)"
run "$dir/four.json" "$dir/two.json" --budget 0.001s
check 'no time: one plan at most runs' "$([ "$(grep -c '^== ' "$dir/out")" -le 1 ] && grep -q 'no time left' "$dir/out" || cat "$dir/out")"
finish
