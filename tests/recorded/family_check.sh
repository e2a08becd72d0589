#!/bin/sh
# family_check.sh -- every built-in family beside transformers' own code, recorded: products, attention, bytes, what is held (`make family-check`).
#     family_check.sh [NAME ...]          PYTHON: one with torch and transformers; B: the build; KEEP=1 compares recordings that are there
B=${B:-build} PYTHON=${PYTHON:-python3}
here=$(dirname "$0")
out=$B/family-check
"$PYTHON" -c 'import torch, transformers' 2>/dev/null || { echo "family-check: $PYTHON has no torch and transformers: give PYTHON="; exit 2; }
[ "$KEEP" ] || rm -rf "$out"
mkdir -p "$out"
names=${*:-$("$PYTHON" "$here/families.py")}
"$PYTHON" "$here/record.py" "$here/families.py" -o "$out" --batch 2 --size 512 --check 2:512 --precision bf16,autocast -- $names 2>"$out/log"
differ=0 same=0
for name in $names; do
    "$PYTHON" "$here/families.py" "$name" >"$out/$name.config"
    [ -s "$out/$name.json" ] || { differ=$((differ + 1)); continue; }
    if "$B/tests/recorded/compare_programs" "$name" "$out/$name.config" "$out/$name.json" 2 512; then
        same=$((same + 1))
    else
        differ=$((differ + 1))
    fi
done
echo "family-check: $same families agree with transformers' own code, $differ differ or could not be recorded"
[ $differ = 0 ]
