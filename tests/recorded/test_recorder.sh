#!/bin/sh
# test_recorder.sh -- five small modules recorded and planned where a Python has torch (PYTHON=, else python3 of PATH); more: `make zoo`.
. tests/check.sh
B=${B:-build} PYTHON=${PYTHON:-python3}
keep_answers
here=tests/recorded
names="nanogpt graph dlrm mlp shared given routed counted named attends keeps drops awake pyramid"
if ! "$PYTHON" -c 'import torch, sys; sys.exit(not torch.version.cuda)' 2>/dev/null; then
    for name in $names; do skip "$name is recorded and planned" "$PYTHON has no torch with CUDA"; done
    skip 'the library that stands in for the driver is gone afterwards' "$PYTHON has no torch with CUDA"
    skip 'gradients that meet are added in place' "$PYTHON has no torch with CUDA"
    skip 'what is put into zeros is put in place' "$PYTHON has no torch with CUDA"
    skip 'what depends on the data is told' "$PYTHON has no torch with CUDA"
    skip 'a step that stands for no other is refused' "$PYTHON has no torch with CUDA"
    for it in 'a step that leaves another than it found is refused' 'which of two losses is meant is asked' 'parameters in fp16 are refused' 'parameters without a shape are refused' \
        'what the first step makes and keeps is as a buffer' 'what chance decides is told' 'parameters that a module takes of another have no stage 3' 'what a unit is given and does not use has zeros as its gradient' \
        'gradients of what a unit shares with others leave it together' 'what trains in FSDP2 alone is refused under autocast' 'a part of a unit that runs outside of it is refused' \
        'attention without a mask is not causal'; do
        skip "$it" "$PYTHON has no torch with CUDA"
    done
    finish
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tmp"
TMPDIR=$dir/tmp "$PYTHON" $here/record.py $here/zoo.py -o "$dir" --size 64 --precision bf16 --recompute none -- $names borrows alternates replaces losses halves lazy >"$dir/said" 2>"$dir/log"

# What is wrong with one: it is recorded, dpxplan counts the parameters that PyTorch counts, and plans it.
complaints() {
    [ -s "$dir/$1.json" ] || { cat "$dir/said"; tail -n 5 "$dir/log"; return; }
    printf '{"dpx_plan": 1, "model": "%s", "cluster": "8xh100", "strategy": "fsdp", "dialect": "torch", "seq": 64, "micro_batch": 4, "precision": "bf16"}' "$1.json" >"$dir/plan.json"
    "$B/dpxplan" eval "$dir/plan.json" --json >"$dir/answer" 2>"$dir/err" || { cat "$dir/err"; return; }
    counted=$(sed -n 's/^module .*, \([0-9]*\) parameters in .*/\1/p' "$dir/$1.txt")
    grep -q "\"params\": $counted,\$" "$dir/answer" || { echo "PyTorch counts $counted parameters"; grep '"params"' "$dir/answer"; }
}
for name in $names; do
    complaints "$name" >"$dir/wrong"
    check "$name is recorded and planned" "$(cat "$dir/wrong")"
done
check 'the library that stands in for the driver is gone afterwards' "$(ls -d "$dir"/tmp/dpx-record-* 2>/dev/null)"
# At the input of each half of a block the gradients of both ways meet.
check 'gradients that meet are added in place' "$(
    n=$(sed -n '/"backward"/,/]$/p' "$dir/nanogpt.json" | grep -c '"op":"add_"')
    [ "$n" -ge 2 ] || echo "nanogpt.json has $n sums in place in backward")"
check 'a gradient that another tensor still waits for is not added to' "$(
    grep -c '"op":"add","class":"elementwise"' "$dir/shared.json" | grep -q '^[1-9]' || echo 'shared.json adds in place where the sum is used twice')"
# Backward of x[mask] puts into zeros; that of x[mask] = y puts zeros into a gradient, which others may read.
check 'what is put into zeros is put in place' "$(
    grep -A 1 '"op":"new_zeros"' "$dir/routed.json" | grep '"op":"index_put"'
    grep -A 1 '"op":"zeros"' "$dir/routed.json" | grep -q '"op":"index_put"' || echo 'zeros are put into a gradient in place')"
# Of b*64 tokens each of four experts has b*16: forward's product has so many rows, whether a mask finds them or their number is read.
for name in routed counted; do
    check "$name: an even spread is what each expert has" "$(
        n=$(grep -c '"product":\[1,"16\*b",64,64\]' "$dir/$name.json")
        [ "$n" -ge 4 ] || grep '"op":"mm"' "$dir/$name.json" | head -4
        grep -q '^"assumed": ' "$dir/$name.json" || echo "$name.json does not say what it assumes")"
done
check 'a step that stands for no other is refused' "$(
    grep -q '^refused alternates: .*layers.0.* runs in one step and not in the next' "$dir/said" || grep alternates "$dir/said")"
check 'a step that leaves another than it found is refused' "$(
    grep -q '^refused replaces: .*add in the module makes a tensor that stays' "$dir/said" || grep replaces "$dir/said")"
check 'which of two losses is meant is asked' "$(
    grep -q '^refused losses: .*2 tensors of no dimension.*return (module, inputs, loss)' "$dir/said" || grep losses "$dir/said")"
check 'parameters in fp16 are refused' "$(
    grep -q '^refused halves: .*layers.0.0.weight is float16.*return the module in fp32' "$dir/said" || grep halves "$dir/said")"
check 'parameters without a shape are refused' "$(
    grep -q '^refused lazy: .*layers.0.0.weight has no shape before the first forward (LazyLinear is lazy): run a batch' "$dir/said" || grep lazy "$dir/said")"
check 'what the first step makes and keeps is as a buffer' "$(
    grep -q '"kept": *\[256000\]' "$dir/keeps.json" || grep -A3 '"kept"' "$dir/keeps.json")"
# FSDP2 gives zeros to what a unit is given and does not use; the table of the first layer is used.
check 'what a unit is given and does not use has zeros as its gradient' "$(
    grep -q '^"assumed": \["zeros, as FSDP2 gives them, .* in layers.1"\],' "$dir/given.json" || grep '"assumed"' "$dir/given.json"
    grep '^"unused"' "$dir/given.json")"
# The peak that FSDPMemTracker counts of it, which has no workspace of cuBLAS (32 MiB); without FSDP2's node it is 524,288 bytes lower.
check 'gradients of what a unit shares with others leave it together' "$(
    want=$(sed -n 's/.*"name":"pyramid fsdp b64 s64",.*"peak_total":\([0-9]*\).*/\1/p' tests/golden/module/peaks.jsonl)
    printf '{"dpx_plan": 1, "model": "pyramid.json", "cluster": "8xh100", "strategy": "fsdp", "dialect": "torch", "seq": 64, "micro_batch": 64, "precision": "bf16"}' >"$dir/plan.json"
    "$B/dpxplan" eval "$dir/plan.json" --json 2>&1 | grep -q "\"allocated_peak_bytes\": $((want + 33554432)),$" || echo "its peak is not $want and 32 MiB")"
check 'what trains in FSDP2 alone is refused under autocast' "$(
    PYTHONPATH=lib "$PYTHON" -m dpx.record $here/zoo.py:given -o "$dir/none.json" --size 64 --precision bf16,autocast --recompute none 2>&1 |
        grep -q 'not done *autocast: tables.1 gets a gradient in bf16 and none in autocast' || echo 'no such line')"
check 'a part of a unit that runs outside of it is refused' "$(
    grep -q '^refused borrows: .*layers.0.0 runs outside of layers.0, the unit that it lies in' "$dir/said" || grep borrows "$dir/said")"
# In fp32 the kernel that saves memory is chosen, whose forward has other arguments that are true.
check 'attention without a mask is not causal' "$(
    PYTHONPATH=lib "$PYTHON" -m dpx.record $here/zoo.py:attends -o "$dir/fp32.json" --size 64 --precision fp32 --recompute none >"$dir/out" 2>&1 || tail -n 3 "$dir/out"
    grep '"class":"attention"' "$dir/fp32.json" >"$dir/attention"
    [ "$(wc -l <"$dir/attention")" = 4 ] || cat "$dir/attention"
    grep causal "$dir/attention")"
check 'what chance decides is told' "$(
    grep -q '^"assumed": .*the middle of what chance draws' "$dir/drops.json" || grep '"assumed"' "$dir/drops.json")"
check 'parameters that a module takes of another have no stage 3' "$(
    grep -q 'not done *bf16, stage 3: .*asks for layers.0.self_attn.out_proj.weight' "$dir/attends.txt" || cat "$dir/attends.txt")"
check 'a whole number that is not known is refused by name' "$(
    PYTHONPATH=lib "$PYTHON" -m dpx.record $here/zoo.py:counted -o "$dir/none.json" --size 64 --precision fp32 --recompute none 2>&1 |
        grep -q 'layers.0 reads a whole number .*zoo.py:.*--read' || echo 'no such line')"
check 'a file of one batch answers for that alone' "$(
    sed 's/^"size"/"batch": 2, "size"/' "$dir/mlp.json" >"$dir/one.json"
    printf '{"dpx_plan": 1, "model": "one.json", "cluster": "8xh100", "strategy": "fsdp", "dialect": "torch", "seq": 64, "micro_batch": 4, "precision": "bf16"}' >"$dir/plan.json"
    "$B/dpxplan" eval "$dir/plan.json" 2>&1 | grep -q 'micro_batch: 4: .* at batch 2 alone' || echo 'micro_batch 4 is not refused')"
finish
