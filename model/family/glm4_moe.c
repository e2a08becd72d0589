/* glm4_moe.c -- models/glm4_moe/ of transformers 5.23.  head_dim is no field of Glm4MoeConfig, but its attention takes it from
 * there; its output has no bias. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(151552, 4096, 46, 96, 131072), TIED(false), INT("intermediate_size", ffn, 10944),
    INT("moe_intermediate_size", expert_ffn, 1408), INT2("n_routed_experts", "num_local_experts", experts, 128),
    INT("num_experts_per_tok", experts_used, 8), BOOL("norm_topk_prob", topk_norm, true),
    KV_HEADS(8), HEAD_DIM, BOOL("attention_bias", qkv_bias, false), SET(out_bias, false), NO_MLP_BIAS,
    ATTN_DROPOUT, BOOL("use_qk_norm", qk_norm, false), INT("topk_group", route_best, 1), REAL("routed_scaling_factor", route_scale, 1),
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

static int read_config(const struct hf *c, struct model *m) 
{
    return hf_routed_read(c, m, (struct hf_routed){ .shared = 1, .groups = 1, .dense = 1 });
}

static const struct module_row block[] = {
    NORMED_ATTENTION, EXPERTS("mlp.experts"), ROUTER("mlp.gate"), SHARED("mlp.shared_experts"), TWO_NORMS, { 0 }
};

const struct family glm4_moe_family = {
    .name = "glm4_moe",
    .keys = keys, .experts = true, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 0.5,
    .read = read_config, .write = hf_routed_write,
    LLAMA_OUTSIDE, .block = block, .dense = rows_qwen3_dense, GATED_RMS_ROPE,
    .attn_dropout = true, .partial_rotary = true, .routes_fp32 = true, .wide_router = true,
    .block_class = "Glm4MoeDecoderLayer", .peft_experts = { "gate", "gate_proj", "up_proj", "down_proj" },
    .megatron = true,
};
