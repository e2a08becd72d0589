/* qwen3.c -- models/qwen3/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(151936, 4096, 22016, 32, 32, 32768), TIED(false),
    KV_HEADS(32),
    INT("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

const struct family qwen3_family = {
    .name = "qwen3", .text_of = { "qwen3_vl" }, .text_as = "qwen3_vl_text",
    .keys = keys, .theta_key = "rope_theta", .read = hf_qwen_read, .write = hf_qwen_write,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE, .qk_norm = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm " LLAMA_MLP },
               { "+dpx", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] post_attention_layernorm " LLAMA_MLP } },
    .attn_dropout = true, .qk_norm_first = true,
    .typed_masks = true,
    .block_class = "Qwen3DecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .factory = true },
    .compiles = true, .titan_tensor = true, .engine_axes = true, .megatron = true,
};
