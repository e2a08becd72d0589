/* hf_keys_experts.c -- configs of mixtures of experts.  Defaults are those of the configuration_<family>.py of
 * transformers 5.23.  What only routes tokens (losses that balance them, how many groups of experts a token may take) or only scales
 * numbers matters to exports alone: tokens are taken to spread evenly. */
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_key_rows.h"

#define HEADS_AND_FFN(V, D, L, H, C) \
    INT("vocab_size", vocab, V), INT("hidden_size", hidden, D), INT("num_hidden_layers", layers, L), \
    INT("num_attention_heads", heads, H), INT("max_position_embeddings", context, C)
#define NO_MLP_BIAS  SET(mlp_bias, false), ACT("hidden_act", ACT_SILU)

static const struct hf_key mixtral_keys[] = {
    HEADS_AND_FFN(32000, 4096, 32, 32, 131072), TIED(false), INT("intermediate_size", expert_ffn, 14336),
    INT2("num_local_experts", "num_experts", experts, 8), INT("num_experts_per_tok", experts_used, 2), SET(topk_norm, true),
    INT_NULL("num_key_value_heads", kv_heads, 8), WINDOW(HF_DERIVED), INT_NULL("head_dim", head_dim, HF_DERIVED),
    SET(qkv_bias, false), SET(out_bias, false), NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
/* head_dim is no field of Qwen3MoeConfig, but its attention takes it from there. */
static const struct hf_key qwen3_moe_keys[] = {
    HEADS_AND_FFN(151936, 2048, 24, 32, 32768), TIED(false), INT("intermediate_size", ffn, 6144),
    INT("moe_intermediate_size", expert_ffn, 768), INT2("num_experts", "num_local_experts", experts, 128),
    INT("num_experts_per_tok", experts_used, 8), BOOL("norm_topk_prob", topk_norm, false),
    INT("decoder_sparse_step", moe_every, 1), INT_NULL("num_key_value_heads", kv_heads, 4),
    INT("head_dim", head_dim, HF_DERIVED), ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-6), INIT(0.02),
    END
};
static const struct hf_fixed qwen3_moe_fixed[] = {
    { NULL, "use_sliding_window", "false", "a window in all layers is not supported" },
    { 0 }
};
static const struct hf_key deepseek_v3_keys[] = {
    HEADS_AND_FFN(129280, 7168, 61, 128, 4096), TIED(false), INT("intermediate_size", ffn, 18432),
    INT("moe_intermediate_size", expert_ffn, 2048), INT2("n_routed_experts", "num_local_experts", experts, 256),
    INT("num_experts_per_tok", experts_used, 8), BOOL("norm_topk_prob", topk_norm, true),
    INT_NULL("num_key_value_heads", kv_heads, 128), INT_NULL("q_lora_rank", q_rank, 1536), INT("kv_lora_rank", kv_rank, 512),
    INT("qk_rope_head_dim", rope_dim, 64), INT("v_head_dim", value_dim, 128), ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT,
    INT("topk_group", route_best, 4), REAL("routed_scaling_factor", route_scale, 2.5), NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed deepseek_v3_fixed[] = {
    { NULL, "rope_interleave", "true", "rotation of halves is not supported" },
    { 0 }
};
/* head_dim is no field of Glm4MoeConfig, but its attention takes it from there; its output has no bias. */
static const struct hf_key glm4_moe_keys[] = {
    HEADS_AND_FFN(151552, 4096, 46, 96, 131072), TIED(false), INT("intermediate_size", ffn, 10944),
    INT("moe_intermediate_size", expert_ffn, 1408), INT2("n_routed_experts", "num_local_experts", experts, 128),
    INT("num_experts_per_tok", experts_used, 8), BOOL("norm_topk_prob", topk_norm, true),
    INT_NULL("num_key_value_heads", kv_heads, 8), HEAD_DIM, BOOL("attention_bias", qkv_bias, false), SET(out_bias, false), NO_MLP_BIAS,
    ATTN_DROPOUT, BOOL("use_qk_norm", qk_norm, false), INT("topk_group", route_best, 1), REAL("routed_scaling_factor", route_scale, 1),
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_key gpt_oss_keys[] = {
    HEADS_AND_FFN(201088, 2880, 36, 64, 131072), TIED(false), INT("intermediate_size", expert_ffn, 2880),
    INT2("num_local_experts", "num_experts", experts, 128), INT("num_experts_per_tok", experts_used, 4), SET(topk_norm, true),
    INT_NULL("num_key_value_heads", kv_heads, 8), INT_NULL("head_dim", head_dim, 64),
    BOOL("attention_bias", qkv_bias, true), BOOL("attention_bias", out_bias, true), NO_MLP_BIAS, ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_key llama4_keys[] = {
    HEADS_AND_FFN(202048, 5120, 48, 40, 131072), TIED(false), INT("intermediate_size_mlp", ffn, 16384),
    INT("intermediate_size", expert_ffn, 8192), INT("intermediate_size", shared_ffn, 8192),
    INT("num_local_experts", experts, 16), INT("num_experts_per_tok", experts_used, 1),
    INT("interleave_moe_layer_step", moe_every, 1), INT_NULL("num_key_value_heads", kv_heads, 8),
    INT_NULL("head_dim", head_dim, 128), INT("attention_chunk_size", window, 8192), BOOL("use_qk_norm", l2_norm, true),
    BOOL("attn_temperature_tuning", tuned, true), ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_key granitemoe_keys[] = {
    HEADS_AND_FFN(32000, 4096, 32, 32, 2048), TIED(false), INT("intermediate_size", expert_ffn, 11008),
    INT("num_local_experts", experts, 8), INT("num_experts_per_tok", experts_used, 2), SET(topk_norm, true),
    INT_NULL("num_key_value_heads", kv_heads, HF_DERIVED), HEAD_DIM, ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT,
    REAL("embedding_multiplier", embed_scale, 1), REAL("logits_scaling", logit_scale, 1),
    REAL("residual_multiplier", residual_scale, 1), REAL("attention_multiplier", attn_scale, 1),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
/* OlmoeAttention reads head_dim, but its norms are as wide as without: any other would fail. */
static const struct hf_key olmoe_keys[] = {
    HEADS_AND_FFN(50304, 2048, 16, 16, 4096), TIED(false), INT("intermediate_size", expert_ffn, 2048),
    INT2("num_experts", "num_local_experts", experts, 64), INT("num_experts_per_tok", experts_used, 8),
    BOOL("norm_topk_prob", topk_norm, false), INT_NULL("num_key_value_heads", kv_heads, HF_DERIVED), ATTENTION_BIAS,
    NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_fixed olmoe_fixed[] = {
    { NULL, "clip_qkv", "null", "clipped q, k and v are not supported" },
    { 0 }
};

/* ---- Which layers have experts ---- */

/* A count that may be 0. */
static int read_count(const struct hf *c, const char *key, int64_t dflt, int64_t *out)
{
    const json_t *v = json_object_get(c->root, key);

    *out = v && !json_is_null(v) ? json_integer_value(v) : dflt;
    if (v && !json_is_null(v) && (!json_is_integer(v) || *out < 0 || *out > MODEL_MAX_LAYERS))
        return hf_refuse(c, key, "an integer from 0 to 4096");
    return 0;
}

/* Layers of a list, which has them in any order, each once. */
static int read_layers(const struct hf *c, const char *key, const struct model *m, bool *set)
{
    const json_t *list = json_object_get(c->root, key), *v;
    size_t i;

    if (!json_is_array(list))
        return hf_refuse(c, key, "a list of layers");
    json_array_foreach(list, i, v) {
        json_int_t layer = json_integer_value(v);
        if (!json_is_integer(v) || layer < 0 || layer >= m->layers)
            return hf_refuse(c, key, "a list of layers, counted from 0");
        set[layer] = true;
    }
    return 0;
}

/* Without experts whatever the step says: only the first layers. */
static int qwen3_moe_read(const struct hf *c, struct model *m)
{
    bool dense[MODEL_MAX_LAYERS] = { false };

    if (!hf_given(c, "mlp_only_layers"))
        return 0;
    if (read_layers(c, "mlp_only_layers", m, dense) < 0)
        return -1;
    while (m->dense_first < m->layers && dense[m->dense_first])
        m->dense_first++;
    for (int64_t i = m->dense_first; i < m->layers; i++)
        if (dense[i])
            return hf_refuse(c, "mlp_only_layers", "the first layers, or none");
    return 0;
}

static int qwen3_moe_write(const struct model *m, json_t *config)
{
    json_t *list = json_array();
    int rc = 0;

    for (int64_t i = 0; i < m->dense_first; i++)
        rc |= json_array_append_new(list, json_integer(i));
    return rc | json_object_set_new(config, "mlp_only_layers", list);
}

/* Experts as DeepSeek-V3 has them: sigmoids choose them, by groups, beside shared ones, behind dense layers.  Defaults of their numbers. */
struct routed { int64_t shared, groups, dense; };

static int read_routed(const struct hf *c, struct model *m, struct routed dflt)
{
    int64_t shared;

    if (hf_int(c, "n_shared_experts", dflt.shared, 4096, &shared) < 0 || hf_int(c, "n_group", dflt.groups, MODEL_MAX_LAYERS, &m->route_groups) < 0
        || read_count(c, "first_k_dense_replace", dflt.dense, &m->dense_first) < 0)
        return -1;
    if (m->experts % m->route_groups)
        return hf_refuse(c, "n_group", "a divisor of the number of experts");
    m->shared_ffn = shared * m->expert_ffn;
    return 0;
}

static int write_routed(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "n_shared_experts", json_integer(m->shared_ffn / m->expert_ffn))
        | json_object_set_new(config, "first_k_dense_replace", json_integer(m->dense_first))
        | json_object_set_new(config, "n_group", json_integer(m->route_groups));
}

/* DeepseekV3Config: a key's head is the part that is not rotated and the part that is, which all heads share. */
static int deepseek_v3_read(const struct hf *c, struct model *m)
{
    int64_t nope;

    if (hf_int(c, "qk_nope_head_dim", 128, MODEL_MAX_DIM, &nope) < 0 || read_routed(c, m, (struct routed){ .shared = 1, .groups = 8, .dense = 3 }) < 0)
        return -1;
    if (m->kv_heads && m->kv_heads != m->heads)
        return hf_refuse(c, "num_key_value_heads", "as \"num_attention_heads\": latent attention has a key for each");
    m->head_dim = nope + m->rope_dim;
    return 0;
}

static int deepseek_v3_write(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "qk_nope_head_dim", json_integer(m->head_dim - m->rope_dim)) | write_routed(m, config)
        | json_object_set_new(config, "q_lora_rank", m->q_rank ? json_integer(m->q_rank) : json_null());
}

static int glm4_moe_read(const struct hf *c, struct model *m) { return read_routed(c, m, (struct routed){ .shared = 1, .groups = 1, .dense = 1 }); }

/* GptOssConfig's own scaling, where the config states none. */
static int gpt_oss_read(const struct hf *c, struct model *m)
{
    if (hf_windows_read(c, m, 128, NULL, 2) < 0)
        return -1;
    if (hf_given(c, "rope_parameters") || hf_given(c, "rope_scaling"))
        return 0;
    m->rope_scaling = json_pack("{s:s,s:f,s:f,s:f,s:b,s:i}", "rope_type", "yarn", "factor", 32.0, "beta_fast", 32.0,
                                "beta_slow", 1.0, "truncate", 0, "original_max_position_embeddings", 4096);
    return m->rope_scaling ? 0 : fail("out of memory for %s", c->where);
}

static bool has_no_rope(const json_t *v, bool *known)
{
    *known = json_is_integer(v) && (json_integer_value(v) == 0 || json_integer_value(v) == 1);
    return *known && json_integer_value(v) == 0;
}

static bool is_unchunked(const json_t *v, bool *known)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";

    *known = !strcmp(s, "full_attention") || !strcmp(s, "chunked_attention");
    return !strcmp(s, "full_attention");
}

/* Llama4TextConfig: "moe_layers" wins over the step; an empty list of layers without positions is as none.  Layers with
 * positions attend within chunks. */
static int llama4_read(const struct hf *c, struct model *m)
{
    bool has[MODEL_MAX_LAYERS] = { false };

    if (json_array_size(json_object_get(c->root, "no_rope_layers")) > 0) {
        if (hf_layer_list(c, "no_rope_layers", m, has_no_rope, &m->nope_every) < 0)
            return -1;
    } else if (hf_int(c, "no_rope_layer_interval", 4, MODEL_MAX_LAYERS, &m->nope_every) < 0) {
        return -1;
    }
    m->full_every = m->nope_every;
    if (hf_given(c, "layer_types")) {
        if (hf_layer_list(c, "layer_types", m, is_unchunked, &m->full_every) < 0)
            return -1;
        if (m->full_every != m->nope_every)
            return hf_refuse(c, "layer_types", "chunked attention in the layers with positions and in no other");
    }
    if (!hf_given(c, "moe_layers"))
        return 0;
    if (read_layers(c, "moe_layers", m, has) < 0)
        return -1;
    for (m->moe_every = 1; m->moe_every <= m->layers && !has[m->moe_every - 1]; )
        m->moe_every++;
    for (int64_t i = 0; i < m->layers; i++)
        if (has[i] != ((i + 1) % m->moe_every == 0))
            return hf_refuse(c, "moe_layers", "every n-th layer, and no other");
    return 0;
}

static int llama4_write(const struct model *m, json_t *config)
{
    json_t *list = json_array();
    int rc = 0;

    for (int64_t i = 0; i < m->layers; i++)
        rc |= json_array_append_new(list, json_integer(m->nope_every == 0 || (i + 1) % m->nope_every != 0));
    return rc | json_object_set_new(config, "no_rope_layers", list);
}

/* ---- All of them ---- */

static const struct hf_family families[] = {
    { .name = "mixtral", .keys = mixtral_keys, .experts = true, .theta_key = "rope_theta", .theta = 1e6 },
    { .name = "qwen3_moe", .keys = qwen3_moe_keys, .fixed = qwen3_moe_fixed, .experts = true, .theta_key = "rope_theta",
      .read = qwen3_moe_read, .write = qwen3_moe_write },
    { .name = "deepseek_v3", .keys = deepseek_v3_keys, .fixed = deepseek_v3_fixed, .experts = true, .theta_key = "rope_theta",
      .read = deepseek_v3_read, .write = deepseek_v3_write },
    { .name = "glm4_moe", .keys = glm4_moe_keys, .experts = true, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 0.5,
      .read = glm4_moe_read, .write = write_routed },
    { .name = "gpt_oss", .keys = gpt_oss_keys, .experts = true, .theta_key = "rope_theta", .theta = 150000,
      .read = gpt_oss_read, .write = hf_windows_write },
    { .name = "llama4_text", .keys = llama4_keys, .experts = true, .theta_key = "rope_theta", .theta = 5e5,
      .read = llama4_read, .write = llama4_write },
    { .name = "granitemoe", .keys = granitemoe_keys, .experts = true, .heads_divide = true, .theta_key = "rope_theta" },
    { .name = "olmoe", .keys = olmoe_keys, .fixed = olmoe_fixed, .experts = true, .heads_divide = true,
      .theta_key = "rope_theta" },
};

const struct hf_family *hf_family_of_experts(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, model_type))
            return &families[i];
    return NULL;
}

/* Refused with a better reason than "unknown". */
bool hf_is_moe(const char *model_type)
{
    static const char *const moe[] = {
        "qwen2_moe", "qwen3_next", "deepseek_v2", "deepseek_v32", "dbrx", "phimoe", "jamba", "glm4_moe_lite", "ernie4_5_moe",
        "hunyuan_v1_moe", "minimax", "jetmoe", "switch_transformers", "nllb-moe", "arctic", "grok-1", "bailing_moe", "dots1",
        "flex_olmo", "granitemoeshared", "granitemoehybrid",
    };

    for (size_t i = 0; i < sizeof moe / sizeof *moe; i++)
        if (!strcmp(moe[i], model_type))
            return true;
    return false;
}
