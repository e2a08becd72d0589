# plans.sh -- the plans of `make engine-check`: source it, then call plan_of NAME; NAMES has all of them, SIX those of `make test`.
# Parameters outweigh activations, whose kernels are the CPU's here.
# shellcheck shell=sh disable=SC2034

GPT2='{ "model_type": "gpt2", "n_layer": 3, "n_embd": 128, "n_head": 4, "vocab_size": 2048, "n_positions": 64, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0 }'
LLAMA='{ "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 352, "vocab_size": 2048, "max_position_embeddings": 64, "tie_word_embeddings": false }'
MOE='{ "model_type": "qwen3_moe", "num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256, "moe_intermediate_size": 96, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 2048, "max_position_embeddings": 64, "tie_word_embeddings": false }'
LORA='"train": "lora", "lora": { "rank": 8, "target_modules": "all-linear" }'

# NAME|RANKS|MODEL|STRATEGY|DIALECT|more keys
TABLE='ddp-gpt2|2|GPT2|ddp|torch|
ddp-gpt2-clip|4|GPT2|ddp|torch|"clip": 1.0
ddp-llama-views-no_sync|2|LLAMA|ddp|torch|"accumulation": 2, "sync_every_micro_step": false, "ddp": { "gradient_as_bucket_view": true, "bucket_cap_mb": 0.1 }
ddp-llama-bf16|2|LLAMA|ddp|torch|"precision": "bf16"
ddp-llama-recompute|2|LLAMA|ddp|torch|"recompute": "full"
ddp-llama-lora|2|LLAMA|ddp|torch|LORA
ddp-llama-lora-bf16|2|LLAMA|ddp|torch|"precision": "bf16", LORA
ddp-moe|2|MOE|ddp|torch|"precision": "bf16", "ddp": { "model_dtype": "bf16" }
zero1-gpt2|2|GPT2|zero1|torch|
fsdp1-gpt2|2|GPT2|fsdp|torch-fsdp1|"unit": "block"
fsdp1-llama-grad_op|2|LLAMA|fsdp|torch-fsdp1|"unit": "block", "fsdp": { "sharding_strategy": "SHARD_GRAD_OP" }
fsdp1-llama-orig-no_sync|2|LLAMA|fsdp|torch-fsdp1|"unit": "block", "accumulation": 2, "sync_every_micro_step": false, "fsdp": { "use_orig_params": true }
fsdp1-gpt2-hybrid|4|GPT2|fsdp|torch-fsdp1|"unit": "block", "shard_group": 2, "fsdp": { "sharding_strategy": "HYBRID_SHARD" }
fsdp2-llama|2|LLAMA|fsdp|torch|"unit": "block"
fsdp2-llama-recompute|2|LLAMA|fsdp|torch|"unit": "block", "recompute": "full"
fsdp2-llama-no_sync|2|LLAMA|fsdp|torch|"unit": "block", "accumulation": 2, "sync_every_micro_step": false
fsdp2-llama-bf16|2|LLAMA|fsdp|torch|"unit": "block", "precision": "bf16"
fsdp2-llama-lora|2|LLAMA|fsdp|torch|"unit": "block", "fsdp": { "model_dtype": null }, LORA
fsdp2-gpt2-hsdp|4|GPT2|fsdp|torch|"unit": "block", "shard_group": 2
fsdp2-gpt2-keep|2|GPT2|fsdp|torch|"unit": "block", "fsdp": { "reshard_after_forward": false }
fsdp2-gpt2-clip|4|GPT2|fsdp|torch|"unit": "block", "clip": 1.0
fsdp2-moe|2|MOE|fsdp|torch|"unit": "block", "precision": "bf16"
ddp-llama-tensor|2|LLAMA|ddp|torch|"kernels": "torch-sdpa", "parallel": { "tensor": 2 }
fsdp2-llama-tensor|4|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "parallel": { "tensor": 2 }
fsdp2-llama-pipeline|2|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "accumulation": 4, "parallel": { "pipeline": 2, "pipeline_schedule": "1f1b" }
zero0-gpt2|2|GPT2|ddp|deepspeed|
zero1-gpt2-ds|2|GPT2|zero1|deepspeed|
zero2-llama|2|LLAMA|zero2|deepspeed|
zero2-llama-bf16-clip|2|LLAMA|zero2|deepspeed|"precision": "bf16", "clip": 1.0
zero3-llama|2|LLAMA|zero3|deepspeed|
zero3-gpt2-accumulation|4|GPT2|zero3|deepspeed|"accumulation": 2'
NAMES=$(echo "$TABLE" | cut -d'|' -f1)
SIX='ddp-llama-views-no_sync fsdp1-gpt2 fsdp2-llama fsdp2-gpt2-hsdp zero2-llama zero3-llama'

# plan_of NAME: its plan.json; sets $engine.
plan_of() {
    row=$(echo "$TABLE" | grep "^$1|")
    IFS='|' read -r _ ranks model strategy dialect more <<END
$row
END
    case $more in *LORA) more=${more%LORA}$LORA ;; esac
    case $model in GPT2) model=$GPT2 ;; LLAMA) model=$LLAMA ;; MOE) model=$MOE ;; esac
    case $more in *'"kernels"'*) ;; *) more="\"kernels\": \"torch-eager\"${more:+, $more}" ;; esac
    [ "$dialect" = deepspeed ] && engine=deepspeed || { engine=torch more="\"optimizer_form\": \"foreach\", $more"; }
    printf '{ "dpx_plan": 1, "cluster": "localhost:%s", "strategy": "%s", "dialect": "%s", "seq": 16, "micro_batch": 1, %s,\n  "model": %s }\n' \
        "$ranks" "$strategy" "$dialect" "$more" "$model"
}
