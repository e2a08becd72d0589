/* granite.c -- models/granite/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(32000, 4096, 11008, 32, 32, 2048), TIED(false),
    KV_HEADS(HF_DERIVED), HEAD_DIM, ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    REAL("embedding_multiplier", embed_scale, 1), REAL("logits_scaling", logit_scale, 1),
    REAL("residual_multiplier", residual_scale, 1), REAL("attention_multiplier", attn_scale, 1),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

const struct family granite_family = {
    .name = "granite",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true, .scaled_embed = true, .scaled_residual = true, .scaled_logits = true,
    .block_class = "GraniteDecoderLayer",
    /* "scales logits each call" */
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .own_loss = true, .factory = true },
    .compiles = true, .titan_tensor = true, .not_run = "granite's multipliers of embeddings, residuals, scores and logits",
};
