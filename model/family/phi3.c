/* phi3.c -- models/phi3/ of transformers 5.23.  o_proj is registered before qkv_proj.  Phi3Config declares embd_pdrop, but its
 * model never applies it. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(32064, 3072, 8192, 32, 32, 4096), TIED(false), WINDOW(HF_DERIVED),
    KV_HEADS(HF_DERIVED),
    HEAD_DIM_DERIVED, ACT("hidden_act", ACT_SILU),
    LINEAR_BIASES(false), RATE("resid_pdrop", dropout, 0), ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static const struct module_row block[] = {
    { "self_attn.o_proj",         ROLE_ATTN_OUT,  EXT_HIDDEN, EXT_Q,      ALWAYS },
    { "self_attn.qkv_proj",       ROLE_QKV,       EXT_QKV,    EXT_HIDDEN, ALWAYS },
    { "mlp.gate_up_proj",         ROLE_GATE_UP,   EXT_2FFN,   EXT_HIDDEN, ALWAYS },
    { "mlp.down_proj",            ROLE_DOWN,      EXT_HIDDEN, EXT_FFN,    ALWAYS },
    { "input_layernorm",          ROLE_NORM_ATTN, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "post_attention_layernorm", ROLE_NORM_MLP,  EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { 0 }
};

const struct family phi3_family = {
    .name = "phi3",
    .keys = keys, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 1,
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE, .fused_qkv = true, .fused_gate_up = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ qkv_proj o_proj ] resid_attn_dropout post_attention_layernorm mlp[ "
          "gate_up_proj activation_fn down_proj ] resid_mlp_dropout?" } },
    .hidden_dropout = true, .partial_rotary = true,
    .block_class = "Phi3DecoderLayer",
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_HAS, .in_place = true, .factory = true },
};
