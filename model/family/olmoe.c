/* olmoe.c -- models/olmoe/ of transformers 5.23.  OlmoeAttention reads head_dim, but its norms are as wide as without: any other
 * would fail. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(50304, 2048, 16, 16, 4096), TIED(false), INT("intermediate_size", expert_ffn, 2048),
    INT2("num_experts", "num_local_experts", experts, 64), INT("num_experts_per_tok", experts_used, 8),
    BOOL("norm_topk_prob", topk_norm, false), KV_HEADS(HF_DERIVED), ATTENTION_BIAS,
    NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "clip_qkv", "null", "clipped q, k and v are not supported" },
    { 0 }
};

static const struct module_row block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_Q,  EXT_NONE, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_KV, EXT_NONE, IF_QK_NORM },
    ROUTER("mlp.gate"), EXPERTS("mlp.experts"), TWO_NORMS,
    { 0 }
};

const struct family olmoe_family = {
    .name = "olmoe",
    .keys = keys, .fixed = fixed, .experts = true, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE, .qk_norm = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm mlp[ gate "
          "experts[ act_fn ] ]" } },
    .attn_dropout = true, .qk_norm_first = true, .qk_norm_whole = true,
    .block_class = "OlmoeDecoderLayer", .peft_experts = { "gate", "gate_proj", "up_proj", "down_proj" },
    .not_megatron = "its norms of q and k are of all heads together, Megatron-LM's (--qk-layernorm) of each head",
};
