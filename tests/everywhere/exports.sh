#!/bin/sh
# tests/everywhere/exports.sh -- 82 exports, each read by the tool that it is for: DeepSpeed and transformers' Trainer, accelerate, torchtitan 0.3.0
# and 0.2.2, Megatron-LM, axolotl, LLaMA-Factory, and two steps of plain PyTorch and PEFT on two CPU ranks.  PYTHON= has them; what it lacks is skipped.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# Tools that cannot be installed beside each other have a Python of their own: PYTHON_TORCHTITAN, PYTHON_TORCHTITAN_OLD,
# PYTHON_AXOLOTL, PYTHON_LLAMAFACTORY, PYTHON_MEGATRON; MEGATRON=DIR is a checkout of Megatron-LM (its wheel lacks megatron/training/),
# MEGATRON_OLD=DIR one of core_v0.16.1.
judge() {       # TOOL PYTHON
    "${2:-${PYTHON:-python3}}" tests/everywhere/judge.py "$B/dpxplan" "$1" 2>>"$tmp/err" | grep '	' >>"$tmp/lines"
}
for tool in deepspeed accelerate torchtitan megatron axolotl llamafactory torch; do
    eval "python=\${PYTHON_$(echo $tool | tr a-z A-Z)-}"
    judge $tool "$python"
done
judge torchtitan "${PYTHON_TORCHTITAN_OLD:-false}"
[ -z "${MEGATRON_OLD-}" ] || (export MEGATRON="$MEGATRON_OLD"; judge megatron "${PYTHON_MEGATRON-}")
while IFS='	' read -r name result; do
    case $result in
    ok) check "$name" '' ;;
    skip) skip "$name" "${PYTHON:-python3} has no such package, or MEGATRON= no such folder" ;;
    *) check "$name" "$result" ;;
    esac
done <"$tmp/lines"
[ -n "${PYTHON_TORCHTITAN_OLD-}" ] || skip 'torchtitan 0.2.2' 'PYTHON_TORCHTITAN_OLD= has it'
[ -n "${MEGATRON_OLD-}" ] || skip 'Megatron-LM 0.16.1' 'MEGATRON_OLD= has it'
all=$((68 + ${PYTHON_TORCHTITAN_OLD:+14}+0 + ${MEGATRON_OLD:+19}+0))
check "all $all were judged" "$([ "$(wc -l <"$tmp/lines")" = "$all" ] || tail -3 "$tmp/err")"
finish
