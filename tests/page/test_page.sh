#!/bin/sh
# tests/page/test_page.sh -- the planner in a browser: one file; what a reader may do to it, and that what it shows is libdpx's.
# Skipped by name where it was not built ($B/dpx.html, `make page`), where there is no emcc, so that the page may be an older tree's, or where
# Chromium is not there.
# PAGE_SHOTS=FOLDER keeps pictures of 360, 1280 and 2560 pixels; PAGE_CHANGES=N moves its slider more often.
. tests/check.sh
B=${B:-build}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export XDG_DATA_HOME="$scratch/none"       # the page has no calibrations: nor has what it is compared with

if [ ! -f "$B/dpx.html" ] || ! command -v node >/dev/null || ! command -v emcc >/dev/null; then
    for what in 'the page is one file' 'the page in Chromium'; do
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
