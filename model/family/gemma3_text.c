/* gemma3_text.c -- models/gemma3/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(262208, 2304, 9216, 26, 8, 131072), TIED(true),
    INT("num_key_value_heads", kv_heads, 4),
    INT("head_dim", head_dim, 256), ACT("hidden_activation", ACT_GELU_TANH),
    ATTENTION_BIAS, SET(mlp_bias, false), ATTN_DROPOUT,
    INT("query_pre_attn_scalar", attn_scalar, 256),
    REAL("final_logit_softcapping", softcap, 0),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
/* Gemma3Attention reads the scores' soft-capping and does not pass it on. */
static const struct hf_fixed fixed[] = {
    { NULL, "use_bidirectional_attention", "false", "attention is causal here" },
    { NULL, "attn_logit_softcapping", "null", "transformers' gemma3 does not apply it" },
    { 0 }
};

static int read_config(const struct hf *c, struct model *m) { return hf_windows_read(c, m, 4096, "sliding_window_pattern", 6); }

const struct family gemma3_text_family = {
    .name = "gemma3_text", .text_of = { "gemma3" },
    .keys = keys, .fixed = fixed, .heads_divide = true, .theta_key = "rope_theta", .theta = 1e6,
    .local_theta_key = "rope_local_base_freq", .local_theta = 1e4, .read = read_config, .write = hf_windows_write,
    LLAMA_OUTSIDE, .block = rows_llama_block, GATED_RMS_ROPE, .qk_norm = true, .norm_place = NORM_AROUND,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] post_attention_layernorm "
          "pre_feedforward_layernorm " LLAMA_MLP " post_feedforward_layernorm" } },
    .attn_dropout = true, .one_plus_weight = true, .two_tables = true, .scaled_table = true,
    .both_masks = true,
    .block_class = "Gemma3DecoderLayer", .lora_targets = "q_proj,v_proj",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .gelu = true, .factory = true },
    .not_run = "gemma's scaled embeddings and norms of 1 + w",
};
