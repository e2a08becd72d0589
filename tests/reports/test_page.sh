#!/bin/sh
# tests/reports/test_page.sh -- a report in a real browser, wide and narrow: nothing overflows, every
# figure is there, nothing is said on the console.  And dpxreport as a command.
# Runs from the root of the tree; $B is where it was built.
. tests/check.sh
B=${B:-build}
keep_answers

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# gives STATUS WORDS COMMAND...: what is wrong with its exit status or its message.
gives() {
    want=$1 words=$2
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    is=$?
    [ $is = "$want" ] || echo "exit status $is instead of $want: $*"
    grep -qF -e "$words" "$tmp/out" "$tmp/err" || { echo "no \"$words\" in:"; cat "$tmp/out" "$tmp/err"; }
}

long="model-$(printf 'x%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)-$(printf 'averylongword%.0s' 1 2 3 4 5 6)"
check 'a database is made' "$("$B/tests/reports/test_report" --write "$tmp/dpx.db" "模型 <b>$long" 2>&1)"

# ---- the command ----

check 'the path of the page is printed' "$(gives 0 "$tmp/r/index.html" "$B/dpxreport" --db "$tmp/dpx.db" -o "$tmp/r")"
check 'runs may be named in a row and with commas' \
    "$(gives 0 "$tmp/r2/index.html" "$B/dpxreport" --db "$tmp/dpx.db" --run 1 2,3 -o "$tmp/r2" --run=4)"
check 'a run that is not there is refused' \
    "$(gives 2 'there is no run 99' "$B/dpxreport" --db "$tmp/dpx.db" --run 99 -o "$tmp/r3")"
check '--run needs numbers' "$(gives 2 '--run: the numbers of runs are missing' "$B/dpxreport" -o "$tmp/r3" --run)"
check '-o is needed' "$(gives 2 '-o DIR is missing' "$B/dpxreport" --db "$tmp/dpx.db")"
check 'a database that is not there is refused' "$(gives 2 nowhere.db "$B/dpxreport" --db "$tmp/nowhere.db" -o "$tmp/r3")"
check '--plan belongs to --kineto' "$(gives 2 '--plan belongs to --kineto' "$B/dpxreport" --plan x -o "$tmp/r3")"
check 'a trace has a page too, and JSON beside it' "$(
    gives 0 "$tmp/k/index.html" "$B/dpxreport" --kineto tests/golden/kineto/ddp.json.gz -o "$tmp/k"
    "$B/dpxreport" --kineto tests/golden/kineto/ddp.json.gz >"$tmp/table"
    sed -n 's/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&#39;/'"'"'/g; s/&amp;/\&/g; /<pre>/,/<\/pre>/p' "$tmp/k/index.html" |
        sed 's/.*<pre>//; /<\/pre>/d' | diff "$tmp/table" - | head -n 5
    gives 0 '"steps_by": "ProfilerStep"' "$B/dpxreport" --kineto tests/golden/kineto/ddp.json.gz --json -o "$tmp/k")"
check 'help tells of --run' "$(gives 0 '--run ID' "$B/dpxreport" --help)"
sweep='{ "dpx": 1, "mode": "eval", "over": ["nodes"], "points": ['
for n in 1 2 4; do
    sweep="$sweep { \"at\": { \"nodes\": $n }, \"gpus\": $n, \"verdict\": \"fits\", \"tokens_per_s\": $n.5, \"step_s\": 2 },"
done
echo "${sweep%,} ] }" >"$tmp/sweep.json"
check 'a sweep has a page of its own, or a place on that of runs' "$(
    gives 0 "$tmp/s/index.html" "$B/dpxreport" --sweep "$tmp/sweep.json" -o "$tmp/s"
    grep -q 'The fastest point is' "$tmp/s/index.html" && grep -q '^3,"nodes 4",fits,4,2,' "$tmp/s/csv/sweep.csv" || cat "$tmp/s/csv/sweep.csv"
    [ -e "$tmp/s/csv/runs.csv" ] && echo 'runs: from where?'
    gives 0 "$tmp/both/index.html" "$B/dpxreport" --sweep "$tmp/sweep.json" --db "$tmp/dpx.db" -o "$tmp/both"
    grep -q 'The fastest point is' "$tmp/both/index.html" && grep -q 'From the database' "$tmp/both/index.html" || echo 'one is missing'
    gives 2 'beside --kineto' "$B/dpxreport" --sweep "$tmp/sweep.json" --kineto x -o "$tmp/r3"
    gives 2 'no "points"' "$B/dpxreport" --sweep calib/measured/../../demo/8b-fsdp.json -o "$tmp/r3")"
check 'every figure is a file too, with its colours in it' \
    "$(grep -o '<figure id="[^"]*"' "$tmp/r/index.html" | cut -d '"' -f 2 | while read -r id; do
        grep -q '</svg>' "$tmp/r/figures/$id.svg" || echo "$id.svg is missing"
        grep -l 'var(' "$tmp/r/figures/$id.svg"
    done)"

# ---- in a browser ----

browser=
for name in chromium chromium-browser google-chrome chromium-headless-shell; do
    [ -n "$browser" ] || browser=$(command -v $name)
done
if [ -z "$browser" ]; then
    for width in 1280 390; do
        skip "the page is right at $width pixels" 'there is no Chromium'
    done
    skip 'nothing is said on the console' 'there is no Chromium'
    finish
fi

browse() {
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$tmp/profile" \
        --virtual-time-budget=5000 "$@" 2>"$tmp/console"
}

# The page may run no script, so a copy without that rule looks at itself and tells the frame it is in.
cat >"$tmp/look.js" <<'END'
addEventListener('load', () => {
    const wide = document.documentElement.clientWidth, wrong = [];
    if (document.documentElement.scrollWidth > wide)
        wrong.push('the page is ' + document.documentElement.scrollWidth + ' wide');
    for (const e of document.querySelectorAll('body *')) {
        const box = e.getBoundingClientRect();
        if (box.width && box.right > wide + 1 && !e.closest('.scroll'))
            wrong.push(e.tagName + ' ' + (e.id || e.textContent.slice(0, 40)) + ' ends at ' + box.right);
    }
    for (const e of document.querySelectorAll('svg text')) {
        const box = e.getBoundingClientRect(), svg = e.closest('svg').getBoundingClientRect();
        if (box.width && (box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1))
            wrong.push('cut off: ' + e.textContent);
    }
    for (const e of document.querySelectorAll('figure')) {
        const seen = [...e.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width > 100);
        if (seen.length != 1)
            wrong.push(e.id + ' shows ' + seen.length + ' drawings');
    }
    for (const e of document.images)
        if (!e.complete || !e.naturalWidth)
            wrong.push('an image is missing: ' + e.src);
    parent.postMessage(wrong.slice(0, 10).join('; ') || 'nothing wrong', '*');
});
END
{
    sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//; s,</body>,<script>,; /^<\/html>/d' "$tmp/r/index.html"
    cat "$tmp/look.js"
    echo '</script></body></html>'
} >"$tmp/r/look.html"

for width in 1280 390; do
    cat >"$tmp/r/frame.html" <<END
<iframe src="look.html" style="border:0;width:${width}px;height:900px"></iframe><p id="said">no answer</p>
<script>addEventListener('message', e => { document.getElementById('said').textContent = e.data; });</script>
END
    said=$(browse --window-size=1400,1000 --dump-dom "file://$tmp/r/frame.html" | sed -n 's/.*<p id="said">\(.*\)<\/p>.*/\1/p')
    check "the page is right at $width pixels" "$([ "$said" = 'nothing wrong' ] || echo "$said")"
done

browse --enable-logging=stderr --screenshot="$tmp/page.png" --window-size=1280,1000 "file://$tmp/r/index.html" >/dev/null
check 'nothing is said on the console' "$(grep -a ':CONSOLE' "$tmp/console"; [ -s "$tmp/page.png" ] || echo 'no picture')"

finish
