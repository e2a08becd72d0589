#!/bin/sh
# family_check.sh -- every built-in family beside transformers' own code, recorded: products, attention, bytes, what is held (`make family-check`).
#     family_check.sh [NAME ...]          PYTHON: one with torch and transformers; B: the build; KEEP=1 compares recordings that are there
# Each is compared as soon as it is recorded.  QUICK=1: in bf16 without recompute alone.
# family_named: differences that are known, a line each: NAME|what every step's line then says|why.
B=${B:-build} PYTHON=${PYTHON:-python3}
here=$(dirname "$0")
out=$B/family-check
"$PYTHON" -c 'import torch, transformers' 2>/dev/null || { echo "family-check: $PYTHON has no torch and transformers: give PYTHON="; exit 2; }
[ "$KEEP" ] || rm -rf "$out"
mkdir -p "$out"
names=${*:-$("$PYTHON" "$here/families.py")}
how='--precision bf16,autocast'
[ "$QUICK" ] && how='--precision bf16 --recompute none'

compared() {
    "$PYTHON" "$here/families.py" "$1" >"$out/$1.config"
    if "$B/tests/recorded/compare_programs" "$1" "$out/$1.config" "$out/$1.json" 2 512 >"$out/$1.said"; then
        echo "$1" >>"$out/same"
    elif named "$1"; then
        echo "$1" >>"$out/named"
    else
        echo "$1" >>"$out/differ"
    fi
    cat "$out/$1.said"
}

# Is that, in every step, all that differs?
named() {
    known=$(grep "^$1|" "$here/family_named") || return 1
    says=$(echo "$known" | cut -d '|' -f 2)
    [ -s "$out/$1.said" ] && ! grep -v -F "$says" "$out/$1.said" | grep -q . && ! grep -v -F '+0.0000 %)' "$out/$1.said" | grep -q . || return 1
    echo "    named: $1: $(echo "$known" | cut -d '|' -f 3)" >>"$out/$1.said"
}

: >"$out/same"
: >"$out/named"
: >"$out/differ"
"$PYTHON" "$here/record.py" "$here/families.py" -o "$out" --batch 2 --size 512 --check 2:512 $how -- $names 2>"$out/log" |
    while read -r what name rest; do
        case $what in
        recorded | there) compared "$name" ;;
        refused | failed) echo "$what $name $rest"; echo "${name%:}" >>"$out/differ" ;;
        *) echo "    $what $name $rest" ;;
        esac
    done
echo "family-check: $(wc -l <"$out/same") families agree with transformers' own code, $(wc -l <"$out/named") in all but what is named, $(wc -l <"$out/differ") differ or could not be recorded:" $(cat "$out/differ")
[ ! -s "$out/differ" ] && cat "$out/same" "$out/named" | grep -q .
