#!/bin/sh
# tests/sim/test_cmd_fit.sh -- dpxplan fit: its least number is what search says of that number and of the one before, its commands run,
# hours and money follow by multiplication.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME
ln -s "$(cd "$B" && pwd)/dpxplan" "$tmp/dpxplan" && ln -s "$PWD/demo" "$tmp/demo" || exit 1

# field NAME FILE: the first number or text of that name.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$2" | head -1; }

# says WORDS COMMAND...: exit 2 and one line with the words.
says() {
    words=$1
    shift
    "$B/dpxplan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "dpxplan $*: exit $rc, not 2"
    [ "$(wc -l <"$tmp/err")" = 1 ] || cat "$tmp/err"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}

# The command that fit prints, with another cluster and without a file: does it find a plan?
on() { sed 's/^ *"\(dpxplan search .*\) -o plan.json",*$/\1/p; d' "$tmp/fit" | sed "s/--cluster [^ ]*/--cluster $1/"; }

# same MODEL GPU NUMBER HALF [OPTIONS]: that many are the least (their shape, and that of half as many; "-" where one is enough).
same() {
    model=$1 gpu=$2 shape=$3 half=$4
    shift 4
    "$B/dpxplan" fit "$model" "$gpu" "$@" --json >"$tmp/fit" 2>"$tmp/err" || { echo "exit $?"; cat "$tmp/err"; }
    [ "$(field cluster "$tmp/fit")" = "$shape" ] || echo "$model on $gpu: $(field cluster "$tmp/fit"), not $shape"
    (cd "$tmp" && PATH=$tmp:$PATH sh -c "$(on "$shape") --json --top 1" >"$tmp/search" 2>&1) || { echo "search on $shape: exit $?"; head -3 "$tmp/search"; }
    [ "$(field step_s "$tmp/fit")" = "$(field step_s "$tmp/search")" ] || echo "fit $(field step_s "$tmp/fit") s, search $(field step_s "$tmp/search") s"
    [ "$(field label "$tmp/fit")" = "$(field label "$tmp/search")" ] || echo "fit $(field label "$tmp/fit"), search $(field label "$tmp/search")"
    [ "$half" = - ] && return
    (cd "$tmp" && PATH=$tmp:$PATH sh -c "$(on "$half") --json --top 1" >"$tmp/search" 2>&1)
    [ $? = 3 ] || echo "search on $half does not say that nothing fits"
}

# What everybody knows of AdamW in mixed precision: 16 bytes a parameter and activations.  8.03e9 of them are 128.5 GB: two cards of 80 GB, one
# of 141 GB.
check 'llama-3.1-8b: two H100 hold it, as search says, and one does not' "$(same llama-3.1-8b h100 2xh100 1xh100)"
check 'llama-3.1-8b: one H200' "$(same llama-3.1-8b h200 1xh200 -)"
# 3.21e9 x 16 bytes are 51.4 GB: 25.7 on each of two cards that have 24.
check 'llama-3.2-3b: four RTX 4090' "$(same llama-3.2-3b rtx4090 4xrtx4090 2xrtx4090 --seq 2k)"
# Each step the allocator gives memory back to the device: 1.5 ms that belong to the step.
check 'gemma-2b: four RTX 4090, whose allocator retries' "$(same gemma-2b rtx4090 4xrtx4090 2xrtx4090 --seq 1k --batch 256)"
check 'gpt2: one is enough' "$(same gpt2 t4 1xt4 - --seq 512 --batch 4)"
check 'QLoRA of 8 billion parameters: one RTX 4090' "$(same llama-3.1-8b rtx4090 1xrtx4090 - --train qlora --seq 2k --batch 16)"
# 3.21e9 frozen parameters in 16 bits are 6.4 GB.
check 'LoRA of 3 billion parameters: one A10G' "$(
    same llama-3.2-3b a10g 1xa10g - --train lora --seq 1k --batch 8)"
# Logits of 128,256 words are 4 GiB for 4096 tokens, and 16 GiB for 16384: a loss without them is an option of most trainers.
check 'fewer GPUs with a fused loss are said, and nothing is said not to fit that fits so' "$(
    "$B/dpxplan" fit llama-3.1-8b rtx4090 --train lora --framework torch >"$tmp/out" 2>/dev/null
    grep -q '^  rtx4090  *2 ' "$tmp/out" && grep -q '^      with a fused loss 1 holds it' "$tmp/out" && grep -q -- '--loss fused-linear' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" fit llama-3.1-8b rtx4090 --train lora --framework torch --loss fused-linear >"$tmp/out" 2>/dev/null
    grep -q '^  rtx4090  *1 ' "$tmp/out" && grep -q '^  *--.*--loss fused-linear' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" fit llama-3.2-1b rtx4090 --train lora --seq 16k --batch 1 --framework torch >"$tmp/out" 2>/dev/null
    [ $? = 0 ] && tr -s ' \n' ' ' <"$tmp/out" | grep -q 'LoRA of rank 16, with a fused loss' || cat "$tmp/out"
    "$B/dpxplan" fit llama-3.2-1b t4 --train lora --seq 8k --batch 1 --framework deepspeed >"$tmp/out" 2>/dev/null
    [ $? = 3 ] && tr -s ' \n' ' ' <"$tmp/out" | grep -q 'more: --batch 1 is not a multiple' || cat "$tmp/out"
    "$B/dpxplan" search llama-3.2-1b --cluster 1xh100 --seq 1k --global-batch 8 --framework torch --dialect paper --loss fused-linear >"$tmp/out" 2>&1
    [ $? = 2 ] || cat "$tmp/out"
    "$B/dpxplan" search llama-3.2-1b --cluster 1xh100 --seq 1k --global-batch 8 --framework torch --loss fused-linear --json 2>/dev/null | grep '"loss": ' | sort -u | grep -v fused-linear)"

check 'with offload one is enough where two are without' "$(same llama-3.1-8b h100 1xh100 - --offload --seq 2k --batch 8 --framework deepspeed)"

check 'a recipe: its model, seq, batch a GPU and what it trains' "$(
    "$B/dpxplan" fit demo/qwen3-sft.yaml h100 --json >"$tmp/fit" 2>&1 || cat "$tmp/fit"
    [ "$(field seq "$tmp/fit")" = 8192 ] || echo "seq $(field seq "$tmp/fit")"
    # 1 x 4 accumulation steps on each GPU, as the file says
    [ "$(field global_batch "$tmp/fit")" = $((4 * $(field tried "$tmp/fit"))) ] || echo "batch $(field global_batch "$tmp/fit") on $(field tried "$tmp/fit")"
    cat >"$tmp/lora.yaml" <<'YAML'
model_name_or_path: Qwen/Qwen3-8B
dataset_name: trl-lib/Capybara
max_length: 1024
per_device_train_batch_size: 2
use_peft: true
lora_r: 8
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules: [q_proj, v_proj]
bf16: true
YAML
    "$B/dpxplan" fit "$tmp/lora.yaml" l40s --json >"$tmp/fit" 2>&1 || cat "$tmp/fit"
    grep -q -e '--lora 8 --lora-targets q_proj,v_proj --lora-dropout 0.05' "$tmp/fit" || grep 'dpxplan search' "$tmp/fit"
    (cd "$tmp" && PATH=$tmp:$PATH sh -c "$(on 1xl40s) --json --top 1" >"$tmp/search" 2>&1) || head -3 "$tmp/search"
    [ "$(field step_s "$tmp/fit")" = "$(field step_s "$tmp/search")" ] || echo "fit $(field step_s "$tmp/fit") s, search $(field step_s "$tmp/search") s"
    cat >"$tmp/experts.yaml" <<'YAML'
base_model: Qwen/Qwen3-30B-A3B
datasets: [{ path: x, type: alpaca }]
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_parameters: [mlp.experts.gate_up_proj]
sequence_len: 1024
micro_batch_size: 1
gradient_accumulation_steps: 2
optimizer: adamw_torch
bf16: true
gradient_checkpointing: true
learning_rate: 0.0002
num_epochs: 1
YAML
    says "adapters of experts' weights" fit "$tmp/experts.yaml" h200
    # 8 x 128 experts x (2048 + 2 x 768) x 48 blocks
    "$B/dpxplan" import "$tmp/experts.yaml" --cluster 8xh200 -o "$tmp/experts.json" 2>&1 |
        grep -q 'LoRA of rank 8 on mlp.experts.gate_up_proj: 176.16M' || echo 'import does not say what it adapts'
    says 'a plan names its own cluster' fit demo/8b-fsdp.json)"

check 'the printed commands run, in their order' "$(
    "$B/dpxplan" fit llama-3.2-1b l40s --train lora --samples 1000 --price 1 >"$tmp/fit" 2>&1 || cat "$tmp/fit"
    sed -n '/To go on from there/,$p' "$tmp/fit" | sed -n 's/^  //p' >"$tmp/commands"
    [ "$(grep -c '^dpxplan' "$tmp/commands")" = 2 ] || cat "$tmp/commands"
    (cd "$tmp" && PATH=$tmp:$PATH sh -e "$tmp/commands" >"$tmp/out" 2>&1) || { echo "exit $?"; cat "$tmp/commands"; tail -3 "$tmp/out"; })"

# 1000 samples of 1024 tokens, three times, in steps of 8 samples: 375 steps.
check 'hours and money follow by multiplication' "$(
    "$B/dpxplan" fit gpt2 a100-80gb h100 --seq 1k --batch 8 --samples 1000 --epochs 3 --price h100=3.5 --json >"$tmp/fit" 2>&1 || cat "$tmp/fit"
    [ "$(field tokens "$tmp/fit")" = 3072000 ] && [ "$(field steps "$tmp/fit")" = 375 ] || grep 'tokens\|steps' "$tmp/fit"
    sed -n '/"gpu": "h100"/,$p' "$tmp/fit" >"$tmp/h100"
    awk -v s="$(field step_s "$tmp/h100")" -v h="$(field gpu_hours "$tmp/h100")" -v c="$(field cost "$tmp/h100")" 'BEGIN {
        if (h / (s * 375 / 3600) - 1 > 1e-9 || (s * 375 / 3600) / h - 1 > 1e-9) print h " GPU-hours of " s " s"
        if (c / (3.5 * h) - 1 > 1e-9 || 3.5 * h / c - 1 > 1e-9) print "cost " c }'
    [ "$(field cost "$tmp/fit")" = null ] || echo "a price of one is not that of others: $(field cost "$tmp/fit")"
    grep -q '"dpxplan search .*--cluster 1xh100 .*--price 3.5' "$tmp/fit" || grep 'dpxplan search' "$tmp/fit"
    "$B/dpxplan" fit gpt2 h100 --tokens 1B --price '$3.50' | grep -q '^  h100 .* \$[0-9]' || echo 'no sign of the currency'
    says 'needs --tokens or --samples' fit gpt2 --price 2
    says 'give one of them' fit gpt2 --tokens 1B --samples 10
    says 'not among the GPUs' fit gpt2 h100 --tokens 1B --price a100=2
    says 'not a number' fit gpt2 h100 --tokens 1B --price h100=cheap)"

# One price has one reading: a comma parts prices, a GPU's name is no price, and sums of two currencies cannot be compared.
check 'prices and training that can be read in two ways are refused' "$(
    says 'two prices for all' fit gpt2 h100 --tokens 1B --price 2,10
    says 'h100 has two prices' fit gpt2 h100 --tokens 1B --price h100=2,h100=3
    says 'negative' fit gpt2 h100 --tokens 1B --price -1
    says 'h100 is a GPU' fit gpt2 h100 --tokens 1B --price h100
    says "'h100' is not a number" eval gpt2 --cluster 1xh100 --tokens 1B --price h100
    says 'another currency' fit gpt2 h100 h200 --tokens 1B --price 'h100=$2,h200=3 EUR'
    says 'another currency' fit gpt2 h100 h200 --tokens 1B --price 'h100=$2,h200=3'
    says 'at most 1048576' fit gpt2 h100 --batch 1e9
    says 'no training' fit gpt2 h100 --tokens 1B --epochs 0
    says '--train all has none' fit gpt2 h100 --lora 8 --train all
    for price in 3,h100=2 h100=2,3; do
        "$B/dpxplan" fit gpt2 h100 --tokens 1B --price $price | grep -q -e '--price 2 ' || echo "$price: not 2 for h100"
    done
    "$B/dpxplan" fit gpt2 h100 --tokens 1B --price '2 EUR' >"$tmp/out"
    grep -q '^  h100 .*[0-9] EUR$' "$tmp/out" && grep -q -e "--price '\{0,1\}EUR2" "$tmp/out" || cat "$tmp/out"
    says 'another currency' fit gpt2 h100 h200 --tokens 1B --price '3,h200=$2'
    "$B/dpxplan" fit gpt2 h100 --lora 8 | grep -q 'LoRA adapters of rank 8' || echo 'a rank alone is no LoRA')"

check 'the table of eight GPUs fits 80 columns' "$(
    COLUMNS=80 "$B/dpxplan" fit gpt2-xl --tokens 1B --price '$2' >"$tmp/fit" 2>&1 || cat "$tmp/fit"
    awk 'length($0) > 80' "$tmp/fit"
    [ "$(grep -c '^  [a-z0-9-]* *[0-9]* *[0-9.]* of [0-9.]* GiB' "$tmp/fit")" = 8 ] || cat "$tmp/fit"
    COLUMNS=60 "$B/dpxplan" fit gpt2-xl h100 --tokens 1B --price '$2' >"$tmp/fit"
    awk 'length($0) > 60' "$tmp/fit"
    # each line of the search but its last ends in a backslash
    sed -n '/dpxplan search/,/-o plan.json/p' "$tmp/fit" | sed '$d' | grep -v '\\$')"
check 'where no number holds it the row says why, and the exit status is 3' "$(
    "$B/dpxplan" fit gpt2 t4 --seq 1k --batch 3 --framework deepspeed >"$tmp/out" 2>&1 || { echo "exit $?"; cat "$tmp/out"; }
    "$B/dpxplan" fit llama-3.1-70b t4 --framework deepspeed --batch 1 --seq 2k >"$tmp/out" 2>&1
    rc=$?
    [ $rc = 3 ] || { echo "exit $rc, not 3"; cat "$tmp/out"; }
    grep -q '^  t4 *none' "$tmp/out" && grep -q '^ *[0-9]* do not hold it: a plan needs at least [0-9.]* GiB of each' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" fit llama-3.1-70b t4 --framework deepspeed --batch 1 --seq 2k --json >"$tmp/out" 2>&1
    grep -q '"fits": false' "$tmp/out" && grep -q '"gpus": null' "$tmp/out" || cat "$tmp/out")"
# 70.55e9 x 2 bytes on four cards are 32.9 GiB of each.
check 'of a number of GPUs it says whether they hold it, as search says' "$(
    same llama-3.2-1b 4xa10g 4xa10g - --seq 1k --batch 16 --framework torch
    "$B/dpxplan" fit llama-3.1-8b 1xh100 2xh100 --seq 1k --batch 2 >"$tmp/out" 2>"$tmp/err" || { echo "exit $?"; cat "$tmp/err"; }
    grep -q '^  h100  *not 1' "$tmp/out" && grep -q '^  h100  *2 ' "$tmp/out" && grep -q '^      1 does not hold it' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" fit llama-3.1-70b 4x4090 >"$tmp/out" 2>&1
    [ $? = 3 ] && tr -s ' \n' ' ' <"$tmp/out" | grep -q '4 do not hold it: a plan needs at least 32.9 GiB of each, .*; how many do: dpxplan fit llama-3.1-70b rtx4090' || cat "$tmp/out"
    "$B/dpxplan" fit gpt2 h100 2xh100 --seq 512 --batch 8 --tokens 1B --price h100=2 --json >"$tmp/out" 2>&1
    [ "$(grep -c '"cost": [0-9]' "$tmp/out")" = 2 ] || grep '"cost"' "$tmp/out"
    says 'has no GPUs' fit gpt2 localhost:2
    says 'write 8x8xh100' fit gpt2 64xh100
    says 'no such GPU' fit gpt2 8xh101)"
check 'a GPU is asked for by one name, and said to be taken for another' "$(
    said() { "$B/dpxplan" fit gpt2 "$@" --seq 512 --batch 8 2>&1; }
    said a100 | grep -q '^dpx: a100 is taken as a100-80gb; there are also a100-40gb' || said a100
    said a100-80gb | grep 'is taken as'
    said 'RTX 4090' | grep -q "write rtx4090$" || said 'RTX 4090'
    said h100,h200 | grep -q 'give each as a word of its own' || said h100,h200)"
check 'a sample that is too long is named so' "$(
    "$B/dpxplan" fit gpt2 h100 --seq 8k >"$tmp/out" 2>&1
    [ $? = 2 ] && grep -q '^dpx: fit: seq: 8192 is beyond the 1024 learned positions of gpt2$' "$tmp/out" || cat "$tmp/out")"
finish
