/* glm.c -- models/glm/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(151552, 4096, 13696, 40, 32, 131072), TIED(false),
    INT("num_key_value_heads", kv_heads, 2), INT("head_dim", head_dim, 128),
    ACT("hidden_act", ACT_SILU), BOOL("attention_bias", qkv_bias, true), SET(out_bias, false),
    SET(mlp_bias, false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1.5625e-7), INIT(0.02), END
};

static const struct module_row block[] = { ATTENTION, FUSED_MLP, TWO_NORMS, { 0 } };

const struct family glm_family = {
    .name = "glm",
    .keys = keys, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 0.5,
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE, .fused_gate_up = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ gate_up_proj "
          "activation_fn down_proj ]" } },
    .attn_dropout = true, .partial_rotary = true, .rotary_interleaved = true,
    .block_class = "GlmDecoderLayer",
};
