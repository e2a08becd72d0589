#!/bin/sh
# tests/everywhere/exports.sh -- 44 exports, each read by the tool that it is for: DeepSpeed and transformers' Trainer, accelerate, torchtitan,
# axolotl, LLaMA-Factory, and two steps of plain PyTorch and PEFT on two CPU ranks.  PYTHON= has them; what it lacks is skipped.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# Tools that cannot be installed beside each other have a Python of their own: PYTHON_TORCHTITAN, PYTHON_AXOLOTL, PYTHON_LLAMAFACTORY.
for tool in deepspeed accelerate torchtitan axolotl llamafactory torch; do
    eval "python=\${PYTHON_$(echo $tool | tr a-z A-Z)-}"
    "${python:-${PYTHON:-python3}}" tests/everywhere/judge.py "$B/dpxplan" $tool 2>>"$tmp/err" | grep '	' >>"$tmp/lines"
done
while IFS='	' read -r name result; do
    case $result in
    ok) check "$name" '' ;;
    skip) skip "$name" "${PYTHON:-python3} has no such package" ;;
    *) check "$name" "$result" ;;
    esac
done <"$tmp/lines"
check 'all 44 were judged' "$([ "$(wc -l <"$tmp/lines")" = 44 ] || tail -3 "$tmp/err")"
finish
