#!/bin/sh
# tests/reports/test_plans.sh -- dpxreport --answer: a page of plans without a run.  Its tables are the answer's, each number of the page stands
# in them, phases sum to the step, and what is no answer is refused.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME

"$B/dpxplan" explain demo/8b-pipeline.json --json --detail >"$tmp/explain.json" 2>/dev/null
"$B/dpxplan" eval demo/8b-ddp.json --json >"$tmp/eval.json" 2>/dev/null         # does not fit
"$B/dpxplan" search --model llama-3.2-1b --cluster 4xh100 --seq 2048 --global-batch 16 --json >"$tmp/search.json" 2>/dev/null

check 'pages of an explained plan, an evaluated one and a search are those of their answers' "$(
    for what in explain eval search; do
        "$B/dpxreport" --answer "$tmp/$what.json" -o "$tmp/$what" >"$tmp/out" 2>&1 || cat "$tmp/out"
        python3 - "$tmp/$what.json" "$tmp/$what" 2>&1 <<'END'
import csv, json, re, sys
answer, folder = json.load(open(sys.argv[1])), sys.argv[2]
plans = answer.get("plans") or [answer]
def table(name):
    return list(csv.DictReader(open(f"{folder}/csv/{name}.csv")))
rows = table("predictions")
if len(rows) != len(plans):
    print(f"{len(rows)} plans in the table, {len(plans)} in the answer")
for i, (row, plan) in enumerate(zip(rows, plans)):
    if row["plan"] != plan["words"] or row["verdict"] != plan["memory"]["verdict"]:
        print(f"{row['plan']}, {row['verdict']} of {plan['words']}")
    for of, key in (("memory", "taken_bytes"), ("memory", "peak_bytes"), ("time", "step_s"), ("time", "tokens_per_s"), ("time", "mfu")):
        if abs(float(row[key]) - plan[of][key]) > 1e-9 * plan[of][key]:
            print(f"{key}: {row[key]} of {plan[of][key]}")
    parts = sum(float(r["seconds"]) for r in table("parts") if r["plan"] == str(i + 1))
    if abs(parts - plan["time"]["step_s"]) > 1e-9 * parts:
        print(f"phases sum to {parts}, a step takes {plan['time']['step_s']}")
    peak = sum(int(r["bytes"]) for r in table("categories") if r["plan"] == str(i + 1))
    if peak != sum(plan["memory"]["at_peak"].values()):
        print(f"categories sum to {peak}")
page = open(f"{folder}/index.html").read()
for name, key, column in set(re.findall(r'data-q="([^"/]+)/([^"/]+)/([^"/]+)"', page)):
    first = list(csv.reader(open(f"{folder}/csv/{name}.csv")))
    if column not in first[0] or key not in [r[0] for r in first[1:]]:
        print(f"{name}/{key}/{column} is in no table")
if not re.search(r'data-q="predictions/1/step_s"', page):
    print("the step is not on the page")
END
    done)"
check 'each stage has its memory and its streams, a search its front' "$(
    for f in memory phases memory-step-0 memory-step-3 timeline-0 timeline-3; do
        [ -s "$tmp/explain/figures/$f.svg" ] || echo "no $f of the pipeline"
    done
    [ -s "$tmp/search/figures/front.svg" ] || echo 'no front'
    grep -q 'write the file with dpxplan explain' "$tmp/eval/index.html" || echo 'what eval lacks is not said')"
check 'what is no answer is refused' "$(
    echo '{ "dpx": 1 }' >"$tmp/no.json"
    for what in "--answer $tmp/no.json" "--answer $tmp/none.json" "--answer $tmp/eval.json --sweep $tmp/eval.json" "--answer $tmp/eval.json --run 1"; do
        # shellcheck disable=SC2086 # words
        "$B/dpxreport" $what -o "$tmp/refused" >"$tmp/out" 2>&1
        [ $? = 2 ] && [ "$(grep -c . "$tmp/out")" = 1 ] || { echo "$what: not refused in a line"; cat "$tmp/out"; }
    done)"
finish
