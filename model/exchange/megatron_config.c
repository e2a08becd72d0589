/* megatron_config.c -- the model that a command line of Megatron-LM describes, as a config.json of the family that has its blocks.
 *
 * Numbers left out are the command line's defaults (training/arguments.py of core 0.16.1).  What the line says of the
 * model is held against the result afterwards, option by option (megatron_describes.c): a family that has not its blocks is
 * refused there. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/notes.h"
#include "model/arch/builtin.h"
#include "model/exchange/megatron_import.h"
#include "model/exchange/megatron_layers.h"

static bool has(const json_t *o, const char *name) { return json_object_get(o, name) && !json_is_false(json_object_get(o, name)); }

static int64_t number(const json_t *o, const char *name, int64_t usual)
{
    const json_t *v = json_object_get(o, name);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : usual;
}

static double real(const json_t *o, const char *name, double usual)
{
    const json_t *v = json_object_get(o, name);

    return json_is_number(v) ? json_number_value(v) : usual;
}

static bool says(const json_t *o, const char *name, const char *word)
{
    const char *s = json_string_value(json_object_get(o, name));

    return s && !strcmp(s, word);
}

/* Of a tokenizer that HuggingFaceTokenizer takes by its id of the hub; 0: not known. */
static int64_t vocabulary_of_id(const char *id)
{
    struct model m;

    if (!id || !hf_ids_find(id) || model_load(id, &m) < 0)
        return 0;
    int64_t vocab = m.vocab;
    model_free(&m);
    return vocab;
}

/* The vocabulary: stated, or that of a tokenizer whose size is known.  pretrain_gpt.py's own tokenizer is GPT2BPETokenizer (args_defaults), which its
 * merge_file shows; TikTokenizer has 2^17 tokens (DEFAULT_TIKTOKEN_MAX_VOCAB).  0: neither. */
static int64_t vocabulary(const json_t *o, const char *where)
{
    const char *type = json_string_value(json_object_get(o, "tokenizer_type"));
    int64_t stated = number(o, "vocab_size", number(o, "padded_vocab_size", 0));

    if (stated > 0)
        return stated;
    if (!type && has(o, "merge_file")) {
        notes_say("%s: tokenizer_type is left out: pretrain_gpt.py's is GPT2BPETokenizer, of 50257 tokens", where);
        return 50257;
    }
    if (type && !strcmp(type, "GPT2BPETokenizer"))
        return 50257;
    if (type && !strcmp(type, "TikTokenizer"))
        return 1 << 17;
    if (type && !strcmp(type, "Llama2Tokenizer")) {
        notes_say("%s: tokenizer_type Llama2Tokenizer: Llama 2's tokenizer.model has 32000 tokens", where);
        return 32000;
    }
    const char *file = json_string_value(json_object_get(o, "tokenizer_model"));
    if (type && !strcmp(type, "GPTSentencePieceTokenizer") && file && strstr(file, "nemotron_2_256k")) {
        notes_say("%s: tokenizer_model nemotron_2_256k.model: Nemotron's tokenizer has 256000 tokens", where);
        return 256000;
    }
    return type && !strcmp(type, "HuggingFaceTokenizer") ? vocabulary_of_id(json_string_value(json_object_get(o, "tokenizer_model"))) : 0;
}

/* transformer_config.py: four times the width, of a gated MLP two thirds of that in multiples of 64. */
static int64_t ffn(const json_t *o, int64_t hidden)
{
    return number(o, "ffn_hidden_size", has(o, "swiglu") ? hidden * 4 * 2 / 3 / 64 * 64 : 4 * hidden);
}

static void set(json_t *c, const char *key, int64_t n) { json_object_set_new(c, key, json_integer(n)); }
static void set_true(json_t *c, const char *key, bool is) { json_object_set_new(c, key, json_boolean(is)); }

/* What the line says of the shape. */
struct shape { int64_t layers, hidden, heads, vocab; };

/* What most families' config.json call alike. */
static json_t *config_of(const json_t *o, const struct shape *s, const char *type)
{
    json_t *c = json_pack("{s:s}", "model_type", type);

    set(c, "num_hidden_layers", s->layers);
    set(c, "hidden_size", s->hidden);
    set(c, "num_attention_heads", s->heads);
    set(c, "num_key_value_heads", has(o, "group_query_attention") ? number(o, "num_query_groups", 1) : s->heads);
    set(c, "vocab_size", s->vocab);
    set(c, "max_position_embeddings", number(o, "max_position_embeddings", number(o, "seq_length", 2048)));
    set_true(c, "tie_word_embeddings", !has(o, "untie_embeddings_and_output_weights"));
    return c;
}

static void set_head_dim(json_t *c, const json_t *o, const struct shape *s) { set(c, "head_dim", number(o, "kv_channels", s->hidden / s->heads)); }

static double norm_epsilon(const json_t *o) { return real(o, "norm_epsilon", real(o, "layernorm_epsilon", 1e-5)); }

/* Blocks of Llama and those that differ from it in biases, norms of q and k, experts. */
static json_t *llama_like(const json_t *o, const struct shape *s)
{
    int64_t experts = number(o, "num_experts", 0);
    bool norms = has(o, "qk_layernorm"), biases = has(o, "add_qkv_bias");
    const char *type = experts ? (norms ? "qwen3_moe" : "mixtral") : norms ? "qwen3" : biases ? "qwen2" : "llama";
    json_t *c = config_of(o, s, type);

    set_head_dim(c, o, s);
    json_object_set_new(c, "rms_norm_eps", json_real(norm_epsilon(o)));
    json_object_set_new(c, "rope_theta", json_real(real(o, "rotary_base", 10000)));
    if (!strcmp(type, "llama")) {
        set_true(c, "attention_bias", !has(o, "disable_bias_linear"));
        set_true(c, "mlp_bias", !has(o, "disable_bias_linear"));
    }
    if (!strcmp(type, "mixtral"))
        set(c, "num_local_experts", experts);
    if (!strcmp(type, "qwen3_moe")) {
        set(c, "num_experts", experts);
        set(c, "moe_intermediate_size", number(o, "moe_ffn_hidden_size", ffn(o, s->hidden)));
    }
    if (experts)
        set(c, "num_experts_per_tok", number(o, "moe_router_topk", 2));
    set(c, "intermediate_size", !strcmp(type, "mixtral") ? number(o, "moe_ffn_hidden_size", ffn(o, s->hidden)) : ffn(o, s->hidden));
    if (has(o, "use_rope_scaling"))
        json_object_set_new(c, "rope_scaling", json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", real(o, "rope_scaling_factor", 8),
                                                         "low_freq_factor", 1.0, "high_freq_factor", 4.0, "original_max_position_embeddings", 8192));
    return c;
}

/* GPT-2's: learned positions, LayerNorm, GELU, biases. */
static json_t *gpt_like(const json_t *o, const struct shape *s)
{
    double dropout = real(o, "hidden_dropout", 0.1);
    json_t *c = json_pack("{s:s}", "model_type", "gpt2");

    set(c, "n_layer", s->layers);
    set(c, "n_embd", s->hidden);
    set(c, "n_head", s->heads);
    set(c, "n_inner", ffn(o, s->hidden));
    set(c, "n_positions", number(o, "max_position_embeddings", number(o, "seq_length", 1024)));
    set(c, "vocab_size", s->vocab);
    set_true(c, "tie_word_embeddings", !has(o, "untie_embeddings_and_output_weights"));
    json_object_set_new(c, "resid_pdrop", json_real(dropout));
    json_object_set_new(c, "embd_pdrop", json_real(dropout));
    json_object_set_new(c, "attn_pdrop", json_real(real(o, "attention_dropout", 0.1)));
    return c;
}

/* GPTModel's own, whose blocks no family of transformers has. */
static json_t *own_gpt(const json_t *o, bool rope, const struct shape *s)
{
    json_t *c = config_of(o, s, "megatron_gpt");

    set_head_dim(c, o, s);
    set(c, "intermediate_size", ffn(o, s->hidden));
    json_object_set_new(c, "hidden_act", json_string(has(o, "swiglu") ? "silu" : "gelu"));
    json_object_set_new(c, "normalization", json_string(says(o, "normalization", "RMSNorm") ? "RMSNorm" : "LayerNorm"));
    json_object_set_new(c, "position_embedding_type", json_string(rope ? "rope" : "learned_absolute"));
    if (rope) {
        json_object_set_new(c, "rotary_base", json_real(real(o, "rotary_base", 10000)));
        json_object_set_new(c, "rotary_percent", json_real(real(o, "rotary_percent", 1)));
    }
    set_true(c, "gated_linear_unit", has(o, "swiglu"));
    set_true(c, "add_bias_linear", !has(o, "disable_bias_linear"));
    set_true(c, "qk_layernorm", has(o, "qk_layernorm"));
    json_object_set_new(c, "norm_epsilon", json_real(norm_epsilon(o)));
    json_object_set_new(c, "hidden_dropout", json_real(real(o, "hidden_dropout", 0.1)));
    json_object_set_new(c, "attention_dropout", json_real(real(o, "attention_dropout", 0.1)));
    return c;
}

/* GPT-2's blocks with rotary positions: StarCoder2's. */
static json_t *rotary_gpt_like(const json_t *o, const struct shape *s)
{
    double dropout = real(o, "hidden_dropout", 0.1);
    json_t *c = config_of(o, s, "starcoder2");

    set(c, "intermediate_size", ffn(o, s->hidden));
    json_object_set_new(c, "hidden_act", json_string("gelu"));
    json_object_set_new(c, "sliding_window", json_null());
    set_true(c, "use_bias", !has(o, "disable_bias_linear"));
    json_object_set_new(c, "rope_theta", json_real(real(o, "rotary_base", 10000)));
    json_object_set_new(c, "residual_dropout", json_real(dropout));
    json_object_set_new(c, "embedding_dropout", json_real(dropout));
    json_object_set_new(c, "attention_dropout", json_real(real(o, "attention_dropout", 0.1)));
    return c;
}

/* Nemotron's: LayerNorm, rotary positions on a part of each head, squared ReLU, no biases of linear layers. */
static json_t *nemotron_like(const json_t *o, const struct shape *s)
{
    json_t *c = config_of(o, s, "nemotron");

    set_head_dim(c, o, s);
    set(c, "intermediate_size", ffn(o, s->hidden));
    json_object_set_new(c, "hidden_act", json_string("relu2"));
    json_object_set_new(c, "norm_eps", json_real(norm_epsilon(o)));
    json_object_set_new(c, "rope_theta", json_real(real(o, "rotary_base", 10000)));
    json_object_set_new(c, "partial_rotary_factor", json_real(real(o, "rotary_percent", 1)));
    return c;
}

/* moe_layer_freq, 1 where it is left out: the dense layers before those with experts.  -1: they stand in another order, or reported. */
static int64_t dense_first(const json_t *o, int64_t layers, const char *where)
{
    const json_t *freq = json_object_get(o, "moe_layer_freq");
    unsigned char has_experts[MODEL_MAX_LAYERS];
    int64_t every, n = 0;

    if (!freq)
        return 0;
    if (layers > MODEL_MAX_LAYERS)
        return fail("%s: num_layers: %" PRId64 ": at most %d are planned", where, layers, MODEL_MAX_LAYERS);
    if (megatron_layers_read(freq, where, "moe_layer_freq", layers, &every, has_experts) < 0)
        return -1;
    if (every)
        return every == 1 ? 0 : fail("%s: moe_layer_freq: %" PRId64 ": the options describe a model only where its dense layers come first: give --model", where, every);
    while (n < layers && !has_experts[n])
        n++;
    for (int64_t i = n; i < layers; i++)
        if (!has_experts[i])
            return fail("%s: moe_layer_freq: layer %" PRId64 " is dense behind layers with experts: the options describe a model only where its dense layers "
                        "come first: give --model", where, i);
    return n;
}

/* MLATransformerConfig's defaults, but for those that the command line has of its own. */
static void set_latent(json_t *c, const json_t *o)
{
    int64_t q_rank = number(o, "q_lora_rank", 0);
    double factor = real(o, "rotary_scaling_factor", 1);

    json_object_set_new(c, "q_lora_rank", q_rank ? json_integer(q_rank) : json_null());
    set(c, "kv_lora_rank", number(o, "kv_lora_rank", 32));
    set(c, "qk_nope_head_dim", number(o, "qk_head_dim", 128));
    set(c, "qk_rope_head_dim", number(o, "qk_pos_emb_head_dim", 64));
    set(c, "v_head_dim", number(o, "v_head_dim", 128));
    if (factor > 1)
        json_object_set_new(c, "rope_scaling", json_pack("{s:s, s:f, s:f, s:f, s:i}", "type", "yarn", "factor", factor, "mscale", real(o, "mscale", 1),
                                                         "mscale_all_dim", real(o, "mscale_all_dim", 0), "original_max_position_embeddings", 4096));
}

/* DeepSeek-V3's and GLM-4.5's: dense layers first, a shared expert beside those that routers choose.  Their routers are held against the line's afterwards. */
static json_t *routed_like(const json_t *o, const struct shape *s, const char *where)
{
    bool latent = has(o, "multi_latent_attention");
    int64_t dense = dense_first(o, s->layers, where), each = number(o, "moe_ffn_hidden_size", ffn(o, s->hidden));
    int64_t shared = number(o, "moe_shared_expert_intermediate_size", 0);

    if (dense < 0)
        return NULL;
    if (each < 1 || shared < each || shared % each) {
        fail("%s: moe_shared_expert_intermediate_size: %" PRId64 " is no multiple of an expert's width, %" PRId64 ": give --model", where, shared, each);
        return NULL;
    }
    json_t *c = config_of(o, s, latent ? "deepseek_v3" : "glm4_moe");
    if (latent) {
        set_latent(c, o);
    } else {
        set_head_dim(c, o, s);
        set_true(c, "attention_bias", has(o, "add_qkv_bias") || !has(o, "disable_bias_linear"));
        set_true(c, "use_qk_norm", has(o, "qk_layernorm"));
        json_object_set_new(c, "partial_rotary_factor", json_real(real(o, "rotary_percent", 1)));
    }
    set(c, "intermediate_size", ffn(o, s->hidden));
    set(c, "moe_intermediate_size", each);
    set(c, "n_routed_experts", number(o, "num_experts", 0));
    set(c, "num_experts_per_tok", number(o, "moe_router_topk", 2));
    set(c, "n_shared_experts", shared / each);
    set(c, "first_k_dense_replace", dense);
    set(c, "n_group", number(o, "moe_router_num_groups", 1));
    set(c, "topk_group", number(o, "moe_router_group_topk", 1));
    json_object_set_new(c, "routed_scaling_factor", json_real(real(o, "moe_router_topk_scaling_factor", 1)));
    json_object_set_new(c, "rms_norm_eps", json_real(norm_epsilon(o)));
    json_object_set_new(c, "rope_theta", json_real(real(o, "rotary_base", 10000)));
    return c;
}

/* HybridModel of Mamba-2, attention, MLP and expert layers: Nemotron-H's, whose attention has no positions. */
static json_t *hybrid_like(const json_t *o, const struct shape *s, const char *pattern)
{
    int64_t head_dim = number(o, "mamba_head_dim", 64);
    json_t *c = config_of(o, s, "nemotron_h");

    set_head_dim(c, o, s);
    set(c, "intermediate_size", number(o, "ffn_hidden_size", 4 * s->hidden));
    json_object_set_new(c, "hybrid_override_pattern", json_string(pattern));
    set(c, "mamba_head_dim", head_dim);
    set(c, "mamba_num_heads", number(o, "mamba_num_heads", head_dim > 0 ? 2 * s->hidden / head_dim : 0));
    set(c, "n_groups", number(o, "mamba_num_groups", 8));
    set(c, "ssm_state_size", number(o, "mamba_state_dim", 128));
    if (has(o, "num_experts")) {
        set(c, "n_routed_experts", number(o, "num_experts", 0));
        set(c, "num_experts_per_tok", number(o, "moe_router_topk", 2));
        set(c, "moe_intermediate_size", number(o, "moe_ffn_hidden_size", number(o, "ffn_hidden_size", 4 * s->hidden)));
        set(c, "moe_shared_expert_intermediate_size", number(o, "moe_shared_expert_intermediate_size", 0));
        json_object_set_new(c, "routed_scaling_factor", json_real(real(o, "moe_router_topk_scaling_factor", 1)));
    }
    json_object_set_new(c, "layer_norm_epsilon", json_real(norm_epsilon(o)));
    return c;
}

/* NULL: the options state none. */
static const char *hybrid_pattern(const json_t *o)
{
    const char *says = json_string_value(json_object_get(o, "hybrid_layer_pattern"));

    return says ? says : json_string_value(json_object_get(o, "hybrid_override_pattern"));
}

json_t *megatron_config(const json_t *options, const char *where)
{
    const char *pattern = hybrid_pattern(options);
    struct shape s = { number(options, "num_layers", pattern ? (int64_t)strlen(pattern) : 0), number(options, "hidden_size", 0), number(options, "num_attention_heads", 0),
                       vocabulary(options, where) };
    bool rope = says(options, "position_embedding_type", "rope") || has(options, "use_rotary_position_embeddings");
    bool rms = says(options, "normalization", "RMSNorm");

    if (s.layers < 1 || s.hidden < 1 || s.heads < 1) {
        fail("%s: the options do not describe a model (--num-layers, --hidden-size, --num-attention-heads): give --model", where);
        return NULL;
    }
    if (s.vocab < 1) {
        fail("%s: vocab_size: the options do not say it, and the tokenizer's is not known: add --vocab-size to them, or give --model", where);
        return NULL;
    }
    if (pattern)
        return hybrid_like(options, &s, pattern);
    bool gated = rope && rms && has(options, "swiglu");
    bool latent = has(options, "multi_latent_attention"), shares = has(options, "moe_shared_expert_intermediate_size");

    if (gated && has(options, "num_experts") && shares && !has(options, "spec"))
        return routed_like(options, &s, where);
    if (latent || shares || has(options, "moe_layer_freq") || has(options, "spec") || has(options, "mtp_num_layers")) {
        fail("%s: %s: the options describe such a model only with RMSNorm, rope, swiglu, num_experts and moe_shared_expert_intermediate_size: give "
             "--model", where, latent ? "multi_latent_attention" : shares ?
             "moe_shared_expert_intermediate_size" : has(options, "spec") ? "spec" : has(options, "moe_layer_freq") ? "moe_layer_freq" : "mtp_num_layers");
        return NULL;
    }
    if (gated)
        return llama_like(options, &s);
    if (rope && !rms && has(options, "squared_relu") && has(options, "disable_bias_linear") && !has(options, "num_experts"))
        return nemotron_like(options, &s);
    bool plain = !rms && !has(options, "swiglu") && !has(options, "qk_layernorm");

    if (has(options, "squared_relu") || has(options, "quick_geglu") || has(options, "num_experts") || has(options, "use_rope_scaling")) {
        fail("%s: the options describe neither a model as Llama (RMSNorm, rope, swiglu; with experts or without) nor one as GPT (GELU or SwiGLU, without "
             "experts) or Nemotron (LayerNorm, rope, squared ReLU): give --model", where);
        return NULL;
    }
    if (plain && (rope || (!has(options, "disable_bias_linear") && !has(options, "group_query_attention"))))
        return rope ? rotary_gpt_like(options, &s) : gpt_like(options, &s);
    return own_gpt(options, rope, &s);
}
