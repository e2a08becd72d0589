/* jais2.c -- models/jais2/ of transformers 5.24: llama's attention, Nemotron's MLP, nn.LayerNorm, biases. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(150272, 3328, 26624, 32, 26, 8192), TIED(false),
    KV_HEADS(HF_DERIVED), HEAD_DIM_DERIVED, ACT("hidden_act", ACT_RELU2),
    BOOL("attention_bias", qkv_bias, true), BOOL("attention_bias", out_bias, true), BOOL("mlp_bias", mlp_bias, true), ATTN_DROPOUT,
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), END
};

const struct family jais2_family = {
    .name = "jais2",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_plain_block, .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE, .norm_bias = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ up_proj act_fn down_proj ]" } },
    .attn_dropout = true,
    .block_class = "Jais2DecoderLayer",
};
