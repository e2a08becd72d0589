/* bloom.c -- models/bloom/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 250880), TIED(true),
    INT2("hidden_size", "n_embed", hidden, 64),
    INT2("n_layer", "num_hidden_layers", layers, 2),
    INT2("n_head", "num_attention_heads", heads, 8),
    /* ALiBi has no longest sequence; BLOOM states the one it was trained with. */
    INT("seq_length", context, 2048),
    SET(act, ACT_GELU_TANH),
    RATE("hidden_dropout", dropout, 0), RATE("attention_dropout", attn_dropout, 0),
    NORMS("layer_norm_epsilon", 1e-5), LINEAR_BIASES(true), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "apply_residual_connection_post_layernorm", "false", "it is not supported" },
    { 0 }
};

static const struct module_row before[] = {
    { "transformer.word_embeddings", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { "transformer.word_embeddings_layernorm", ROLE_EMBED_NORM, EXT_HIDDEN, EXT_NONE, ALWAYS },
    { 0 }
};
static const struct module_row block[] = {
    { "input_layernorm",                ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "self_attention.query_key_value", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "self_attention.dense",           ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "post_attention_layernorm",       ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "mlp.dense_h_to_4h",              ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.dense_4h_to_h",              ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};

const struct family bloom_family = {
    .name = "bloom",
    .keys = keys, .fixed = fixed, .heads_divide = true, .own_head_dim = true,
    .blocks = "transformer.h", .before = before, .after = rows_gpt2_after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_ALIBI, .fused_qkv = true, .qkv_grouped = true, .norm_bias = true,
    .calls = { { "", "transformer![ word_embeddings! word_embeddings_layernorm @ ln_f ] lm_head",
          "input_layernorm self_attention[ query_key_value attention_dropout dense ] post_attention_layernorm mlp[ "
          "dense_h_to_4h gelu_impl dense_4h_to_h dropout%? ]" } },
    .hidden_dropout = true, .gelu_function = true,
    .no_sdpa = "its modelling code has no fused attention",
    .block_class = "BloomBlock", .lora_targets = "query_key_value",
    .no_kv_heads = true,
};
