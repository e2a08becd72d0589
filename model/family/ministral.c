/* ministral.c -- models/ministral/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(32000, 4096, 14336, 32, 32, 131072), TIED(false),
    KV_HEADS(8),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

static int read_config(const struct hf *c, struct model *m) { return hf_windows_read(c, m, 4096, NULL, 0); }

const struct family ministral_family = {
    .name = "ministral",
    .keys = keys, .theta_key = "rope_theta", .read = read_config, .write = hf_windows_write,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE,
    .calls = { LLAMA_CALLS },
    .attn_dropout = true,
    .both_masks = true,
    .block_class = "MinistralDecoderLayer",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .replaces_nothing = true },
    .compiles = true, .titan_tensor = true, .megatron = true,
};
