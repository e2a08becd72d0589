/* ministral3.c -- models/ministral3/ of transformers 5.23. */
#include "base/fail.h"
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(131072, 4096, 14336, 34, 32, 262144), TIED(false),
    KV_HEADS(8), WINDOW(HF_DERIVED),
    INT_NULL("head_dim", head_dim, 128), ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

/* Ministral3Config's own scaling, where the config states none. */
static int read_config(const struct hf *c, struct model *m)
{
    if (hf_given(c, "rope_parameters") || hf_given(c, "rope_scaling"))
        return 0;
    m->rope_scaling = json_pack("{s:s,s:f,s:i,s:I,s:f,s:f,s:f,s:f,s:f}", "rope_type", "yarn", "factor", 16.0,
                                "original_max_position_embeddings", 16384,
                                "max_position_embeddings", (json_int_t)m->context, "beta_fast", 32.0,
                                "beta_slow", 1.0, "mscale_all_dim", 1.0, "mscale", 1.0,
                                "llama_4_scaling_beta", 0.1);
    return m->rope_scaling ? 0 : fail("out of memory for %s", c->where);
}

const struct family ministral3_family = {
    .name = "ministral3",
    .keys = keys, .theta_key = "rope_theta", .theta = 1e6, .read = read_config,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true, .scaled_rotated = true,
    .block_class = "Ministral3DecoderLayer",
    .not_run = "queries scaled by their positions (ministral 3)",
};
