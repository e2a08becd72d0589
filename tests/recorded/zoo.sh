#!/bin/sh
# zoo.sh -- modules that are no family, recorded, planned under FSDP2, DDP and ZeroRedundancyOptimizer, and held against PyTorch's trackers (`make zoo`).
#     zoo.sh [NAME ...]           PYTHON: one with torch, transformers, torchvision, diffusers, timm; B: the build
# KEEP=1: recordings that are there stay; QUICK=1: each at its first size alone, without recompute.
B=${B:-build} PYTHON=${PYTHON:-python3}
here=$(dirname "$0")
out=$B/zoo
"$PYTHON" -c 'import torch' 2>/dev/null || { echo "zoo: $PYTHON has no torch: give PYTHON="; exit 2; }
[ "$KEEP" ] || rm -rf "$out"
mkdir -p "$out"
names=${*:-$("$PYTHON" "$here/zoo.py")}
"$PYTHON" "$here/record.py" "$here/zoo.py" -o "$out" --precision bf16,autocast -- $names 2>"$out/log" | tee "$out/said"

# planned NAME: what dpxplan says of it, a line.
planned() {
    seq=$(sed -n 's/^"size": .*"only":\([0-9]*\).*/\1/p; s/^"size": .*"least":\([0-9]*\).*/\1/p' "$out/$1.json" | head -1)
    [ "$seq" -gt 1 ] || seq=64
    unused=$(grep -c '^"unused"' "$out/$1.json")
    for strategy in fsdp ddp zero1; do
        options=
        [ "$strategy $unused" = "ddp 1" ] && options=', "ddp": {"find_unused_parameters": true}'
        printf '{"dpx_plan": 1, "model": "%s", "cluster": "8xh100", "strategy": "%s", "dialect": "torch", "seq": %s, "micro_batch": 4, "precision": "bf16"%s}' \
            "$1.json" "$strategy" "$seq" "$options" >"$out/$1.$strategy.plan"
        "$B/dpxplan" eval "$out/$1.$strategy.plan" --json >"$out/$1.$strategy.answer" 2>"$out/$1.$strategy.err" || { echo "    $strategy: $(grep -v ' note: ' "$out/$1.$strategy.err")"; return 1; }
        sed -n "s/^ *\"allocated_peak_bytes\": \([0-9]*\).*/    $strategy at size $seq: \1 bytes allocated/p" "$out/$1.$strategy.answer" | head -1
    done
}

recorded=0 refused=0 wrong=0 held=
for name in $names; do
    if [ -s "$out/$name.json" ]; then
        echo "$name: $(sed -n 's/^module  *//p' "$out/$name.txt")"
        if planned "$name"; then recorded=$((recorded + 1)) held="$held $name"; else wrong=$((wrong + 1)); fi
    elif grep -q "^refused $name:" "$out/said"; then
        refused=$((refused + 1))
    else
        wrong=$((wrong + 1))
    fi
done
echo "zoo: $recorded modules recorded and planned, $refused refused by name, $wrong neither"
"$PYTHON" "$here/zoo_peaks.py" "$out" $held >"$out/peaks.jsonl" 2>>"$out/log"
"$B/tests/recorded/compare_peaks" "$out/peaks.jsonl" || wrong=1
[ $wrong = 0 ]
