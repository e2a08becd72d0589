/* nemotron_h.c -- models/nemotron_h/ of transformers 5.24: blocks of one mixer each, Mamba-2, attention without positions, an MLP, or experts.  Configs
 * say which as "hybrid_override_pattern" or, by its words, "layers_block_type". */
#include "model/family/rows.h"

#include <stdio.h>
#include <string.h>

static const struct hf_key keys[] = {
    HEADS(131072, 4096, 52, 32, 4096), INT("intermediate_size", ffn, 21504), SET(tied, false),         /* _tied_weights_keys is empty */
    KV_HEADS(8), INT2("head_dim", "attention_head_dim", head_dim, 128), ACT("mlp_hidden_act", ACT_RELU2),
    SET(qkv_bias, false), SET(out_bias, false), BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,     /* attention_bias is not read */
    INT2("mamba_num_heads", NULL, ssm_heads, 128), INT("mamba_head_dim", ssm_head_dim, 64), INT2("n_groups", "mamba_n_groups", ssm_groups, 8),
    INT("ssm_state_size", ssm_state, 128), INT2("conv_kernel", "mamba_d_conv", ssm_conv, 4), INT2("chunk_size", "mamba_chunk_size", ssm_chunk, 128),
    BOOL("use_conv_bias", ssm_conv_bias, true),
    NORMS("layer_norm_epsilon", 1e-5), INIT(0.02), END
};

static const struct hf_fixed fixed[] = {
    { NULL, "use_bias", "false", "biases of Mamba-2's projections are not planned" },
    { NULL, "mamba_hidden_act", "\"silu\"", "Mamba-2's kernels know no other" },
    { 0 }
};

/* transformers' words for a pattern's letters, and those of configs before it. */
static const struct { const char *word; char letter; } words[] = {
    { "linear_attention", 'M' }, { "full_attention", '*' }, { "mlp", '-' }, { "moe", 'E' }, { "mamba", 'M' }, { "attention", '*' },
};

static char letter_of(const json_t *word)
{
    for (size_t i = 0; json_is_string(word) && i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].word, json_string_value(word)))
            return words[i].letter;
    return '?';
}

/* The key that says the kinds of layers, as NemotronHConfig.__post_init__() takes them, and the pattern; NULL: none does. */
static const char *pattern_of(const struct hf *c, char pattern[HYBRID_BLOCKS + 2])
{
    static const char *const keys_of[] = { "layers_block_type", "layer_types", "hybrid_override_pattern" };
    const char *key = NULL;
    size_t n = 0;

    for (size_t i = 0; i < 3 && !key; i++)
        key = hf_given(c, keys_of[i]) ? keys_of[i] : NULL;
    const json_t *says = key ? json_object_get(c->root, key) : NULL;
    if (json_is_string(says))
        snprintf(pattern, HYBRID_BLOCKS + 2, "%s", json_string_value(says));
    else
        for (; n < json_array_size(says) && n <= HYBRID_BLOCKS; n++)
            pattern[n] = letter_of(json_array_get(says, n));
    if (!json_is_string(says))
        pattern[n] = '\0';
    return key;
}

static int check_sizes(const struct hf *c, const struct model *m)
{
    enum { MOST = 1 << 16 };

    if (m->ssm_heads % m->ssm_groups)
        return hf_refuse(c, "mamba_num_heads", "a multiple of n_groups");
    if (m->ssm_heads > MOST || m->ssm_head_dim > MOST || m->ssm_state > MOST || m->ssm_chunk > MOST || m->ssm_conv > MOST)
        return hf_refuse(c, "mamba_num_heads", "at most 65536, as are the other sizes of Mamba-2 mixers");
    return 0;
}

/* A config has these keys whether or not a layer has experts. */
static int read_experts(const struct hf *c, struct model *m)
{
    if (hf_given(c, "moe_latent_size"))
        return hf_refuse(c, "moe_latent_size", "absent: experts of fewer dimensions than the hidden states are not planned yet");
    m->topk_norm = true;
    return hf_int(c, "n_routed_experts", 8, MODEL_MAX_DIM, &m->experts) < 0 || hf_int(c, "num_experts_per_tok", 2, MODEL_MAX_DIM, &m->experts_used) < 0 ||
           hf_int(c, "moe_intermediate_size", 7688, MODEL_MAX_DIM, &m->expert_ffn) < 0 ||
           hf_int(c, "moe_shared_expert_intermediate_size", 7688, MODEL_MAX_DIM, &m->shared_ffn) < 0 ||
           hf_int(c, "n_group", 1, MODEL_MAX_LAYERS, &m->route_groups) < 0 || hf_int(c, "topk_group", 1, MODEL_MAX_LAYERS, &m->route_best) < 0 ||
           hf_real(c, "routed_scaling_factor", 1, 0, 0, &m->route_scale) < 0 || hf_bool(c, "norm_topk_prob", true, &m->topk_norm) < 0 ? -1 : 0;
}

static int write_experts(const struct model *m, json_t *config)
{
    const struct { const char *key; int64_t value; } of[] = {
        { "n_routed_experts", m->experts }, { "num_experts_per_tok", m->experts_used }, { "moe_intermediate_size", m->expert_ffn },
        { "moe_shared_expert_intermediate_size", m->shared_ffn }, { "n_group", m->route_groups }, { "topk_group", m->route_best },
    };
    int rc = json_object_set_new(config, "routed_scaling_factor", json_real(m->route_scale)) | json_object_set_new(config, "norm_topk_prob", json_boolean(m->topk_norm));

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        rc |= json_object_set_new(config, of[i].key, json_integer(of[i].value));
    return rc;
}

static int read_config(const struct hf *c, struct model *m)
{
    char pattern[HYBRID_BLOCKS + 2], other = 0;
    const char *key = pattern_of(c, pattern);

    if (!key)
        return hf_refuse(c, "hybrid_override_pattern", "there: the kind of each layer, M (Mamba-2), * (attention) or - (MLP)");
    m->hybrid = hybrid_of_pattern(pattern, &other);
    if (!m->hybrid || m->hybrid->n == 0)
        return hf_refuse(c, key, "a pattern of M (Mamba-2), * (attention), - (MLP) and E (experts), or a list of transformers' words for them, of 1 to 512 layers");
    if (hf_given(c, "num_hidden_layers") && m->layers != m->hybrid->n)
        return hf_refuse(c, "num_hidden_layers", "as many as the pattern has layers");
    m->layers = m->hybrid->n;
    if (hybrid_blocks(m, BLOCK_EXPERTS) > 0 && read_experts(c, m) < 0)
        return -1;
    return check_sizes(c, m);
}

static int write_config(const struct model *m, json_t *config)
{
    char pattern[HYBRID_BLOCKS + 1] = "";

    for (int64_t b = 0; b < m->layers; b++)
        pattern[b] = hybrid_letter(hybrid_kind(m, b));
    return json_object_set_new(config, "hybrid_override_pattern", json_string(pattern)) | (m->experts > 0 ? write_experts(m, config) : 0);
}

#define BLOCK_NORM(role) NORM("norm", role, ALWAYS)

static const struct module_row before[] = { { "model.embeddings", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS }, { 0 } };

static const struct module_row mamba[] = {
    BLOCK_NORM(ROLE_NORM_ATTN),
    { "mixer:dt_bias",  ROLE_SSM_DT,   EXT_SSM_HEADS, EXT_NONE,     ALWAYS },
    { "mixer:A_log",    ROLE_SSM_A,    EXT_SSM_HEADS, EXT_NONE,     ALWAYS },
    { "mixer:D",        ROLE_SSM_D,    EXT_SSM_HEADS, EXT_NONE,     ALWAYS },
    { "mixer.conv1d",   ROLE_SSM_CONV, EXT_SSM_CONV,  EXT_SSM_TAPS, ALWAYS },
    { "mixer.in_proj",  ROLE_SSM_IN,   EXT_SSM_IN,    EXT_HIDDEN,   ALWAYS },
    { "mixer.norm",     ROLE_SSM_NORM, EXT_SSM_INNER, EXT_NONE,     ALWAYS },
    { "mixer.out_proj", ROLE_SSM_OUT,  EXT_HIDDEN,    EXT_SSM_INNER, ALWAYS },
    { 0 }
};

static const struct module_row attention[] = {
    BLOCK_NORM(ROLE_NORM_ATTN),
    { "mixer.q_proj", ROLE_Q,        EXT_Q,      EXT_HIDDEN, ALWAYS },
    { "mixer.k_proj", ROLE_K,        EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "mixer.v_proj", ROLE_V,        EXT_KV,     EXT_HIDDEN, ALWAYS },
    { "mixer.o_proj", ROLE_ATTN_OUT, EXT_HIDDEN, EXT_Q,      ALWAYS },
    { 0 }
};

static const struct module_row feed_forward[] = {
    BLOCK_NORM(ROLE_NORM_MLP),
    { "mixer.up_proj",   ROLE_UP,   EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "mixer.down_proj", ROLE_DOWN, EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { 0 }
};

static const struct module_row mixture[] = {
    BLOCK_NORM(ROLE_NORM_MLP),
    { "mixer.experts:up_proj",           ROLE_EXPERTS_IN,  EXT_EXPERT_FFN, EXT_HIDDEN,     ALWAYS },
    { "mixer.experts:down_proj",         ROLE_EXPERTS_OUT, EXT_HIDDEN,     EXT_EXPERT_FFN, ALWAYS },
    ROUTER("mixer.gate"),
    { "mixer.shared_experts.up_proj",    ROLE_SHARED_UP,   EXT_SHARED_FFN, EXT_HIDDEN,     ALWAYS },
    { "mixer.shared_experts.down_proj",  ROLE_SHARED_DOWN, EXT_HIDDEN,     EXT_SHARED_FFN, ALWAYS },
    { 0 }
};

static const struct module_row after[] = {
    { "model.norm_f", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",      ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct family nemotron_h_family = {
    .name = "nemotron_h",
    .keys = keys, .fixed = fixed, .read = read_config, .write = write_config,
    .blocks = "model.layers", .before = before, .kinds = { mamba, attention, feed_forward, mixture }, .after = after,
    .norm = NORM_RMS, .mlp = MLP_PLAIN, .position = POS_NONE,
    .attn_dropout = true, .float_logits = true, .fp32_weight = true, .cast_weight = true,
    .block_class = "NemotronHBlock",
    .megatron = true, .not_run = "Mamba-2 mixers",
};
