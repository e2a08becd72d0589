#!/bin/sh
# tests/model/test_multimodal.sh -- of a multimodal config the text model is planned, with one line on stderr.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

cat >"$tmp/config.json" <<'EOF'
{"model_type": "gemma3", "time_step_limit": [0.0, Infinity],
 "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 99},
 "vision_config": {"hidden_size": 1152}}
EOF
cat >"$tmp/plan.json" <<EOF
{"dpx_plan": 1, "model": "$tmp/config.json", "cluster": "1x2xh100", "strategy": "ddp", "dialect": "torch",
 "seq": 64, "micro_batch": 1}
EOF
"$B/dpxplan" eval "$tmp/plan.json" --json >"$tmp/out" 2>"$tmp/err"
check 'a multimodal config is planned by its text model' \
    "$([ $? = 0 ] && grep -q '"family": *"gemma3_text"' "$tmp/out" || cat "$tmp/err" "$tmp/out")"
check 'one line on stderr says so' \
    "$([ "$(grep -c . "$tmp/err")" = 1 ] && grep -q 'note: .*text model.*gemma3_text' "$tmp/err" || cat "$tmp/err")"
cat >"$tmp/vl.json" <<'EOF'
{"model_type": "qwen3_vl", "tie_word_embeddings": false, "vision_config": {"depth": 27},
 "text_config": {"model_type": "qwen3_vl_text", "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "attention_bias": false, "rope_theta": 5000000,
                 "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"}}}
EOF
sed 's/config.json/vl.json/' "$tmp/plan.json" >"$tmp/vl-plan.json"
"$B/dpxplan" eval "$tmp/vl-plan.json" >"$tmp/out" 2>"$tmp/err"
check "the text model of Qwen3-VL-8B is Qwen3-8B, with its 8,190,735,360 parameters" \
    "$(grep -q 'text model is taken: qwen3, 8190735360 parameters' "$tmp/err" || cat "$tmp/err")"
sed -i 's/"hidden_size": 64/"hidden_size": Infinity/' "$tmp/config.json"
"$B/dpxplan" eval "$tmp/plan.json" >"$tmp/out" 2>"$tmp/err"
check 'an infinite size is refused by its name' \
    "$([ $? = 2 ] && grep -q 'text_config.hidden_size" is "Infinity"' "$tmp/err" || cat "$tmp/err")"
echo '{"model_type": "deepseek_v3", "num_hidden_layers": 4, "num_nextn_predict_layers": 1}' >"$tmp/mtp.json"
sed 's/config.json/mtp.json/' "$tmp/plan.json" >"$tmp/mtp-plan.json"
"$B/dpxplan" eval "$tmp/mtp-plan.json" >"$tmp/out" 2>"$tmp/err"
check 'layers of multi-token prediction are said to be left out' \
    "$(grep -q 'note: "num_nextn_predict_layers" is 1' "$tmp/err" || cat "$tmp/err")"
# A coefficient alone changes nothing: transformers computes that loss where routers' logits are put out.
for logits in true false; do
    sed "s/LOGITS/$logits/" >"$tmp/moe.json" <<'END'
{"model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64,
 "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 500, "router_aux_loss_coef": 0.02, "output_router_logits": LOGITS}
END
    "$B/dpxplan" search --model "$tmp/moe.json" --cluster 2xh100 --seq 64 --global-batch 2 --strategy fsdp --no-grid --top 1 >"$tmp/out" 2>"$tmp/$logits"
done
check "routers' load-balancing loss is said not to be counted where it is computed: 2 x 4 layers x 8 experts" \
    "$(grep -q 'note: "output_router_logits" is true: .* 64 numbers a token' "$tmp/true" || cat "$tmp/true"; cat "$tmp/false")"
finish
