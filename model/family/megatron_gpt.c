/* megatron_gpt.c -- GPTModel of megatron-core 0.16.1 where no family of transformers has its blocks: learned positions beside SwiGLU, linear layers
 * without biases, norms of q and k or RMSNorm; or rotary ones beside LayerNorm and SwiGLU (core/models/gpt/gpt_layer_specs.py,
 * core/transformer/mlp.py).  The keys are TransformerConfig's fields and GPTModel's arguments.  Megatron-LM alone trains it (megatron_only). */
#include "model/family/rows.h"

#include <string.h>

static const struct hf_key keys[] = {
    SHAPE(50257, 768, HF_DERIVED, 12, 12, 1024), TIED(true),
    KV_HEADS(HF_DERIVED), HEAD_DIM_DERIVED, ACT("hidden_act", ACT_GELU),
    BOOL("add_bias_linear", qkv_bias, true), BOOL("add_bias_linear", out_bias, true), BOOL("add_bias_linear", mlp_bias, true),
    BOOL("qk_layernorm", qk_norm, false), RATE("attention_dropout", attn_dropout, 0.1), RATE("hidden_dropout", dropout, 0.1),
    RATE("hidden_dropout", embed_dropout, 0.1), NORMS("norm_epsilon", 1e-5), INIT(0.02), END
};

/* One of two words; the first is the default. */
static int read_word(const struct hf *c, const char *key, const char *usual, const char *other, bool *is_other)
{
    char wanted[64];
    const char *word;

    if (hf_string(c, key, usual, &word) < 0)
        return -1;
    *is_other = !strcmp(word, other);
    snprintf(wanted, sizeof wanted, "\"%s\" or \"%s\"", usual, other);
    return *is_other || !strcmp(word, usual) ? 0 : hf_refuse(c, key, wanted);
}

static int read_config(const struct hf *c, struct model *m)
{
    bool gated, rms, rope;

    if (read_word(c, "normalization", "LayerNorm", "RMSNorm", &rms) < 0 || read_word(c, "position_embedding_type", "learned_absolute", "rope", &rope) < 0)
        return -1;
    if (hf_bool(c, "gated_linear_unit", false, &gated) < 0)
        return -1;
    if (gated != (m->act == ACT_SILU))
        return hf_refuse(c, "gated_linear_unit", "true with \"hidden_act\" silu (SwiGLU), false with another");
    m->mlp = gated ? MLP_GATED : MLP_PLAIN;
    m->norm = rms ? NORM_RMS : NORM_LAYER;
    m->norm_bias = m->qk_norm_bias = !rms;
    m->position = rope ? POS_ROPE : POS_LEARNED;
    return 0;
}

static int write_config(const struct model *m, json_t *config)
{
    json_object_set_new(config, "normalization", json_string(m->norm == NORM_RMS ? "RMSNorm" : "LayerNorm"));
    json_object_set_new(config, "position_embedding_type", json_string(m->position == POS_ROPE ? "rope" : "learned_absolute"));
    return json_object_set_new(config, "gated_linear_unit", json_boolean(m->mlp == MLP_GATED));
}

static const struct module_row before[] = {
    { "embedding.word_embeddings",     ROLE_TOKENS,    EXT_VOCAB,     EXT_HIDDEN, ALWAYS },
    { "embedding.position_embeddings", ROLE_POSITIONS, EXT_POSITIONS, EXT_HIDDEN, IF_LEARNED },
    { 0 }
};
static const struct module_row block[] = {
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS),
    { "self_attention.linear_proj", ROLE_ATTN_OUT, EXT_HIDDEN,   EXT_Q,      ALWAYS },
    { "self_attention.linear_qkv",  ROLE_QKV,      EXT_QKV,      EXT_HIDDEN, ALWAYS },
    { "self_attention.q_layernorm", ROLE_Q_NORM,   EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "self_attention.k_layernorm", ROLE_K_NORM,   EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    NORM("pre_mlp_layernorm", ROLE_NORM_MLP, ALWAYS),
    { "mlp.linear_fc1", ROLE_UP,      EXT_FFN,    EXT_HIDDEN, IF_PLAIN },
    { "mlp.linear_fc1", ROLE_GATE_UP, EXT_2FFN,   EXT_HIDDEN, IF_GATED },
    { "mlp.linear_fc2", ROLE_DOWN,    EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};
static const struct module_row after[] = {
    NORM("decoder.final_layernorm", ROLE_NORM_FINAL, ALWAYS),
    { "output_layer", ROLE_HEAD, EXT_VOCAB, EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct family megatron_gpt_family = {
    .name = "megatron_gpt",
    .keys = keys, .theta_key = "rotary_base", .partial_key = "rotary_percent", .partial = 1,
    .own_keys = { "normalization", "gated_linear_unit", "add_bias_linear", "rotary_percent" }, .read = read_config, .write = write_config,
    .blocks = "decoder.layers", .before = before, .block = block, .after = after, .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_LEARNED,
    .fused_qkv = true, .fused_gate_up = true, .qkv_grouped = true, .qk_norm_bias = true, .norm_bias = true,
    .attn_dropout = true, .hidden_dropout = true, .embed_dropout = true,
    .megatron = true, .megatron_only = true, .residual_init = true, .not_run = "blocks of Megatron-LM's own (megatron_gpt)",
};
