/* megatron_describes.c -- options that describe the model, held against the plan's.  Defaults are those of Megatron-LM's command line at core 0.16.1
 * (training/arguments.py, transformer_config.py), taken where the options make a model: what they leave out is then described, too. */
#include "model/exchange/megatron_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/exchange/megatron_layers.h"

static bool makes_model(const struct import *in) { return import_has(in, "num_layers") && !import_has(in, "partly_stated"); }

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
    if (import_has(in, "no_rope_fusion") || (import_has(in, "rope_type") && !import_says(in, "rope_type", "yarn")))
        return fail("%s: %s: latent attention is modelled with fused rotary positions, which Megatron-LM has of YaRN alone (rope_type yarn, its default; "
                    "without scaling rotary_scaling_factor 1)", in->where, import_has(in, "no_rope_fusion") ? "no_rope_fusion" : "rope_type");
    return check_sizes(in, of, sizeof of / sizeof *of);
}

/* Which layers have experts. */
static int check_layers(const struct import *in, bool makes)
{
    const struct model *m = &in->p->model;
    const json_t *v = json_object_get(in->from, "moe_layer_freq");
    unsigned char has[MODEL_MAX_LAYERS];
    int64_t every;

    if (m->experts == 0 || (!v && !makes))
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

static bool is_oss(const struct model *m) { return !strcmp(m->family, "gpt_oss"); }

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

int megatron_check_sizes(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool makes = makes_model(in) && m->experts > 0;
    const struct size of[] = {
        { "num_layers", m->layers, m->layers }, { "hidden_size", m->hidden, m->hidden }, { "ffn_hidden_size", m->ffn, m->ffn },
        { "num_attention_heads", m->heads, m->heads }, { "num_query_groups", m->kv_heads, m->kv_heads }, { "num_experts", m->experts, m->experts },
        { "moe_router_topk", m->experts_used, makes ? 2 : m->experts_used }, { "moe_ffn_hidden_size", m->expert_ffn, makes ? m->ffn : m->expert_ffn },
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

static double scaling(const struct model *m, const char *key, double usual)
{
    const json_t *v = json_object_get(m->rope_scaling, key);

    return v ? json_number_value(v) : usual;
}

/* Numbers that no size and no time depends on: another model's are named.  What is left out of options that make a model is Megatron-LM's
 * default, where that is known. */
static void say_numbers(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool makes = makes_model(in), rope = m->position == POS_ROPE, latent = m->kv_rank > 0, grouped = m->route_groups > 1;
    const struct { const char *name; bool counts, left_out; double is, usual; } of[] = {
        { "rotary_base", rope, makes, m->rope_theta, 10000 },
        { "moe_router_topk_scaling_factor", m->experts > 0, makes, m->route_groups > 0 ? m->route_scale : 1, 1 },
        { "moe_router_group_topk", m->experts > 0, makes && grouped, grouped ? (double)m->route_best : 0, 0 },
        { "rotary_scaling_factor", latent, false, scaling(m, "factor", 1), 1 },
        { "mscale", latent, false, scaling(m, "mscale", 1), 1 },
        { "mscale_all_dim", latent, false, scaling(m, "mscale_all_dim", 0), 0 },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const json_t *v = json_object_get(in->from, of[i].name);
        double said = v ? json_number_value(v) : of[i].usual;
        if (!of[i].counts || (v ? !json_is_number(v) : !of[i].left_out) || (said >= of[i].is && said <= of[i].is))
            continue;
        notes_say("%s: %s: %g%s, but %s has %g: sizes and times are the same, what is computed is not", in->where, of[i].name, said,
                  v ? "" : " where it is left out", m->name, of[i].is);
    }
}

int megatron_check_kind(const struct import *in)
{
    const struct model *m = &in->p->model;
    bool oss = is_oss(m);
    const struct { const char *option; bool given, is; } of[] = {
        { "swiglu", import_has(in, "swiglu"), m->mlp == MLP_GATED && !oss },
        { "quick_geglu", import_has(in, "quick_geglu"), oss },
        { "softmax_type learnable", import_says(in, "softmax_type", "learnable"), oss },
        { "glu_linear_offset", import_has(in, "glu_linear_offset"), oss },
        { "activation_func_clamp_value", import_has(in, "activation_func_clamp_value"), oss },
        { import_has(in, "normalization") ? "normalization RMSNorm" : "normalization RMSNorm (left out it is LayerNorm)", import_says(in, "normalization", "RMSNorm"),
          m->norm == NORM_RMS },
        { "position_embedding_type rope", import_says(in, "position_embedding_type", "rope") || import_has(in, "use_rotary_position_embeddings"),
          m->position == POS_ROPE },
        { "untie_embeddings_and_output_weights", import_has(in, "untie_embeddings_and_output_weights"), !m->tied },
        { "disable_bias_linear", import_has(in, "disable_bias_linear"), !m->mlp_bias && !oss },
        { "num_experts", import_has(in, "num_experts"), m->experts > 0 },
        { "multi_latent_attention", import_has(in, "multi_latent_attention"), m->kv_rank > 0 },
        { "qk_layernorm", import_has(in, "qk_layernorm"), m->qk_norm || m->kv_rank > 0 },
    };
    int64_t vocab, positions;

    if (import_integer(in, "vocab_size", m->vocab, &vocab) < 0 || import_integer(in, "max_position_embeddings", in->p->seq, &positions) < 0)
        return -1;
    if (vocab != m->vocab)
        return fail("%s: vocab_size: %" PRId64 ", but %s has %" PRId64, in->where, vocab, m->name, m->vocab);
    if (positions < in->p->seq)
        return fail("%s: max_position_embeddings: %" PRId64 " are fewer than seq_length, %" PRId64, in->where, positions, in->p->seq);
    for (size_t i = 0; i < sizeof of / sizeof *of && makes_model(in); i++)
        if (of[i].given != of[i].is)
            return fail("%s: %s: %s %s it: without that these options make another model", in->where, of[i].option, m->name,
                        of[i].is ? "has" : "does not have");
    if (!oss && import_has(in, "softmax_type") && !import_says(in, "softmax_type", "vanilla"))
        return fail("%s: softmax_type: attention sinks are modelled of gpt_oss alone: vanilla", in->where);
    if (oss && makes_model(in) && !import_has(in, "no_bias_dropout_fusion"))
        return fail("%s: no_bias_dropout_fusion: missing: Megatron-LM: \"bias_dropout_fusion is not supported in TEGroupedMLP when add_bias_linear=True\"", in->where);
    if (check_latent(in, makes_model(in)) < 0 || check_windows(in, makes_model(in)) < 0)
        return -1;
    say_numbers(in);
    return check_layers(in, makes_model(in));
}
