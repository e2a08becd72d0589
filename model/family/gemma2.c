/* gemma2.c -- models/gemma2/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(256000, 2304, 9216, 26, 8, 8192), TIED(true),
    INT("num_key_value_heads", kv_heads, 4),
    INT("head_dim", head_dim, 256), ACT("hidden_activation", ACT_GELU_TANH),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    INT("query_pre_attn_scalar", attn_scalar, 256),
    REAL("final_logit_softcapping", softcap, 30), REAL("attn_logit_softcapping", attn_softcap, 50),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "use_bidirectional_attention", "false", "attention is causal here" },
    { 0 }
};

const struct family gemma2_family = {
    .name = "gemma2",
    .keys = keys, .fixed = fixed, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE, .norm_place = NORM_AROUND,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm "
          "pre_feedforward_layernorm " LLAMA_MLP " post_feedforward_layernorm" } },
    .attn_dropout = true, .one_plus_weight = true, .scaled_table = true,
    .no_sdpa = "sdpa cannot cap scores", .both_masks = true,
    .block_class = "Gemma2DecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .gelu = true, .factory = true },
    .not_run = "gemma's scaled embeddings and norms of 1 + w",
};
