/* ernie4_5.c -- models/ernie4_5/ of transformers 5.23.  Ernie4_5Attention sets its dropout to zero. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(103424, 1024, 3072, 18, 16, 131072), TIED(true),
    KV_HEADS(2),
    INT_NULL("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    BOOL("use_bias", qkv_bias, false), BOOL("use_bias", out_bias, false), BOOL("use_bias", mlp_bias, false),
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

const struct family ernie4_5_family = {
    .name = "ernie4_5",
    .keys = keys, .theta_key = "rope_theta", .theta = 5e5,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .rotary_upcast = true, .rotary_fp32 = true, .rotary_interleaved = true,
    .block_class = "Ernie4_5DecoderLayer",
    .not_run = "rotary pairs that lie side by side (ernie 4.5)",
};
