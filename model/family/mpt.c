/* mpt.c -- models/mpt/ of transformers 5.23.  As transformers has it: no positions, no biases. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    INT("vocab_size", vocab, 50368), TIED(true),
    INT2("d_model", "hidden_size", hidden, 2048),
    INT2("n_layers", "num_hidden_layers", layers, 24),
    INT2("n_heads", "num_attention_heads", heads, 16),
    INT("max_seq_len", context, 2048),
    SET(act, ACT_GELU), RATE("resid_pdrop", dropout, 0),
    NORMS("layer_norm_epsilon", 1e-5), LINEAR_BIASES(false), INIT(0.02), END
};
/* MptModel reads none of these: it would silently build another model than the
 * config says. */
static const struct hf_fixed fixed[] = {
    { NULL, "expansion_ratio", "4", "transformers' mpt has no other" },
    { NULL, "no_bias", "true", "transformers' mpt has no biases (built-ins mpt-* have)" },
    { "attn_config", "alibi", "true", "transformers' mpt always uses ALiBi" },
    { "attn_config", "attn_type", "\"multihead_attention\"", "transformers' mpt has no other" },
    { "attn_config", "qk_ln", "false", "transformers' mpt has no such norms" },
    { 0 }
};

static int read_config(const struct hf *c, struct model *m)
{
    struct hf attn;

    if (hf_section(c, "attn_config", &attn) < 0)
        return -1;
    return hf_real(&attn, "attn_pdrop", 0, 0, 1, &m->attn_dropout);
}

/* MptAttentionConfig takes integers only for the dropout: zero is left out. */
static int write_config(const struct model *m, json_t *config)
{
    json_t *attn = json_pack("{s:b}", "alibi", 1);

    if (m->attn_dropout > 0)
        json_object_set_new(attn, "attn_pdrop", json_real(m->attn_dropout));
    return json_object_set_new(config, "attn_config", attn);
}

static const struct module_row before[] = {
    { "transformer.wte", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};
static const struct module_row block[] = {
    { "norm_1",        ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "attn.Wqkv",     ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "attn.out_proj", ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "norm_2",        ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "ffn.up_proj",   ROLE_UP,        EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "ffn.down_proj", ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};
static const struct module_row after[] = {
    { "transformer.norm_f", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",            ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct family mpt_family = {
    .name = "mpt",
    .keys = keys, .fixed = fixed, .heads_divide = true, .own_head_dim = true, .read = read_config, .write = write_config,
    .blocks = "transformer.blocks", .before = before, .after = after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_ALIBI, .fused_qkv = true,
    .calls = { { "", "transformer![ wte! @ norm_f ] lm_head",
          "norm_1 attn[ Wqkv out_proj ] resid_attn_dropout norm_2 ffn[ up_proj act down_proj ]" } },
    .hidden_dropout = true, .biased_scores = true,
    .no_sdpa = "its modelling code has no fused attention",
    .block_class = "MptBlock", .lora_targets = "Wqkv",
    .no_kv_heads = true,
};
