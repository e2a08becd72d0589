#!/bin/sh
# tests/bench/page.sh -- the page's library beside the native one, in one thread and in one run: CPU seconds of 20 evals of demo/8b-fsdp.json
# and of a search of llama-3.1-8b on 8 H100, and their ratios.  Loading the library is not counted.
B=${B:-build} W=build-wasm
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

command -v node >/dev/null || { echo 'no node: nothing to measure'; exit 1; }
plan=$(tr -d '\n' <demo/8b-fsdp.json)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do printf 'eval\t{"plan": %s}\n' "$plan"; done >"$work/eval"
printf 'search\t%s\n' '{"model": "llama-3.1-8b", "cluster": "8xh100", "seq": 8192, "global_batch": 64, "threads": 1}' >"$work/search"

seconds() {     # the page's, by its own clock of the process; the library is warm after the first
    node -e '
        const { library_of, ask } = require(process.cwd() + "/tests/page/answers.js"), lines = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n");
        library_of(process.argv[2], "calib/measured").then(m => {
            const go = () => lines.forEach(l => { const [call, request] = l.split("\t"); ask(m, call, request); });
            if (lines.length > 1) go();
            const before = process.cpuUsage();
            go();
            const { user, system } = process.cpuUsage(before);
            console.log(((user + system) / 1e6).toFixed(4));
        });' "$1" $W/dpx.js
}
native() {
    { TIMEFORMAT='%U %S'; bash -c 'TIMEFORMAT="%U %S"; time "$0" <"$1" >/dev/null' "$B/tests/page/answers" "$1"; } 2>&1 | awk '{ print $1 + $2 }'
}
for what in eval search; do
    n=$(native "$work/$what") p=$(seconds "$work/$what")
    echo "$what $n $p" | awk '{ k = $1 == "eval" ? 20 : 1; limit = $1 == "eval" ? 0.030 : 0
        printf "%-7s native %8.2f ms, page %8.2f ms: %.2f times\n", $1, 1000 * $2 / k, 1000 * $3 / k, $3 / $2
        if (limit && $3 / k > limit) print "        more than 30 ms"; if (!limit && $3 / $2 > 2.5) print "        more than 2.5 times" }'
done

# What a reader waits for, in seconds of this machine, whatever else it does.
! command -v chromium >/dev/null || node -e '
    const { open_browser } = require(process.cwd() + "/tests/page/chromium.js");
    (async () => {
        const browser = await open_browser();
        try {
            for (const turn of [1, 2, 3]) {
                const page = await browser.page("file://" + require("path").resolve(process.argv[1]));
                await page.until("state.first_ms");
                console.log(`opened: the first answer after ${Math.round(await page.evaluate("state.first_ms"))} ms`);
                await page.send("Page.close");
            }
        } finally {
            browser.close();
        }
    })();' "$B/dpx.html"
