/* mixtral.c -- models/mixtral/ of transformers 5.23.  Experts in every block. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(32000, 4096, 32, 32, 131072), TIED(false), INT("intermediate_size", expert_ffn, 14336),
    INT2("num_local_experts", "num_experts", experts, 8), INT("num_experts_per_tok", experts_used, 2), SET(topk_norm, true),
    KV_HEADS(8), WINDOW(HF_DERIVED), HEAD_DIM_DERIVED,
    SET(qkv_bias, false), SET(out_bias, false), NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static const struct module_row block[] = { ATTENTION, ROUTER("mlp.gate"), EXPERTS("mlp.experts"), TWO_NORMS, { 0 } };

const struct family mixtral_family = {
    .name = "mixtral",
    .keys = keys, .experts = true, .theta_key = "rope_theta", .theta = 1e6,
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE,
    .calls = { { "", LLAMA_OUTER, "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp^" },
               { "+autoep", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ router[ gate ] "
          "experts combine%$ ]" },
               { "+autoep-0.19.6", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ router[ gate gate~ "
          "] experts combine%$ ]" } },
    .attn_dropout = true, .routes_fp32 = true,
    .block_class = "MixtralDecoderLayer", .peft_experts = { "gate", "w1", "w3", "w2" }, .lora_mixture = true,
    /* LigerExperts: LigerFusedMoEFunction */
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_OTHER, .in_place = true, .factory = true },
    .autoep = true, .megatron = true,
};
