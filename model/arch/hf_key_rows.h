/* hf_key_rows.h -- how the rows of hf_keys.c and hf_keys_recent.c are written. */
#ifndef DPX_HF_KEY_ROWS_H
#define DPX_HF_KEY_ROWS_H

#include "model/arch/hf_keys.h"

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

#define LLAMA_LIKE(V, D, F, L, H, C) \
    INT("vocab_size", vocab, V), INT("hidden_size", hidden, D), \
    INT("intermediate_size", ffn, F), INT("num_hidden_layers", layers, L), \
    INT("num_attention_heads", heads, H), INT("max_position_embeddings", context, C)
#define ATTENTION_BIAS  BOOL("attention_bias", qkv_bias, false), \
                        BOOL("attention_bias", out_bias, false)
#define ATTN_DROPOUT    RATE("attention_dropout", attn_dropout, 0)
/* Of every layer; null or 0: none. */
#define WINDOW(dflt)    INT_NULL("sliding_window", window, dflt)

#endif
