/* mistral.c -- models/mistral/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(32000, 4096, 14336, 32, 32, 131072), TIED(false),
    INT("num_key_value_heads", kv_heads, 8), WINDOW(4096),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

const struct family mistral_family = {
    .name = "mistral", .text_of = { "mistral3" },
    .keys = keys, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true,
    .block_class = "MistralDecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS,
               .in_place = true, .factory = true, .replaces_nothing = true },
    .compiles = true, .titan_tensor = true, .autotp = true, .engine_axes = true, .megatron = true,
};
