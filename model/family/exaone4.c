/* exaone4.c -- models/exaone4/ of transformers 5.23.  What the halves add is normed, and each head of q and k.  head_dim is no
 * field of Exaone4Config, but its attention takes it from there. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(102400, 4096, 16384, 32, 32, 2048), TIED(false),
    INT("num_key_value_heads", kv_heads, 32),
    INT("head_dim", head_dim, HF_DERIVED), ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

/* Exaone4Attention leaves full layers without positions if there are windows at all.  A
 * pattern in letters ("LLLG") comes with "layer_types". */
static int read_config(const struct hf *c, struct model *m)
{
    if (!hf_given(c, "layer_types") && hf_is_null(c, "sliding_window"))
        return hf_refuse(c, "layer_types", "a list, since there is no \"sliding_window\"");
    if (hf_windows_read(c, m, 4096, "sliding_window_pattern", 4) < 0)
        return -1;
    m->nope_every = m->full_every;
    return 0;
}

static const struct module_row block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM },
    GATED_MLP,
    NORM("post_attention_layernorm", ROLE_NORM_ATTN_POST, ALWAYS),
    NORM("post_feedforward_layernorm", ROLE_NORM_MLP_POST, ALWAYS),
    { 0 }
};

const struct family exaone4_family = {
    .name = "exaone4",
    .keys = keys, .theta_key = "rope_theta", .read = read_config, .write = hf_windows_write,
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE, .qk_norm = true, .norm_place = NORM_BEHIND,
    .calls = { { "", LLAMA_OUTER,
          "self_attn![ q_proj k_proj v_proj q_norm k_norm o_proj ] post_attention_layernorm " LLAMA_MLP " "
          "post_feedforward_layernorm" } },
    .attn_dropout = true,
    .typed_masks = true,
    .block_class = "Exaone4DecoderLayer",
    /* q and k are normed transposed: copied, in another layout */
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_OTHER, .glu = LIGER_HAS },
    .compiles = true,
};
