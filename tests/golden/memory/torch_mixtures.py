"""Mixtures of experts, for record_torch_memory.py."""
import torch

# What autograd does in place but to fake tensors.
PUTS = {torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
        torch.ops.aten.scatter.src: torch.ops.aten.scatter_.src}

EXPERTS = dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, vocab_size=8192,
               max_position_embeddings=1024)
SMALL = {
    "mixtral": dict(EXPERTS, intermediate_size=768, num_local_experts=8, num_experts_per_tok=2, sliding_window=None),
    "qwen3_moe": dict(EXPERTS, head_dim=64, moe_intermediate_size=256, num_experts=16, num_experts_per_tok=4,
                      norm_topk_prob=True),
    "granitemoe": dict(EXPERTS, intermediate_size=256, num_local_experts=16, num_experts_per_tok=4, tie_word_embeddings=True,
                       residual_multiplier=0.22, attention_multiplier=0.015625, embedding_multiplier=12.0, logits_scaling=6.0),
    "olmoe": dict(EXPERTS, intermediate_size=256, num_experts=16, num_experts_per_tok=4),
}
LATENT = dict(EXPERTS, num_key_value_heads=8, q_lora_rank=192, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64,
              intermediate_size=1536, moe_intermediate_size=256, n_routed_experts=16, num_experts_per_tok=4, n_group=4, topk_group=2,
              n_shared_experts=1)
# Of these there are fewer experts than ranks, as many, and more.
MIXTURES = {name: {"model_type": name, **shape} for name, shape in SMALL.items()}
MIXTURES.update({
    "mixtral-8x7b": dict(model_type="mixtral", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                         num_attention_heads=32, num_key_value_heads=8, vocab_size=32000, num_local_experts=8,
                         num_experts_per_tok=2),
    "olmoe-1b-7b": dict(model_type="olmoe", hidden_size=2048, intermediate_size=1024, num_hidden_layers=16,
                        num_attention_heads=16, num_key_value_heads=16, vocab_size=50304, num_experts=64,
                        num_experts_per_tok=8),
    "qwen3-30b-a3b": dict(model_type="qwen3_moe", hidden_size=2048, moe_intermediate_size=768, num_hidden_layers=48,
                          num_attention_heads=32, num_key_value_heads=4, head_dim=128, vocab_size=151936, num_experts=128,
                          num_experts_per_tok=8, norm_topk_prob=True),
    "deepseek_v3": dict(LATENT, model_type="deepseek_v3", num_hidden_layers=5, first_k_dense_replace=1),
    "deepseek_v3-all": dict(LATENT, model_type="deepseek_v3", first_k_dense_replace=0, q_lora_rank=None, n_shared_experts=2,
                            norm_topk_prob=False),
    "moonlight-16b-a3b": dict(model_type="deepseek_v3", hidden_size=2048, num_hidden_layers=27, num_attention_heads=16,
                              num_key_value_heads=16, vocab_size=163840, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128,
                              qk_rope_head_dim=64, v_head_dim=128, intermediate_size=11264, moe_intermediate_size=1408,
                              n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=2, n_group=1, topk_group=1,
                              first_k_dense_replace=1),
})
MIXTURES["gpt_oss"] = dict(EXPERTS, model_type="gpt_oss", head_dim=64, intermediate_size=256, num_local_experts=16, num_experts_per_tok=4,
                           sliding_window=128)
# Of llama4 every fourth layer has no positions: chunks not reached; experts in every second layer, chunks shorter than the sequence.
LLAMA4 = dict(EXPERTS, model_type="llama4_text", head_dim=64, intermediate_size=256, intermediate_size_mlp=1536, num_local_experts=8)
MIXTURES["llama4"] = LLAMA4
MIXTURES["llama4-second"] = dict(LLAMA4, num_hidden_layers=8, interleave_moe_layer_step=2, use_qk_norm=False, attention_chunk_size=128)
SCOUT = dict(model_type="llama4_text", hidden_size=5120, intermediate_size=8192, intermediate_size_mlp=16384, num_hidden_layers=8,
             num_attention_heads=40, num_key_value_heads=8, head_dim=128, vocab_size=202048, num_local_experts=16,
             max_position_embeddings=10485760)
MIXTURES["llama-4-scout-8-layers"] = SCOUT
MIXTURES["llama-4-maverick-8-layers"] = dict(SCOUT, num_local_experts=128, interleave_moe_layer_step=2, use_qk_norm=False,
                                    max_position_embeddings=1048576)
# GLM-4.5's: DeepSeek-V3's experts beside attention of Llama's kind that rotates half of a head; with norms of q and k, and without.
MIXTURES["glm4_moe"] = dict(EXPERTS, model_type="glm4_moe", head_dim=64, intermediate_size=1536, moe_intermediate_size=256, n_routed_experts=16,
                            num_experts_per_tok=4, n_group=1, topk_group=1, first_k_dense_replace=1, attention_bias=True, use_qk_norm=True)
MIXTURES["glm4_moe-air"] = dict(MIXTURES["glm4_moe"], use_qk_norm=False, first_k_dense_replace=0, n_group=4, topk_group=2, n_shared_experts=2)
MIXTURES["glm-4.5-air"] = dict(model_type="glm4_moe", hidden_size=4096, num_hidden_layers=46, num_attention_heads=96, num_key_value_heads=8, head_dim=128,
                               vocab_size=151552, intermediate_size=10944, moe_intermediate_size=1408, n_routed_experts=128, num_experts_per_tok=8,
                               n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, attention_bias=True)
GLM_CASES = ("glm4_moe", "glm4_moe-air")
# Blocks of two kinds, by turns and behind each other.
for name, kinds in (("qwen3_moe-second", dict(decoder_sparse_step=2, num_hidden_layers=8)), ("qwen3_moe-first", dict(mlp_only_layers=[0, 1], num_hidden_layers=7))):
    MIXTURES[name] = dict(SMALL["qwen3_moe"], model_type="qwen3_moe", intermediate_size=1536, **kinds)
LATENT_CASES = ("deepseek_v3", "deepseek_v3-all")


def take_grouped_products():
    """transformers asks the GPU for its compute capability, which is at least 8.0."""
    import transformers.integrations.moe as moe
    moe._can_use_grouped_mm = lambda *a: True


def expert_cases(plan_of):
    """transformers' grouped products are not under autocast: FSDP2's bf16, and models in bf16."""
    for model in (*SMALL, *LATENT_CASES, *GLM_CASES, "gpt_oss", "llama4", "llama4-second"):
        kernels = {"kernels": "torch-eager"} if model == "gpt_oss" else {}      # whose sinks sdpa has not
        yield plan_of(model, world=4, batch=4, seq=256, **kernels)
        yield plan_of(model, world=4, batch=3, seq=100, kernels="torch-eager")
        yield plan_of(model, world=4, batch=2, seq=256, recompute="full", **kernels)
        yield plan_of(model, world=4, batch=1, seq=64, accumulation=2, reshard=False, **kernels)
        if model in GLM_CASES:          # in bf16 transformers 5.24 keeps the router's weight in fp32 (5.23 did not), which FSDP2 refuses
            continue
        yield plan_of(model, world=8, batch=2, seq=256, model_dtype="bf16", **kernels)
        yield plan_of(model, "ddp", world=2, batch=2, seq=256, reduce_dtype="bf16", **kernels,
                      ddp={"gradient_as_bucket_view": False, "model_dtype": "bf16"})
        yield plan_of(model, "ddp", world=2, batch=2, seq=256, reduce_dtype="bf16", recompute="full", **kernels,
                      ddp={"gradient_as_bucket_view": True, "model_dtype": "bf16"})
    yield plan_of("mixtral-8x7b", world=64, batch=1, seq=4096, recompute="full")
    yield plan_of("mixtral-8x7b", world=64, group=8, batch=1, seq=2048)
    yield plan_of("olmoe-1b-7b", world=64, batch=1, seq=4096)
    yield plan_of("qwen3-30b-a3b", world=64, batch=1, seq=4096)
    yield plan_of("qwen3-30b-a3b", world=32, batch=1, seq=4096, recompute="full")
    yield plan_of("moonlight-16b-a3b", world=64, batch=1, seq=4096)
    yield plan_of("moonlight-16b-a3b", world=32, batch=1, seq=4096, recompute="full")
    yield plan_of("glm-4.5-air", world=64, batch=1, seq=4096)
    yield plan_of("glm-4.5-air", world=64, batch=1, seq=4096, recompute="full")
    yield plan_of("llama-4-scout-8-layers", world=16, batch=1, seq=4096)
    yield plan_of("llama-4-scout-8-layers", world=16, batch=1, seq=16384, recompute="full")
    yield plan_of("llama-4-maverick-8-layers", world=128, batch=1, seq=2048, recompute="full")
    for model in ("qwen3_moe-second", "qwen3_moe-first"):
        yield plan_of(model, world=4, batch=3, seq=100)
        yield plan_of(model, world=4, batch=2, seq=256, recompute="full")
        yield plan_of(model, "ddp", world=2, batch=2, seq=256, reduce_dtype="bf16", recompute="full",
                      ddp={"gradient_as_bucket_view": True, "model_dtype": "bf16"})
    for model in (*SMALL, *LATENT_CASES, *GLM_CASES):           # attention's core
        yield plan_of(model, world=4, batch=3, seq=256, kernels="torch-eager", recompute="selective")


def operator_cases(plan_of):
    """Recompute by operator."""
    for model in (*SMALL, *LATENT_CASES, "glm4_moe-air", "qwen3_moe-second", "qwen3_moe-first"):
        yield plan_of(model, world=4, batch=2, seq=256, recompute="op")
    for model in ("qwen3_moe", "deepseek_v3"):
        yield plan_of(model, world=4, batch=1, seq=64, accumulation=2, reshard=False, recompute="op")
    yield plan_of("qwen3_moe", "ddp", world=2, batch=2, seq=256, reduce_dtype="bf16", recompute="op",
                  ddp={"gradient_as_bucket_view": True, "model_dtype": "bf16"})
    yield plan_of("qwen3-30b-a3b", world=64, batch=1, seq=4096, recompute="op")
    yield plan_of("moonlight-16b-a3b", world=32, batch=1, seq=4096, recompute="op")
