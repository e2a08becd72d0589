/* gptj.c -- models/gptj/ of transformers 5.24.  One norm for both halves, no biases in attention, one in the head; keys come first. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 50400), SET(tied, false),
    INT2("n_embd", "hidden_size", hidden, 4096), INT_NULL("n_inner", ffn, HF_DERIVED),
    INT2("n_layer", "num_hidden_layers", layers, 28), INT2("n_head", "num_attention_heads", heads, 16),
    INT2("n_positions", "max_position_embeddings", context, 2048), INT("rotary_dim", rotary_dim, 64),
    ACT_BY("activation_function", ACT_GELU_TANH, ACT_OF_POWER), SET(qkv_bias, false), SET(out_bias, false), SET(mlp_bias, true),
    RATE("resid_pdrop", dropout, 0), RATE("embd_pdrop", embed_dropout, 0), RATE("attn_pdrop", attn_dropout, 0),
    NORMS("layer_norm_epsilon", 1e-5), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "tie_word_embeddings", "false", "a tied head with a bias of its own is not supported" },
    { 0 }
};

static const struct module_row before[] = {
    { "transformer.wte", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct module_row block[] = {
    { "ln_1",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attn.k_proj",   ROLE_K,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "attn.v_proj",   ROLE_V,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "attn.q_proj",   ROLE_Q,         EXT_Q,      EXT_HIDDEN, ALWAYS },
    { "attn.out_proj", ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "mlp.fc_in",     ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mlp.fc_out",    ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};

const struct family gptj_family = {
    .name = "gptj",
    .keys = keys, .fixed = fixed, .heads_divide = true, .own_head_dim = true,
    .blocks = "transformer.h", .before = before, .after = rows_gpt2_after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_ROPE, .parallel = true, .one_norm = true, .norm_bias = true, .head_bias = true,
    .calls = { { "", "transformer![ wte! drop rotary_emb~ @ ln_f ] lm_head",
          "ln_1 attn![ q_proj k_proj v_proj out_proj resid_dropout ] mlp[ fc_in act fc_out dropout? ]" } },
    .attn_dropout = true, .hidden_dropout = true, .embed_dropout = true, .partial_rotary = true, .rotary_names = true,
    .position_table = true, .wide_scores = true,
    .block_class = "GPTJBlock", .lora_targets = "q_proj,v_proj", .no_kv_heads = true,
};
