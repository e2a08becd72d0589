/* smollm3.c -- models/smollm3/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(128256, 2048, 11008, 36, 16, 32768), TIED(true),
    KV_HEADS(4), HEAD_DIM, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "use_sliding_window", "false", "windows in layers without positions are not supported" },
    { 0 }
};

/* SmolLM3Config: 1 in "no_rope_layers" is a layer with rotary positions. */
static int read_config(const struct hf *c, struct model *m)
{
    if (hf_given(c, "no_rope_layers"))
        return hf_layer_list(c, "no_rope_layers", m, hf_has_no_rope, &m->nope_every);
    return hf_int(c, "no_rope_layer_interval", 4, MODEL_MAX_LAYERS, &m->nope_every);
}

const struct family smollm3_family = {
    .name = "smollm3",
    .keys = keys, .fixed = fixed, .heads_divide = true, .theta_key = "rope_theta", .theta = 2e6, .read = read_config,
    .write = hf_no_rope_write,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true,
    .block_class = "SmolLM3DecoderLayer",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true },
    .compiles = true,
};
