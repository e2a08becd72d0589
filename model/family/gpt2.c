/* gpt2.c -- models/gpt2/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 50257), TIED(true),
    INT2("n_embd", "hidden_size", hidden, 768),
    INT2("n_layer", "num_hidden_layers", layers, 12),
    INT2("n_head", "num_attention_heads", heads, 12),
    INT2("n_positions", "max_position_embeddings", context, 1024),
    INT_NULL("n_inner", ffn, HF_DERIVED),
    ACT_BY("activation_function", ACT_GELU_TANH, ACT_OF_POWER),
    RATE("resid_pdrop", dropout, 0.1), RATE("embd_pdrop", embed_dropout, 0.1),
    RATE("attn_pdrop", attn_dropout, 0.1),
    NORMS("layer_norm_epsilon", 1e-5), LINEAR_BIASES(true), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "add_cross_attention", "false", "cross-attention is not supported" },
    { NULL, "scale_attn_weights", "true", "unscaled attention is not supported" },
    { NULL, "scale_attn_by_inverse_layer_idx", "false", "it is not supported" },
    { 0 }
};

static const struct module_row before[] = {
    { "transformer.wte", ROLE_TOKENS,    EXT_VOCAB,     EXT_HIDDEN, ALWAYS },
    { "transformer.wpe", ROLE_POSITIONS, EXT_POSITIONS, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct module_row block[] = {
    { "ln_1",        ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attn.c_attn", ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "attn.c_proj", ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "ln_2",        ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "mlp.c_fc",    ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.c_proj",  ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};

const struct family gpt2_family = {
    .name = "gpt2",
    .keys = keys, .fixed = fixed, .heads_divide = true, .own_head_dim = true,
    .blocks = "transformer.h", .before = before, .after = rows_gpt2_after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_LEARNED, .in_out = true, .fused_qkv = true, .norm_bias = true,
    .calls = { { "", "transformer![ wte! wpe! drop @ ln_f ] lm_head",
          "ln_1 attn[ c_attn c_proj resid_dropout ] ln_2 mlp[ c_fc act c_proj dropout? ]" } },
    .conv1d = true, .keeps_names = true, .low_softmax = true, .attn_dropout = true, .hidden_dropout = true, .embed_dropout = true,
    .block_class = "GPT2Block", .lora_targets = "c_attn",
    .no_kv_heads = true, .megatron = true, .residual_init = true,
};
