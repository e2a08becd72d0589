/* phi.c -- models/phi/ of transformers 5.23.  One norm for both halves, biases everywhere. */
#include "model/family/rows.h"

static const struct hf_key keys[] = {
    SHAPE(51200, 2048, 8192, 24, 32, 2048), SET(tied, false),
    KV_HEADS(HF_DERIVED), HEAD_DIM, ACT_BY("hidden_act", ACT_GELU_TANH, ACT_OF_POWER), LINEAR_BIASES(true),
    BOOL("qk_layernorm", qk_norm, false),
    RATE("resid_pdrop", dropout, 0), RATE("embd_pdrop", embed_dropout, 0), ATTN_DROPOUT,
    NORMS("layer_norm_eps", 1e-5), INIT(0.02), END
};
static const struct hf_fixed fixed[] = {
    { NULL, "tie_word_embeddings", "false", "a tied head with a bias of its own is not supported" },
    { 0 }
};

static const struct module_row block[] = {
    { "self_attn.q_proj",      ROLE_Q,         EXT_Q,        EXT_HIDDEN, ALWAYS },
    { "self_attn.k_proj",      ROLE_K,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj",      ROLE_V,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.dense",       ROLE_ATTN_OUT,  EXT_HIDDEN,   EXT_Q,      ALWAYS },
    { "self_attn.q_layernorm", ROLE_Q_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "self_attn.k_layernorm", ROLE_K_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "mlp.fc1",               ROLE_UP,        EXT_FFN,      EXT_HIDDEN, ALWAYS },
    { "mlp.fc2",               ROLE_DOWN,      EXT_HIDDEN,   EXT_FFN,    ALWAYS },
    { "input_layernorm",       ROLE_NORM_ATTN, EXT_HIDDEN,   EXT_NONE,   ALWAYS },
    { 0 }
};
static const struct module_row after[] = {
    { "model.final_layernorm", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",               ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct family phi_family = {
    .name = "phi",
    .keys = keys, .fixed = fixed, .heads_divide = true, .theta_key = "rope_theta", .partial_key = "partial_rotary_factor",
    .partial = 0.5,
    .blocks = "model.layers", .before = rows_llama_before, .after = after, .block = block, .norm = NORM_LAYER, .mlp = MLP_PLAIN,
    .position = POS_ROPE, .parallel = true, .one_norm = true, .qk_norm_bias = true, .norm_bias = true, .head_bias = true,
    .calls = { { "", "model![ embed_tokens! embed_dropout rotary_emb~ @ final_layernorm ] lm_head",
          "input_layernorm self_attn![ q_proj k_proj v_proj dense ] resid_dropout mlp[ fc1 activation_fn fc2 ] resid_dropout?" },
               { "+qk", "model![ embed_tokens! embed_dropout rotary_emb~ @ final_layernorm ] lm_head",
          "input_layernorm self_attn![ q_proj k_proj v_proj q_layernorm k_layernorm dense ] resid_dropout mlp[ fc1 "
          "activation_fn fc2 ] resid_dropout?" } },
    .automodel_tensor = true, .attn_dropout = true, .hidden_dropout = true, .embed_dropout = true, .partial_rotary = true, .rotary_names = true,
    .block_class = "PhiDecoderLayer", .lora_targets = "q_proj,v_proj,fc1,fc2",
};
