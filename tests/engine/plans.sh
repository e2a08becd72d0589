# plans.sh -- the plans of `make engine-check`: source it, then call plan_of NAME; NAMES has all of them, SIX those of `make test`, LARGE
# those of `make engine-check-124m`.
# Parameters outweigh activations, whose kernels are the CPU's here.
# shellcheck shell=sh disable=SC2034

GPT2='{ "model_type": "gpt2", "n_layer": 3, "n_embd": 128, "n_head": 4, "vocab_size": 2048, "n_positions": 64, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0 }'
LLAMA='{ "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 352, "vocab_size": 2048, "max_position_embeddings": 64, "tie_word_embeddings": false }'
MOE='{ "model_type": "qwen3_moe", "num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256, "moe_intermediate_size": 96, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 2048, "max_position_embeddings": 64, "tie_word_embeddings": false }'
GPT2_124M='{ "model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0 }'
LORA='"train": "lora", "lora": { "rank": 8, "target_modules": "all-linear" }'

OVERLAP='"overlap_grad_reduce": true, "overlap_param_gather": true, "ddp_bucket_size": 100000'

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
fsdp2-llama-sac|2|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "recompute": "op"
ddp-gpt2-recompute-every-2nd|2|GPT2|ddp|torch|"recompute": "full", "recompute_interval": 2
fsdp2-llama-no_sync|2|LLAMA|fsdp|torch|"unit": "block", "accumulation": 2, "sync_every_micro_step": false
fsdp2-llama-bf16|2|LLAMA|fsdp|torch|"unit": "block", "precision": "bf16"
fsdp2-llama-lora|2|LLAMA|fsdp|torch|"unit": "block", "fsdp": { "model_dtype": null }, LORA
fsdp2-llama-fp8|2|LLAMA|fsdp|torch|"unit": "block", "precision": "bf16", "fp8": "tensorwise", "fsdp": { "enable_fsdp_float8_all_gather": true, "precompute_float8_dynamic_scale_for_fsdp": true }
fsdp2-llama-fp8-rowwise|2|LLAMA|fsdp|torch|"unit": "block", "precision": "bf16", "fp8": "rowwise"
ddp-llama-nf4|2|LLAMA|ddp|torch|"precision": "bf16", "base_dtype": "nf4", "ddp": { "model_dtype": "bf16" }, LORA
ddp-llama-nf4-double|2|LLAMA|ddp|torch|"precision": "bf16", "base_dtype": "nf4-double", LORA
fsdp2-gpt2-hsdp|4|GPT2|fsdp|torch|"unit": "block", "shard_group": 2
fsdp2-gpt2-keep|2|GPT2|fsdp|torch|"unit": "block", "fsdp": { "reshard_after_forward": false }
fsdp2-gpt2-clip|4|GPT2|fsdp|torch|"unit": "block", "clip": 1.0
fsdp2-llama-apart|2|LLAMA|fsdp|torch|"unit": "block", "fsdp": { "root_units": "apart" }
fsdp2-gpt2-apart-hsdp|4|GPT2|fsdp|torch|"unit": "block", "shard_group": 2, "accumulation": 2, "fsdp": { "root_units": "apart" }
fsdp2-llama-embed|2|LLAMA|fsdp|torch|"unit": "block", "fsdp": { "root_units": "embed", "root_reshard_after_forward": true }
fsdp2-llama-embed-head|2|LLAMA|fsdp|torch|"unit": "block", "recompute": "full", "fsdp": { "root_units": "embed-head" }
fsdp2-moe|2|MOE|fsdp|torch|"unit": "block", "precision": "bf16"
ddp-llama-tensor|2|LLAMA|ddp|torch|"kernels": "torch-sdpa", "parallel": { "tensor": 2 }
fsdp2-llama-tensor|4|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "parallel": { "tensor": 2 }
fsdp2-llama-pipeline|2|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "accumulation": 4, "parallel": { "pipeline": 2, "pipeline_schedule": "1f1b" }
zero0-gpt2|2|GPT2|ddp|deepspeed|
zero1-gpt2-ds|2|GPT2|zero1|deepspeed|
zero2-llama|2|LLAMA|zero2|deepspeed|
zero2-llama-bf16-clip|2|LLAMA|zero2|deepspeed|"precision": "bf16", "clip": 1.0
zero3-llama|2|LLAMA|zero3|deepspeed|
zero3-gpt2-accumulation|4|GPT2|zero3|deepspeed|"accumulation": 2
zero2-llama-offload|2|LLAMA|zero2|deepspeed|"deepspeed": { "offload_optimizer": { "device": "cpu" } }
zero3-llama-offload|2|LLAMA|zero3|deepspeed|"deepspeed": { "offload_optimizer": { "device": "cpu" }, "offload_param": { "device": "cpu" } }
zero3-llama-hpz|4|LLAMA|zero3|deepspeed|"deepspeed": { "zero_hpz_partition_size": 2 }
accelerate-ddp-llama-bf16|2|LLAMA|ddp|torch|"precision": "bf16"
accelerate-fsdp1-llama|2|LLAMA|fsdp|torch-fsdp1|"unit": "block", "fsdp": { "sharding_strategy": "SHARD_GRAD_OP" }
accelerate-fsdp2-llama|2|LLAMA|fsdp|torch|"unit": "block", "fsdp": { "root_units": "apart" }
accelerate-fsdp2-gpt2-hsdp|4|GPT2|fsdp|torch|"unit": "block", "shard_group": 2, "accumulation": 2, "fsdp": { "root_units": "apart" }
accelerate-zero2-llama-bf16|2|LLAMA|zero2|deepspeed|"precision": "bf16", "clip": 1.0
accelerate-zero3-gpt2|2|GPT2|zero3|deepspeed|"accumulation": 2
torchtitan-llama|2|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "clip": 1.0, "fsdp": { "root_units": "apart" }
torchtitan-llama-bf16-recompute|4|LLAMA|fsdp|torch|"unit": "block", "kernels": "torch-sdpa", "clip": 1.0, "precision": "bf16", "recompute": "full", "shard_group": 2, "fsdp": { "root_units": "apart" }
megatron-ddp-llama|2|LLAMA|ddp|megatron|
megatron-zero1-llama-tensor|4|LLAMA|zero1|megatron|"precision": "bf16", "accumulation": 2, "parallel": { "tensor": 2, "sequence": true }
megatron-zero1-llama-overlap|2|LLAMA|zero1|megatron|"precision": "bf16", OVERLAP
megatron-zero1-llama-interleaved|2|LLAMA4|zero1|megatron|"accumulation": 4, "parallel": { "pipeline": 2, "pipeline_schedule": "interleaved", "virtual_stages": 2 }
megatron-zero1-llama-recompute|2|LLAMA|zero1|megatron|"recompute": "full", "parallel": { "tensor": 2, "sequence": false }
124m-ddp|2|GPT2_124M|ddp|torch|
124m-fsdp2|2|GPT2_124M|fsdp|torch|"unit": "block"
124m-zero2|2|GPT2_124M|zero2|deepspeed|'
NAMES=$(echo "$TABLE" | cut -d'|' -f1 | grep -v ^124m)
LARGE=$(echo "$TABLE" | cut -d'|' -f1 | grep ^124m)
SIX='ddp-llama-views-no_sync fsdp1-gpt2 fsdp2-llama fsdp2-gpt2-hsdp zero2-llama zero3-llama'

# plan_of NAME: its plan.json; sets $engine.
plan_of() {
    row=$(echo "$TABLE" | grep "^$1|")
    IFS='|' read -r _ ranks model strategy dialect more <<END
$row
END
    megatron='"gradient_accumulation_fusion": false'        # a CUDA kernel
    case $more in *LORA) more=${more%LORA}$LORA ;; esac
    case $more in *OVERLAP) more=${more%, OVERLAP} megatron="$megatron, $OVERLAP" ;; esac
    case $model in GPT2_124M) model=$GPT2_124M seq=64 ;; *) seq=16 ;; esac
    case $model in GPT2) model=$GPT2 ;; LLAMA) model=$LLAMA ;; LLAMA4) model=$(echo "$LLAMA" | sed 's/_layers": 3/_layers": 4/') ;; MOE) model=$MOE ;; esac
    case $dialect in
    megatron) engine=megatron more="\"kernels\": \"megatron-local\", \"megatron\": { $megatron }${more:+, $more}" ;;
    *) case $more in *'"kernels"'*) ;; *) more="\"kernels\": \"torch-eager\"${more:+, $more}" ;; esac ;;
    esac
    case $1$dialect in
    *megatron) ;;
    *deepspeed) engine=deepspeed ;;
    *) engine=torch more="\"optimizer_form\": \"foreach\", $more" ;;
    esac
    case $1 in accelerate* | torchtitan*) engine=${1%%-*} ;; esac
    plan_text
}
plan_text() {
    case $more in *'"fp8"'*) cluster=${ranks}xh100 ;; *) cluster=localhost:$ranks ;; esac       # a CPU has no units for it, and emulates them
    printf '{ "dpx_plan": 1, "cluster": "%s", "strategy": "%s", "dialect": "%s", "seq": %s, "micro_batch": 1, %s,\n  "model": %s }\n' \
        "$cluster" "$strategy" "$dialect" "$seq" "$more" "$model"
}

# own_of NAME: the plan whose losses are the same and that dpxrun's own kernels run: tensors and stages whole, of Megatron DDP; recompute changes none.
own_of() {
    plan_of "$1" >/dev/null
    more=$(echo "$more" | sed 's/"recompute": "op"/"recompute": "full"/')
    cut() { echo "$more" | sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"; }
    tensor=$(cut tensor) pipeline=$(cut pipeline)
    case $1 in *sac | torchtitan*) more=$(echo "$more" | sed 's/torch-sdpa/torch-eager/') ;; esac
    case $dialect:$tensor in
    megatron* | torch:?*)
        [ "$dialect" != megatron ] || more="\"clip\": 1.0, $more"        # its default
        ranks=$((ranks / ${tensor:-1} / ${pipeline:-1})) strategy=ddp dialect=torch
        more=$(echo "$more" | sed 's/, "parallel": {[^}]*}//; s/, "megatron": {[^}]*}//; s/, "unit": "block"//; s/"kernels": "[a-z-]*"/"kernels": "torch-eager"/')
        ;;
    esac
    plan_text
}
