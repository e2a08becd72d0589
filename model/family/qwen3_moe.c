/* qwen3_moe.c -- models/qwen3_moe/ of transformers 5.23.  head_dim is no field of Qwen3MoeConfig, but its attention takes it
 * from there. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(151936, 2048, 24, 32, 32768), TIED(false), INT("intermediate_size", ffn, 6144),
    INT("moe_intermediate_size", expert_ffn, 768), INT2("num_experts", "num_local_experts", experts, 128),
    INT("num_experts_per_tok", experts_used, 8), BOOL("norm_topk_prob", topk_norm, false),
    INT("decoder_sparse_step", moe_every, 1), KV_HEADS(4),
    INT("head_dim", head_dim, HF_DERIVED), ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT, NORMS("rms_norm_eps", 1e-6), INIT(0.02),
    END
};
static const struct hf_fixed fixed[] = {
    { NULL, "use_sliding_window", "false", "a window in all layers is not supported" },
    { 0 }
};

/* Without experts whatever the step says: only the first layers. */
static int read_config(const struct hf *c, struct model *m)
{
    bool dense[MODEL_MAX_LAYERS] = { false };

    if (!hf_given(c, "mlp_only_layers"))
        return 0;
    if (hf_layers_read(c, "mlp_only_layers", m, dense) < 0)
        return -1;
    while (m->dense_first < m->layers && dense[m->dense_first])
        m->dense_first++;
    for (int64_t i = m->dense_first; i < m->layers; i++)
        if (dense[i])
            return hf_refuse(c, "mlp_only_layers", "the first layers, or none");
    return 0;
}

static int write_config(const struct model *m, json_t *config)
{
    json_t *list = json_array();
    int rc = 0;

    for (int64_t i = 0; i < m->dense_first; i++)
        rc |= json_array_append_new(list, json_integer(i));
    return rc | json_object_set_new(config, "mlp_only_layers", list);
}

static const struct module_row block[] = { NORMED_ATTENTION, EXPERTS("mlp.experts"), ROUTER("mlp.gate"), TWO_NORMS, { 0 } };

const struct family qwen3_moe_family = {
    .name = "qwen3_moe",
    .keys = keys, .fixed = fixed, .experts = true, .theta_key = "rope_theta", .read = read_config, .write = write_config,
    LLAMA_OUTSIDE, .block = block, .dense = rows_qwen3_dense, GATED_RMS_ROPE, .qk_norm = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm mlp^" },
               { "+autoep", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm mlp[ "
          "router[ gate ] experts combine%$ ]" },
               { "+autoep-0.19.6", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj q_norm k_proj k_norm v_proj o_proj ] post_attention_layernorm mlp[ "
          "router[ gate gate~ ] experts combine%$ ]" } },
    .attn_dropout = true, .qk_norm_first = true,
    .block_class = "Qwen3MoeDecoderLayer", .peft_experts = { "gate", "gate_proj", "up_proj", "down_proj" }, .lora_mixture = true,
    .liger = { .known = true, .rope = LIGER_HAS, .norm = LIGER_HAS, .glu = LIGER_OTHER, .in_place = true, .factory = true },
    .autoep = true, .megatron = true,
};
