/* granitemoe.c -- models/granitemoe/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    HEADS(32000, 4096, 32, 32, 2048), TIED(false), INT("intermediate_size", expert_ffn, 11008),
    INT("num_local_experts", experts, 8), INT("num_experts_per_tok", experts_used, 2), SET(topk_norm, true),
    KV_HEADS(HF_DERIVED), HEAD_DIM, ATTENTION_BIAS, NO_MLP_BIAS, ATTN_DROPOUT,
    REAL("embedding_multiplier", embed_scale, 1), REAL("logits_scaling", logit_scale, 1),
    REAL("residual_multiplier", residual_scale, 1), REAL("attention_multiplier", attn_scale, 1),
    NORMS("rms_norm_eps", 1e-6), INIT(0.02), END
};

static const struct module_row block[] = {
    ATTENTION, TWO_NORMS, ROUTER("block_sparse_moe.router"), EXPERTS("block_sparse_moe.experts"), { 0 }
};

const struct family granitemoe_family = {
    .name = "granitemoe",
    .keys = keys, .experts = true, .heads_divide = true, .theta_key = "rope_theta",
    LLAMA_OUTSIDE, .block = block, GATED_RMS_ROPE,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm block_sparse_moe[ "
          "router experts[ act_fn ] ]" } },
    .attn_dropout = true, .scaled_embed = true, .scaled_residual = true, .scaled_logits = true, .routes_first = true,
    .block_class = "GraniteMoeDecoderLayer",
    .not_megatron = "Megatron-LM has no multipliers of embeddings, of residuals and of logits",
};
