/* megatron_describes.c -- options that describe the model, held against the plan's.  Defaults are those of Megatron-LM's command line at core 0.16.1
 * (training/arguments.py, transformer_config.py), taken where the options make a model: what they leave out is then described, too. */
#include "model/exchange/megatron_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/megatron_layers.h"
#include "model/family/family.h"
#include "model/family/hybrid.h"

/* Options of parallelism and training alone make none. */
static bool makes_model(const struct import *in)
{
    return (import_has(in, "num_layers") || import_has(in, "hidden_size")) && !import_has(in, "partly_stated");
}

/* What is left out is the command line's default; a recipe in sections leaves it to the class that it is made from. */
static bool takes_defaults(const struct import *in) { return makes_model(in) && !import_has(in, "in_sections"); }

struct size { const char *name; int64_t is, usual; };

static int check_sizes(const struct import *in, const struct size *of, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        if (import_integer(in, of[i].name, of[i].usual, &v) < 0)
            return -1;
        if (v != of[i].is)
            return fail("%s: %s: %" PRId64 "%s, but %s has %" PRId64, in->where, of[i].name, v, import_has(in, of[i].name) ? "" : " where it is left out",
                        in->p->model.name, of[i].is);
    }
    return 0;
}

/* MLATransformerConfig's. */
static int check_latent(const struct import *in, bool makes)
{
    const struct model *m = &in->p->model;
    int64_t plain = m->head_dim - m->rope_dim;
    const struct size of[] = {
        { "q_lora_rank", m->q_rank, makes ? 0 : m->q_rank }, { "kv_lora_rank", m->kv_rank, makes ? 32 : m->kv_rank }, { "qk_head_dim", plain, makes ? 128 : plain },
        { "qk_pos_emb_head_dim", m->rope_dim, makes ? 64 : m->rope_dim }, { "v_head_dim", m->value_dim, makes ? 128 : m->value_dim },
    };

    if (m->kv_rank == 0)
        return !import_has(in, "multi_latent_attention") ? 0 : fail("%s: multi_latent_attention: %s does not have it", in->where, m->name);
    if (!import_has(in, "no_rope_fusion") && import_has(in, "rope_type") && !import_says(in, "rope_type", "yarn"))
        return fail("%s: rope_type: Megatron-LM has fused rotary positions of latent attention of YaRN alone (rope_type yarn, its default; without "
                    "scaling rotary_scaling_factor 1): beside another, no_rope_fusion", in->where);
    return check_sizes(in, of, sizeof of / sizeof *of);
}

/* Which layers have experts. */
static int check_layers(const struct import *in, bool makes)
{
    const struct model *m = &in->p->model;
    const json_t *v = json_object_get(in->from, "moe_layer_freq");
    unsigned char has[MODEL_MAX_LAYERS];
    int64_t every;

    if (m->experts == 0 || (!v && (!makes || m->hybrid)))       /* a hybrid's pattern says which */
        return 0;
    if (!v)
        every = 1;
    else if (megatron_layers_read(v, in->where, "moe_layer_freq", m->layers, &every, has) < 0)
        return -1;
    for (int64_t i = 0; i < m->layers; i++)
        if ((every ? i % every == 0 : has[i]) != model_has_experts(m, i))
            return fail("%s: moe_layer_freq: layer %" PRId64 " %s experts, but of %s it %s", in->where, i, model_has_experts(m, i) ? "without" : "with", m->name,
                        model_has_experts(m, i) ? "has some" : "has none");
    return 0;
}

static bool is_oss(const struct model *m) { return family_for(m)->sinks; }

const char *megatron_activation(const struct model *m)
{
    if (is_oss(m))
        return "--quick-geglu";
    if (m->mlp == MLP_GATED)
        return m->act == ACT_SILU ? "--swiglu" : NULL;
    return m->act == ACT_RELU2 ? "--squared-relu" : m->act == ACT_GELU || m->act == ACT_GELU_TANH ? "" : NULL;
}

bool megatron_adds_one_to_norms(const struct model *m) { return family_for(m)->layer_norm_1p; }

bool megatron_scales_rope(const struct model *m)
{
    const json_t *type = json_object_get(m->rope_scaling, "rope_type");

    return m->position == POS_ROPE && json_is_string(type) && !strcmp(json_string_value(type), "llama3");
}

double megatron_scaling(const struct model *m, const char *key, double usual)
{
    const json_t *v = json_object_get(m->rope_scaling, key);

    return v ? json_number_value(v) : usual;
}

/* But for rounding: --rotary-base is a whole number, starcoder2's 999999.44. */
static bool is_about(double a, double b)
{
    double most = 1e-6 * (a > b ? a : b);

    return a - b <= most && b - a <= most;
}

bool megatron_scales_rope_as_is(const struct model *m)
{
    return is_about(megatron_scaling(m, "factor", 8), 8) && is_about(megatron_scaling(m, "low_freq_factor", 1), 1) &&
           is_about(megatron_scaling(m, "high_freq_factor", 4), 4) &&
           is_about(megatron_scaling(m, "original_max_position_embeddings", 8192), 8192);
}

/* window_size (keys before a query's own, behind it): "128,0", or a list.  -1: neither. */
static int64_t window_of(const json_t *v)
{
    char *end = NULL;
    const char *s = json_string_value(v);

    if (json_is_array(v))
        return json_array_size(v) == 2 && json_integer_value(json_array_get(v, 1)) == 0 ? json_integer_value(json_array_get(v, 0)) : -1;
    int64_t n = s ? strtoll(s + strspn(s, "("), &end, 10) : -1;
    return s && end[strspn(end, ", ")] == '0' ? n : -1;
}

/* Which layers have a window, and of how many keys: transformers counts a query's own, Megatron-LM those before it. */
static int check_windows(const struct import *in, bool makes)
{
    const struct model *m = &in->p->model;
    const json_t *size = json_object_get(in->from, "window_size"), *freq = json_object_get(in->from, "window_attn_skip_freq");
    unsigned char has[MODEL_MAX_LAYERS];
    int64_t every = 0, window = window_of(size);

    if (!is_oss(m))
        return size ? fail("%s: window_size: layers with a window are modelled of gpt_oss alone", in->where) : 0;
    if (size ? window != m->window && window != m->window - 1 : makes)
        return fail("%s: window_size: expected %" PRId64 ",0: %s has a window of %" PRId64, in->where, m->window, m->name, m->window);
    if (!freq && !makes)
        return 0;
    if (freq && megatron_layers_read(freq, in->where, "window_attn_skip_freq", m->layers, &every, has) < 0)
        return -1;
    for (int64_t i = 0; i < m->layers; i++)
        if ((!freq || (every ? (i + 1) % every != 0 : has[i])) != model_windowed(m, i))
            return fail("%s: window_attn_skip_freq: layer %" PRId64 " %s a window, but of %s it %s", in->where, i, model_windowed(m, i) ? "without" : "with", m->name,
                        model_windowed(m, i) ? "has one" : "has none");
    return 0;
}

/* arguments.py, validate_args(): with SwiGLU two thirds of 4 hidden, a multiple of 64. */
static int64_t usual_ffn(const struct import *in)
{
    return import_has(in, "swiglu") ? in->p->model.hidden / 24 * 64 : 4 * in->p->model.hidden;
}

int megatron_check_sizes(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool makes = makes_model(in) && m->experts > 0;
    int64_t ffn = takes_defaults(in) && !import_has(in, "ffn_hidden_size") ? usual_ffn(in) : m->ffn;
    const struct size of[] = {
        { "num_layers", m->layers, m->layers }, { "hidden_size", m->hidden, m->hidden }, { "ffn_hidden_size", m->ffn, m->ffn },
        { "num_attention_heads", m->heads, m->heads }, { "num_query_groups", m->kv_heads, m->kv_heads }, { "num_experts", m->experts, m->experts },
        { "moe_router_topk", m->experts_used, makes ? 2 : m->experts_used }, { "moe_ffn_hidden_size", m->expert_ffn, makes ? ffn : m->expert_ffn },
        { "moe_shared_expert_intermediate_size", m->shared_ffn, makes ? 0 : m->shared_ffn },
    };

    return check_sizes(in, of, sizeof of / sizeof *of);
}

int megatron_check_routers(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool sigmoid = import_says(in, "moe_router_score_function", "sigmoid"), biased = import_has(in, "moe_router_enable_expert_bias");
    int64_t groups;

    if (import_integer(in, "moe_router_num_groups", 1, &groups) < 0)
        return -1;
    if (m->route_groups == 0 && (sigmoid || biased || groups > 1))
        return fail("%s: %s: of %s softmax alone is modelled, without a bias and of all experts", in->where, sigmoid ? "moe_router_score_function" : biased ?
                    "moe_router_enable_expert_bias" : "moe_router_num_groups", m->name);
    if (m->route_groups == 0)
        return 0;
    if (!sigmoid || !biased)
        return fail("%s: %s: missing: %s is modelled with %s alone", in->where, sigmoid ? "moe_router_enable_expert_bias" : "moe_router_score_function", m->name,
                    sigmoid ? "biases that are updated each step" : "sigmoid");
    if (groups != m->route_groups)
        return fail("%s: moe_router_num_groups: %" PRId64 "%s, but %s has %" PRId64, in->where, groups, import_has(in, "moe_router_num_groups") ? "" :
                    " where it is left out", m->name, m->route_groups);
    return 0;
}

/* Numbers that no size and no time depends on: another model's are named.  What is left out of options that make a model is Megatron-LM's
 * default, where that is known. */
static int say_numbers(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool makes = takes_defaults(in), rope = m->position == POS_ROPE, latent = m->kv_rank > 0, grouped = m->route_groups > 1;
    const struct { const char *name; bool counts, left_out; double is, usual; } of[] = {
        { "norm_epsilon", true, makes, m->norm_eps, 1e-5 },
        { "rotary_base", rope, makes, m->rope_theta, 10000 },
        { "rotary_percent", rope && !latent, makes, (double)m->rotary_dim / (double)m->head_dim, 1 },
        { "moe_router_topk_scaling_factor", m->experts > 0, makes, m->route_groups > 0 ? m->route_scale : 1, 1 },
        { "moe_router_group_topk", m->experts > 0, makes && grouped, grouped ? (double)m->route_best : 0, 0 },
        { "rotary_scaling_factor", latent, false, megatron_scaling(m, "factor", 1), 1 },
        { "mscale", latent, false, megatron_scaling(m, "mscale", 1), 1 },
        { "mscale_all_dim", latent, false, megatron_scaling(m, "mscale_all_dim", 0), 0 },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const json_t *v = json_object_get(in->from, of[i].name);
        double said = v ? json_number_value(v) : of[i].usual;
        if (v && !json_is_number(v))
            return fail("%s: %s: expected a number", in->where, of[i].name);
        if (!of[i].counts || (!v && !of[i].left_out) || is_about(said, of[i].is))
            continue;
        notes_say("%s: %s: %g%s, but %s has %g: sizes and times are the same, what is computed is not", in->where, of[i].name, said,
                  v ? "" : " where it is left out", m->name, of[i].is);
    }
    return 0;
}

/* The same of options without a number. */
static void say_flags(const struct import *in)
{
    const struct model *m = &in->p->model;
    const struct { const char *name; bool is; } of[] = {
        { "apply_layernorm_1p", megatron_adds_one_to_norms(m) }, { "use_rope_scaling", megatron_scales_rope(m) }, { "rotary_interleaved", false },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of && takes_defaults(in); i++)
        if (import_has(in, of[i].name) != of[i].is)
            notes_say("%s: %s: %s, but %s %s it: sizes and times are the same, what is computed is not", in->where, of[i].name,
                      of[i].is ? "left out" : "given", m->name, of[i].is ? "has" : "does not have");
    if (takes_defaults(in) && import_has(in, "use_rope_scaling") && megatron_scales_rope(m) && !megatron_scales_rope_as_is(m))
        notes_say("%s: use_rope_scaling: pretrain_gpt.py scales by 8 from 8192 positions on, whatever rope_scaling_factor says, but %s has factor %g: sizes "
                  "and times are the same, what is computed is not", in->where, m->name, megatron_scaling(m, "factor", 8));
}

/* Without group_query_attention num_query_groups is not looked at; with it, it is 1 where it is left out. */
static int check_groups(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool grouped = import_has(in, "group_query_attention");
    const struct size groups = { "num_query_groups", m->kv_heads, 1 };

    if (m->kv_rank > 0)
        return grouped ? fail("%s: group_query_attention: Megatron-LM: \"Group query attention is mutually exclusive with multi latent attention.\": leave "
                              "it out", in->where) : 0;
    if (!takes_defaults(in))
        return 0;
    if (!grouped && m->kv_heads != m->heads)
        return fail("%s: group_query_attention: missing: without it Megatron-LM has a key/value head for each of the %" PRId64 " attention heads, but %s "
                    "has %" PRId64 ": --group-query-attention --num-query-groups %" PRId64, in->where, m->heads, m->name, m->kv_heads, m->kv_heads);
    return grouped ? check_sizes(in, &groups, 1) : 0;
}

/* Sizes whose defaults follow from others: a dense layer's width, a head's. */
static int check_widths(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool makes = takes_defaults(in), dense = m->experts == 0 || model_blocks_differ(m);
    const struct size of[] = {
        { "ffn_hidden_size", m->ffn, makes && dense ? usual_ffn(in) : m->ffn },
        { "kv_channels", m->head_dim, makes ? m->hidden / m->heads : m->head_dim },
    };

    return check_sizes(in, of, m->kv_rank > 0 ? 1 : 2);
}

/* add_qkv_bias is of q, k and v alone; biases of all linear layers, which are there unless disable_bias_linear takes them away, are theirs too. */
static int check_biases(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool given = import_has(in, "add_qkv_bias"), all = !import_has(in, "disable_bias_linear");

    if (m->kv_rank > 0 || !makes_model(in) || (!given && !takes_defaults(in)) || (given || all) == m->qkv_bias)
        return 0;
    return fail("%s: add_qkv_bias: %s %s biases of q, k and v: %s it these options make another model", in->where, m->name,
                m->qkv_bias ? "has" : "does not have", m->qkv_bias ? "without" : "with");
}

/* A table of learned positions has as many rows as max_position_embeddings says. */
static int check_positions(const struct import *in)
{
    const struct model *m = &in->p->model;
    const struct size rows = { "max_position_embeddings", m->positions, m->positions };
    int64_t most;

    if (import_integer(in, "max_position_embeddings", in->p->seq, &most) < 0)
        return -1;
    if (most < in->p->seq)
        return fail("%s: max_position_embeddings: %" PRId64 " are fewer than seq_length, %" PRId64, in->where, most, in->p->seq);
    return m->position == POS_LEARNED && makes_model(in) ? check_sizes(in, &rows, 1) : 0;
}

static int check_flags(const struct import *in)
{
    const struct model *m = &in->p->model;
    const char *act = megatron_activation(m);
    bool oss = is_oss(m), rope = import_says(in, "position_embedding_type", "rope") || import_has(in, "use_rotary_position_embeddings");
    bool learned = !rope && (!import_has(in, "position_embedding_type") || import_says(in, "position_embedding_type", "learned_absolute"));
    const struct { const char *option; bool given, is; } of[] = {
        { "swiglu", import_has(in, "swiglu"), act && !strcmp(act, "--swiglu") },
        { "quick_geglu", import_has(in, "quick_geglu"), oss },
        { "squared_relu", import_has(in, "squared_relu"), act && !strcmp(act, "--squared-relu") },
        { "softmax_type learnable", import_says(in, "softmax_type", "learnable"), oss },
        { "glu_linear_offset", import_has(in, "glu_linear_offset"), oss },
        { "activation_func_clamp_value", import_has(in, "activation_func_clamp_value"), oss },
        { import_has(in, "normalization") ? "normalization RMSNorm" : "normalization RMSNorm (left out it is LayerNorm)", import_says(in, "normalization", "RMSNorm"),
          m->norm == NORM_RMS },
        { "position_embedding_type rope", rope, m->position == POS_ROPE },
        { "position_embedding_type learned_absolute", learned, m->position == POS_LEARNED },
        { "untie_embeddings_and_output_weights", import_has(in, "untie_embeddings_and_output_weights"), !m->tied },
        { "disable_bias_linear", import_has(in, "disable_bias_linear"), !m->mlp_bias && !oss },
        { "num_experts", import_has(in, "num_experts"), m->experts > 0 },
        { "multi_latent_attention", import_has(in, "multi_latent_attention"), m->kv_rank > 0 },
        { "qk_layernorm", import_has(in, "qk_layernorm"), m->qk_norm || m->kv_rank > 0 },
    };

    if (!makes_model(in))
        return 0;
    if (!act)
        return fail("%s: model: %s has an activation that no option of Megatron-LM states: GELU, --swiglu, --squared-relu", in->where, m->name);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].given != of[i].is)
            return fail("%s: %s: %s %s it these options make another model", in->where, of[i].option, m->name,
                        of[i].is ? "has it: without" : "does not have it: with");
    return 0;
}

static const char *const pattern_names[] = { "hybrid_layer_pattern", "hybrid_override_pattern" };

/* HybridModel's layers: hybrid_layer_allocation.py.  A pattern with stages ("|") or depths of multi-token prediction ("/") is another. */
static int check_pattern(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool stated = false;

    for (size_t i = 0; i < 2; i++) {
        const char *says = json_string_value(json_object_get(in->from, pattern_names[i]));
        bool same = says && (int64_t)strlen(says) == m->layers;
        for (int64_t b = 0; same && b < m->layers; b++)
            same = says[b] == hybrid_letter(hybrid_kind(m, b));
        if (says && !same)
            return fail("%s: %s: \"%.80s\": not the layers of %s", in->where, pattern_names[i], says, m->name);
        stated |= says != NULL;
    }
    return stated || !makes_model(in) ? 0 : fail("%s: hybrid_layer_pattern: missing: without it these options make another model than %s", in->where, m->name);
}

static int check_hybrid(const struct import *in)
{
    static const char *const names[] = { "is_hybrid_model", "hybrid_layer_pattern", "hybrid_override_pattern", "mamba_num_heads", "mamba_head_dim",
                                         "mamba_num_groups", "mamba_state_dim" };
    const struct model *m = &in->p->model;
    bool makes = makes_model(in);
    const struct size of[] = {
        { "mamba_num_heads", m->ssm_heads, makes ? 2 * m->hidden / 64 : m->ssm_heads }, { "mamba_head_dim", m->ssm_head_dim, makes ? 64 : m->ssm_head_dim },
        { "mamba_num_groups", m->ssm_groups, makes ? 8 : m->ssm_groups }, { "mamba_state_dim", m->ssm_state, makes ? 128 : m->ssm_state },
    };

    for (size_t i = 0; i < sizeof names / sizeof *names && !m->hybrid; i++)
        if (import_has(in, names[i]))
            return fail("%s: %s: %s has no layers with state spaces", in->where, names[i], m->name);
    return m->hybrid ? (check_pattern(in) < 0 || check_sizes(in, of, sizeof of / sizeof *of) < 0 ? -1 : 0) : 0;
}

int megatron_check_kind(const struct import *in)
{
    const struct model *m = &in->p->model;
    const struct size vocab = { "vocab_size", m->vocab, m->vocab };
    bool oss = is_oss(m);

    if (check_hybrid(in) < 0 || check_sizes(in, &vocab, 1) < 0 || check_positions(in) < 0 || check_flags(in) < 0 || check_biases(in) < 0 || check_groups(in) < 0 ||
        check_widths(in) < 0)
        return -1;
    if (!oss && import_has(in, "softmax_type") && !import_says(in, "softmax_type", "vanilla"))
        return fail("%s: softmax_type: attention sinks are modelled of gpt_oss alone: vanilla", in->where);
    if (oss && makes_model(in) && !import_has(in, "no_bias_dropout_fusion"))
        return fail("%s: no_bias_dropout_fusion: missing: Megatron-LM: \"bias_dropout_fusion is not supported in TEGroupedMLP when add_bias_linear=True\"", in->where);
    if (check_latent(in, makes_model(in)) < 0 || check_windows(in, makes_model(in)) < 0)
        return -1;
    if (say_numbers(in) < 0)
        return -1;
    say_flags(in);
    return check_layers(in, makes_model(in));
}
