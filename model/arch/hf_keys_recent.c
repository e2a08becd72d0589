/* Families since 2024, and what their configs have in common: layers that differ by a
 * sliding window or by having no rotary positions.  Defaults are those of the
 * configuration_<family>.py of transformers 5.23. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_key_rows.h"

#define KV_DERIVED          INT_NULL("num_key_value_heads", kv_heads, HF_DERIVED)
#define HEAD_DIM_DERIVED    INT_NULL("head_dim", head_dim, HF_DERIVED)
#define GATED_BIASES(key)   BOOL(key, qkv_bias, false), BOOL(key, out_bias, false), \
                            BOOL(key, mlp_bias, false)

static const struct hf_key gemma3_keys[] = {
    LLAMA_LIKE(262208, 2304, 9216, 26, 8, 131072), TIED(true),
    INT("num_key_value_heads", kv_heads, 4),
    INT("head_dim", head_dim, 256), ACT("hidden_activation", ACT_GELU_TANH),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    INT("query_pre_attn_scalar", attn_scalar, 256),
    REAL("final_logit_softcapping", softcap, 0),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
/* Gemma3Attention reads the scores' soft-capping and does not pass it on. */
static const struct hf_fixed gemma3_fixed[] = {
    { NULL, "use_bidirectional_attention", "false", "attention is causal here" },
    { NULL, "attn_logit_softcapping", "null", "transformers' gemma3 does not apply it" },
    { 0 }
};

static const struct hf_key ministral_keys[] = {
    LLAMA_LIKE(32000, 4096, 14336, 32, 32, 131072), TIED(false),
    INT_NULL("num_key_value_heads", kv_heads, 8),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_key ministral3_keys[] = {
    LLAMA_LIKE(131072, 4096, 14336, 34, 32, 262144), TIED(false),
    INT_NULL("num_key_value_heads", kv_heads, 8), WINDOW(HF_DERIVED),
    INT_NULL("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static const struct hf_key olmo2_keys[] = {
    LLAMA_LIKE(50304, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_DERIVED, HEAD_DIM, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static const struct hf_key phi_keys[] = {
    LLAMA_LIKE(51200, 2048, 8192, 24, 32, 2048), SET(tied, false),
    KV_DERIVED, HEAD_DIM, ACT_BY("hidden_act", ACT_GELU_TANH, ACT_OF_POWER), LINEAR_BIASES(true),
    BOOL("qk_layernorm", qk_norm, false),
    RATE("resid_pdrop", dropout, 0), RATE("embd_pdrop", embed_dropout, 0), ATTN_DROPOUT,
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_fixed phi_fixed[] = {
    { NULL, "tie_word_embeddings", "false", "a tied head with a bias of its own is not supported" },
    { 0 }
};

static const struct hf_key granite_keys[] = {
    LLAMA_LIKE(32000, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_DERIVED, HEAD_DIM, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    REAL("embedding_multiplier", embed_scale, 1), REAL("logits_scaling", logit_scale, 1),
    REAL("residual_multiplier", residual_scale, 1), REAL("attention_multiplier", attn_scale, 1),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

static const struct hf_key smollm3_keys[] = {
    LLAMA_LIKE(128256, 2048, 11008, 36, 16, 32768), TIED(true),
    INT_NULL("num_key_value_heads", kv_heads, 4), HEAD_DIM, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed smollm3_fixed[] = {
    { NULL, "use_sliding_window", "false", "windows in layers without positions are not supported" },
    { 0 }
};

static const struct hf_key stablelm_keys[] = {
    LLAMA_LIKE(50304, 2560, 6912, 32, 32, 4096), TIED(false),
    INT("num_key_value_heads", kv_heads, 32), ACT("hidden_act", ACT_SILU),
    BOOL("use_qkv_bias", qkv_bias, false), SET(out_bias, false), SET(mlp_bias, false),
    BOOL("qk_layernorm", qk_norm, false), BOOL("use_parallel_residual", parallel, false),
    RATE("hidden_dropout", dropout, 0), ATTN_DROPOUT,
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), END
};

#define COHERE_KEYS \
    LLAMA_LIKE(256000, 8192, 22528, 40, 64, 8192), TIED(true), \
    KV_DERIVED, ACT("hidden_act", ACT_SILU), \
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT, REAL("logit_scale", logit_scale, 0.0625), \
    NORMS("layer_norm_eps", 1e-5), INIT(0.02)
static const struct hf_key cohere_keys[] = {
    COHERE_KEYS, HEAD_DIM, BOOL("use_qk_norm", qk_norm, false), END
};
static const struct hf_key cohere2_keys[] = { COHERE_KEYS, HEAD_DIM, END };

static const struct hf_key glm_keys[] = {
    LLAMA_LIKE(151552, 4096, 13696, 40, 32, 131072), TIED(false),
    INT("num_key_value_heads", kv_heads, 2), INT("head_dim", head_dim, 128),
    ACT("hidden_act", ACT_SILU), BOOL("attention_bias", qkv_bias, true), SET(out_bias, false),
    SET(mlp_bias, false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1.5625e-7), INIT(0.02), END
};

static const struct hf_key nemotron_keys[] = {
    LLAMA_LIKE(256000, 6144, 24576, 32, 48, 4096), TIED(false),
    KV_DERIVED, HEAD_DIM_DERIVED, ACT("hidden_act", ACT_RELU2),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("norm_eps", 1e-5), INIT(0.0134), END
};
static const struct hf_key arcee_keys[] = {
    LLAMA_LIKE(32000, 2560, 18432, 32, 32, 4096), TIED(false),
    KV_DERIVED, HEAD_DIM_DERIVED, ACT("hidden_act", ACT_RELU2),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static const struct hf_key seed_oss_keys[] = {
    LLAMA_LIKE(155136, 4096, 27648, 64, 80, 524288), TIED(false),
    INT_NULL("num_key_value_heads", kv_heads, 8),
    INT_NULL("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    BOOL("attention_bias", qkv_bias, true), BOOL("attention_out_bias", out_bias, false),
    BOOL("mlp_bias", mlp_bias, false),
    RATE("residual_dropout", dropout, 0.1), RATE("attention_dropout", attn_dropout, 0.1),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
/* head_dim is no field of Exaone4Config, but its attention takes it from there. */
static const struct hf_key exaone4_keys[] = {
    LLAMA_LIKE(102400, 4096, 16384, 32, 32, 2048), TIED(false),
    INT("num_key_value_heads", kv_heads, 32),
    INT("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
/* Ernie4_5Attention sets its dropout to zero. */
static const struct hf_key ernie4_5_keys[] = {
    LLAMA_LIKE(103424, 1024, 3072, 18, 16, 131072), TIED(true),
    INT_NULL("num_key_value_heads", kv_heads, 2),
    INT_NULL("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    GATED_BIASES("use_bias"), NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_key hunyuan_keys[] = {
    LLAMA_LIKE(290943, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_DERIVED, HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

/* ---- Layers that differ ---- */

static bool has_no_rope(const json_t *v, bool *known)
{
    *known = json_is_integer(v) && (json_integer_value(v) == 0 || json_integer_value(v) == 1);
    return *known && json_integer_value(v) == 0;
}

static int gemma3_read(const struct hf *c, struct model *m) { return hf_windows_read(c, m, 4096, "sliding_window_pattern", 6); }
static int olmo3_read(const struct hf *c, struct model *m)  { return hf_windows_read(c, m, 4096, NULL, 4); }
static int ministral_read(const struct hf *c, struct model *m) { return hf_windows_read(c, m, 4096, NULL, 0); }

/* Cohere2Attention rotates where it has a window; without one no layer would be rotated. */
static int cohere2_read(const struct hf *c, struct model *m)
{
    if (hf_is_null(c, "sliding_window"))
        return hf_refuse(c, "sliding_window", "an integer: without it no layer has positions");
    if (hf_windows_read(c, m, 4096, "sliding_window_pattern", 4) < 0)
        return -1;
    if (m->window == 0)
        return hf_refuse(c, "layer_types", "with sliding layers: the others have no positions");
    m->nope_every = m->full_every;
    return 0;
}

/* Exaone4Attention leaves full layers without positions if there are windows at all.  A
 * pattern in letters ("LLLG") comes with "layer_types". */
static int exaone4_read(const struct hf *c, struct model *m)
{
    if (!hf_given(c, "layer_types") && hf_is_null(c, "sliding_window"))
        return hf_refuse(c, "layer_types", "a list, since there is no \"sliding_window\"");
    if (hf_windows_read(c, m, 4096, "sliding_window_pattern", 4) < 0)
        return -1;
    m->nope_every = m->full_every;
    return 0;
}

/* SmolLM3Config: 1 in "no_rope_layers" is a layer with rotary positions. */
static int smollm3_read(const struct hf *c, struct model *m)
{
    if (hf_given(c, "no_rope_layers"))
        return hf_layer_list(c, "no_rope_layers", m, has_no_rope, &m->nope_every);
    return hf_int(c, "no_rope_layer_interval", 4, MODEL_MAX_LAYERS, &m->nope_every);
}

static int smollm3_write(const struct model *m, json_t *config)
{
    json_t *list = json_array();
    int rc = 0;

    for (int64_t i = 0; i < m->layers; i++)
        rc |= json_array_append_new(list, json_integer(m->nope_every == 0 || (i + 1) % m->nope_every != 0));
    return rc | json_object_set_new(config, "no_rope_layers", list);
}

/* Ministral3Config's own scaling, where the config states none. */
static int ministral3_read(const struct hf *c, struct model *m)
{
    if (hf_given(c, "rope_parameters") || hf_given(c, "rope_scaling"))
        return 0;
    m->rope_scaling = json_pack("{s:s,s:f,s:i,s:I,s:f,s:f,s:f,s:f,s:f}", "rope_type", "yarn", "factor", 16.0,
                                "original_max_position_embeddings", 16384,
                                "max_position_embeddings", (json_int_t)m->context, "beta_fast", 32.0,
                                "beta_slow", 1.0, "mscale_all_dim", 1.0, "mscale", 1.0,
                                "llama_4_scaling_beta", 0.1);
    return m->rope_scaling ? 0 : fail("out of memory for %s", c->where);
}

/* StableLmLayerNormPerHead: a module for every head. */
static int stablelm_read(const struct hf *c, struct model *m)
{
    m->mlp_norm = !m->parallel;
    if (m->qk_norm && (m->heads > MODEL_MAX_LISTED || m->kv_heads > MODEL_MAX_LISTED))
        return hf_refuse(c, m->heads > MODEL_MAX_LISTED ? "num_attention_heads" : "num_key_value_heads",
                         "at most 256 with \"qk_layernorm\", which has a norm for each");
    return 0;
}

/* ---- All of them ---- */

#define HALF_ROTATED  .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 0.5

static const struct hf_family families[] = {
    { .name = "gemma3_text", .keys = gemma3_keys, .fixed = gemma3_fixed, .heads_divide = true,
      .theta_key = "rope_theta", .theta = 1e6, .local_theta_key = "rope_local_base_freq", .local_theta = 1e4,
      .read = gemma3_read, .write = hf_windows_write },
    { .name = "ministral", .keys = ministral_keys, .theta_key = "rope_theta",
      .read = ministral_read, .write = hf_windows_write },
    { .name = "ministral3", .keys = ministral3_keys, .theta_key = "rope_theta", .theta = 1e6,
      .read = ministral3_read },
    { .name = "olmo2", .keys = olmo2_keys, .heads_divide = true, .theta_key = "rope_theta" },
    { .name = "olmo3", .keys = olmo2_keys, .heads_divide = true, .theta_key = "rope_theta", .theta = 5e5,
      .read = olmo3_read, .write = hf_windows_write },
    { .name = "phi", .keys = phi_keys, .fixed = phi_fixed, .heads_divide = true, HALF_ROTATED },
    { .name = "granite", .keys = granite_keys, .heads_divide = true, .theta_key = "rope_theta" },
    { .name = "smollm3", .keys = smollm3_keys, .fixed = smollm3_fixed, .heads_divide = true,
      .theta_key = "rope_theta", .theta = 2e6, .read = smollm3_read, .write = smollm3_write },
    { .name = "stablelm", .keys = stablelm_keys, .heads_divide = true, .theta_key = "rope_theta",
      .partial_key = "partial_rotary_factor", .partial = 0.25, .read = stablelm_read },
    { .name = "cohere", .keys = cohere_keys, .heads_divide = true, .theta_key = "rope_theta" },
    { .name = "cohere2", .keys = cohere2_keys, .heads_divide = true, .theta_key = "rope_theta",
      .read = cohere2_read, .write = hf_windows_write },
    { .name = "glm", .keys = glm_keys, HALF_ROTATED },
    { .name = "glm4", .keys = glm_keys, HALF_ROTATED },
    { .name = "nemotron", .keys = nemotron_keys, HALF_ROTATED },
    { .name = "arcee", .keys = arcee_keys, .heads_divide = true, .theta_key = "rope_theta" },
    { .name = "seed_oss", .keys = seed_oss_keys, .theta_key = "rope_theta" },
    { .name = "exaone4", .keys = exaone4_keys, .theta_key = "rope_theta",
      .read = exaone4_read, .write = hf_windows_write },
    { .name = "ernie4_5", .keys = ernie4_5_keys, .theta_key = "rope_theta", .theta = 5e5 },
    { .name = "hunyuan_v1_dense", .keys = hunyuan_keys, .theta_key = "rope_theta" },
};

const struct hf_family *hf_family_recent(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, model_type))
            return &families[i];
    return NULL;
}
