/* seed_oss.c -- models/seed_oss/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(155136, 4096, 27648, 64, 80, 524288), TIED(false),
    KV_HEADS(8),
    INT_NULL("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    BOOL("attention_bias", qkv_bias, true), BOOL("attention_out_bias", out_bias, false),
    BOOL("mlp_bias", mlp_bias, false),
    RATE("residual_dropout", dropout, 0.1), RATE("attention_dropout", attn_dropout, 0.1),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

const struct family seed_oss_family = {
    .name = "seed_oss",
    .keys = keys, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ gate_proj act_fn "
          "up_proj down_proj dropout%? ]" } },
    .attn_dropout = true, .hidden_dropout = true,
    .block_class = "SeedOssDecoderLayer",
    .compiles = true, .titan_tensor = true, .not_run = "seed_oss's dropout behind attention and MLP",
};
