/* olmo2.c -- models/olmo2/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(50304, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_HEADS(HF_DERIVED), HEAD_DIM, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

const struct family olmo2_family = {
    .name = "olmo2",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_olmo2_block, GATED_RMS_ROPE, .qk_norm = true, .norm_place = NORM_BEHIND,
    .calls = { { "", LLAMA_OUTER,
          "self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm " LLAMA_MLP " "
          "post_feedforward_layernorm" } },
    .attn_dropout = true, .fp32_weight = true, .rotary_fp32 = true, .qk_norm_first = true, .qk_norm_whole = true,
    .block_class = "Olmo2DecoderLayer",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .factory = true },
    .compiles = true,
};
