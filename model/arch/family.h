/* family.h -- which tensors a family of models has, as tables.
 *
 * A family is three lists of parts: before the blocks, one block, after the
 * blocks.  A part is an nn.Module that owns a weight and perhaps a bias; its
 * place in the list is its place in named_parameters(), read off the __init__
 * functions of transformers 5.23 (models/<family>/modeling_<family>.py) and
 * held against it by tests/model/test_transformer.c.
 *
 * Whether a part exists, its extents and its bias follow from the shape fields
 * of struct model: a family says nothing about sizes. */
#ifndef DPX_FAMILY_H
#define DPX_FAMILY_H

#include "model/arch/transformer.h"

/* Extents of a weight, in the fields of struct model. */
enum extent {
    EXT_NONE,                   /* a vector has no second extent */
    EXT_VOCAB, EXT_POSITIONS, EXT_HIDDEN, EXT_HEAD_DIM,
    EXT_Q,                      /* heads * head_dim */
    EXT_KV,                     /* kv_heads * head_dim */
    EXT_QKV,                    /* EXT_Q + 2 EXT_KV */
    EXT_HEADS, EXT_KV_HEADS,
    EXT_FFN, EXT_2FFN,
    EXT_TOKEN,                  /* width of the token embedding */
    EXT_EXPERTS, EXT_EXPERT_FFN, EXT_2EXPERT_FFN, EXT_SHARED_FFN,
    EXT_Q_RANK, EXT_KV_RANK,    /* of latent attention; */
    EXT_KV_RANK_ROPE,           /* with the rotated elements of a key, which heads share; */
    EXT_KV_UP,                  /* heads * (a key's other elements, a value's) */
    EXT_VALUES,                 /* heads * a value's elements */
};

/* When a part is there. */
enum when {
    ALWAYS,
    IF_UNTIED,
    IF_QK_NORM,
    IF_QK_NORM_EACH,            /* one module a head: "<module>.0" ... */
    IF_NORM_FIRST, IF_NORM_AROUND,      /* where norms are: enum norm_place */
    IF_SEQUENTIAL,              /* attention, then MLP */
    IF_PROJECTED,               /* the token embedding is narrower than the blocks */
    IF_ONE_NORM, IF_TWO_NORMS,  /* parallel halves that share a norm, or do not */
    IF_Q_RANK, IF_NO_Q_RANK,    /* q by way of fewer dimensions */
};

struct part {
    const char      *module;    /* below the model, or below its block; NULL ends a list.  "mlp.experts:down_proj" is
                                   a parameter that is not called weight; those in a row of one module are its own */
    enum tensor_role role;
    enum extent      out, in;   /* as nn.Linear: a weight of [out, in]; of experts' parameters: [expert, out, in] as stored */
    enum when        when;
};

struct family {
    const char        *name;            /* Hugging Face model_type */
    const char        *blocks;          /* "model.layers": block b is "model.layers.<b>" */
    const struct part *before, *block, *after;
    const struct part *dense;           /* a block without experts; NULL: there is none, or blocks have none anyway */
    bool               in_out;          /* Conv1D: weights of linear layers are [in, out] */
    int                extra_positions; /* rows of the position table beyond the context */

    /* What every model of the family has in common. */
    enum norm_kind     norm;
    enum mlp_kind      mlp;
    enum position_kind position;
    bool               fused_qkv, fused_gate_up, qkv_grouped;
    bool               parallel, one_norm;      /* ... halves, which share a norm */
    bool               qk_norm, qk_norm_bias;
    enum norm_place    norm_place;
    bool               norm_bias, head_bias, router_bias;
    bool               scaled_logits;   /* logits are multiplied by a number of the config */
    bool               experts_in_out;  /* experts' weights are [expert, in, out] */
    bool               wide_router;     /* from_pretrained() leaves the router in fp32 (_keep_in_fp32_modules_strict; transformers 5.24 and later) */
};

/* NULL when unknown. */
const struct family *family_find(const char *model_type);

/* The i-th family, NULL after the last. */
const struct family *family_at(int i);

/* Makes the tensor and module tables of `m` from its shape fields.  -1 with the
 * reason reported, and no tables, if the parameters are too many to count;
 * `where` names the config in the message. */
int model_tabulate(struct model *m, const char *where);

#endif
