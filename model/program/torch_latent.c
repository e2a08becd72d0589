/* torch_latent.c -- DeepseekV3Attention.forward() of transformers 5.23 up to the scores: queries and keys in two parts, of which one is
 * rotated; keys and values come from few dimensions, and the rotated part of a key is one for all heads.
 *
 * Queries are concatenated; keys are filled in place, which autograd takes back by copies of the whole (tape_put.h). */
#include "model/program/torch_latent.h"

#include "model/program/tape_put.h"
#include "model/program/torch_parts.h"
#include "model/program/torch_rotary.h"

/* apply_rotary_pos_emb_interleave(): of every second element and those between. */
static void rotate_pairs(struct torch_model *b, var *const x[2])
{
    struct tape *t = b->t;
    var half[2][2];

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            half[i][j] = op_slice(t, "rotary half", *x[i], tape_var_numel(t, *x[i]) / 2);
    for (int i = 0; i < 2; i++)
        *x[i] = tmp(t, *x[i], torch_rotary(b, half[i]));
    for (int i = 0; i < 4; i++)
        tape_drop(t, half[i / 2][i % 2]);
}

static var queries(struct torch_model *b, var x)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t width = m->heads * m->head_dim;

    if (m->q_rank == 0)
        return torch_linear(b, GEMM("q"), x, width, m->hidden, ROLE_Q);
    var low = torch_linear(b, GEMM("q down"), x, m->q_rank, m->hidden, ROLE_Q_A);
    low = tmp(t, low, torch_norm_rows(b, "q norm", low, m->q_rank, ROLE_Q_A_NORM));
    return tmp(t, low, torch_linear(b, GEMM("q up"), low, width, m->q_rank, ROLE_Q_B));
}

/* expand_kv(). */
static void expand(struct torch_model *b, var low, var rotated, struct qkv *out)
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t rows = b->tokens * m->heads, plain = m->head_dim - m->rope_dim;
    var up = torch_linear(b, GEMM("kv up"), low, m->heads * (plain + m->value_dim), m->kv_rank, ROLE_KV_B), part[2];

    up = tmp(t, up, op_view(t, up, true));
    op_split(t, "kv split", up, 2, (int64_t[]){ rows * plain, rows * m->value_dim }, part);
    tape_drop(t, up);
    var shared = op_expand(t, "key's rotated part", rotated, m->heads);
    var key = op_new(t, "keys", KC_COPY, rows * m->head_dim, tape_var_dtype(t, part[0]));
    key = tmp(t, key, tape_put(t, "keys", key, part[0]));
    key = tmp(t, key, tape_put(t, "keys", key, shared));
    tape_drop(t, shared);
    tape_drop(t, part[0]);
    out->k = key;
    out->v = part[1];
}

struct qkv torch_latent(struct torch_model *b, var x, var kept[4])
{
    struct tape *t = b->t;
    const struct model *m = b->m;
    int64_t rows = b->tokens * m->heads, plain = m->head_dim - m->rope_dim;
    struct qkv out = { 0 };
    var q = queries(b, x), part[2], low[2];

    kept[0] = tmp(t, q, op_view(t, q, true));           /* q_states */
    op_split(t, "q split", kept[0], 2, (int64_t[]){ rows * plain, rows * m->rope_dim }, part);
    out.all = torch_linear(b, GEMM("kv down"), x, m->kv_rank + m->rope_dim, m->hidden, ROLE_KV_A);
    op_split(t, "kv down split", out.all, 2, (int64_t[]){ b->tokens * m->kv_rank, b->tokens * m->rope_dim }, low);
    kept[1] = tmp(t, low[0], torch_norm_rows(b, "kv norm", low[0], m->kv_rank, ROLE_KV_A_NORM));
    rotate_pairs(b, (var *const[]){ &part[1], &low[1] });
    out.q = op_cat2(t, "queries", part[0], part[1]);
    expand(b, kept[1], low[1], &out);
    kept[2] = part[1];
    kept[3] = low[1];
    tape_drop(t, part[0]);                              /* a view of kept[0] */
    return out;
}
