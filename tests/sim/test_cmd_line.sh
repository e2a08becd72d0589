#!/bin/sh
# tests/sim/test_cmd_line.sh -- what dpxplan reads, prints and refuses, seen from outside.
. tests/check.sh
B=${B:-build}
keep_answers
COLUMNS=1000                    # no line wraps
export COLUMNS
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME

cat >"$tmp/plan.json" <<'PLAN'
{ "dpx_plan": 1, "// who": "for people", "model": "gpt2", "cluster": "2x8xa100-80gb", "seq": 1024, "micro_batch": 4,
  "strategy": "zero3", "dialect": "deepspeed", "precision": "bf16" }
PLAN

# says WORDS COMMAND...: exit 2 and one line with the words.
says() {
    words=$1
    shift
    "$B/dpxplan" "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "dpxplan $*: exit $rc, not 2"
    [ "$(wc -l <"$tmp/err")" = 1 ] || cat "$tmp/err"
    grep -q -- "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}
seq_of() { sed -n 's/^    "seq": \([0-9]*\).*/\1/p' "$1" | head -1; }

check '8k tokens are 8192, and what is no length is refused' "$(
    "$B/dpxplan" eval --json "$tmp/plan.json" --set seq=1k >"$tmp/out" 2>&1
    [ "$(seq_of "$tmp/out")" = 1024 ] || head -50 "$tmp/out"
    "$B/dpxplan" search --json --model opt-125m --cluster 8xh100 --seq 2k --global-batch 8 --top 1 >"$tmp/out" 2>&1
    grep -q '"seq": 2048' "$tmp/out" || head -50 "$tmp/out"
    says '8 tokens' search --model opt-125m --cluster 8xh100 --seq '8 tokens' --global-batch 8)"
check 'no help says "(null)", whatever its rows lack' "$(
    for command in $("$B/dpxplan" none 2>&1 | sed 's/.*there are//; s/,//g'); do
        "$B/dpxplan" "$command" --help | grep -q '^usage: dpxplan ' || echo "$command: no usage"
        "$B/dpxplan" "$command" --help | grep '(null)'
    done)"
check 'an adapter of a tied head is planned with every strategy of DeepSpeed: the table does not train' "$(
    for strategy in ddp zero1 zero2 zero3; do
        "$B/dpxplan" eval llama-3.2-1b --cluster 4xh100 --seq 512 --set "strategy=$strategy" dialect=deepspeed accumulation=3 train=lora \
            lora.target_modules=q_proj,lm_head >"$tmp/out" 2>&1 || cat "$tmp/out"
    done)"
check 'every rounding has its words' "$(
    for qat in 8da4w 8da4w-mslk; do
        echo '{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "8xh100", "seq": 512, "micro_batch": 1, "strategy": "fsdp", "dialect": "torch",
            "precision": "bf16" }' | "$B/dpxplan" eval - --set "qat=$qat" >"$tmp/out" 2>&1
        grep -q 'fake quantisation' "$tmp/out" && ! grep -F '(null)' "$tmp/out" || cat "$tmp/out"
    done)"
check 'a plan comes from standard input' "$(
    "$B/dpxplan" eval --json - <"$tmp/plan.json" >"$tmp/a" 2>&1
    "$B/dpxplan" eval --json "$tmp/plan.json" >"$tmp/b" 2>&1
    diff "$tmp/a" "$tmp/b")"
check 'a key that is none, and a value that is none, are refused' "$(
    says 'micro_batch' eval "$tmp/plan.json" --set micro_bach=2
    says 'not KEY=VALUE' eval "$tmp/plan.json" --set micro_batch
    says 'micro_batch' eval "$tmp/plan.json" --set micro_batch=many)"
check 'several changes follow one --set' "$(
    "$B/dpxplan" eval --json --set micro_batch=2 nodes=4 "$tmp/plan.json" >"$tmp/out" 2>&1
    grep -q '"world_size": 32' "$tmp/out" && grep -q '"micro_batch": 2' "$tmp/out" || head -80 "$tmp/out")"
check 'no number in JSON is beyond what a double holds, and every plan has a label' "$(
    "$B/dpxplan" eval --json "$tmp/plan.json" >"$tmp/out" 2>&1
    grep -E '[0-9]{17}' "$tmp/out" | grep -v '\.' 
    grep -qE '^  "label": "zero3 deepspeed b4x1' "$tmp/out" || grep '"label"' "$tmp/out"
    "$B/dpxplan" search --json --model opt-125m --cluster 8xh100 --seq 2k --global-batch 8 >"$tmp/out" 2>&1
    [ "$(grep -c '"dpx_plan"' "$tmp/out")" = "$(grep -c '"label"' "$tmp/out")" ] || echo 'plans without a label')"

# 2^38 tokens in steps of 2^18 (64 samples of 1024 x 4 accumulated) are 2^20 steps.
number() { sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" "$tmp/out" | head -1; }
check 'days, GPU-hours and cost follow from the step by multiplication' "$(
    "$B/dpxplan" eval --json "$tmp/plan.json" --set accumulation=4 --tokens 274877906944 --price 2.5 >"$tmp/out" 2>&1
    [ "$(number steps)" = 1048576 ] || number steps
    awk -v s="$(number step_s)" -v d="$(number days)" -v h="$(number gpu_hours)" -v c="$(number cost)" 'BEGIN {
        days = s * 1048576 / 86400
        if (d / days - 1 > 1e-9 || days / d - 1 > 1e-9) print d " days, not " days
        if (h / (16 * 24 * d) - 1 > 1e-9 || (16 * 24 * d) / h - 1 > 1e-9) print h " GPU-hours"
        if (c / (2.5 * h) - 1 > 1e-9 || 2.5 * h / c - 1 > 1e-9) print "cost " c }'
    says '--price needs --tokens' eval "$tmp/plan.json" --price 2
    says 'give --tokens' search --model gpt2 --cluster 8xh100 --seq 1k --global-batch 8 --days 2)"
# What is printed adds up as it stands: few hours are not rounded to whole ones (4 GPU-hours at 2.10 are not 7.56).
check 'printed GPU-hours times the price are the printed cost' "$(
    "$B/dpxplan" eval demo/8b-fsdp.json --tokens 100M --price 2 >"$tmp/out" 2>/dev/null
    "$B/dpxplan" bill demo/8b-fsdp.json --tokens 100M --price 2 --mtbf 50000h --storage 20GB/s >"$tmp/bill" 2>/dev/null
    awk '/GPU-hours$/ { h = $(NF - 1) } /^cost/ { if (h < 1 || $2 / h > 2.01 || $2 / h < 1.99) print }' "$tmp/out"
    grep -q 'GPU-hours are paid' "$tmp/bill" || cat "$tmp/bill"
    awk '/GPU-hours are paid/ { h = $1; sub(/.*useful: /, ""); if ($1 / h > 2.01 || $1 / h < 1.99) print h, $0 }' "$tmp/bill")"
check 'search and limits say days and cost, too' "$(
    "$B/dpxplan" search --model gpt2 --cluster 8xh100 --seq 1k --global-batch 64 --strategy ddp --tokens 1T --price 2 --days 9 >"$tmp/out" 2>&1
    grep -q '^1.00T tokens: 15,258,790 steps of 65,536 tokens' "$tmp/out" && grep -q '^in 9 days: ' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" limits --model gpt2 --cluster 8xh100 --seq 1k --dialect torch-fsdp1 --tokens 1T --price 2 >"$tmp/out" 2>&1
    [ "$(grep -c ' days, .* with a global batch' "$tmp/out")" = "$(grep -c ' up to [0-9]' "$tmp/out")" ] || cat "$tmp/out")"

check 'limits says which cells offload so, and what is short then' "$(
    says 'zero3 of paper, zero3 of deepspeed, fsdp of paper' limits --model gpt2 --cluster 8xh100 --seq 1k --offload nvme --dialect torch
    "$B/dpxplan" limits --model gpt2-xl --cluster 1x1xv100-32gb --seq 1k --offload all >"$tmp/out" 2>&1
    [ "$(grep -c 'then host memory of a node is short' "$tmp/out")" = 4 ] || cat "$tmp/out"
    "$B/dpxplan" limits --model gpt2-xl --cluster 1x1xv100-32gb --seq 1k --offload all --json >"$tmp/out" 2>&1
    [ "$(grep -c '"then_short": *"host memory of a node"' "$tmp/out")" = 4 ] || cat "$tmp/out")"
check 'the largest layer is no larger than the model' "$(
    says 'more parameters than' estimators --params 7B --largest-layer 9B)"
check 'explain says what the launcher and DeepSpeed need for offload' "$(
    echo '{"dpx_plan":1,"model":"gpt2","cluster":"8xh100","seq":1024,"micro_batch":1,"strategy":"fsdp","dialect":"torch","fsdp":{"cpu_offload":true}}' >"$tmp/off.json"
    "$B/dpxplan" explain "$tmp/off.json" >"$tmp/out" 2>&1
    grep -q 'OMP_NUM_THREADS=1' "$tmp/out" || cat "$tmp/out"
    "$B/dpxplan" explain "$tmp/off.json" --set host_threads=8 >"$tmp/out" 2>&1
    ! grep -q 'OMP_NUM_THREADS=1' "$tmp/out" || cat "$tmp/out"
    echo '{"dpx_plan":1,"model":"gpt2","cluster":"8xh100","seq":1024,"micro_batch":1,"strategy":"zero3","dialect":"deepspeed","deepspeed":{"offload_optimizer":{"device":"nvme"}}}' >"$tmp/off.json"
    for path in null /x; do
        "$B/dpxplan" eval "$tmp/off.json" --set cluster.node.disk_write_gb_per_s=5 cluster.node.disk_read_gb_per_s=5 deepspeed.offload_optimizer.nvme_path=$path >"$tmp/out" 2>&1
        grep -c 'DeepSpeed needs nvme_path' "$tmp/out"
    done >"$tmp/counts"
    [ "$(tr '\n' ' ' <"$tmp/counts")" = '1 0 ' ] || cat "$tmp/out")"
check 'a model and its GPUs need no names of options, and what is left open has its usual value' "$(
    "$B/dpxplan" search --model opt-125m --cluster 2xh100 --seq 2048 --global-batch 64 --strategy ddp --no-grid --json >"$tmp/named" 2>&1
    for words in 'search opt-125m 2xh100' 'search 2xh100 opt-125m'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" $words --strategy ddp --no-grid --json 2>&1 | diff "$tmp/named" - | grep '^[<>]' | grep -v search_s
    done
    "$B/dpxplan" eval opt-125m --cluster 2xh100 >"$tmp/named" 2>&1
    "$B/dpxplan" eval opt-125m 2xh100 2>&1 | diff "$tmp/named" -
    "$B/dpxplan" explain opt-125m --cluster 2xh100 >"$tmp/named" 2>&1
    "$B/dpxplan" explain opt-125m 2xh100 2>&1 | diff "$tmp/named" -
    says 'one argument too many' eval demo/8b-fsdp.json demo/8b-ddp.json)"
check 'names of the Hugging Face hub in any case, and near misses' "$(
    for name in meta-llama/Llama-3.1-8B META-LLAMA/llama-3.1-8b-instruct Llama-3.1-8B; do
        "$B/dpxplan" limits --model "$name" --cluster 8xh100 --seq 8k --dialect torch-fsdp1 >"$tmp/out" 2>&1 || cat "$tmp/out"
        [ -f "$tmp/first" ] || cp "$tmp/out" "$tmp/first"
        diff "$tmp/out" "$tmp/first"
    done
    says 'did you mean llama-3-8b?' search --model llama-3-8bb --cluster 8xh100 --seq 8k --global-batch 8
    says 'did you mean llama-3.1-8b' search --model lama-3.1-8b --cluster 8xh100 --seq 8k --global-batch 8
    says 'did you mean mistralai/Mistral-7B-v0.1' search --model mistralai/Mistral-7B-v0.11 --cluster 8xh100 --seq 8k --global-batch 8
    says 'did you mean dgx-h100' search --model gpt2 --cluster dgx-h10 --seq 1k --global-batch 8
    says 'h100' search --model gpt2 --cluster 8xh10 --seq 1k --global-batch 8
    echo '{"dpx_plan":1,"model":"gpt2","cluster":"8xh100","seq":1,"micro_batch":1,"strategy":"zero33"}' >"$tmp/bad.json"
    says 'did you mean zero3' eval "$tmp/bad.json"
    says 'did you mean parallel.tensor?' eval "$tmp/plan.json" --set tp=8
    says 'did you mean parallel.context?' eval "$tmp/plan.json" --set context=2
    says 'did you mean clusters' list cluster)"
check 'the example of a cluster file is one, in gigabits, and is what 4x8xh100 is' "$(
    "$B/dpxplan" list clusters --example >"$tmp/mine.json"
    for cluster in "$tmp/mine.json" 4x8xh100; do
        "$B/dpxplan" collectives --op all_reduce --ranks 32 --bytes 1GB --cluster "$cluster" >"$tmp/out" 2>&1 || cat "$tmp/out"
        sed -i 's/mine/4x8xh100/' "$tmp/out"
    done
    "$B/dpxplan" eval --json "$tmp/plan.json" --set cluster="$tmp/mine.json" >"$tmp/out" 2>&1
    grep -q '"gb_per_s": 400' "$tmp/out" || grep -A4 '"inter"' "$tmp/out"
    sed 's/"gbit_per_s": 3200/"gbit_per_s": 3200, "gb_per_s": 400/' "$tmp/mine.json" >"$tmp/two.json"
    says 'give one of them' eval "$tmp/plan.json" --set cluster="$tmp/two.json")"
check 'init writes a commented plan that is the answer of search' "$(
    # The second keeps states on the host: keys in an object of an object.
    for of in '--model gpt2 --cluster 8xh100 --seq 1k --global-batch 64 --framework torch --strategy ddp' \
            '--model llama-2-13b --cluster 4xa100-40gb --seq 4k --global-batch 32 --strategy zero3 --micro-batch 8'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" init $of -o "$tmp/init.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
        # shellcheck disable=SC2086
        "$B/dpxplan" search $of -o "$tmp/search.json" >/dev/null 2>&1
        "$B/dpxplan" eval --json "$tmp/init.json" >"$tmp/a" 2>&1
        "$B/dpxplan" eval --json "$tmp/search.json" >"$tmp/b" 2>&1
        diff "$tmp/a" "$tmp/b"
    done
    grep -A3 '"offload_optimizer"' "$tmp/init.json" | grep -q '"device": "cpu"' || cat "$tmp/init.json"
    grep -q '"// micro_batch": "' "$tmp/init.json" || cat "$tmp/init.json"
    says 'model is missing' init --cluster 8xh100 </dev/null)"

check 'explain changes keys first, as eval does, of both plans where there are two' "$(
    sed 's/"micro_batch": 4/"micro_batch": 2/' "$tmp/plan.json" >"$tmp/other.json"
    "$B/dpxplan" explain "$tmp/plan.json" --set micro_batch=2 >"$tmp/a" 2>&1
    "$B/dpxplan" explain "$tmp/other.json" >"$tmp/b" 2>&1
    diff "$tmp/a" "$tmp/b"
    "$B/dpxplan" explain "$tmp/plan.json" "$tmp/other.json" --set micro_batch=1 >"$tmp/out" 2>&1 || cat "$tmp/out"
    grep 'micro_batch' "$tmp/out")"
check 'two plans: both steps, and each option alone' "$(
    "$B/dpxplan" eval --json "$tmp/plan.json" >"$tmp/a" 2>&1
    sed 's/"micro_batch": 4/"micro_batch": 2, "recompute": "full"/' "$tmp/plan.json" >"$tmp/other.json"
    "$B/dpxplan" explain "$tmp/plan.json" "$tmp/other.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
    grep -q '^  together .* s .* s ' "$tmp/out" || cat "$tmp/out"
    [ "$(grep -cE '^  (micro_batch=2|recompute=full) +step [+-]' "$tmp/out")" = 2 ] || cat "$tmp/out"
    grep -q '^[-+] ' "$tmp/out" && echo 'schedules without --schedule'
    "$B/dpxplan" explain --schedule "$tmp/plan.json" "$tmp/other.json" >"$tmp/out" 2>&1
    grep -q '^[-+] ' "$tmp/out" || echo 'no schedules with --schedule')"
# 8,030,261,248 parameters in fp32, a part on each of 8 ranks, all-reduced by two: 2 x 1/2 of 4,015,130,624 bytes.
check 'two plans: what is sent stands by group, and adds up' "$(
    echo '{"dpx_plan":1,"model":"llama-3.1-8b","cluster":"2x8xh100","strategy":"fsdp","dialect":"torch","seq":512,"clip":null}' >"$tmp/one.json"
    sed 's/"seq"/"shard_group":8,"seq"/' "$tmp/one.json" >"$tmp/hybrid.json"
    "$B/dpxplan" explain "$tmp/one.json" "$tmp/hybrid.json" >"$tmp/out" 2>&1 || [ $? = 3 ] || cat "$tmp/out"
    sed -n '/^bytes that each rank sends/,/^  together/p' "$tmp/out" >"$tmp/sent"
    grep -q '^  over replica  *0 B  *3.74 GiB ' "$tmp/sent" || cat "$tmp/out"
    awk '/^  over/ { one += $3 * ($4 == "GiB") }
         /^  together/ { if (one - $2 > 0.011 || $2 - one > 0.011) print "first: " one " of " $2 }' "$tmp/sent")"
check 'two plans, one of which sends codes: what that does to the numbers' "$(
    echo '{"dpx_plan":1,"model":"llama-2-7b","cluster":"2x8xh100","strategy":"zero3","dialect":"deepspeed","seq":512,"precision":"fp16"}' >"$tmp/plain.json"
    sed 's/"seq"/"deepspeed":{"zero_quantized_weights":true,"zero_quantized_gradients":true},"seq"/' "$tmp/plain.json" >"$tmp/codes.json"
    "$B/dpxplan" explain "$tmp/plain.json" "$tmp/codes.json" >"$tmp/said" 2>&1 || cat "$tmp/said"
    grep -q '^  the second plan changes the numerics: int8 parameters, int4 gradients$' "$tmp/said" || cat "$tmp/said")"
check 'two plans: seconds added up in another order are no difference' "$(
    echo '{"dpx_plan":1,"model":"llama-3.1-8b","cluster":{"nodes":4,"gpus_per_node":8,"gpu":"a100-80gb","inter":{"gb_per_s":12.5}},"seq":4096,
        "strategy":"zero3","dialect":"deepspeed","precision":"bf16","recompute":"full"}' >"$tmp/plain.json"
    sed 's/"seq"/"deepspeed":{"zero_quantized_weights":true,"zero_quantized_gradients":true},"seq"/' "$tmp/plain.json" >"$tmp/codes.json"
    "$B/dpxplan" explain "$tmp/plain.json" "$tmp/codes.json" >"$tmp/said" 2>&1 || cat "$tmp/said"
    grep -q '^  optimizer .* +0 s$' "$tmp/said" || cat "$tmp/said"
    grep 'e-1[0-9] s$' "$tmp/said")"

check 'two plans, one offloaded: memory of the host, its words, and keys within keys' "$(
    sed 's/"precision"/"deepspeed": { "offload_optimizer": { "device": "cpu" }, "offload_param": { "device": "cpu" } }, "precision"/' \
        "$tmp/plan.json" >"$tmp/other.json"
    "$B/dpxplan" explain "$tmp/plan.json" "$tmp/other.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
    for words in '^  pinned memory of a node  *0 B  *[1-9]' '^  host memory of a node  *0 B  *[1-9]' '^  idle (issue, copies, host) ' \
        '^  deepspeed.offload_optimizer.device=cpu  *step .*, host memory of a node +'; do
        grep -q -- "$words" "$tmp/out" || { echo "not said: $words"; cat "$tmp/out"; }
    done)"
check 'a key of another strategy is named as such, and offloading by its keys' "$(
    sed 's/"precision"/"fsdp": { "cpu_offload": true }, "precision"/' "$tmp/plan.json" >"$tmp/other.json"
    says 'not an option of strategy "zero3" in dialect "deepspeed"; it belongs to fsdp/torch' eval "$tmp/other.json"
    sed -i 's/"zero3"/"fsdp"/; s/"deepspeed"/"torch-fsdp1"/; s/"fsdp": {/"fsdp": { "sharding_strategy": "NO_SHARD",/' "$tmp/other.json"
    says "FSDP1's NO_SHARD" eval "$tmp/other.json"
    sed 's/"precision"/"offload": true, "precision"/' "$tmp/plan.json" >"$tmp/other.json"
    says 'deepspeed.offload_optimizer, deepspeed.offload_param, fsdp.cpu_offload or activation_offload' eval "$tmp/other.json")"
check 'a plan that is tight says why' "$(
    echo '{ "dpx_plan": 1, "model": "llama-3.1-8b", "cluster": "1x1xh100", "seq": 4096, "micro_batch": 8, "strategy": "fsdp",
            "dialect": "torch", "precision": "bf16", "recompute": "full", "fsdp": { "cpu_offload": true } }' >"$tmp/other.json"
    "$B/dpxplan" eval "$tmp/other.json" >"$tmp/out" 2>&1
    grep -q "^  Tight: reserves [0-9.]* GiB of 74.31 GiB usable, so less than 5 % of the card stays free.* ([0-9.]* GiB allocated)\.$" "$tmp/out" ||
        cat "$tmp/out")"
check 'explain says which parameters stay on a rank' "$(
    stays() { "$B/dpxplan" explain demo/70b-qlora.json "$@" >"$tmp/out" 2>&1; tail -n 20 "$tmp/out"; }
    stays | grep -q "the codes' statistics, which FSDP does not shard, stay on every rank" || cat "$tmp/out"
    stays --set fsdp.cpu_offload=false | grep -q "a rank's share of the codes stays there, and all of their statistics" || cat "$tmp/out"
    stays --set base_dtype=plain fsdp.cpu_offload=false fsdp.model_dtype=null | grep -q "a rank's share of them stays there" || cat "$tmp/out")"
check 'explain is brief unless --schedule asks for every entry' "$(
    "$B/dpxplan" explain "$tmp/plan.json" >"$tmp/a" 2>&1
    "$B/dpxplan" explain --schedule "$tmp/plan.json" >"$tmp/b" 2>&1
    [ "$(wc -l <"$tmp/b")" -gt $(($(wc -l <"$tmp/a") + 20)) ] || wc -l "$tmp/a" "$tmp/b")"
check 'import takes what its file leaves out, and nothing against it' "$(
    echo '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}' >"$tmp/ds.json"
    of="--ds-config $tmp/ds.json --model gpt2 --cluster 8xh100 --seq 1k"
    # shellcheck disable=SC2086
    "$B/dpxplan" import $of --global-batch 64 --recompute full -o "$tmp/i.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
    grep -q '"accumulation": 4' "$tmp/i.json" && grep -q '"recompute": "full"' "$tmp/i.json" || cat "$tmp/i.json"
    # shellcheck disable=SC2086
    says 'global-batch 60' import $of --global-batch 60
    sed -i 's/{"train/{"gradient_accumulation_steps": 2, "train/' "$tmp/ds.json"
    # shellcheck disable=SC2086
    "$B/dpxplan" import $of --global-batch 32 -o "$tmp/i.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
    # shellcheck disable=SC2086
    says 'the config makes it 32' import $of --global-batch 64)"
check 'limits takes fp16 where the GPU has no bf16, and says so' "$(
    "$B/dpxplan" limits --cluster dgx-1 --model gpt3-175b --seq 128 --dialect torch-fsdp1 >"$tmp/chosen" 2>"$tmp/err"
    grep -q 'fp16: V100.* has no bf16' "$tmp/err" || cat "$tmp/err"
    "$B/dpxplan" limits --cluster dgx-1 --model gpt3-175b --seq 128 --dialect torch-fsdp1 --precision fp16 2>&1 | diff "$tmp/chosen" -)"

check 'limits of one framework alone; a mixture under DDP has its weights in bf16, and says so' "$(
    "$B/dpxplan" limits --model olmoe-1b-7b --cluster 8xh100 --seq 1k --framework torch --recompute full >"$tmp/out" 2>"$tmp/err"
    grep -q '^  PyTorch DDP  .* weights and states in bf16 (ddp.model_dtype)' "$tmp/out" || cat "$tmp/out" "$tmp/err"
    ! grep '^  DeepSpeed' "$tmp/out"
    says 'not one of --framework megatron' limits --model gpt2 --cluster 8xh100 --seq 1k --framework megatron --dialect torch
    "$B/dpxplan" limits --model gpt2 --cluster 8xh100 --seq 1k --framework megatron >"$tmp/out" 2>&1
    [ "$(grep -c '^  Megatron-LM ' "$tmp/out")" = 2 ] || cat "$tmp/out")"
check 'list parallel has a row of experts' "$(
    COLUMNS=200 "$B/dpxplan" list parallel >"$tmp/out" 2>&1
    grep -q '^  expert  .*fsdp.*torch' "$tmp/out" && grep -q '^  expert, and tensor .*zero1.*megatron' "$tmp/out" || cat "$tmp/out")"
check 'what list refused has is refused in its words, in a plan and by --set' "$(
    COLUMNS=9999 "$B/dpxplan" list refused >"$tmp/refused"
    [ "$(wc -l <"$tmp/refused")" -ge 30 ] || wc -l "$tmp/refused"
    grep -v '^[^ :]*=' "$tmp/refused" | while IFS= read -r row; do
        key=${row%%: *} why=${row#*: }
        "$B/dpxplan" eval demo/8b-fsdp.json --set "$key=true" >"$tmp/out" 2>&1
        [ $? = 2 ] && grep -qF -- "$why" "$tmp/out" || { echo "--set $key"; cat "$tmp/out"; }
        object=${key%.*} name=${key##*.}
        case $object in
            lora) plan='"strategy": "ddp", "dialect": "torch", "train": "lora", "lora": {"rank": 8, "'$name'": true}' ;;
            ddp) plan='"strategy": "ddp", "dialect": "torch", "ddp": {"'$name'": true}' ;;
            ddp.*) plan='"strategy": "ddp", "dialect": "torch", "ddp": {"comm_hook": "powerSGD_hook", "'${object#*.}'": {"'$name'": true}}' ;;
            deepspeed) plan='"strategy": "zero3", "dialect": "deepspeed", "deepspeed": {"'$name'": true}' ;;
            deepspeed.*) plan='"strategy": "zero3", "dialect": "deepspeed", "deepspeed": {"'${object#*.}'": {"device": "cpu", "'$name'": true}}' ;;
            *) plan='"strategy": "fsdp", "dialect": "torch", "'$key'": true' ;;
        esac
        echo '{"dpx_plan": 1, "model": "gpt2", "cluster": "8xh100", "seq": 1024, "precision": "bf16", '"$plan}" >"$tmp/refused.json"
        "$B/dpxplan" eval "$tmp/refused.json" >"$tmp/out" 2>&1
        [ $? = 2 ] && grep -qF -- "$why" "$tmp/out" || { echo "a plan with $key"; cat "$tmp/out"; }
    done
    sed -n 's/^ddp\.comm_hook=\([^:]*\): \(.*\)/\1 \2/p' "$tmp/refused" | while read -r value why; do
        "$B/dpxplan" eval demo/8b-ddp.json --set "ddp.comm_hook=$value" >"$tmp/out" 2>&1
        [ $? = 2 ] && grep -qF -- "$why" "$tmp/out" || { echo "ddp.comm_hook=$value"; cat "$tmp/out"; }
    done)"
# 312 TFLOP/s: NVIDIA's datasheet of the A100; 989.4 of the H100 SXM5.
check 'no MFU is said of cores, whose peak nobody knows' "$(
    "$B/dpxplan" eval gpt2 --cluster localhost:2 --seq 64 --global-batch 4 --set strategy=ddp dialect=paper --all >"$tmp/out" 2>"$tmp/err"
    grep -q '^  Step .* tokens/s\.$' "$tmp/out" || cat "$tmp/out" "$tmp/err"
    ! grep 'MFU' "$tmp/out"
    "$B/dpxplan" sweep demo/8b-fsdp.json --set kernels=dpx model=gpt2 seq=64 --over cluster=localhost:2 --json 2>"$tmp/err" | grep -q '"mfu": *null' || cat "$tmp/err")"
check 'MFU says of which peak it is' "$(
    "$B/dpxplan" eval --all "$tmp/plan.json" >"$tmp/out" 2>&1
    grep -q 'HFU [0-9.]* %, MFU [0-9.]* % of the dense bf16 peak, 312 TFLOP/s$' "$tmp/out" && grep -q '^  FLOPs are 6N' "$tmp/out" || grep MFU "$tmp/out"
    echo '{"dpx_plan":1,"model":"llama-3.1-8b","cluster":"8xh100","seq":4096,"micro_batch":1,"strategy":"fsdp","precision":"bf16","recompute":"full","fp8":"rowwise"}' >"$tmp/fp8.json"
    "$B/dpxplan" eval --all "$tmp/fp8.json" >"$tmp/out" 2>&1
    grep -q 'of the dense bf16 peak, 989.* TFLOP/s, as without fp8$' "$tmp/out" || grep MFU "$tmp/out")"

# What is allocated and what decides are one figure each, whoever says it; what decides is what PyTorch reserves and what NCCL takes.
check 'eval, explain and sweep say the same of one plan' "$(
    "$B/dpxplan" eval demo/8b-fsdp.json >"$tmp/eval"
    "$B/dpxplan" explain demo/8b-fsdp.json >"$tmp/explain"
    "$B/dpxplan" explain demo/8b-fsdp.json demo/8b-fsdp.json >"$tmp/two"
    "$B/dpxplan" sweep demo/8b-fsdp.json --over seq=8k >"$tmp/sweep"
    "$B/dpxplan" eval demo/8b-fsdp.json --json >"$tmp/json"
    takes=$(sed -n 's/^  reserved for that *\([0-9.]* GiB\)  of 74.31 GiB usable$/\1/p' "$tmp/eval")
    holds=$(sed -n 's/^  together *\([0-9.]* GiB\)$/\1/p' "$tmp/eval")
    [ -n "$takes" ] && [ -n "$holds" ] || cat "$tmp/eval"
    for said in eval explain; do
        grep -qF "  Fits: reserves $takes of 74.31 GiB usable ($holds allocated)." "$tmp/$said" || cat "$tmp/$said"
    done
    grep -q "^The peak of $holds comes" "$tmp/explain" || tail -5 "$tmp/explain"
    grep -q "^  together  *$holds  *$holds " "$tmp/two" && grep -q "^  reserved for that  *$takes  *$takes " "$tmp/two" || cat "$tmp/two"
    grep -q " $takes  *$holds  .* yes" "$tmp/sweep" || cat "$tmp/sweep"
    nccl=$(sed -n 's/^  NCCL buffers.*  \([0-9.]*\) MiB$/\1/p' "$tmp/eval")
    awk -v nccl="$nccl" -F '[:,]' '/"reserved_peak_bytes"/ { r = $2 } /"taken_bytes"/ { t = $2 } /"peak_bytes"/ && !p { p = $2 }
        END { if (t - r != nccl * 1048576) print "taken " t ", reserved " r ", NCCL " nccl " MiB" }' "$tmp/json")"

# One limit for one plan, from each command.
check 'search and eval say the same of what does not fit' "$(
    "$B/dpxplan" search --model llama-3.1-8b --cluster 8xh100 --seq 8192 --global-batch 8 --strategy ddp --no-grid |
        sed -n 's/^  It needs \(.* of .* usable, .* more than\).*/\1/p' >"$tmp/nearest"
    "$B/dpxplan" eval demo/8b-ddp.json --set optimizer_form=fused >"$tmp/eval"
    # Needed less what is too much: the limit, to the last digit printed of both.
    limit() { awk '$2 == "GiB" && $5 == "GiB" { printf "%.1f\n", $1 - $7 }'; }
    of_eval=$(sed -n 's/^  Does not fit: needs \(.* of .* usable, .* more than\).*/\1/p' "$tmp/eval" | limit)
    of_search=$(limit <"$tmp/nearest")
    [ -n "$of_eval" ] && [ "$of_eval" = "$of_search" ] || echo "eval: $of_eval; search: $of_search")"

# What streams hold at once depends on when they meet: of one plan as much is allocated whatever the links, and not as much held.  (So a run
# of float8 gathers may hold less than was predicted, and nothing is counted wrongly.)
float8() {      # GB_PER_S
    cat <<PLAN
{ "dpx_plan": 1, "kernels": "dpx", "seq": 64, "micro_batch": 2, "strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "fp32",
  "fp8": "tensorwise", "fsdp": { "enable_fsdp_float8_all_gather": true },
  "model": { "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
             "intermediate_size": 512, "vocab_size": 512, "max_position_embeddings": 128, "tie_word_embeddings": false },
  "cluster": { "name": "pair", "host": true, "nodes": 1, "gpus_per_node": 2, "gpu": { "name": "cpu", "memory_bytes": 2000000000 },
               "intra": { "gb_per_s": $1 } } }
PLAN
}
check 'held memory goes by the clock, allocated memory does not' "$(
    for rate in 0.01 1; do
        float8 $rate | "$B/dpxplan" eval --all - >"$tmp/$rate" 2>&1 || head -5 "$tmp/$rate"
        grep '^  together' "$tmp/$rate" >"$tmp/$rate.allocated"
        grep '^  held at most' "$tmp/$rate" >"$tmp/$rate.held"
        [ -s "$tmp/$rate.allocated" ] && [ -s "$tmp/$rate.held" ] || cat "$tmp/$rate"
    done
    cmp "$tmp/0.01.allocated" "$tmp/1.allocated"
    ! cmp -s "$tmp/0.01.held" "$tmp/1.held" || cat "$tmp/1.held")"

recorded() {
    "$B/dpxplan" eval tests/golden/module/nanogpt.json --cluster 8xh100 >"$tmp/out" 2>"$tmp/err" || { echo "exit $?"; cat "$tmp/err"; }
    grep -q '^  Fits: ' "$tmp/out" || cat "$tmp/out"
}
check 'a recorded module is planned as a model is' "$(recorded)"
# A table of one dimension less has fewer bytes than the gradient that the program hands out and frees.
check 'a recorded module whose tensors were changed is refused as a wrong file is' "$(
    sed 's/\["target.weight",\[4096,128\]\]/["target.weight",[4096]]/' tests/golden/module/translator.json >"$tmp/changed.json"
    printf '{"dpx_plan": 1, "model": "changed.json", "cluster": "8xh100", "strategy": "fsdp", "dialect": "torch", "seq": 256, "micro_batch": 7, "precision": "bf16"}' >"$tmp/changed.plan"
    "$B/dpxplan" eval "$tmp/changed.plan" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] && grep -q 'tensors that they did not make' "$tmp/err" || { echo "exit $rc"; cat "$tmp/err"; })"
# In a folder by itself it has no fits of real GPUs: that is said, once, and only where they would have been used.
mkdir "$tmp/alone"
cp "$BUILT/dpxplan" "$tmp/alone/"
check 'a program copied without what is installed beside it says so' "$(
    unset DPX_MEASURED
    "$tmp/alone/dpxplan" eval demo/gpipe.json --set parallel.pipeline_schedule=1f1b 2>&1 >/dev/null | grep -c 'lies without share/dpx/measured' | grep -vx 1
    "$tmp/alone/dpxplan" eval demo/8b-fsdp.json 2>&1 >/dev/null | grep 'lies without'
    "$B/dpxplan" eval demo/gpipe.json --set parallel.pipeline_schedule=1f1b 2>&1 >/dev/null | grep 'lies without')"

# A change that says what every plan of the cell does is taken where the cell has no such key, whether or not the cell changes too.
for_nothing() {
    for cell in 'ddp torch' 'fsdp torch-fsdp1' 'zero1 torch'; do
        for set in fp8=none parallel.expert=1 parallel.tensor=1 parallel.context=1 parallel.pipeline=1 train=all; do
            # shellcheck disable=SC2086
            "$B/dpxplan" eval gpt2 --cluster 8xh100 --set strategy=${cell% *} dialect=${cell#* } $set >/dev/null 2>"$tmp/err" || cat "$tmp/err"
        done
    done
    for set in fp8=none parallel.expert=1 train=all fsdp.cpu_offload=false; do
        "$B/dpxplan" eval demo/8b-ddp.json --set $set >/dev/null 2>"$tmp/err"
        [ $? = 2 ] && cat "$tmp/err"
    done
    for set in fp8=rowwise parallel.expert=2 fsdp.cpu_offload=true; do
        "$B/dpxplan" eval demo/8b-ddp.json --set $set >/dev/null 2>&1
        [ $? = 2 ] || echo "$set is taken"
    done
}
check 'a change that says nothing is no error' "$(for_nothing)"

# The first refusal is the one that counts: no other key mends LoRA beside these.  Beside tensor parallelism FSDP2 has it as NeMo Automodel does.
adapters() {
    for set in 'parallel.tensor=2' 'parallel.tensor=2 ddp.model_dtype=bf16' 'parallel.tensor=2 precision=fp32' \
            'parallel.context=2 strategy=fsdp' 'parallel.pipeline=2 strategy=fsdp'; do
        # shellcheck disable=SC2086
        "$B/dpxplan" eval "$tmp/lora.json" --set $set 2>&1 | grep -q "beside ${set%%=*} are not planned yet: set it to 1" || echo "$set"
    done
    says 'set parallel.inputs_apart to true' eval "$tmp/lora.json" --set parallel.tensor=2 strategy=fsdp
}
echo '{"dpx_plan": 1, "model": "llama-3.2-1b", "cluster": "8xh100", "strategy": "ddp", "dialect": "torch", "seq": 2048, "micro_batch": 1,
    "precision": "bf16", "train": "lora"}' >"$tmp/lora.json"
check 'adapters beside other ways of parallelism: one refusal, with what would be right' "$(adapters)"

# What is freed in a micro-step is free some micro-steps later, whatever makes the issuing thread wait: more of them reserve no more.
accumulated() {
    for cell in 'fsdp torch-fsdp1' 'fsdp torch' 'zero3 deepspeed' 'ddp torch'; do
        for n in 4 16; do
            "$B/dpxplan" eval gpt2 --cluster 1xh100 --set strategy=${cell% *} dialect=${cell#* } micro_batch=1 accumulation=$n sync_every_micro_step=true --json \
                2>/dev/null >"$tmp/out" || "$B/dpxplan" eval gpt2 --cluster 1xh100 --set strategy=${cell% *} dialect=${cell#* } micro_batch=1 accumulation=$n \
                --json 2>/dev/null >"$tmp/out"
            sed -n 's/.*"reserved_peak_bytes": *\([0-9]*\).*/\1/p' "$tmp/out"
        done | uniq | { read -r a; read -r b && echo "$cell: $a of 4, $b of 16"; }
    done
}
check 'more micro-steps reserve no more' "$(accumulated)"

check 'FSDP1: each sharding strategy has a label and words of its own' "$(
    rm -f "$tmp/labels" "$tmp/said"
    for how in FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2; do
        "$B/dpxplan" eval gpt2 --cluster 2x8xh100 --set strategy=fsdp dialect=torch-fsdp1 fsdp.sharding_strategy=$how >"$tmp/words" 2>/dev/null
        "$B/dpxplan" eval gpt2 --cluster 2x8xh100 --set strategy=fsdp dialect=torch-fsdp1 fsdp.sharding_strategy=$how --json 2>/dev/null |
            grep '^  "label"' >>"$tmp/labels"
        sed -n '2,/  A step/p' "$tmp/words" | tr -d '\n' >>"$tmp/said"; echo >>"$tmp/said"
    done
    [ "$(sort -u "$tmp/labels" | wc -l)" = 5 ] || cat "$tmp/labels"
    [ "$(sort -u "$tmp/said" | wc -l)" = 5 ] || cat "$tmp/said")"

check "a model's file gives the model its name, in notes, too" "$(
    echo '{"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 1024, "vocab_size": 512, "my_block": "custom"}' >"$tmp/tiny.json"
    "$B/dpxplan" eval "$tmp/tiny.json" --cluster 1xh100 --seq 64 >"$tmp/out" 2>"$tmp/err"
    head -1 "$tmp/out" | grep -v '^tiny '
    grep -q "^dpx: $tmp/tiny.json: note: \"my_block\"" "$tmp/err" || cat "$tmp/err")"
finish
