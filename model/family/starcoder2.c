/* starcoder2.c -- models/starcoder2/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(49152, 3072, 12288, 30, 24, 4096), TIED(true),
    INT("num_key_value_heads", kv_heads, 2), WINDOW(HF_DERIVED),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_GELU_TANH),
    BOOL("use_bias", qkv_bias, true), BOOL("use_bias", out_bias, true),
    BOOL("use_bias", mlp_bias, true), ATTN_DROPOUT,
    RATE("residual_dropout", dropout, 0), RATE("embedding_dropout", embed_dropout, 0),
    NORMS("norm_epsilon", 1e-5), INIT(0.018042), END
};

static const struct module_row block[] = {
    { "self_attn.q_proj",         ROLE_Q,         EXT_Q,      EXT_HIDDEN, ALWAYS },
    { "self_attn.k_proj",         ROLE_K,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj",         ROLE_V,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.o_proj",         ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "mlp.c_fc",                 ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.c_proj",               ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "input_layernorm",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "post_attention_layernorm", ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { 0 }
};

const struct family starcoder2_family = {
    .name = "starcoder2",
    .keys = keys, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE, .norm_bias = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ c_fc act c_proj dropout%? ]" } },
    .attn_dropout = true, .hidden_dropout = true, .embed_dropout = true,
    .block_class = "Starcoder2DecoderLayer",
    .compiles = true, .megatron = true,
};
