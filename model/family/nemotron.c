/* nemotron.c -- models/nemotron/ of transformers 5.23. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(256000, 6144, 24576, 32, 48, 4096), TIED(false),
    KV_HEADS(HF_DERIVED), HEAD_DIM_DERIVED, ACT("hidden_act", ACT_RELU2),
    ATTENTION_BIAS, BOOL("mlp_bias", mlp_bias, false), ATTN_DROPOUT,
    NORMS("norm_eps", 1e-5), INIT(0.0134), END
};

const struct family nemotron_family = {
    .name = "nemotron",
    .keys = keys, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor", .partial = 0.5,
    LLAMA_OUTSIDE, .block = rows_plain_block, .norm = NORM_LAYER, .mlp = MLP_PLAIN, .position = POS_ROPE, .norm_bias = true,
    .calls = { { "", LLAMA_OUTER,
          "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm mlp[ up_proj act_fn down_proj ]" } },
    .attn_dropout = true, .layer_norm_1p = true, .partial_rotary = true,
    .block_class = "NemotronDecoderLayer",
    .liger = { .known = true, .glu = LIGER_OTHER, .replaces_nothing = true }, /* LigerReLUSquared */
    .compiles = true, .megatron = true, .not_run = "norms of 1 + w (nemotron)",
};
