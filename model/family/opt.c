/* opt.c -- models/opt/ of transformers 5.23.  The final norm is registered before the blocks, project_out before project_in; k,
 * v, q in this order.  The norms are nn.LayerNorm with
 * its default epsilon; OPTLearnedPositionalEmbedding begins at position 2. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 50272), TIED(true),
    INT("hidden_size", hidden, 768), INT("ffn_dim", ffn, 3072),
    INT("num_hidden_layers", layers, 12), INT("num_attention_heads", heads, 12),
    INT("max_position_embeddings", context, 2048),
    ACT("activation_function", ACT_RELU),
    RATE("dropout", dropout, 0.1), RATE("attention_dropout", attn_dropout, 0),
    BOOL("enable_bias", qkv_bias, true), BOOL("enable_bias", out_bias, true),
    BOOL("enable_bias", mlp_bias, true),
    BOOL("layer_norm_elementwise_affine", norm_weight, true),
    INT_NULL("word_embed_proj_dim", token_width, HF_DERIVED),
    SET(norm_eps, 1e-5), REAL("init_std", init_std, 0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "_remove_final_layer_norm", "false", "a model without final norm is not supported" },
    { 0 }
};

static int read_config(const struct hf *c, struct model *m)
{
    bool before;

    if (hf_bool(c, "do_layer_norm_before", true, &before) < 0)
        return -1;
    m->norm_place = before ? NORM_FIRST : NORM_OF_SUM;
    return 0;
}

static int write_config(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "do_layer_norm_before", json_boolean(m->norm_place == NORM_FIRST));
}

static const struct module_row before[] = {
    { "model.decoder.embed_tokens",     ROLE_TOKENS,      EXT_VOCAB,     EXT_TOKEN,  ALWAYS },
    { "model.decoder.embed_positions",  ROLE_POSITIONS,   EXT_POSITIONS, EXT_HIDDEN, ALWAYS },
    { "model.decoder.project_out",      ROLE_PROJECT_OUT, EXT_TOKEN,     EXT_HIDDEN, IF_PROJECTED },
    { "model.decoder.project_in",       ROLE_PROJECT_IN,  EXT_HIDDEN,    EXT_TOKEN,  IF_PROJECTED },
    { "model.decoder.final_layer_norm", ROLE_NORM_FINAL,  EXT_HIDDEN,    EXT_NONE,   IF_NORM_FIRST },
    { 0 }
};
static const struct module_row block[] = {
    { "self_attn.k_proj",     ROLE_K,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj",     ROLE_V,         EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "self_attn.q_proj",     ROLE_Q,         EXT_Q,      EXT_HIDDEN, ALWAYS },
    { "self_attn.out_proj",   ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "self_attn_layer_norm", ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "fc1",                  ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "fc2",                  ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "final_layer_norm",     ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { 0 }
};
static const struct module_row after[] = {
    { "lm_head", ROLE_HEAD, EXT_VOCAB, EXT_TOKEN, IF_UNTIED },
    { 0 }
};

#define OUTER "model.decoder![ embed_tokens! embed_positions! project_in* @ final_layer_norm* project_out* ] lm_head"
const struct family opt_family = {
    .name = "opt",
    .keys = keys, .fixed = fixed, .heads_divide = true, .own_head_dim = true, .read = read_config, .write = write_config,
    .blocks = "model.decoder.layers", .before = before, .after = after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_LEARNED, .extra_positions = 2, .norm_bias = true,
    .calls = { { "", OUTER,
          "self_attn_layer_norm self_attn![ q_proj k_proj v_proj out_proj ] final_layer_norm fc1 activation_fn fc2 dropout%?" },
               { "+sums", OUTER,
          "self_attn![ q_proj k_proj v_proj out_proj ] self_attn_layer_norm fc1 activation_fn fc2 final_layer_norm" } },
    .hidden_dropout = true, .scaled_query = true, .positions_per_row = true,
    .block_class = "OPTDecoderLayer", .lora_targets = "q_proj,v_proj",
    .no_kv_heads = true,
};
