/* hunyuan_v1_dense.c -- models/hunyuan_v1_dense/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(290943, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_HEADS(HF_DERIVED), HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static const struct module_row block[] = {
    ATTENTION,
    { "self_attn.query_layernorm", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    { "self_attn.key_layernorm",   ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    GATED_MLP, TWO_NORMS,
    { 0 }
};

const struct family hunyuan_v1_dense_family = {
    .name = "hunyuan_v1_dense",
    .keys = keys, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE, .qk_norm = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj query_layernorm key_layernorm o_proj ] "
          "post_attention_layernorm " LLAMA_MLP } },
    .attn_dropout = true, .qk_norm_rotated = true,
    .block_class = "HunYuanDenseV1DecoderLayer",
    /* likewise, behind the rotation */
    .liger = { .known = true, .rope = LIGER_OTHER, .norm = LIGER_OTHER, .glu = LIGER_HAS, .in_place = true },
    .compiles = true,
};
