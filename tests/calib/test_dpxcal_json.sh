#!/bin/sh
# tests/calib/test_dpxcal_json.sh -- for programs: dpxcal's, dpxrun's and dpxreport's documents, errors too, without a rank being started.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
command -v python3 >/dev/null || { skip 'documents' 'no python3'; finish; }

# answer STATUS EXPRESSION PROGRAM WORD...: one document d of which the expression holds, and which names what it rests on.
answer() {
    status=$1 holds=$2 program=$3
    shift 3
    "$B/$program" "$@" --json >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = "$status" ] || echo "$program $*: exit $rc"
    python3 - "$holds" "$tmp/out" <<'END' 2>&1 || echo "of: $program $*"
import json, sys
d = json.load(open(sys.argv[2]))
assert d["version"] and d["frameworks"]["torch"], d
assert eval(sys.argv[1]), d
END
}
refused() {
    answer 2 'd["error"]["status"] == 2 and d["error"]["kind"] == "usage" and d["error"]["messages"]' "$@"
}

every() {
    for c in $("$B/dpxcal" nosuch 2>&1 | sed 's/.*there are //; s/,//g'); do
        "$B/dpxcal" "$c" --help | grep -q -- '--json' || echo "$c has no --json"
    done
}
documents() {
    answer 0 'd["lines"][0].endswith("1 calibration taken in, 0 were known")' dpxcal import tests/calib/measured/h100.json --db "$tmp/db"
    answer 0 'd["lines"][0].endswith("0 calibrations taken in, 1 was known")' dpxcal import --json tests/calib/measured/h100.json --db "$tmp/db"
    answer 0 'len(d["machines"]) == 1 and d["machines"][0]["series"][0]["series"] > 0 and d["machines"][0]["busy"] >= 1' dpxcal show --db "$tmp/db"
    answer 0 'd["fits"] and all(f["points"] > 0 and f["host"] == d["fits"][0]["host"] for f in d["fits"])' dpxcal show --fits --db "$tmp/db"
    answer 0 'd["plans"][0]["kernels"] >= len(d["plans"][0]["missing"]) > 0' dpxcal show --model gpt2 --seq 128 --ranks 2 --db "$tmp/db"
    answer 0 'd["calibrations"] == 1' dpxcal export "$tmp/again.json" --db "$tmp/db"
    answer 0 'd["seconds"] > 0' dpxcal probe --ranks 1 --for 0.1
    answer 0 'd["file"].endswith("/h100.fits")' dpxcal fit "$tmp/again.json" "$tmp/h100.fits"
    "$B/dpxplan" search --model gpt2 --cluster 8xh100 --seq 1k --global-batch 64 --top 2 --json >"$tmp/answer" 2>/dev/null
    answer 0 'd["page"].endswith("/page/index.html")' dpxreport --answer "$tmp/answer" -o "$tmp/page"
    [ -s "$tmp/page/index.html" ] || echo 'no page'
}
# Series of the document, summed, are the rows of the database.
sums() {
    "$B/dpxcal" show --db "$tmp/db" --json | python3 -c '
import json, sqlite3, sys
of = sum(s["series"] for m in json.load(sys.stdin)["machines"] for s in m["series"])
rows = sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM series WHERE is_now = 1").fetchone()[0]
assert of == rows > 0, (of, rows)' "$tmp/db" 2>&1
}
errors() {
    refused dpxcal nosuch
    refused dpxcal show --db "$tmp/nosuch"
    refused dpxcal import "$tmp/nosuch"
    refused dpxcal import tests/check.sh --db "$tmp/other"
    refused dpxcal export "$tmp/x.json" --calibration 99 --db "$tmp/db"
    refused dpxcal fit tests/check.sh "$tmp/x"
    refused dpxcal run --ranks 0
    refused dpxcal probe --for nan
    refused dpxrun "$tmp/nosuch.json"
    refused dpxrun demo/8b-fsdp.json --steps 0
    refused dpxrun demo/8b-fsdp.json demo/8b-ddp.json
    refused dpxreport --run x
    refused dpxreport --kineto tests/check.sh
    refused dpxreport --sweep tests/check.sh -o "$tmp/page"
    refused dpxreport
}

check 'every command of dpxcal has --json' "$(every)"
check 'dpxcal and dpxreport answer with a document' "$(documents)"
check 'what dpxcal show counts is what the database holds' "$(sums)"
check 'an error of any program is a document' "$(errors)"
finish
