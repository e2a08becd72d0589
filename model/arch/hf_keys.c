/* Defaults are those of the configuration_<family>.py of transformers 5.23. */
#include "model/arch/hf_key_rows.h"

#include <string.h>

static const struct hf_key gpt2_keys[] = {
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
static const struct hf_fixed gpt2_fixed[] = {
    { NULL, "add_cross_attention", "false", "cross-attention is not supported" },
    { NULL, "scale_attn_weights", "true", "unscaled attention is not supported" },
    { NULL, "scale_attn_by_inverse_layer_idx", "false", "it is not supported" },
    { 0 }
};

static const struct hf_key neox_keys[] = {
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

/* OPT's norms are nn.LayerNorm with its default epsilon. */
static const struct hf_key opt_keys[] = {
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
static const struct hf_fixed opt_fixed[] = {
    { NULL, "_remove_final_layer_norm", "false", "a model without final norm is not supported" },
    { 0 }
};

static const struct hf_key bloom_keys[] = {
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
static const struct hf_fixed bloom_fixed[] = {
    { NULL, "apply_residual_connection_post_layernorm", "false", "it is not supported" },
    { 0 }
};

static const struct hf_key mpt_keys[] = {
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
static const struct hf_fixed mpt_fixed[] = {
    { NULL, "expansion_ratio", "4", "transformers' mpt has no other" },
    { NULL, "no_bias", "true", "transformers' mpt has no biases (built-ins mpt-* have)" },
    { "attn_config", "alibi", "true", "transformers' mpt always uses ALiBi" },
    { "attn_config", "attn_type", "\"multihead_attention\"", "transformers' mpt has no other" },
    { "attn_config", "qk_ln", "false", "transformers' mpt has no such norms" },
    { 0 }
};

static const struct hf_key llama_keys[] = {
    LLAMA_LIKE(32000, 4096, 11008, 32, 32, 2048), TIED(false),
    INT_NULL("num_key_value_heads", kv_heads, HF_DERIVED),
    INT_NULL("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_key mistral_keys[] = {
    LLAMA_LIKE(32000, 4096, 14336, 32, 32, 131072), TIED(false),
    INT("num_key_value_heads", kv_heads, 8), WINDOW(4096),
    INT_NULL("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_key qwen2_keys[] = {
    LLAMA_LIKE(151936, 4096, 22016, 32, 32, 32768), TIED(false),
    INT_NULL("num_key_value_heads", kv_heads, 32),
    INT_NULL("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_SILU),
    SET(qkv_bias, true), SET(out_bias, false), SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_key qwen3_keys[] = {
    LLAMA_LIKE(151936, 4096, 22016, 32, 32, 32768), TIED(false),
    INT_NULL("num_key_value_heads", kv_heads, 32),
    INT("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_key gemma_keys[] = {
    LLAMA_LIKE(256000, 3072, 24576, 28, 16, 8192), TIED(true),
    INT("num_key_value_heads", kv_heads, 16),
    INT("head_dim", head_dim, 256), ACT("hidden_act", ACT_GELU_TANH),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_key gemma2_keys[] = {
    LLAMA_LIKE(256000, 2304, 9216, 26, 8, 8192), TIED(true),
    INT("num_key_value_heads", kv_heads, 4),
    INT("head_dim", head_dim, 256), ACT("hidden_activation", ACT_GELU_TANH),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    INT("query_pre_attn_scalar", attn_scalar, 256),
    REAL("final_logit_softcapping", softcap, 30), REAL("attn_logit_softcapping", attn_softcap, 50),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed gemma_fixed[] = {
    { NULL, "use_bidirectional_attention", "false", "attention is causal here" },
    { 0 }
};
/* Phi3Config declares embd_pdrop, but its model never applies it. */
static const struct hf_key phi3_keys[] = {
    LLAMA_LIKE(32064, 3072, 8192, 32, 32, 4096), TIED(false), WINDOW(HF_DERIVED),
    INT_NULL("num_key_value_heads", kv_heads, HF_DERIVED),
    INT_NULL("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), RATE("resid_pdrop", dropout, 0), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_key starcoder2_keys[] = {
    LLAMA_LIKE(49152, 3072, 12288, 30, 24, 4096), TIED(true),
    INT("num_key_value_heads", kv_heads, 2), WINDOW(HF_DERIVED),
    INT_NULL("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_GELU_TANH),
    BOOL("use_bias", qkv_bias, true), BOOL("use_bias", out_bias, true),
    BOOL("use_bias", mlp_bias, true), ATTN_DROPOUT,
    RATE("residual_dropout", dropout, 0), RATE("embedding_dropout", embed_dropout, 0),
    NORMS("norm_epsilon", 1e-5), INIT(0.018042), END
};
static const struct hf_key falcon_keys[] = {
    INT("vocab_size", vocab, 65024), TIED(true),
    INT2("hidden_size", "n_embed", hidden, 4544), INT_NULL("ffn_hidden_size", ffn, HF_DERIVED),
    INT("num_hidden_layers", layers, 32), INT("num_attention_heads", heads, 71),
    INT("max_position_embeddings", context, 2048), ACT("activation", ACT_GELU),
    BOOL("bias", qkv_bias, false), BOOL("bias", out_bias, false), BOOL("bias", mlp_bias, false),
    RATE("hidden_dropout", dropout, 0), ATTN_DROPOUT,
    NORMS("layer_norm_epsilon", 1e-5), INIT(0.02), END
};

/* ---- What is more than a field ---- */

static int opt_read(const struct hf *c, struct model *m)
{
    bool before;

    if (hf_bool(c, "do_layer_norm_before", true, &before) < 0)
        return -1;
    m->norm_place = before ? NORM_FIRST : NORM_OF_SUM;
    return 0;
}

static int opt_write(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "do_layer_norm_before", json_boolean(m->norm_place == NORM_FIRST));
}

static int mpt_read(const struct hf *c, struct model *m)
{
    struct hf attn;

    if (hf_section(c, "attn_config", &attn) < 0)
        return -1;
    return hf_real(&attn, "attn_pdrop", 0, 0, 1, &m->attn_dropout);
}

/* MptAttentionConfig takes integers only for the dropout: zero is left out. */
static int mpt_write(const struct model *m, json_t *config)
{
    json_t *attn = json_pack("{s:b}", "alibi", 1);

    if (m->attn_dropout > 0)
        json_object_set_new(attn, "attn_pdrop", json_real(m->attn_dropout));
    return json_object_set_new(config, "attn_config", attn);
}

/* The first releases said "gelu" and meant its tanh form (GemmaConfig). */
static int gemma_read(const struct hf *c, struct model *m)
{
    (void)c;
    if (m->act == ACT_GELU) {
        m->act = ACT_GELU_TANH;
        m->act_code = ACT_ONE_KERNEL;
    }
    return 0;
}

/* FalconAttention and FalconDecoderLayer: the new architecture groups queries by
 * key/value head and gives each half its norm; the old one has one key/value
 * head or as many as there are heads, and parallel halves share a norm. */
static int falcon_read(const struct hf *c, struct model *m)
{
    bool grouped, multi_query, alibi;
    int64_t norms, kv;

    if (hf_bool(c, "new_decoder_architecture", false, &grouped) < 0
        || hf_bool(c, "multi_query", true, &multi_query) < 0
        || hf_bool(c, "parallel_attn", true, &m->parallel) < 0
        || hf_bool(c, "alibi", false, &alibi) < 0)
        return -1;
    kv = m->heads;
    if (!hf_is_null(c, "num_kv_heads")
        && hf_int(c, "num_kv_heads", m->heads, MODEL_MAX_DIM, &kv) < 0)
        return -1;
    norms = grouped ? 2 : 1;
    if (!hf_is_null(c, "num_ln_in_parallel_attn")
        && hf_int(c, "num_ln_in_parallel_attn", norms, 2, &norms) < 0)
        return -1;
    if (grouped && !m->parallel)
        return hf_refuse(c, "parallel_attn",
                         "true with \"new_decoder_architecture\", which has no other form");
    if (!grouped && norms == 2)
        return hf_refuse(c, "num_ln_in_parallel_attn",
                         "1 unless \"new_decoder_architecture\" is true");
    m->kv_heads = grouped ? kv : multi_query ? 1 : m->heads;
    m->mlp_norm = !m->parallel || norms == 2;
    m->position = alibi ? POS_ALIBI : POS_ROPE;
    return 0;
}

static int falcon_write(const struct model *m, json_t *config)
{
    bool few = m->kv_heads != 1 && m->kv_heads != m->heads;
    bool grouped = m->parallel && (m->mlp_norm || few);
    json_t *own = json_pack("{s:b,s:b,s:b,s:b,s:I,s:i}", "new_decoder_architecture", grouped,
                            "multi_query", m->kv_heads == 1, "parallel_attn", m->parallel,
                            "alibi", m->position == POS_ALIBI,
                            "num_kv_heads", (json_int_t)m->kv_heads,
                            "num_ln_in_parallel_attn", grouped && m->mlp_norm ? 2 : 1);
    int rc = json_object_update(config, own);

    json_decref(own);
    return rc;
}

/* ---- All of them ---- */

static const struct hf_family families[] = {
    { .name = "gpt2", .keys = gpt2_keys, .fixed = gpt2_fixed, .heads_divide = true, .own_head_dim = true },
    { .name = "gpt_neox", .keys = neox_keys, .heads_divide = true,
      .theta_key = "rotary_emb_base", .partial_key = "rotary_pct", .partial = 0.25 },
    { .name = "opt", .keys = opt_keys, .fixed = opt_fixed, .heads_divide = true, .own_head_dim = true,
      .read = opt_read, .write = opt_write },
    { .name = "bloom", .keys = bloom_keys, .fixed = bloom_fixed, .heads_divide = true, .own_head_dim = true },
    { .name = "mpt", .keys = mpt_keys, .fixed = mpt_fixed, .heads_divide = true, .own_head_dim = true,
      .read = mpt_read, .write = mpt_write },
    { .name = "llama", .keys = llama_keys, .heads_divide = true, .theta_key = "rope_theta" },
    { .name = "mistral", .keys = mistral_keys, .theta_key = "rope_theta" },
    { .name = "qwen2", .keys = qwen2_keys, .theta_key = "rope_theta", .read = hf_qwen_read, .write = hf_qwen_write },
    { .name = "qwen3", .keys = qwen3_keys, .theta_key = "rope_theta", .read = hf_qwen_read, .write = hf_qwen_write },
    { .name = "gemma", .keys = gemma_keys, .fixed = gemma_fixed, .theta_key = "rope_theta",
      .read = gemma_read },
    { .name = "gemma2", .keys = gemma2_keys, .fixed = gemma_fixed, .heads_divide = true,
      .theta_key = "rope_theta" },
    { .name = "phi3", .keys = phi3_keys, .theta_key = "rope_theta",
      .partial_key = "partial_rotary_factor", .partial = 1 },
    { .name = "falcon", .keys = falcon_keys, .heads_divide = true, .theta_key = "rope_theta",
      .read = falcon_read, .write = falcon_write },
    { .name = "starcoder2", .keys = starcoder2_keys, .theta_key = "rope_theta" },
};

const struct hf_family *hf_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, model_type))
            return &families[i];
    const struct hf_family *f = hf_family_recent(model_type);
    return f ? f : hf_family_of_experts(model_type);
}

/* activations.py, ACT2CLS of transformers 5.23.  The first name of an activation is the one written. */
static const struct { const char *name; enum activation act; enum activation_code code; } acts[] = {
    { "gelu", ACT_GELU, ACT_ONE_KERNEL }, { "gelu_python", ACT_GELU, ACT_OF_ERF },
    { "gelu_pytorch_tanh", ACT_GELU_TANH, ACT_ONE_KERNEL }, { "gelu_new", ACT_GELU_TANH, ACT_OF_POWER },
    { "gelu_fast", ACT_GELU_TANH, ACT_OF_PRODUCTS }, { "gelu_python_tanh", ACT_GELU_TANH, ACT_OF_POWER },
    { "gelu_accurate", ACT_GELU_TANH, ACT_OF_POWER },
    { "relu", ACT_RELU, ACT_ONE_KERNEL }, { "silu", ACT_SILU, ACT_ONE_KERNEL }, { "swish", ACT_SILU, ACT_ONE_KERNEL },
    { "relu2", ACT_RELU2, ACT_ONE_KERNEL },
};

int hf_act_parse(const char *name, enum activation *act, enum activation_code *code)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(acts[i].name, name)) {
            *act = acts[i].act;
            *code = acts[i].code;
            return 0;
        }
    return -1;
}

const char *hf_act_name(enum activation act, enum activation_code code)
{
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (acts[i].act == act && acts[i].code == code)
            return acts[i].name;
    return "?";
}
