/* rows.c -- lists of tensors that several families share. */
#include "model/family/rows.h"

/* Llama and those who follow it: the norms come last in a block.  With post-norms (gemma2) "post_attention_layernorm" changes its
 * meaning. */
const struct module_row rows_llama_before[] = {
    { "model.embed_tokens", ROLE_TOKENS, EXT_VOCAB, EXT_HIDDEN, ALWAYS },
    { 0 }
};

const struct module_row rows_llama_block[] = {
    { "self_attn.q_proj", ROLE_Q,         EXT_Q,        EXT_HIDDEN, ALWAYS },
    { "self_attn.k_proj", ROLE_K,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.v_proj", ROLE_V,         EXT_KV,       EXT_HIDDEN, ALWAYS },
    { "self_attn.o_proj", ROLE_ATTN_OUT,  EXT_HIDDEN,   EXT_Q,      ALWAYS },
    { "self_attn.q_norm", ROLE_Q_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM,    EXT_HEAD_DIM, EXT_NONE,   IF_QK_NORM },
    { "mlp.gate_proj",    ROLE_GATE,      EXT_FFN,      EXT_HIDDEN, ALWAYS },
    { "mlp.up_proj",      ROLE_UP,        EXT_FFN,      EXT_HIDDEN, ALWAYS },
    { "mlp.down_proj",    ROLE_DOWN,      EXT_HIDDEN,   EXT_FFN,    ALWAYS },
    { "input_layernorm",  ROLE_NORM_ATTN, EXT_HIDDEN,   EXT_NONE,   ALWAYS },
    { "post_attention_layernorm",   ROLE_NORM_MLP, EXT_HIDDEN, EXT_NONE, IF_NORM_FIRST },
    { "post_attention_layernorm",   ROLE_NORM_ATTN_POST, EXT_HIDDEN, EXT_NONE, IF_NORM_AROUND },
    { "pre_feedforward_layernorm",  ROLE_NORM_MLP, EXT_HIDDEN, EXT_NONE, IF_NORM_AROUND },
    { "post_feedforward_layernorm", ROLE_NORM_MLP_POST, EXT_HIDDEN, EXT_NONE, IF_NORM_AROUND },
    { 0 }
};

const struct module_row rows_llama_after[] = {
    { "model.norm", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",    ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct module_row rows_gpt2_after[] = {
    { "transformer.ln_f", ROLE_NORM_FINAL, EXT_HIDDEN, EXT_NONE,   ALWAYS },
    { "lm_head",          ROLE_HEAD,       EXT_VOCAB,  EXT_HIDDEN, IF_UNTIED },
    { 0 }
};

const struct module_row rows_plain_block[] = { ATTENTION, PLAIN_MLP, TWO_NORMS, { 0 } };

/* One norm for both halves, and one weight for every element of q and k. */
const struct module_row rows_cohere_block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_HEADS,    EXT_HEAD_DIM, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_KV_HEADS, EXT_HEAD_DIM, IF_QK_NORM },
    GATED_MLP,
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS),
    { 0 }
};

/* What the halves add is normed, and all of q and k at once. */
const struct module_row rows_olmo2_block[] = {
    ATTENTION,
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_Q,  EXT_NONE, IF_QK_NORM },
    { "self_attn.k_norm", ROLE_K_NORM, EXT_KV, EXT_NONE, IF_QK_NORM },
    GATED_MLP,
    NORM("post_attention_layernorm", ROLE_NORM_ATTN_POST, ALWAYS),
    NORM("post_feedforward_layernorm", ROLE_NORM_MLP_POST, ALWAYS),
    { 0 }
};

const struct module_row rows_qwen3_dense[] = { NORMED_ATTENTION, GATED_MLP, TWO_NORMS, { 0 } };
