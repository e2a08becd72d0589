/* stablelm.c -- models/stablelm/ of transformers 5.23.  A norm for each head. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(50304, 2560, 6912, 32, 32, 4096), TIED(false),
    INT("num_key_value_heads", kv_heads, 32), ACT("hidden_act", ACT_SILU),
    BOOL("use_qkv_bias", qkv_bias, false), SET(out_bias, false), SET(mlp_bias, false),
    BOOL("qk_layernorm", qk_norm, false), BOOL("use_parallel_residual", parallel, false),
    RATE("hidden_dropout", dropout, 0), ATTN_DROPOUT,
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), END
};

/* StableLmLayerNormPerHead: a module for every head. */
static int read_config(const struct hf *c, struct model *m)
{
    m->mlp_norm = !m->parallel;
    if (m->qk_norm && (m->heads > MODEL_MAX_LISTED || m->kv_heads > MODEL_MAX_LISTED))
        return hf_refuse(c, m->heads > MODEL_MAX_LISTED ? "num_attention_heads" : "num_key_value_heads",
                         "at most 256 with \"qk_layernorm\", which has a norm for each");
    return 0;
}

static const struct module_row block[] = {
    ATTENTION,
    { "self_attn.q_layernorm.norms", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM_EACH },
    { "self_attn.k_layernorm.norms", ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM_EACH },
    GATED_MLP,
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS),
    NORM("post_attention_layernorm", ROLE_NORM_MLP, IF_SEQUENTIAL),
    { 0 }
};

const struct family stablelm_family = {
    .name = "stablelm",
    .keys = keys, .heads_divide = true, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 0.25,
    .read = read_config,
    LLAMA_OUTSIDE, .block = block, .norm = NORM_LAYER, .mlp = MLP_GATED, .position = POS_ROPE, .norm_bias = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm* " LLAMA_MLP " dropout?" },
               { "+qk", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj q_layernorm[ norms# ] k_layernorm[ norms# ] o_proj ] "
          "post_attention_layernorm* " LLAMA_MLP " dropout?" } },
    .attn_dropout = true, .mlp_dropout = true, .partial_rotary = true, .rotary_names = true, .qk_norm_listed = true,
    .block_class = "StableLmDecoderLayer", .lora_targets = "q_proj,v_proj",
    .not_run = "gated MLPs behind norms with biases (stablelm)",
};
