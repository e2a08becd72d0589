/* exec_kernel.c -- from the places of a block program to calls of kernels.h. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "exec/kernels/rng.h"
#include "exec/run/executor_internal.h"

/* What random numbers are for, within a step. */
enum site { SITE_EMBED, SITE_ATTENTION, SITE_ATTN_OUT, SITE_MLP };

static int64_t tokens(const struct kernel_call *c) { return c->x->p->micro_batch * plan_rank_seq(c->x->p); }

static enum dtype act_dtype(const struct kernel_call *c)
{
    return c->x->recipe.autocast ? c->x->p->precision : c->x->recipe.used;
}

/* Equal for a sample whatever rank and micro-step it falls to: elements are counted over the
 * whole run's samples. */
static struct dropout dropout(const struct kernel_call *c, enum site site, double p, int64_t per_sample)
{
    uint64_t index = ((uint64_t)c->step->number * 4096 + (uint64_t)(c->block + 2)) * 4 + site;

    return (struct dropout){ .p = p, .key = rng_key(c->x->a.seed, RNG_DROPOUT, index),
                             .first = c->step->samples[c->micro] * per_sample };
}

static struct attention attention(const struct kernel_call *c)
{
    const struct plan *p = c->x->p;
    const struct model *m = &p->model;

    return (struct attention){
        .batch = p->micro_batch, .seq = plan_rank_seq(p), .heads = m->heads, .kv_heads = m->kv_heads, .dim = m->head_dim,
        .ld = (m->heads + 2 * m->kv_heads) * m->head_dim, .scale = 1 / sqrt((double)m->attn_scalar),
        .at = act_dtype(c),
        .drop = dropout(c, SITE_ATTENTION, m->attn_dropout > 0 ? p->dropout : 0, m->heads * p->seq * p->seq),
    };
}

/* ---- linear layers: which places, which shape ---- */

struct linear_place { enum tensor_role role; enum slot x, y, dy, dx; };

static const struct linear_place linears[] = {
    { ROLE_QKV,      SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN },
    { ROLE_Q,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN },
    { ROLE_K,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN },
    { ROLE_V,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN },
    { ROLE_ATTN_OUT, SLOT_ATTN,    SLOT_MID,    SLOT_DX,     SLOT_DA },
    { ROLE_GATE,     SLOT_NORM2,   SLOT_GATE,   SLOT_DG,     SLOT_DN },
    { ROLE_UP,       SLOT_NORM2,   SLOT_UP,     SLOT_DU,     SLOT_DN },
    { ROLE_DOWN,     SLOT_PRODUCT, SLOT_Y,      SLOT_DX,     SLOT_DU },
    { ROLE_HEAD,     SLOT_NORM1,   SLOT_LOGITS, SLOT_LOGITS, SLOT_DX },
};

static const struct linear_place *linear_place(enum tensor_role role)
{
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++)
        if (linears[i].role == role)
            return &linears[i];
    return NULL;
}

static bool in_out(const struct kernel_call *c, enum tensor_role role)
{
    const struct model *m = &c->x->p->model;

    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].role == role && !m->tensors[t].is_bias)
            return m->tensors[t].in_out;
    return false;                   /* a tied head: the embedding's [vocab, hidden] */
}

/* The shape; *column receives where the output begins in a row of q, k, v. */
static struct linear linear_shape(const struct kernel_call *c, enum tensor_role role, int64_t *column)
{
    const struct model *m = &c->x->p->model;
    int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim, h = m->hidden, all = q + 2 * kv;
    struct linear l = { .n = tokens(c), .in = h, .at = act_dtype(c), .wt = c->param_dt, .gt = c->grad[0].dt,
                        .in_out = in_out(c, role) };

    *column = role == ROLE_K ? q : role == ROLE_V ? q + kv : 0;
    switch (role) {
    case ROLE_QKV:      l.out = all; break;
    case ROLE_Q:        l.out = q; break;
    case ROLE_K: case ROLE_V: l.out = kv; break;
    case ROLE_ATTN_OUT: l.in = q; l.out = h; break;
    case ROLE_DOWN:     l.in = m->ffn; l.out = h; break;
    case ROLE_HEAD:     l.out = m->vocab; break;
    default:            l.out = m->ffn; break;
    }
    l.ldx = l.in;
    l.ldy = role == ROLE_Q || role == ROLE_K || role == ROLE_V ? all : l.out;
    return l;
}

static void *offset(void *p, int64_t elems, enum dtype dt)
{
    return p ? (char *)p + elems * dtype_bytes(dt) : NULL;
}

static int linear(const struct kernel_call *c, struct kernels *k)
{
    enum tensor_role role = (enum tensor_role)c->k->role;
    const struct linear_place *at = linear_place(role);
    int64_t column, h = c->x->p->model.hidden;
    struct linear l = linear_shape(c, role, &column);
    bool residual = role == ROLE_ATTN_OUT || role == ROLE_DOWN;
    struct dropout d = dropout(c, role == ROLE_DOWN ? SITE_MLP : SITE_ATTN_OUT, residual ? c->x->p->dropout : 0,
                               c->x->p->seq * h);

    return kernels_ops(k)->linear(k, &l, c->at[at->x], c->param[0], c->param[1],
                                  offset(c->at[at->y], column, l.at),
                                  residual ? c->at[role == ROLE_DOWN ? SLOT_MID : SLOT_X] : NULL, &d);
}

/* The gradient of what a half added to the residual: through its dropout or kept for later, or the residual's. */
static void *output_grad(const struct kernel_call *c, const struct linear_place *at)
{
    if (at->role == ROLE_ATTN_OUT && c->at[SLOT_DY_OUT])
        return c->at[SLOT_DY_OUT];
    return at->dy == SLOT_DX && c->at[SLOT_DY] ? c->at[SLOT_DY] : c->at[at->dy];
}

static int linear_dw(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    return kernels_ops(k)->linear_dw(k, &l, c->at[at->x], offset(output_grad(c, at), column, l.at), c->grad[0].p,
                                     c->grad[1].wanted ? c->grad[1].p : NULL, c->grad[0].into);
}

static int linear_dx(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);
    bool fresh = (c->fresh & (UINT64_C(1) << at->dx)) != 0;

    return kernels_ops(k)->linear_dx(k, &l, offset(output_grad(c, at), column, l.at), c->param[0], c->at[at->dx],
                                     !fresh);
}

/* ---- norms ---- */

static void norm_places(const struct kernel_call *c, enum slot *x, enum slot *y, enum slot *stats)
{
    bool mlp = c->k->role == ROLE_NORM_MLP;

    *x = mlp ? SLOT_MID : SLOT_X;
    *y = mlp ? SLOT_NORM2 : SLOT_NORM1;
    *stats = mlp ? SLOT_STATS2 : SLOT_STATS1;
}

static int norm(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    enum slot x, y, stats;

    norm_places(c, &x, &y, &stats);
    return kernels_ops(k)->norm(k, m->norm, tokens(c), m->hidden, m->norm_eps, c->at[x], c->param[0], c->param[1],
                                c->param_dt, c->at[y], act_dtype(c), c->at[stats]);
}

static int norm_back(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    bool final = c->k->role == ROLE_NORM_FINAL;         /* in place */
    enum slot x, y, stats;

    norm_places(c, &x, &y, &stats);
    return kernels_ops(k)->norm_back(k, m->norm, tokens(c), m->hidden, c->at[final ? SLOT_DX : SLOT_DN], c->at[x],
                                     c->param[0], c->param_dt, c->at[stats], act_dtype(c), c->at[SLOT_DX], !final,
                                     c->grad[0].wanted ? c->grad[0].p : NULL,
                                     c->grad[1].wanted ? c->grad[1].p : NULL, c->grad[0].dt, c->grad[0].into);
}

/* Where the gradients of a norm's parameters wait: the weight's, the bias's behind it. */
static void *kept_grads(const struct kernel_call *c)
{
    return c->at[c->k->role == ROLE_NORM_MLP ? SLOT_DNORM2 : SLOT_DNORM1];
}

static int norm_back_kept(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    enum dtype gt = executor_grad_dtype(c->x);
    struct kernel_call kept = *c;
    bool bias = m->norm == NORM_LAYER;

    kept.grad[0] = (struct grad_out){ .p = kept_grads(c), .dt = gt, .into = GRAD_SET, .wanted = true };
    kept.grad[1] = (struct grad_out){ .p = offset(kept_grads(c), m->hidden, gt), .dt = gt, .into = GRAD_SET, .wanted = bias };
    return norm_back(&kept, k);
}

static int grad_kept(const struct kernel_call *c, struct kernels *k)
{
    enum dtype gt = executor_grad_dtype(c->x);
    int64_t h = c->x->p->model.hidden;

    for (int b = 0; b < 2; b++)
        if (c->grad[b].wanted &&
            kernels_ops(k)->copy(k, h, c->grad[b].p, c->grad[b].dt, offset(kept_grads(c), b * h, gt), gt, 1,
                                 c->grad[b].into == GRAD_ADD) < 0)
            return -1;
    return 0;
}

/* ---- the ends ---- */

static int upload_labels(const struct kernel_call *c, struct kernels *k, int32_t *to)
{
    int64_t n = tokens(c);

    return kernels_ops(k)->upload(k, n * (int64_t)sizeof *to, to, c->step->labels + c->micro * n);
}

static int embed(const struct kernel_call *c, struct kernels *k)
{
    int64_t n = tokens(c);
    int32_t *ids = c->at[SLOT_IDS];

    if (kernels_ops(k)->upload(k, n * (int64_t)sizeof *ids, ids, c->step->ids + c->micro * n) < 0 ||
        (!c->x->staged && upload_labels(c, k, ids + n) < 0))
        return -1;
    return kernels_ops(k)->embed(k, n, c->x->p->model.hidden, ids, c->param[0], c->param_dt, c->at[SLOT_Y],
                                 act_dtype(c));
}

static struct dropout embed_dropout(const struct kernel_call *c)
{
    return dropout(c, SITE_EMBED, c->x->p->dropout, c->x->p->seq * c->x->p->model.hidden);
}

static int positions(const struct kernel_call *c, struct kernels *k)
{
    const struct plan *p = c->x->p;
    struct dropout d = embed_dropout(c);

    return kernels_ops(k)->embed_positions(k, tokens(c), p->model.hidden, p->seq, c->param[0], c->param_dt,
                                           c->at[SLOT_Y], act_dtype(c), &d);
}

static int positions_back(const struct kernel_call *c, struct kernels *k)
{
    const struct plan *p = c->x->p;
    struct dropout d = embed_dropout(c);
    int64_t n = tokens(c), h = p->model.hidden;

    if (d.p > 0 && kernels_ops(k)->dropout_back(k, n * h, c->at[SLOT_DX], act_dtype(c), &d) < 0)
        return -1;
    return kernels_ops(k)->embed_positions_back(k, n, h, p->seq, p->model.positions, c->at[SLOT_DX], act_dtype(c),
                                                c->grad[0].p, c->grad[0].dt, c->grad[0].into);
}

static int loss(const struct kernel_call *c, struct kernels *k)
{
    int64_t n = tokens(c);
    int32_t *own = c->at[SLOT_LABELS];
    const int32_t *labels = own ? own : (int32_t *)c->at[SLOT_IDS] + n;

    if (own && upload_labels(c, k, own) < 0)
        return -1;
    if (kernels_ops(k)->cross_entropy(k, n, c->x->p->model.vocab, c->at[SLOT_LOGITS], act_dtype(c), labels,
                                      c->at[SLOT_LOSSES], c->x->s->seed / (double)n) < 0)
        return -1;
    c->step->loss_tokens += n;
    return kernels_ops(k)->sum(k, n, c->at[SLOT_LOSSES], &c->step->loss_sum);
}

static int embed_back(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;

    return kernels_ops(k)->embed_back(k, tokens(c), m->hidden, m->vocab, c->at[SLOT_IDS], c->at[SLOT_DX],
                                      act_dtype(c), c->grad[0].p, c->grad[0].dt, c->grad[0].into);
}

/* ---- attention and activation ---- */

static int output_back(const struct kernel_call *c, struct kernels *k)
{
    const struct plan *p = c->x->p;
    int64_t n = tokens(c) * p->model.hidden;
    struct dropout d = dropout(c, c->k->half ? SITE_MLP : SITE_ATTN_OUT, p->dropout, p->seq * p->model.hidden);
    void *dy = !c->k->half && c->at[SLOT_DY_OUT] ? c->at[SLOT_DY_OUT] : c->at[SLOT_DY];

    if (kernels_ops(k)->copy(k, n, dy, act_dtype(c), c->at[SLOT_DX], act_dtype(c), 1, false) < 0)
        return -1;
    return d.p > 0 ? kernels_ops(k)->dropout_back(k, n, dy, act_dtype(c), &d) : 0;
}

/* Whose tokens are not a sample's from the first on. */
static int context_run(const struct kernel_call *c, struct kernels *k)
{
    struct attention a = attention(c);

    return executor_context_run(c, k, &a);
}

static int attend(const struct kernel_call *c, struct kernels *k)
{
    struct attention a = attention(c);

    if (executor_context_is(c->x))
        return executor_context_run(c, k, &a);
    switch ((enum kernel_fn)c->k->fn) {
    case FN_ROTARY:
        return kernels_ops(k)->rotary(k, &a, c->x->p->model.rotary_dim, c->x->inv_freq, c->at[SLOT_QKV], false);
    case FN_ROTARY_BACK:
        return kernels_ops(k)->rotary(k, &a, c->x->p->model.rotary_dim, c->x->inv_freq, c->at[SLOT_DQKV], true);
    case FN_ATTENTION:
        return kernels_ops(k)->attention(k, &a, c->at[SLOT_QKV], c->at[SLOT_ATTN], c->at[SLOT_LSE]);
    default:
        return kernels_ops(k)->attention_back(k, &a, c->at[SLOT_QKV], c->at[SLOT_ATTN], c->at[SLOT_LSE],
                                              c->at[SLOT_DA], c->at[SLOT_DELTA], c->at[SLOT_DQKV]);
    }
}

static int activation(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    int64_t n = tokens(c) * m->ffn;

    if (c->k->fn == FN_ACTIVATION)
        return kernels_ops(k)->activation(k, m->act, n, c->at[SLOT_GATE], c->at[SLOT_UP], c->at[SLOT_PRODUCT],
                                          act_dtype(c));
    return kernels_ops(k)->activation_back(k, m->act, n, c->at[SLOT_GATE], c->at[SLOT_UP], c->at[SLOT_DU],
                                           c->at[SLOT_DG], act_dtype(c));
}

int executor_kernel_run(const struct kernel_call *c)
{
    struct kernels *k = c->x->kernels[STREAM_COMPUTE];

    switch ((enum kernel_fn)c->k->fn) {
    case FN_NONE:            return 0;
    case FN_EMBED:           return embed(c, k);
    case FN_POSITIONS:       return executor_context_is(c->x) ? context_run(c, k) : positions(c, k);
    case FN_NORM:            return norm(c, k);
    case FN_LINEAR:          return linear(c, k);
    case FN_LOSS:            return loss(c, k);
    case FN_EMBED_BACK:      return embed_back(c, k);
    case FN_POSITIONS_BACK:  return executor_context_is(c->x) ? context_run(c, k) : positions_back(c, k);
    case FN_NORM_BACK:       return norm_back(c, k);
    case FN_NORM_BACK_KEPT:  return norm_back_kept(c, k);
    case FN_GRAD_KEPT:       return grad_kept(c, k);
    case FN_LINEAR_DW:       return linear_dw(c, k);
    case FN_LINEAR_DX:       return linear_dx(c, k);
    case FN_OUTPUT_BACK:     return output_back(c, k);
    case FN_ROTARY: case FN_ROTARY_BACK: case FN_ATTENTION: case FN_ATTENTION_BACK:
        return attend(c, k);
    case FN_ACTIVATION: case FN_ACTIVATION_BACK:
        return activation(c, k);
    case FN_KEYS: case FN_ATTENTION_PART: case FN_ATTENTION_SUM: case FN_ATTENTION_DELTA: case FN_ATTENTION_PART_BACK:
    case FN_DKEYS_ADD: case FN_DKEYS_JOIN: case FN_DEAL: case FN_COLLECT:
        return context_run(c, k);
    case FN_Q_NORM: case FN_Q_NORM_BACK: case NKERNEL_FN:
        break;
    }
    return fail("no kernel for \"%s\"", c->k->name);
}
