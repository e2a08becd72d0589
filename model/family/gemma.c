/* gemma.c -- models/gemma/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(256000, 3072, 24576, 28, 16, 8192), TIED(true),
    INT("num_key_value_heads", kv_heads, 16),
    INT("head_dim", head_dim, 256), ACT("hidden_act", ACT_GELU_TANH),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "use_bidirectional_attention", "false", "attention is causal here" },
    { 0 }
};

/* The first releases said "gelu" and meant its tanh form (GemmaConfig). */
static int read_config(const struct hf *c, struct model *m)
{
    (void)c;
    if (m->act == ACT_GELU) {
        m->act = ACT_GELU_TANH;
        m->act_code = ACT_ONE_KERNEL;
    }
    return 0;
}

const struct family gemma_family = {
    .name = "gemma",
    .keys = keys, .fixed = fixed, .theta_key = "rope_theta", .read = read_config,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true, .one_plus_weight = true, .scaled_table = true,
    .block_class = "GemmaDecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .gelu = true, .factory = true },
    .compiles = true, .not_run = "gemma's scaled embeddings and norms of 1 + w",
};
