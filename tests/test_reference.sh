#!/bin/sh
# tests/test_reference.sh -- docs/reference/ is what tools/reference.sh makes of the programs; `make pages` writes it.
. tests/check.sh
B=${B:-build}

for program in dpxplan dpxrun dpxcal dpxreport; do
    [ -x "$B/$program" ] || absent="$absent $program"
done
if [ -n "$absent" ]; then
    skip 'docs/reference is what the programs print' "not built:$absent"
else
    check 'docs/reference is what the programs print' "$(B=$B tools/reference.sh --check 2>&1 | head -n 40)"
    check 'every key, model, GPU and refusal stands there' "$(
        COLUMNS=9999 "$B/dpxplan" list keys | sed -n 's/^\([a-z][A-Za-z0-9_.]*\): .*/\1/p' | sort -u |
            while read -r key; do grep -qF "| \`$key\` |" docs/reference/keys*.md || echo "$key"; done
        for what in models gpus refused; do
            COLUMNS=9999 "$B/dpxplan" list $what | sed 's/^ *//; s/[: =].*//' | grep -vx name |
                while read -r name; do grep -qF "\`$name" docs/reference/*.md || echo "$what: $name"; done
        done)"
fi
finish
