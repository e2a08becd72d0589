# stage_engine.sh -- plans run by PyTorch and DeepSpeed on this GPU (dpxrun --engine), most informative first: allocated and reserved
# bytes, step times and losses beside what was predicted; each prediction is in the database before its run begins.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
# The list is fitted to 12 minutes, in two starts: a lent machine ends a command after ten.  A start that is told again goes on behind
# the plans that have run.  table.tsv grows with each plan.
# ENGINE_DEVICE=dry: every plan is made, read, predicted on that GPU and followed by its engine, up to the question whether Python has it.
PYTHON=${PYTHON:-python3} BUDGET=${ENGINE_BUDGET:-540} device=${ENGINE_DEVICE:-cuda}
if [ "$device" = dry ]; then
    type=${ENGINE_GPU:-h100} PYTHON=$dir/bare
    printf '#!/bin/sh\necho "{ }"\n' >"$PYTHON"
    chmod +x "$PYTHON"
elif ! "$PYTHON" -c "import torch, transformers; assert '$device' == 'cpu' or torch.cuda.is_available()" 2>"$dir/python.err"; then
    skip 'plans in their frameworks' "$PYTHON has no torch that sees the GPU: $(tail -n 1 "$dir/python.err")"
    finish
fi
[ "$device" = cpu ] || [ "$type" ] || type=$(cluster_word)
SMALL_LLAMA=$(llama 16 2048 32 8 8192 32000) LLAMA_3B=$(llama 28 3072 24 8 8192 32000) GPT=$(gpt 12 768 12 1024 50257)
QWEN_MOE='{ "model_type": "qwen3_moe", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 3072, "moe_intermediate_size": 768, "num_experts": 32, "num_experts_per_tok": 4, "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": false }'
FSDP='"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "bf16"'
DDP='"strategy": "ddp", "dialect": "torch", "precision": "bf16"'
ds() { echo "\"strategy\": \"$1\", \"dialect\": \"deepspeed\", \"precision\": \"bf16\""; }
LORA='"train": "lora", "lora": { "rank": 16, "target_modules": "all-linear" }'
if [ "$device" = cpu ]; then            # the list itself, tried without a GPU
    cluster() { echo '"localhost:1"'; }
    SMALL_LLAMA=$(llama 2 64 4 2 176 512) LLAMA_3B=$SMALL_LLAMA GPT=$(gpt 2 64 4 1024 512)
    QWEN_MOE='{ "model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 512, "max_position_embeddings": 4096, "tie_word_embeddings": false }'
fi
seq_of() { [ "$device" = cpu ] && echo 16 || echo "$1"; }

# one NAME MODEL SEQ MICRO_BATCH KERNELS KEYS
one() {
    name=$1
    row=$dir/$name.json
    if [ ! -s "$row" ]; then
        enough 18 || return 0
        plan "$dir/$name.plan" "$(cluster 1)" "$2" "$(seq_of "$3")" "$4" "$6"
        sed -i "s/\"kernels\": \"dpx\"/\"kernels\": \"$5\"/" "$dir/$name.plan"
        case $6 in *deepspeed*) engine=deepspeed ;; *) engine=torch ;; esac
        if [ "$device" = dry ]; then
            check "$name: is predicted, and followed" "$("$B/dpxplan" eval "$dir/$name.plan" >"$row.new" 2>&1 || cat "$row.new"
                "$B/dpxrun" "$dir/$name.plan" --engine $engine --python "$PYTHON" --device cuda --steps 13 --no-db >"$row.new" 2>&1
                [ $? = 2 ] && grep -q 'has no torch: install it there' "$row.new" || cat "$row.new")"
            rm -f "$row.new"
            return 0
        fi
        most=$(left)
        timeout $((most > 90 ? 90 : most)) "$B/dpxrun" "$dir/$name.plan" --engine $engine --python "$PYTHON" --device "$device" --steps 13 --db "$dir/engine.db" --json \
            >"$row.new" 2>"$dir/$name.err" </dev/null && mv "$row.new" "$row" || {
            rm -f "$row.new"
            ! enough 18 || check "$name runs" "$(tail -n 3 "$dir/$name.err")"     # else it was cut by the stage's end
            return 0
        }
    fi
    got=$(awk -F'[:,]' '/"allocated_bytes"/ && !/predicted/ && $2 + 0 > m { m = $2 + 0 } END { printf "%.0f", m }' "$row")
    want=$(awk -F'[:,]' '/"predicted_allocated_bytes"/ && $2 + 0 > m { m = $2 + 0 } END { printf "%.0f", m }' "$row")
    reserved=$(awk -F'[:,]' '/"reserved_bytes"/ && !/predicted/ && $2 + 0 > m { m = $2 + 0 } END { printf "%.0f", m }' "$row")
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$got" "$want" "$reserved" "$(number predicted_reserved_bytes "$row")" "$(number median "$row")" \
        "$(number predicted_step_s "$row")" >>"$dir/table.tsv"
    check "$name: collectives are the plan's" "$(grep -q '^  "collectives_equal": true' "$row" || grep -A4 -m1 '"first_difference": {' "$row")"
    [ "$device" = cpu ] || check "$name: allocated within 1 %" "$(awk -v g="$got" -v w="$want" 'BEGIN { e = w / g - 1; if (e > .01 || e < -.01) print g " bytes, predicted " w }')"
}
printf 'plan\tallocated\tpredicted\treserved\tpredicted\tstep_s\tpredicted\n' >"$dir/table.tsv"
S=torch-sdpa E=torch-eager
one fsdp2-llama                "$SMALL_LLAMA" 2048 2 $S "$FSDP"
one ddp-llama                  "$SMALL_LLAMA" 2048 2 $S "$DDP"
one zero2-llama                "$SMALL_LLAMA" 2048 2 $S "$(ds zero2)"
one zero3-llama                "$SMALL_LLAMA" 2048 2 $S "$(ds zero3)"
one fsdp2-llama-full           "$SMALL_LLAMA" 2048 4 $S "$FSDP, \"recompute\": \"full\""
one fsdp2-llama-eager          "$SMALL_LLAMA" 2048 1 $E "$FSDP"
one ddp-gpt2                   "$GPT" 1024 8 $S "$DDP"
one fsdp2-moe                  "$QWEN_MOE" 2048 2 $S "$FSDP"
one ddp-llama-lora             "$SMALL_LLAMA" 2048 2 $S "$DDP, $LORA"
one fsdp2-llama-fp8            "$SMALL_LLAMA" 2048 2 torch-compile "$FSDP, \"fp8\": \"tensorwise\""
one ddp-llama-qlora            "$SMALL_LLAMA" 2048 2 $S "$DDP, \"base_dtype\": \"nf4-double\", \"ddp\": { \"model_dtype\": \"bf16\" }, $LORA"
one fsdp2-llama-long           "$SMALL_LLAMA" 4096 2 $S "$FSDP, \"recompute\": \"full\""
one fsdp2-3b-full              "$LLAMA_3B" 2048 1 $S "$FSDP, \"recompute\": \"full\""
one zero1-llama                "$SMALL_LLAMA" 2048 2 $S "$(ds zero1)"
one zero0-llama                "$SMALL_LLAMA" 2048 1 $S "$(ds ddp)"
one fsdp2-llama-accumulation   "$SMALL_LLAMA" 2048 1 $S "$FSDP, \"accumulation\": 4, \"sync_every_micro_step\": false"
one fsdp1-llama                "$SMALL_LLAMA" 2048 2 $S "\"strategy\": \"fsdp\", \"dialect\": \"torch-fsdp1\", \"unit\": \"block\", \"precision\": \"bf16\""
one fsdp2-llama-fp32           "$SMALL_LLAMA" 1024 1 $S "\"strategy\": \"fsdp\", \"dialect\": \"torch\", \"unit\": \"block\""
one fsdp2-llama-fused          "$SMALL_LLAMA" 2048 2 $S "$FSDP, \"optimizer_form\": \"fused\""
one fsdp2-llama-clip           "$SMALL_LLAMA" 2048 2 $S "$FSDP, \"clip\": 1.0"
one ddp-llama-bf16-model       "$SMALL_LLAMA" 2048 4 $S "$DDP, \"ddp\": { \"model_dtype\": \"bf16\" }"
one fsdp2-llama-compile-full   "$SMALL_LLAMA" 2048 4 torch-compile "$FSDP, \"recompute\": \"full\""
one zero3-llama-full           "$SMALL_LLAMA" 2048 4 $S "$(ds zero3), \"recompute\": \"full\""
one zero2-llama-accumulation   "$SMALL_LLAMA" 2048 1 $S "$(ds zero2), \"accumulation\": 4"
one fsdp2-llama-sac            "$SMALL_LLAMA" 2048 4 $S "$FSDP, \"recompute\": \"op\""
one fsdp2-llama-batch-4        "$SMALL_LLAMA" 2048 4 $S "$FSDP"
one fsdp2-llama-compile        "$SMALL_LLAMA" 2048 2 torch-compile "$FSDP"
one fsdp2-llama-unit-model     "$SMALL_LLAMA" 2048 2 $S "\"strategy\": \"fsdp\", \"dialect\": \"torch\", \"unit\": \"model\", \"precision\": \"bf16\""
one fsdp2-llama-keep           "$SMALL_LLAMA" 2048 2 $S "$FSDP, \"fsdp\": { \"reshard_after_forward\": false }"
one fsdp2-gpt2                 "$GPT" 1024 8 $S "$FSDP"
one ddp-gpt2-full              "$GPT" 1024 16 $S "$DDP, \"recompute\": \"full\""
one zero2-gpt2                 "$GPT" 1024 8 $S "$(ds zero2)"
one zero3-gpt2                 "$GPT" 1024 8 $S "$(ds zero3)"
one ddp-moe                    "$QWEN_MOE" 2048 1 $S "$DDP, \"ddp\": { \"model_dtype\": \"bf16\" }"
one fsdp2-llama-lora           "$SMALL_LLAMA" 2048 2 $S "$FSDP, \"fsdp\": { \"model_dtype\": null }, $LORA"
one ddp-llama-lora-full        "$SMALL_LLAMA" 2048 4 $S "$DDP, $LORA, \"recompute\": \"full\""
one zero3-llama-lora           "$SMALL_LLAMA" 2048 2 $S "$(ds zero3), $LORA"
one fsdp2-llama-fp8-rowwise    "$SMALL_LLAMA" 2048 4 torch-compile "$FSDP, \"fp8\": \"rowwise\", \"recompute\": \"full\""
one fsdp2-3b                   "$LLAMA_3B" 1024 1 $S "$FSDP"
one zero1-gpt2-torch           "$GPT" 1024 8 $S '"strategy": "zero1", "dialect": "torch", "precision": "bf16"'
cat "$dir/table.tsv"
