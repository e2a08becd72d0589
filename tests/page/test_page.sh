#!/bin/sh
# tests/page/test_page.sh -- the planner in a browser: one file; the digits of the native library; what a reader may do to it.
# Skipped by name where it was not built ($B/dpx.html, `make page`), where there is no emcc, so that the page may be an older tree's, or where
# Chromium is not there.
# PAGE_SHOTS=FOLDER keeps pictures of 360, 1280 and 2560 pixels; PAGE_PLANS=N, PAGE_SEARCHES=N, PAGE_CHANGES=N ask for more.
. tests/check.sh
B=${B:-build} W=build-wasm
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export XDG_DATA_HOME="$scratch/none"       # the page has no calibrations: nor has what it is compared with

if [ ! -f "$B/dpx.html" ] || [ ! -f $W/dpx.js ] || ! command -v node >/dev/null || ! command -v emcc >/dev/null; then
    for what in 'the page is one file' 'digits' 'the page in Chromium'; do
        skip "$what" 'the page was not built: emcc, node, or the sources of jansson and libyaml are missing'
    done
    finish
fi

check 'the page is one file of at most 4 MB' "$(size=$(wc -c <"$B/dpx.html"); [ "$size" -le 4194304 ] || echo "$size bytes")"
# Names of XML are no requests; the library's texts may name sources.
check 'the page names nothing that a browser would fetch' \
    "$(grep -nE "(src|href)=['\"]?(https?:)?//|@import|url\(['\"]?http|fetch\(['\"]http" "$B/dpx.html" | cut -c 1-200 |
        grep -v '^[0-9]*:var dpx_module' | head -n 5)"
check 'what asks dpxplan serve is not in it' "$(grep -n 'class Served' "$B/dpx.html")"
check 'the page asks a browser to fetch nothing' \
    "$(grep -q "Content-Security-Policy\" content=\"default-src 'none'" "$B/dpx.html" || echo 'no policy')"

# Both answer the same questions; how long a search took is not asked.
same() {        # FILE: prints the first that differ
    "$B/tests/page/answers" <"$1" | sed 's/"search_s":[0-9.e+-]*//' >"$1.native"
    node tests/page/answers.js $W/dpx.js calib/measured <"$1" | sed 's/"search_s":[0-9.e+-]*//' >"$1.page"
    for side in native page; do
        [ "$(wc -l <"$1")" = "$(wc -l <"$1.$side")" ] || echo "$(wc -l <"$1") questions, $(wc -l <"$1.$side") answers of $side"
    done
    cmp -s "$1.native" "$1.page" || paste -d '\n' "$1" "$1.native" "$1.page" | awk '
        NR % 3 == 1 { q = $0 } NR % 3 == 2 { a = $0 }
        NR % 3 == 0 && a != $0 { for (i = 1; substr(a, i, 1) == substr($0, i, 1); i++);
            print q
            print "    native " substr(a, i > 60 ? i - 60 : 1, 120)
            print "    page   " substr($0, i > 60 ? i - 60 : 1, 120)
            if (++n == 3) exit }'
}
node tests/page/questions.js $W/dpx.js calib/measured "${PAGE_SEED:-20261128}" "${PAGE_PLANS:-200}" "${PAGE_SEARCHES:-20}" \
    >"$scratch/questions"
check 'random plans and searches give the same documents as libdpx, to the digit' "$(same "$scratch/questions")"
check 'most of the random plans are answered, not refused' \
    "$(awk '{ n++; ok += $1 == 0 || $1 == 3 } END { if (ok < n / 3) print ok + 0 " of " n " answered" }' "$scratch/questions.page")"
cat >"$scratch/db" <<'END'
eval	{"plan": {"dpx_plan": 1, "model": "gpt2", "cluster": "2xa100", "seq": 512, "strategy": "ddp", "dialect": "paper"}, "db": "a.db"}
END
check 'what needs a database says so by name' \
    "$(node tests/page/answers.js $W/dpx.js calib/measured <"$scratch/db" | grep -vxF "2	db: this build of dpx has no database")"

if ! command -v chromium >/dev/null; then
    skip 'the page in Chromium' 'there is no chromium'
    finish
fi
[ -z "$PAGE_SHOTS" ] || mkdir -p "$PAGE_SHOTS"
node tests/page/drive.js "$B/dpx.html" tests/fuzz/seeds "$scratch/shown" $PAGE_SHOTS >"$scratch/said" 2>&1
while IFS= read -r line; do
    case $line in
    'ok '*)     check "${line#ok }" '' ;;
    *)          check "${line#not ok }" "$line" ;;
    esac
done <"$scratch/said"
# A command that was taken from the page, after a line that its answer has.
in_a_shell() {      # FILE
    said=$(sed -n 1p "$1")
    sed 1d "$1" >"$1.sh"
    (cd "$scratch" && PATH="$programs:$PATH" sh "$1.sh") 2>&1 | tr -s ' \n' '  ' | grep -qF -- "$said" || echo "no \"$said\""
}
programs=$(cd "$B" && pwd)
check 'commands of the page answer the same in a shell' "$(in_a_shell "$scratch/shown.search"; in_a_shell "$scratch/shown.plan")"
# Each plan, and the words of its verdict: dpxplan writes the same numbers.
check 'the page words numbers as dpxplan does' "$(
    [ "$(wc -l <"$scratch/shown.words")" -ge 30 ] || echo "$(wc -l <"$scratch/shown.words") verdicts"
    while IFS='	' read -r plan words; do
        printf '%s\n' "$plan" >"$scratch/plan.json"
        "$B/dpxplan" eval "$scratch/plan.json" 2>/dev/null | tr -s ' \n' '  ' >"$scratch/text"
        printf '%s\n' "$words" | tr '|' '\n' | while IFS= read -r w; do
            grep -qF -- "$w" "$scratch/text" || echo "\"$w\" is not in: $(cut -c 1-600 "$scratch/text")"
        done
    done <"$scratch/shown.words" | head -n 3)"
# Each shown plan: the request, a tab, the document.  The page adds nothing to it.
cut -f 1 "$scratch/shown" | sed 's/^/explain	/' >"$scratch/asked"
check 'what the page showed is what libdpx answers' "$(
    [ "$(wc -l <"$scratch/asked")" -ge 30 ] || echo "$(wc -l <"$scratch/asked") plans shown"
    "$B/tests/page/answers" <"$scratch/asked" | cut -f 2 >"$scratch/native"
    cut -f 2 "$scratch/shown" >"$scratch/page"
    node -e '
        const fs = require("fs"), whole = l => JSON.stringify(JSON.parse(l));
        const lines = f => fs.readFileSync(f, "utf8").trim().split("\n").map(whole);
        const [a, b] = process.argv.slice(1).map(lines);
        a.forEach((x, i) => { if (x !== b[i]) console.log(`plan ${i + 1} differs: ${x.length} and ${b[i].length} characters`); });' "$scratch/native" "$scratch/page" 2>&1)"
finish
