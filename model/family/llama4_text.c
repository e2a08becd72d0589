/* llama4_text.c -- models/llama4/ of transformers 5.23. */
#include "model/family/rows.h"

#include <string.h>

static const struct hf_key keys[] = {
    HEADS(202048, 5120, 48, 40, 131072), TIED(false), INT("intermediate_size_mlp", ffn, 16384),
    INT("intermediate_size", expert_ffn, 8192), INT("intermediate_size", shared_ffn, 8192),
    INT("num_local_experts", experts, 16), INT("num_experts_per_tok", experts_used, 1),
    INT("interleave_moe_layer_step", moe_every, 1), KV_HEADS(8),
    INT_NULL("head_dim", head_dim, 128), INT("attention_chunk_size", window, 8192), BOOL("use_qk_norm", l2_norm, true),
    BOOL("attn_temperature_tuning", tuned, true),
    ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static bool is_unchunked(const json_t *v, bool *known)
{
    const char *s = json_is_string(v) ? json_string_value(v) : "";

    *known = !strcmp(s, "full_attention") || !strcmp(s, "chunked_attention");
    return !strcmp(s, "full_attention");
}

/* Llama4TextConfig: "moe_layers" wins over the step; an empty list of layers without positions is as none.  Layers with
 * positions attend within chunks. */
static int read_config(const struct hf *c, struct model *m)
{
    bool has[MODEL_MAX_LAYERS] = { false };

    if (json_array_size(json_object_get(c->root, "no_rope_layers")) > 0) {
        if (hf_layer_list(c, "no_rope_layers", m, hf_has_no_rope, &m->nope_every) < 0)
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
    if (hf_layers_read(c, "moe_layers", m, has) < 0)
        return -1;
    for (m->moe_every = 1; m->moe_every <= m->layers && !has[m->moe_every - 1]; )
        m->moe_every++;
    for (int64_t i = 0; i < m->layers; i++)
        if (has[i] != ((i + 1) % m->moe_every == 0))
            return hf_refuse(c, "moe_layers", "every n-th layer, and no other");
    return 0;
}

static const struct module_row block[] = {
    ATTENTION,
    { "feed_forward.experts:gate_up_proj", ROLE_EXPERTS_IN,  EXT_HIDDEN,     EXT_2EXPERT_FFN, ALWAYS },
    { "feed_forward.experts:down_proj",    ROLE_EXPERTS_OUT, EXT_EXPERT_FFN, EXT_HIDDEN,      ALWAYS },
    ROUTER("feed_forward.router"), SHARED("feed_forward.shared_expert"), TWO_NORMS,
    { 0 }
};
static const struct module_row dense[] = {
    ATTENTION,
    { "feed_forward.gate_proj", ROLE_GATE, EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "feed_forward.up_proj",   ROLE_UP,   EXT_FFN,    EXT_HIDDEN, ALWAYS },
    { "feed_forward.down_proj", ROLE_DOWN, EXT_HIDDEN, EXT_FFN,    ALWAYS },
    TWO_NORMS,
    { 0 }
};

const struct family llama4_text_family = {
    .name = "llama4_text", .text_of = { "llama4" },
    .keys = keys, .experts = true, .theta_key = "rope_theta", .theta = 5e5, .read = read_config, .write = hf_no_rope_write,
    LLAMA_OUTSIDE, .block = block, .dense = dense, GATED_RMS_ROPE, .experts_in_out = true,
    .calls = { { "", "model!+[ embed_tokens! rotary_emb~= @ norm ] lm_head",
          "input_layernorm self_attn![ q_proj k_proj v_proj qk_norm< qk_norm< o_proj ] post_attention_layernorm "
          "feed_forward[ router experts[ act_fn ] shared_expert[ gate_proj activation_fn up_proj down_proj ] ]" } },
    .attn_dropout = true, .low_softmax = true, .attention_named = true, .complex_rotary = true, .every_expert = true,
    .both_masks = true,
    .block_class = "Llama4TextDecoderLayer", .lora_mixture = true, .linear_router = true,
    .liger = { .known = true, .rope = LIGER_OTHER, .norm = LIGER_HAS, .glu = LIGER_OTHER, .in_place = true, .replaces_nothing = true },
    .not_megatron = "Megatron-LM has no attention within chunks and no queries scaled by their position",
};
