/* gpt_neox.c -- models/gpt_neox/ of transformers 5.23.  Both norms are registered before the layers that they feed. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 50432), TIED(false),
    INT("hidden_size", hidden, 6144), INT("intermediate_size", ffn, 24576),
    INT("num_hidden_layers", layers, 44), INT("num_attention_heads", heads, 64),
    INT("max_position_embeddings", context, 2048),
    ACT("hidden_act", ACT_GELU), BOOL("use_parallel_residual", parallel, true),
    RATE("hidden_dropout", dropout, 0), RATE("hidden_dropout", embed_dropout, 0),
    RATE("attention_dropout", attn_dropout, 0),
    BOOL("attention_bias", qkv_bias, true), BOOL("attention_bias", out_bias, true),
    SET(mlp_bias, true), NORMS("layer_norm_eps", 1e-5), INIT(0.02), END
};

static const struct module_row before[] = {
    { "gpt_neox.embed_in", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct module_row block[] = {
    { "input_layernorm",           ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "post_attention_layernorm",  ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attention.query_key_value", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "attention.dense",           ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "mlp.dense_h_to_4h",         ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.dense_4h_to_h",         ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};
static const struct module_row after[] = {
    { "gpt_neox.final_layer_norm", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",                   ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct family gpt_neox_family = {
    .name = "gpt_neox",
    .keys = keys, .heads_divide = true, .theta_key = "rotary_emb_base", .partial_key = "rotary_pct", .partial = 0.25,
    .blocks = "gpt_neox.layers", .before = before, .after = after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_ROPE, .fused_qkv = true, .qkv_grouped = true, .norm_bias = true,
    .calls = { { "", "gpt_neox![ embed_in! emb_dropout rotary_emb~ @ final_layer_norm ] lm_head",
          "input_layernorm attention[ query_key_value dense ] post_attention_dropout post_attention_layernorm mlp[ "
          "dense_h_to_4h act dense_4h_to_h ] post_mlp_dropout?" } },
    .hidden_dropout = true, .embed_dropout = true, .partial_rotary = true,
    .block_class = "GPTNeoXLayer", .lora_targets = "query_key_value",
    .no_kv_heads = true,
};
