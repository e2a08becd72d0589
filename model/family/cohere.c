/* cohere.c -- models/cohere/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(256000, 8192, 22528, 40, 64, 8192), TIED(true),
    KV_HEADS(HF_DERIVED), ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT, REAL("logit_scale", logit_scale, 0.0625),
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), HEAD_DIM, BOOL("use_qk_norm", qk_norm, false), END
};

const struct family cohere_family = {
    .name = "cohere",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_cohere_block, .norm = NORM_LAYER, .mlp = MLP_GATED, .position = POS_ROPE, .parallel = true,
    .one_norm = true,
    .calls = { { "", LLAMA_OUTER, "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] " LLAMA_MLP },
               { "+qk", LLAMA_OUTER, "input_layernorm self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] " LLAMA_MLP } },
    .attn_dropout = true, .centred_by_hand = true, .rotary_upcast = true, .scaled_logits = true,
    .block_class = "CohereDecoderLayer",
};
