/* rows.h -- how the tables of a family's file are written, and what many families have in common. */
#ifndef DPX_FAMILY_ROWS_H
#define DPX_FAMILY_ROWS_H

#include "model/family/family.h"

/* ---- keys of a config ---- */

#define AT(field)                   offsetof(struct model, field)
#define SET(field, value)           { NULL, NULL, HF_SET, false, AT(field), value }
#define INT(key, field, dflt)       { key, NULL, HF_INT, false, AT(field), dflt }
#define INT2(key, alias, field, d)  { key, alias, HF_INT, false, AT(field), d }
#define INT_NULL(key, field, dflt)  { key, NULL, HF_INT, true, AT(field), dflt }
#define BOOL(key, field, dflt)      { key, NULL, HF_BOOL, false, AT(field), dflt }
#define RATE(key, field, dflt)      { key, NULL, HF_RATE, false, AT(field), dflt }
#define REAL(key, field, dflt)      { key, NULL, HF_REAL, false, AT(field), dflt }
#define ACT(key, dflt)              { key, NULL, HF_ACT, false, AT(act), dflt }
#define ACT_BY(key, dflt, code)     ACT(key, HF_ACT_BY(dflt, code))
/* Of attention that reads head_dim, which is no field of the family's config class: null would not do. */
#define HEAD_DIM                    { "head_dim", NULL, HF_EXTRA, false, AT(head_dim), HF_DERIVED }
#define END                         { 0 }

/* Rows that every family has, with its own defaults. */
#define NORMS(eps_key, eps)         REAL(eps_key, norm_eps, eps), SET(norm_weight, true)
#define LINEAR_BIASES(value)        SET(qkv_bias, value), SET(out_bias, value), \
                                    SET(mlp_bias, value)
#define TIED(dflt)                  BOOL("tie_word_embeddings", tied, dflt)
#define INIT(dflt)                  REAL("initializer_range", init_std, dflt)

#define SHAPE(V, D, F, L, H, C) \
    INT("vocab_size", vocab, V), INT("hidden_size", hidden, D), \
    INT("intermediate_size", ffn, F), INT("num_hidden_layers", layers, L), \
    INT("num_attention_heads", heads, H), INT("max_position_embeddings", context, C)
#define ATTENTION_BIAS  BOOL("attention_bias", qkv_bias, false), \
                        BOOL("attention_bias", out_bias, false)
#define ATTN_DROPOUT    RATE("attention_dropout", attn_dropout, 0)
/* Of every layer; null or 0: none. */
#define WINDOW(dflt)    INT_NULL("sliding_window", window, dflt)
#define HEADS(V, D, L, H, C) \
    INT("vocab_size", vocab, V), INT("hidden_size", hidden, D), INT("num_hidden_layers", layers, L), \
    INT("num_attention_heads", heads, H), INT("max_position_embeddings", context, C)
#define KV_HEADS(dflt)  INT_NULL("num_key_value_heads", kv_heads, dflt)
#define HEAD_DIM_DERIVED    INT_NULL("head_dim", head_dim, HF_DERIVED)
#define NO_MLP_BIAS     SET(mlp_bias, false), ACT("hidden_act", ACT_SILU)

/* ---- tensors ---- */

#define ATTENTION \
    { "self_attn.q_proj", ROLE_Q,        EXT_Q,      EXT_HIDDEN, ALWAYS }, \
    { "self_attn.k_proj", ROLE_K,        EXT_KV,     EXT_HIDDEN, ALWAYS }, \
    { "self_attn.v_proj", ROLE_V,        EXT_KV,     EXT_HIDDEN, ALWAYS }, \
    { "self_attn.o_proj", ROLE_ATTN_OUT, EXT_HIDDEN, EXT_Q,      ALWAYS }
#define GATED_MLP \
    { "mlp.gate_proj",    ROLE_GATE,     EXT_FFN,    EXT_HIDDEN, ALWAYS }, \
    { "mlp.up_proj",      ROLE_UP,       EXT_FFN,    EXT_HIDDEN, ALWAYS }, \
    { "mlp.down_proj",    ROLE_DOWN,     EXT_HIDDEN, EXT_FFN,    ALWAYS }
#define FUSED_MLP \
    { "mlp.gate_up_proj", ROLE_GATE_UP,  EXT_2FFN,   EXT_HIDDEN, ALWAYS }, \
    { "mlp.down_proj",    ROLE_DOWN,     EXT_HIDDEN, EXT_FFN,    ALWAYS }
#define PLAIN_MLP \
    { "mlp.up_proj",      ROLE_UP,       EXT_FFN,    EXT_HIDDEN, ALWAYS }, \
    { "mlp.down_proj",    ROLE_DOWN,     EXT_HIDDEN, EXT_FFN,    ALWAYS }
#define NORM(name, role, when)  { name, role, EXT_HIDDEN, EXT_NONE, when }
#define TWO_NORMS \
    NORM("input_layernorm", ROLE_NORM_ATTN, ALWAYS), NORM("post_attention_layernorm", ROLE_NORM_MLP, ALWAYS)
/* q and k are normed, each head alike. */
#define NORMED_ATTENTION \
    ATTENTION, \
    { "self_attn.q_norm", ROLE_Q_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM }, \
    { "self_attn.k_norm", ROLE_K_NORM, EXT_HEAD_DIM, EXT_NONE, IF_QK_NORM }

/* Mixtures: all experts' weights of one kind are one parameter. */
#define EXPERTS(path) \
    { path ":gate_up_proj", ROLE_EXPERTS_IN,  EXT_2EXPERT_FFN, EXT_HIDDEN,     ALWAYS }, \
    { path ":down_proj",    ROLE_EXPERTS_OUT, EXT_HIDDEN,      EXT_EXPERT_FFN, ALWAYS }
#define ROUTER(path)    { path, ROLE_ROUTER, EXT_EXPERTS, EXT_HIDDEN, ALWAYS }
#define SHARED(path) \
    { path ".gate_proj", ROLE_SHARED_GATE, EXT_SHARED_FFN, EXT_HIDDEN,     ALWAYS }, \
    { path ".up_proj",   ROLE_SHARED_UP,   EXT_SHARED_FFN, EXT_HIDDEN,     ALWAYS }, \
    { path ".down_proj", ROLE_SHARED_DOWN, EXT_HIDDEN,     EXT_SHARED_FFN, ALWAYS }

/* Llama's names around the blocks, and its block. */
extern const struct module_row rows_llama_before[], rows_llama_block[], rows_llama_after[];
/* GPT-2's, BLOOM's and Falcon's last norm and head; Nemotron's and Arcee's block without a gate; Cohere's; OLMo's. */
extern const struct module_row rows_gpt2_after[], rows_plain_block[], rows_cohere_block[], rows_olmo2_block[];
/* Of mixtures whose first layers are Qwen3's. */
extern const struct module_row rows_qwen3_dense[];

#define LLAMA_OUTSIDE   .blocks = "model.layers", .before = rows_llama_before, .after = rows_llama_after
#define GATED_RMS_ROPE  .norm = NORM_RMS, .mlp = MLP_GATED, .position = POS_ROPE

/* ---- the order of calls ---- */

#define LLAMA_OUTER "model![ embed_tokens! rotary_emb~= @ norm ] lm_head"
#define LLAMA_MLP   "mlp[ gate_proj act_fn up_proj down_proj ]"
#define LLAMA_CALLS     { "", LLAMA_OUTER, \
        "input_layernorm self_attn![ q_proj k_proj v_proj o_proj ] post_attention_layernorm " LLAMA_MLP }

#endif
