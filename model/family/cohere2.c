/* cohere2.c -- models/cohere2/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(256000, 8192, 22528, 40, 64, 8192), TIED(true),
    KV_HEADS(HF_DERIVED), ACT("hidden_act", ACT_SILU),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT, REAL("logit_scale", logit_scale, 0.0625),
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), HEAD_DIM, END
};

/* Cohere2Attention rotates where it has a window; without one no layer would be rotated. */
static int read_config(const struct hf *c, struct model *m)
{
    if (hf_is_null(c, "sliding_window"))
        return hf_refuse(c, "sliding_window", "an integer: without it no layer has positions");
    if (hf_windows_read(c, m, 4096, "sliding_window_pattern", 4) < 0)
        return -1;
    if (m->window == 0)
        return hf_refuse(c, "layer_types", "with sliding layers: the others have no positions");
    m->nope_every = m->full_every;
    return 0;
}

const struct family cohere2_family = {
    .name = "cohere2",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta", .read = read_config, .write = hf_windows_write,
    LLAMA_OUTSIDE, .block = rows_cohere_block, .norm = NORM_LAYER, .mlp = MLP_GATED, .position = POS_ROPE, .parallel = true,
    .one_norm = true,
    .calls = { { "", LLAMA_OUTER, "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] " LLAMA_MLP } },
    .attn_dropout = true, .centred_by_hand = true, .rotary_upcast = true, .scaled_logits = true,
    .both_masks = true,
    .block_class = "Cohere2DecoderLayer",
};
