/* qwen2.c -- models/qwen2/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(151936, 4096, 22016, 32, 32, 32768), TIED(false),
    KV_HEADS(32),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    SET(qkv_bias, true), SET(out_bias, false), SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

const struct family qwen2_family = {
    .name = "qwen2",
    .keys = keys, .theta_key = "rope_theta", .read = hf_qwen_read, .write = hf_qwen_write,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true,
    .typed_masks = true,
    .block_class = "Qwen2DecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .factory = true },
    .compiles = true, .titan_tensor = true, .engine_axes = true, .megatron = true,
};
