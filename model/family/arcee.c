/* arcee.c -- models/arcee/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(32000, 2560, 18432, 32, 32, 4096), TIED(false),
    KV_HEADS(HF_DERIVED), HEAD_DIM_DERIVED, ACT("hidden_act", ACT_RELU2),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

const struct family arcee_family = {
    .name = "arcee",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_plain_block, .norm = NORM_RMS, .mlp = MLP_PLAIN, .position = POS_ROPE,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ up_proj act_fn down_proj ]" } },
    .attn_dropout = true,
    .block_class = "ArceeDecoderLayer",
    .compiles = true, .megatron = true,
};
