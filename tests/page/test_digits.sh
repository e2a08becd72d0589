#!/bin/sh
# tests/page/test_digits.sh -- the page's library gives the digits of the native one.  Skipped by name where it was not built (`make page`), or
# where there is no emcc, so that it may be an older tree's.  PAGE_PLANS=N and PAGE_SEARCHES=N ask for more, PAGE_SEED=N for others.
. tests/check.sh
B=${B:-build} W=build-wasm
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export XDG_DATA_HOME="$scratch/none"       # the page has no calibrations: nor has what it is compared with

if [ ! -f "$B/dpx.html" ] || [ ! -f $W/dpx.js ] || ! command -v node >/dev/null || ! command -v emcc >/dev/null; then
    skip 'digits of the page' 'the page was not built: emcc, node, or the sources of jansson and libyaml are missing'
    finish
fi

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
finish
