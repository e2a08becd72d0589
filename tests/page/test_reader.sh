#!/bin/sh
# tests/page/test_reader.sh -- the page in Chromium as readers use it: what each picture tells a mouse and a keyboard, what may be dropped
# on it, and two questions of a stranger.  Skipped by name where the page was not built, or Chromium is not there.
# PAGE_SHOTS=FOLDER keeps what the stranger saw.
. tests/check.sh
B=${B:-build}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

if [ ! -f "$B/dpx.html" ] || ! command -v emcc >/dev/null || ! command -v node >/dev/null || ! command -v chromium >/dev/null; then
    skip 'readers of the page' 'the page was not built, or there is no chromium'
    finish
fi
[ -z "$PAGE_SHOTS" ] || mkdir -p "$PAGE_SHOTS"
{
    node tests/page/pictures.js "$B/dpx.html"
    node tests/page/brings.js "$B/dpx.html"
    node tests/page/stranger.js "$B/dpx.html" $PAGE_SHOTS
} >"$scratch/said" 2>&1
while IFS= read -r line; do
    case $line in
    'ok '*) check "${line#ok }" '' ;;
    *)      check "${line#not ok }" "$line" ;;
    esac
done <"$scratch/said"
check 'all of it was tried' "$([ "$(grep -c '^ok' "$scratch/said")" -ge 45 ] || echo "$(grep -c '^ok' "$scratch/said") things held")"
finish
