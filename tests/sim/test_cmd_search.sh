#!/bin/sh
# tests/sim/test_cmd_search.sh -- what dpxplan search recommends, dpxplan eval accepts.
. tests/check.sh
B=${B:-build}
keep_answers
COLUMNS=1000                    # no line wraps
export COLUMNS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# One that prefetches without bound, where communication is the faster: what runs ahead
# is held, not allocated, and both commands must go by the same.
agree() {
    "$B/dpxplan" search --all "$@" -o "$tmp/plan.json" >"$tmp/said" 2>&1 || cat "$tmp/said"
    "$B/dpxplan" eval "$tmp/plan.json" >"$tmp/eval" 2>&1 || cat "$tmp/eval"
}
check 'eval accepts what search recommends' "$(
    agree --model gpt2 --cluster 2x8xa100-80gb --seq 1024 --global-batch 64
    agree --model llama-3.1-405b --cluster 128x8xh100 --seq 4096 --global-batch 1024 --framework deepspeed)"

check 'a plan whose streams must wait for memory is marked, and comes after those that do not' "$(
    awk '/90 % interval/ { list = 1; next } /^times are/ { list = 0 } !list || !/ exposed / { next }
         /time leaves out waits/ { waits++; next } { plain++; if (waits) late++ } END { exit !(waits && !late) }' "$tmp/said" ||
        cat "$tmp/said")"

# A rank has no whole sample: the words about what cannot run divided by none.  A cell of each framework that can; one of data parallelism alone.
check 'a batch smaller than the GPUs, or no multiple of them, has an answer or a reason' "$(
    for batch in 1 2 4 7 9; do
        for how in '' '--framework torch' '--framework deepspeed' '--framework megatron' '--strategy ddp' '--micro-batch 1'; do
            "$B/dpxplan" search gpt2 --cluster 8xl4 --seq 128 --global-batch $batch $how >"$tmp/out" 2>"$tmp/said"
            status=$?
            case $status in
                0) grep -q '^Recommended: ' "$tmp/out" ;;
                2) [ "$(grep -c 'multiple\|divide\|no such plan\|nothing to search' "$tmp/said")" = 1 ] ;;
                *) false ;;
            esac || { echo "$batch $how: exit status $status"; cat "$tmp/said"; }
        done
    done)"

# 73,513,440 has 768 divisors.  Plans that do not fit are looked at with offload as well, whose micro-steps are long and many.
check 'a batch of very many divisors takes neither memory nor time without end' "$(
    ulimit -v 2000000
    timeout -s KILL 300 "$B/dpxplan" search --all --model llama-3.1-8b --cluster 8xh100 --seq 4096 --global-batch 73513440 >"$tmp/said" 2>&1
    status=$?
    [ $status = 0 ] && grep -q ' fit;' "$tmp/said" || { echo "exit status $status"; head -n 3 "$tmp/said"; })"

# 1.4 TiB too much: recompute is not enough on 8 GPUs.
check 'what would make a plan fit was tried' "$(
    "$B/dpxplan" search --all --model llama-3.1-405b --cluster 8xh100 --seq 8192 --global-batch 64 --recompute none >"$tmp/said"
    grep -q 'no single option is enough' "$tmp/said" || cat "$tmp/said")"

# Peaks of DeepSpeed's first allocations, before any step is on the clock.
cat >"$tmp/init.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "2x8xh100", "seq": 1024, "micro_batch": 1,
  "strategy": "zero3", "dialect": "deepspeed", "precision": "bf16", "recompute": "full" }
PLAN
"$B/dpxplan" eval --json "$tmp/init.json" >"$tmp/json" 2>&1
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$tmp/json" | head -1; }
check 'no less is held than init allocates' "$(
    grep -q '"phase": *"init"' "$tmp/json" || { echo 'the peak is not in init'; cat "$tmp/json"; }
    [ "$(number peak_bytes)" -ge "$(number allocated_peak_bytes)" ] ||
        echo "$(number peak_bytes) held, $(number allocated_peak_bytes) allocated")"

# transformers runs BLOOM with eager attention, whose scores of 2048 x 2048 are kept, and refuses sdpa.
of_bloom() {
    command=$1
    shift
    "$B/dpxplan" "$command" --model bloom-560m --cluster 8xh100 --seq 2048 "$@" >"$tmp/said" 2>&1
    echo "exit $?" >>"$tmp/said"
}
refused() {
    of_bloom "$@" --kernels torch-sdpa
    grep -q 'transformers refuses torch-sdpa for bloom' "$tmp/said" && grep -q 'exit 2' "$tmp/said" || cat "$tmp/said"
}
check 'search and limits take the kernels that transformers picks, and refuse those that it refuses' "$(
    of_bloom search --global-batch 8 --framework torch --json
    grep -q '"kernels": *"torch-eager"' "$tmp/said" || cat "$tmp/said"
    ! grep -q '"kernels": *"torch-sdpa"' "$tmp/said" || echo 'plans with torch-sdpa'
    of_bloom limits --dialect torch
    grep -q 'exit 0' "$tmp/said" || cat "$tmp/said"
    refused search --global-batch 8 --framework torch
    refused limits --dialect torch)"

# A V100 multiplies fp16 on tensor cores, bf16 not; the default is bf16.
on_v100() {
    "$B/dpxplan" search --all --model gpt2 --cluster 8xv100-16gb --seq 128 --global-batch 8 --strategy ddp --precision "$1" \
        -o "$tmp/plan.json" >"$tmp/said" 2>&1
    "$B/dpxplan" eval "$tmp/plan.json" >>"$tmp/said" 2>&1
    grep -c 'these GPUs have no units for bf16' "$tmp/said"
}
check 'search and eval say that GPUs have no units for a precision' "$(
    [ "$(on_v100 bf16)" = 2 ] && [ "$(on_v100 fp16)" = 0 ] && [ "$(on_v100 fp32)" = 0 ] || cat "$tmp/said")"

says() { grep -q -- "$1" "$tmp/said" || { echo "no \"$1\" in"; cat "$tmp/said"; }; }
says_not() { ! grep -q -- "$1" "$tmp/said" || { echo "\"$1\" in"; cat "$tmp/said"; }; }
of_8b() { "$B/dpxplan" search --all --model llama-3.1-8b "$@" >"$tmp/said" 2>&1; echo "exit $?" >>"$tmp/said"; }

# foreach AdamW's temporary is what does not fit in 76 GiB: its fused form does, an eighth of the time of CPU offload.
printf '{ "gpu": "h100", "nodes": 1, "gpus_per_node": 2, "memory_bytes": %d }\n' $((76 << 30)) >"$tmp/two.json"
on_two() { of_8b --cluster "$tmp/two.json" --seq 4096 --global-batch 8 --framework torch "$@"; }
check 'the fused optimizer is tried before offload, without offload too, and is advice' "$(
    on_two
    says '^ *2\.[0-9]* s .* fsdp torch b1x4, AdamW fused, recompute full'
    says 'take AdamW.s fused form'
    says_not 'Without offload only'
    on_two --no-offload
    says 'fsdp torch b1x4, AdamW fused, recompute full'
    says_not 'offload,\|CPU offload')"

# Device memory is enough; the host's is not.  One limit for all that PyTorch allocates.
on_one() { of_8b --cluster 1x1xh100 --seq 8192 --global-batch 16 --framework deepspeed "$@"; }
check 'what is short is named, by how much, and never negative' "$(
    on_one
    says 'It lacks host memory of a node: needs .* too much\.$'
    says 'To make it fit: .* of host memory), or .* more host memory a node'
    says_not 'of 74.53 GiB, '
    says 'full instead of full/2'
    on_one --json
    says '"lacks": "host"'
    says '"over_bytes": [0-9]'
    says_not '-[0-9.]* GiB')"

check 'more GPUs are advised where they hold the plan, else what helps' "$(
    on_70b() { "$B/dpxplan" search --all --model llama-3.1-70b --cluster 1x8xh100 --seq 4096 --global-batch 8 --framework torch \
        --no-offload "$@" >"$tmp/said" 2>&1; }
    on_70b
    says 'use [0-9]* GPUs'
    on_70b --strategy ddp
    says 'each GPU holds all of it, so more do not help')"

check 'offload that was looked at is not said to be left out' "$(
    "$B/dpxplan" search --all --model llama-3.1-405b --cluster 8xh100 --seq 8192 --global-batch 8 --strategy zero3 >"$tmp/said" 2>&1
    says '^Some plans with offload were not tried')"

# A faster one that waits for memory fits, too.
check 'the first is called the fastest only where it is' "$(
    of_8b --cluster 1x4xa100-40gb --seq 4096 --global-batch 8 --strategy fsdp --dialect torch
    says 'time leaves out waits for memory'
    says 'CPU offload is the fastest that does not wait for memory, of'
    of_8b --cluster 1x1xh100 --seq 2048 --global-batch 8 --framework torch
    says 'CPU offload is the fastest of [0-9]* plans that fit; no other')"

# accelerate has no ZeroRedundancyOptimizer.
for_accelerate() { "$B/dpxplan" search --all --model gpt2-xl --cluster 1x4xa100-40gb --seq 1024 --global-batch 64 --strategy ddp \
    --framework torch --no-offload "$@" >"$tmp/said" 2>&1; }
check 'advice is a plan that can be exported where that was asked for' "$(
    for_accelerate
    says 'To make it fit: shard more with fsdp'
    for_accelerate --export-to accelerate
    says '^Does not fit, but comes nearest: '
    says_not 'zero1')"

# gpt2's config has dropout, which torchtitan's models have not; accelerate has FSDP2 reduce in bf16.  What is found is what the tool takes.
check 'what a tool has no choice of is set, said and exported' "$(
    for_tool() { to=$1; shift
        "$B/dpxplan" search --all --model gpt2 --cluster 8xh100 --seq 1024 --global-batch 64 --no-grid --top 1 --export-to "$to" -o "$tmp/found.json" "$@" >"$tmp/said" 2>&1 ||
            { echo "$to: exit $?"; cat "$tmp/said"; }
        "$B/dpxplan" export --to "$to" "$tmp/found.json" >/dev/null 2>"$tmp/refused" || cat "$tmp/refused"; }
    for_tool torchtitan; says 'dropout of fsdp/torch is 0.0, as torchtitan has it'
    for_tool accelerate --strategy fsdp --dialect torch; says 'reduce_dtype of fsdp/torch is "bf16", as accelerate has it'
    for_tool megatron; says 'megatron b'
    for_tool deepspeed; for_tool fsdp; says_not 'has it')"

cat >"$tmp/host.json" <<'PLAN'
{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "1x1xh100", "seq": 8192, "micro_batch": 2, "accumulation": 8,
  "strategy": "zero3", "dialect": "deepspeed", "precision": "bf16", "activation_offload": "streams",
  "deepspeed": { "offload_optimizer": { "device": "cpu" }, "offload_param": { "device": "cpu" } } }
PLAN
check 'where host memory is short, advice lowers that' "$(
    "$B/dpxplan" explain "$tmp/host.json" >"$tmp/said" 2>&1
    says 'What is short is a node.s host memory'
    says 'recompute activations of every block: 174.25 GiB'
    says_not 'offload optimizer')"

check 'a strategy that the dialect lacks is the reason' "$(
    on_one --framework any --strategy zero3 --dialect torch
    says 'no strategy zero3 in dialect torch; these have it: paper, deepspeed'
    says 'exit 2')"

# What a bound left out and was looked at after all is counted once.
counts() {
    awk '/plans considered/ { for (i = 2; i <= NF; i++) { if ($i ~ /^considered/) all = $(i - 2); if ($i ~ /^cut|^by$/ && $(i - 1) ~ /^[0-9]+$/) parts += $(i - 1)
         if ($i ~ /^evaluated/) parts += $(i - 1) } exit } END { if (all < parts || !all) print parts " of " all }' "$tmp/said"
}
on_l4() { "$B/dpxplan" search --all --model "$1" --cluster "$2" --seq 4096 --global-batch "$3" >"$tmp/said" 2>&1; }
check 'no more plans are evaluated and cut than considered' "$(
    on_l4 llama-3.1-70b 1x1xl4 8
    counts
    on_l4 llama-3.1-8b 1x4xl4 16
    counts)"

check 'enough GPUs are named where recompute and sharding do it' "$(
    on_l4 llama-3.1-70b 1x1xl4 8
    says 'use [0-9]* GPUs, as .*every block recomputed'
    "$B/dpxplan" limits --model llama-3.1-70b --cluster 1x1xl4 --seq 4096 --dialect deepspeed >"$tmp/said" 2>&1
    sed -n '/^  DeepSpeed ZeRO-3 /{n;p}' "$tmp/said" | grep -q '^    every block recomputed .* [0-9][0-9]*$' || cat "$tmp/said")"

check 'offload that was not tried is said beside a grid as well' "$(
    on_l4 llama-3.1-70b 12x8xl4 96
    says 'Data parallelism alone: nothing fits'
    says 'with offload were not tried')"

# Nothing is searched, and nothing else is printed.
check 'an output that cannot be written is found first' "$(
    for command in search init; do
        "$B/dpxplan" $command --model llama-3.1-8b --cluster 8xh100 --seq 4096 --global-batch 64 -o /nonexistent/plan.json >"$tmp/said" 2>&1
        [ $? = 1 ] && [ "$(wc -l <"$tmp/said")" = 1 ] && says 'nonexistent/plan.json: No such file' || cat "$tmp/said"
    done)"

check 'nothing to search is all that is said then' "$(
    on_one --framework any --strategy zero3 --dialect torch
    [ "$(wc -l <"$tmp/said")" = 2 ] || cat "$tmp/said")"

check 'init says that its plan is tight' "$(
    COLUMNS=300 "$B/dpxplan" init --model llama-3.1-8b --cluster 1x2xh100 --seq 4096 --global-batch 8 --framework torch -o "$tmp/plan.json" >"$tmp/said" 2>&1
    "$B/dpxplan" eval "$tmp/plan.json" | grep -q '^  Tight' || echo 'no longer tight: take another question'
    says '; tight: less than usual stays free')"

check 'a report of Megatron-LM is of its plans' "$(
    "$B/dpxplan" estimators --megatron demo/8b-fsdp.json >"$tmp/said" 2>&1
    [ $? = 2 ] && says 'dialect: the report is of dialect megatron' || cat "$tmp/said")"

check "DeepSpeed's estimate stands where dpx plans no such row, with the reason" "$(
    "$B/dpxplan" estimators --model mixtral-8x7b --gpus-per-node 8 --nodes 4 >"$tmp/said" 2>&1 || echo 'refused'
    says '^  zero3_offload_all .* not planned: .*offload_param' && says '^  zero3  *29.72 GiB .* dpx: .* GiB, states' || cat "$tmp/said")"

# Four trillion ranks would send more bytes than an integer holds.
check 'limits refuses more ranks than a cluster may have' "$(
    "$B/dpxplan" limits --states-only --memory 16GB --world 4398046511104 >"$tmp/said" 2>&1
    [ $? = 2 ] && says '^dpx: limits --world: at most 10000000 ranks' || cat "$tmp/said")"

# 8B in bf16 are 15 GiB and its logits 4 GiB more: each says what it varies, and where they ask the same they answer the same.
check 'limits and fit agree about LoRA on one RTX 4090' "$(
    for asked in deepspeed:4k:none torch:4k:none deepspeed:2k:1 torch:2k:1; do
        framework=${asked%%:*} seq=${asked%:*} gpus=${asked##*:}
        "$B/dpxplan" limits llama-3.1-8b --cluster 1xrtx4090 --seq "${seq#*:}" --lora 16 --accumulation 64 --recompute full --framework "$framework" >"$tmp/said" 2>/dev/null
        says 'Held: .* nothing offloaded' && says '1 sample a GPU and 64 accumulation steps'
        says "^  \(PyTorch DDP\|DeepSpeed without ZeRO\)  .*  $gpus  "
    done
    "$B/dpxplan" fit llama-3.1-8b rtx4090 --train lora --framework torch >"$tmp/said" 2>/dev/null
    says '^  rtx4090  *2 '
    for framework in torch deepspeed; do
        "$B/dpxplan" fit llama-3.1-8b rtx4090 --seq 2k --train lora --framework $framework >"$tmp/said" 2>/dev/null
        says '^  rtx4090  *1 '
    done)"

check 'limits names the batch of its training' "$(
    "$B/dpxplan" limits --model gpt2 --cluster 8xh100 --seq 1024 --dialect torch --tokens 10B --days 30 >"$tmp/said" 2>&1
    says '^  FSDP2 .* hours with a global batch of [0-9]*; in 30 days with'
    batch=$(sed -n 's/^  FSDP2 .* up to \([0-9]*\) .*/\1/p' "$tmp/said")
    says "^  FSDP2 .*global batch of $((8 * batch));")"

# A strategy whose lowering has no adapters must not answer with a plan in which everything trains.
check 'what is asked to train trains, or is refused' "$(
    "$B/dpxplan" search --all --model llama-3.1-8b --cluster 8xh100 --seq 2048 --global-batch 8 --lora 16 --strategy zero1 \
        --dialect torch >"$tmp/said" 2>&1
    [ $? = 2 ] && grep -q 'adapters and frozen weights are not planned for zero1 in dialect torch' "$tmp/said" || cat "$tmp/said"
    echo '{"dpx_plan":1,"model":"gpt2","cluster":"8xh100","strategy":"fsdp","seq":1024,"train":"lora","lora":{"rank":16}}' >"$tmp/lora.json"
    "$B/dpxplan" eval "$tmp/lora.json" --set strategy=zero1 >"$tmp/said" 2>&1
    [ $? = 2 ] && grep -q 'set train=all as well' "$tmp/said" || cat "$tmp/said"
    "$B/dpxplan" eval "$tmp/lora.json" --set train=all strategy=zero1 >"$tmp/said" 2>&1 || cat "$tmp/said")"

# FSDP2 shards codes of 4 bits in bf16, FSDP1 flattens frozen weights as tensors of their own: neither has to be said.
check 'QLoRA is found under FSDP2, LoRA under FSDP1 and stage 3' "$(
    for how in '--dialect torch --strategy fsdp --base-dtype nf4-double' '--dialect torch-fsdp1' '--dialect deepspeed --strategy zero3'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" search --all --model llama-3.1-8b --cluster 2xl40s --seq 512 --global-batch 2 --lora 16 --no-grid $how --top 1 \
            >"$tmp/said" 2>&1 && grep -q 'LoRA rank 16' "$tmp/said" || cat "$tmp/said"
    done)"

check 'QLoRA that fits nowhere else waits in host memory' "$(
    echo '{"name":"two cards","gpu":"rtx3090","nodes":1,"gpus_per_node":2,"node":{"memory_bytes":137438953472,"dram_gb_per_s":51.2,"sockets":1,"cores":8}}' \
        >"$tmp/cards.json"
    "$B/dpxplan" search --all --model llama-2-70b --cluster "$tmp/cards.json" --seq 2048 --global-batch 4 --lora 64 --base-dtype nf4-double \
        --framework torch --no-grid --top 1 >"$tmp/said" 2>&1 || cat "$tmp/said"
    says 'fsdp torch .*base nf4-double, CPU offload'
    says '^Nothing fits without offload\.')"

check 'limits: a larger model with adapters, larger yet in 4 bits' "$(
    for how in '' '--lora 16' '--lora 16 --base-dtype nf4'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" limits --cluster 2xl40s --model llama-3.1-8b --seq 512 --recompute full --dialect torch --json $how 2>"$tmp/said" |
            tr -d ' \n' | sed 's/.*"strategy":"fsdp","dialect":"torch"[^}]*"max_params":\([0-9]*\).*/\1/'
        echo
    done >"$tmp/most"
    sort -n -u "$tmp/most" | cmp -s - "$tmp/most" || cat "$tmp/most")"

# The largest model is found from two that fit: of each cell eval takes as many blocks, and refuses one more.
cat >"$tmp/edge.py" <<'END'
import json, os, subprocess, sys

program, tmp, cluster, seq, blocks, model = *sys.argv[1:6], json.loads(sys.argv[6])
rows = json.load(open(tmp + "/limits.json"))["limits"]
for row in rows:
    plan = {"dpx_plan": 1, "cluster": cluster, "seq": int(seq), "micro_batch": 1, "precision": "bf16"}
    plan.update({k: row[k] for k in ("strategy", "dialect", "recompute")})
    if row["dialect"] == "torch-fsdp1":
        plan["reduce_dtype"] = "fp32"           # limits has it as FSDP2 has
    for more in 0, 1:
        plan["model"] = dict(model, **{blocks: row["max_layers"] + more})
        with open(tmp + "/plan.json", "w") as f:
            json.dump(plan, f)
        status = subprocess.run([program, "eval", tmp + "/plan.json"], stdout=subprocess.DEVNULL).returncode
        if status != (3 if more else 0):
            print(row["strategy"], row["dialect"], row["recompute"], plan["model"][blocks], "blocks: exit", status)
if len(rows) < 8:
    print(len(rows), "cells")
END
check 'limits: as many blocks fit as are named, and not one more' "$(
    gpt2='{"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}'
    llama='{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072}'
    for of in "2xl40s 512 n_layer $gpt2" "8xa100-40gb 2048 num_hidden_layers $llama"; do
        cluster=${of%% *} of=${of#* }
        seq=${of%% *} of=${of#* }
        echo "${of#* }" >"$tmp/config.json"
        for framework in torch deepspeed; do
            "$B/dpxplan" limits --model "$tmp/config.json" --cluster "$cluster" --seq "$seq" --framework $framework --json >"$tmp/limits.json" 2>"$tmp/said" ||
                cat "$tmp/said"
            python3 "$tmp/edge.py" "$B/dpxplan" "$tmp" "$cluster" "$seq" "${of%% *}" "${of#* }"
        done
    done)"

# Codes on the wire are no answer of their own: what they save, and that they round, is said beside it; in fp16 alone int4, and nothing
# where no network is.
on_a10g() {
    "$B/dpxplan" search --all --model llama-2-7b --cluster "$1" --seq 1024 --global-batch 128 --precision "$2" --strategy zero3 --dialect deepspeed \
        --no-grid >"$tmp/said" 2>&1 || cat "$tmp/said"
}
check 'what ZeRO++ would save is offered with what it does to the numbers' "$(
    on_a10g 16x8xa10g bf16
    says 'With less on the network: .*parameters gathered in int8 (ZeRO++)'
    says 'Its step takes .* faster than recommended\. It changes the numbers: int8 parameters\.$'
    says 'It takes as long as the fastest at [0-9.]* Gbit/s between nodes (here 100 Gbit/s)\.$'
    on_a10g 16x8xa10g fp16
    says 'With less on the network: .*gradients reduced in int4 (ZeRO++)'
    says 'It changes the numbers: int8 parameters, int4 gradients\.$'
    on_a10g 1x8xh100 fp16
    says_not 'changes the numbers')"

# Thin networks between nodes: DDP's gradients in half the bytes.
check "what a hook of DDP's would save is offered likewise" "$(
    "$B/dpxplan" search --all --model gpt2 --cluster 2x4xa10g --seq 512 --global-batch 64 --framework torch --strategy ddp --recompute none \
        --micro-batch 8 >"$tmp/said" 2>&1 || cat "$tmp/said"
    says 'gradients sent in bf16'
    says 'Its step takes .* faster than recommended\. It changes the numbers: gradients rounded to bf16\.')"

# ---- optimizers ----

check 'search takes plans of the optimizer asked for alone, and names the strategies without it' "$(
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --micro-batch 4 --optimizer muon --no-grid >"$tmp/said" 2>&1 || cat "$tmp/said"
    says ', bf16, optimizer muon'
    says '^Left out: .*ZeroRedundancyOptimizer.*: optimizer: Muon is planned under ddp and fsdp'
    says '"Muon and reduce scatter cannot be used together"), not of what .* Megatron divide$'
    grep ' exposed ' "$tmp/said" | grep -v muon
    says 'zero2 deepspeed b4x1, muon'
    says_not 'zero3 deepspeed b'
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --micro-batch 4 --strategy ddp,zero2 --framework any --optimizer adafactor --no-grid \
        --json --top 1 2>&1 | tr -d '\n' | tr -s ' ' >"$tmp/said"
    says '"optimizer": "adafactor"'
    says '{ "strategy": "zero2", "dialect": "deepspeed", "why": "optimizer: DeepSpeed is planned with adamw, muon, bitsandbytes'\'' and torchao'\''s of 8 and 4 bits so far, not with adafactor" }'
    says_not '"strategy": "ddp", "dialect": "torch", "why"')"

check 'search keeps the form asked for, and what has none falls away' "$(
    for form in loop fused; do
        "$B/dpxplan" search --all --model llama-3.1-8b --cluster 8xl40s --seq 1024 --global-batch 8 --strategy fsdp,dp --optimizer-form "$form" --no-grid --top 2 >"$tmp/said" 2>&1
        says "fsdp torch .*AdamW $form"
        says '^Left out: .*PyTorch DataParallel.*: optimizer_form: its optimizer has one form'
        grep ' exposed ' "$tmp/said" | grep -v "AdamW $form"
    done
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --strategy fsdp --dialect torch --optimizer sgd --optimizer-form fused --no-grid \
        --top 1 >"$tmp/said" 2>&1
    says 'fsdp torch .*, sgd, fused')"

check 'an optimizer that no strategy has is refused with its reason' "$(
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --strategy zero1 --dialect torch --optimizer sgd >"$tmp/said" 2>&1
    [ $? = 2 ] && says 'nothing to search: optimizer: planned with adamw alone so far, not with sgd' || cat "$tmp/said"
    # what is looked at for the nearest may need a disk that the cluster does not describe
    "$B/dpxplan" search pythia-410m 4xl40s --no-grid >"$tmp/said" 2>&1
    [ $? = 0 ] && says '^Recommended: DeepSpeed ZeRO-1, 8 samples a GPU' || cat "$tmp/said"
    "$B/dpxplan" search --all --model gpt2 --cluster 2xl40s --seq 1024 --global-batch 8 --optimizer paged_adamw_8bit >"$tmp/said" 2>&1
    [ $? = 0 ] && says '^dpx: host memory of a node of l40s is not known: 179.95 GiB assumed, 2 times that of its GPUs; --host-memory' || cat "$tmp/said"
    # Of the reasons that cells give, what most of them say.
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --strategy zero1,zero2,zero3 --dialect deepspeed --optimizer sgd >"$tmp/said" 2>&1
    [ $? = 2 ] && says 'nothing to search: optimizer: DeepSpeed is planned with adamw, muon, bitsandbytes'\'' and torchao'\''s of 8 and 4 bits so far, not with sgd' || cat "$tmp/said"
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --lora 1000000 >"$tmp/said" 2>&1
    [ $? = 2 ] && says 'nothing to search: lora.rank: 1000000 is out of range' || cat "$tmp/said"
    "$B/dpxplan" search --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --grid --optimizer muon >"$tmp/said" 2>&1
    [ $? = 2 ] || says 'optimizer muon')"

# SGD has 4 bytes a parameter less of states than AdamW.
check 'limits: a larger model with sgd than with adamw, and reasons that are equal are one line' "$(
    for o in adamw sgd; do
        "$B/dpxplan" limits --cluster 2xl40s --model gpt2-xl --seq 512 --recompute full --optimizer $o --dialect torch --json 2>"$tmp/said" |
            tr -d ' \n' | sed 's/.*"strategy":"fsdp","dialect":"torch"[^}]*"max_params":\([0-9]*\).*/\1/'
        echo
    done >"$tmp/most"
    [ "$(sort -n -u "$tmp/most" | wc -l)" = 2 ] && sort -n "$tmp/most" | cmp -s - "$tmp/most" || cat "$tmp/most" "$tmp/said"
    "$B/dpxplan" limits --cluster 2xl40s --model gpt2-xl --seq 512 --framework any --optimizer adafactor >"$tmp/said" 2>&1
    says '^No answer for .*DeepSpeed ZeRO-1, DeepSpeed ZeRO-2'
    cut -d: -f 2- "$tmp/said" | grep 'optimizer' | sort | uniq -d)"

check 'sweep lists optimizers' "$(
    "$B/dpxplan" sweep --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --strategy ddp --framework torch --micro-batch 4 --over optimizer=adamw,muon,lion_8bit \
        --csv "$tmp/rows.csv" >"$tmp/said" 2>&1 || cat "$tmp/said"
    says '^ *muon .*ddp torch b4x1, muon'
    says '^ *lion_8bit .*ddp torch b4x1, lion_8bit'
    "$B/dpxplan" sweep --all --model gpt2 --cluster 2xh100 --seq 1024 --global-batch 8 --strategy ddp --framework torch --micro-batch 4 --lora 8 --over optimizer=adamw,sgd \
        >"$tmp/said" 2>&1 || cat "$tmp/said"
    says '^ *adamw .*LoRA rank 8'
    says '^ *sgd .*sgd.*LoRA rank 8')"

# A search of two minutes, stopped after some seconds.
check 'Ctrl-C gives what was found so far' "$(
    "$B/dpxplan" search --model llama-3.1-405b --cluster 64x8xh200 --seq 8192 --global-batch 4096 --framework megatron >"$tmp/out" 2>"$tmp/said" &
    pid=$!
    sleep 6
    kill -INT $pid
    wait $pid
    [ $? = 1 ] || echo "exit $?"
    says 'stopped before all plans were looked at'
    [ ! -s "$tmp/out" ] || grep -q '^Recommended: ' "$tmp/out" || cat "$tmp/out")"

# The calibrations that come with dpx are of its own kernels; their disks were another machine's.
check 'what was measured with dpx is for plans of its kernels, on GPUs that have a calibration, too' "$(
    export XDG_DATA_HOME="$tmp/none" DPX_MEASURED="$PWD/calib/measured"
    for gpu in h100 h200; do
        "$B/dpxplan" search --all --model llama-3.1-70b --cluster 8x$gpu --seq 8192 --global-batch 64 --top 1 >"$tmp/said" 2>&1 || cat "$tmp/said"
        says 'with offload were not tried'
        says 'how fast .*disk'
        "$B/dpxplan" eval demo/8b-fsdp.json --set gpu=$gpu >"$tmp/said" 2>&1 || cat "$tmp/said"
        grep ' measured: ' "$tmp/said"
        "$B/dpxplan" eval demo/8b-fsdp.json --set gpu=$gpu kernels=dpx >"$tmp/said" 2>&1 || cat "$tmp/said"
        says '^ *measured: .*dpxcal'
    done)"

finish
