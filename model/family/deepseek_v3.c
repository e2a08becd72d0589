/* deepseek_v3.c -- models/deepseek_v3/ of transformers 5.23.  Kimi K2's config.json names code of its own, a copy of this
 * (auto_map: DeepseekV3Config, DeepseekV3ForCausalLM). */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(129280, 7168, 61, 128, 4096), TIED(false), INT("intermediate_size", ffn, 18432),
    INT("moe_intermediate_size", expert_ffn, 2048), INT2("n_routed_experts", "num_local_experts", experts, 256),
    INT("num_experts_per_tok", experts_used, 8), BOOL("norm_topk_prob", topk_norm, true),
    KV_HEADS(128), INT_NULL("q_lora_rank", q_rank, 1536), INT("kv_lora_rank", kv_rank, 512),
    INT("qk_rope_head_dim", rope_dim, 64), INT("v_head_dim", value_dim, 128), ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT,
    INT("topk_group", route_best, 4), REAL("routed_scaling_factor", route_scale, 2.5), NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "rope_interleave", "true", "rotation of halves is not supported" },
    { 0 }
};

/* DeepseekV3Config: a key's head is the part that is not rotated and the part that is, which all heads share. */
static int read_config(const struct hf *c, struct model *m)
{
    int64_t nope;

    if (hf_int(c, "qk_nope_head_dim", 128, MODEL_MAX_DIM, &nope) < 0
        || hf_routed_read(c, m, (struct hf_routed){ .shared = 1, .groups = 8, .dense = 3 }) < 0)
        return -1;
    if (m->kv_heads && m->kv_heads != m->heads)
        return hf_refuse(c, "num_key_value_heads", "as \"num_attention_heads\": latent attention has a key for each");
    m->head_dim = nope + m->rope_dim;
    return 0;
}

static int write_config(const struct model *m, json_t *config)
{
    return json_object_set_new(config, "qk_nope_head_dim", json_integer(m->head_dim - m->rope_dim)) | hf_routed_write(m, config)
        | json_object_set_new(config, "q_lora_rank", m->q_rank ? json_integer(m->q_rank) : json_null());
}

#define LATENT_ATTENTION \
    { "self_attn.q_proj",             ROLE_Q,         EXT_Q,            EXT_HIDDEN,  IF_NO_Q_RANK }, \
    { "self_attn.q_a_proj",           ROLE_Q_A,       EXT_Q_RANK,       EXT_HIDDEN,  IF_Q_RANK }, \
    { "self_attn.q_a_layernorm",      ROLE_Q_A_NORM,  EXT_Q_RANK,       EXT_NONE,    IF_Q_RANK }, \
    { "self_attn.q_b_proj",           ROLE_Q_B,       EXT_Q,            EXT_Q_RANK,  IF_Q_RANK }, \
    { "self_attn.kv_a_proj_with_mqa", ROLE_KV_A,      EXT_KV_RANK_ROPE, EXT_HIDDEN,  ALWAYS }, \
    { "self_attn.kv_a_layernorm",     ROLE_KV_A_NORM, EXT_KV_RANK,      EXT_NONE,    ALWAYS }, \
    { "self_attn.kv_b_proj",          ROLE_KV_B,      EXT_KV_UP,        EXT_KV_RANK, ALWAYS }, \
    { "self_attn.o_proj",             ROLE_ATTN_OUT,  EXT_HIDDEN,       EXT_VALUES,  ALWAYS }
static const struct module_row block[] = {
    LATENT_ATTENTION, EXPERTS("mlp.experts"), ROUTER("mlp.gate"), SHARED("mlp.shared_experts"), TWO_NORMS, { 0 }
};
static const struct module_row dense[] = { LATENT_ATTENTION, GATED_MLP, TWO_NORMS, { 0 } };

const struct family deepseek_v3_family = {
    .name = "deepseek_v3", .also = "kimi_k2",
    .keys = keys, .fixed = fixed, .experts = true, .theta_key = "rope_theta", .read = read_config, .write = write_config,
    LLAMA_OUTSIDE, .block = block, .dense = dense, GATED_RMS_ROPE,
    .attn_dropout = true, .routes_fp32 = true, .wide_router = true,
    .block_class = "DeepseekV3DecoderLayer", .peft_experts = { "gate", "gate_proj", "up_proj", "down_proj" },
    .liger = { .known = true, .norm = LIGER_HAS, .glu = LIGER_OTHER, .in_place = true },
    .megatron = true,
};
