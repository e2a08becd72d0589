/* gpt_oss.c -- models/gpt_oss/ of transformers 5.23. */
#include "base/fail.h"
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(201088, 2880, 36, 64, 131072), TIED(false), INT("intermediate_size", expert_ffn, 2880),
    INT2("num_local_experts", "num_experts", experts, 128), INT("num_experts_per_tok", experts_used, 4), SET(topk_norm, true),
    KV_HEADS(8), INT_NULL("head_dim", head_dim, 64),
    BOOL("attention_bias", qkv_bias, true), BOOL("attention_bias", out_bias, true), NO_MLP_BIAS, ATTN_DROPOUT,
    NORMS("rms_norm_eps", 1e-5), INIT(0.02), END
};

/* GptOssConfig's own scaling, where the config states none. */
static int read_config(const struct hf *c, struct model *m)
{
    if (hf_windows_read(c, m, 128, NULL, 2) < 0)
        return -1;
    if (hf_given(c, "rope_parameters") || hf_given(c, "rope_scaling"))
        return 0;
    m->rope_scaling = json_pack("{s:s,s:f,s:f,s:f,s:b,s:i}", "rope_type", "yarn", "factor", 32.0, "beta_fast", 32.0,
                                "beta_slow", 1.0, "truncate", 0, "original_max_position_embeddings", 4096);
    return m->rope_scaling ? 0 : fail("out of memory for %s", c->where);
}

static const struct module_row block[] = {
    { "self_attn:sinks", ROLE_SINKS, EXT_HEADS, EXT_NONE, ALWAYS },
    ATTENTION,
    ROUTER("mlp.router"),
    { "mlp.experts:gate_up_proj",      ROLE_EXPERTS_IN,  EXT_HIDDEN,      EXT_2EXPERT_FFN, ALWAYS },
    { "mlp.experts:gate_up_proj_bias", ROLE_EXPERTS_IN,  EXT_2EXPERT_FFN, EXT_NONE,        ALWAYS },
    { "mlp.experts:down_proj",         ROLE_EXPERTS_OUT, EXT_EXPERT_FFN,  EXT_HIDDEN,      ALWAYS },
    { "mlp.experts:down_proj_bias",    ROLE_EXPERTS_OUT, EXT_HIDDEN,      EXT_NONE,        ALWAYS },
    TWO_NORMS,
    { 0 }
};

const struct family gpt_oss_family = {
    .name = "gpt_oss",
    .keys = keys, .experts = true, .theta_key = "rope_theta", .theta = 150000, .read = read_config, .write = hf_windows_write,
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE, .router_bias = true, .experts_in_out = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ router experts ]" } },
    .attn_dropout = true, .fp32_weight = true, .routes_first = true, .routes_low = true, .half_tables = true, .sinks = true,
    .clamped_gate = true,
    .no_sdpa = "sdpa has no sinks", .both_masks = true,
    .block_class = "GptOssDecoderLayer", .lora_mixture = true,
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .in_place = true, .factory = true },
    .megatron = true,
};
