/* llama.c -- models/llama/ of transformers 5.23.  LLaMA, and what most families copy. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(32000, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_HEADS(HF_DERIVED),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

const struct family llama_family = {
    .name = "llama", .text_of = { "llava" },
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true,
    .block_class = "LlamaDecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .factory = true },
    .compiles = true, .titan_tensor = true, .autotp = true, .engine_axes = true, .engine_titan = true, .megatron = true,
};
