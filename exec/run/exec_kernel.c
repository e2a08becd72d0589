/* exec_kernel.c -- from the places of a block program to calls of kernels.h. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "exec/kernels/rng.h"
#include "exec/run/executor_internal.h"

/* What random numbers are for, within a step. */
enum site { SITE_EMBED, SITE_ATTENTION, SITE_ATTN_OUT, SITE_MLP };

static int64_t tokens(const struct kernel_call *c) { return c->x->p->micro_batch * plan_rank_seq(c->x->p); }

/* Positions that norms and residuals have here, and the first of them. */
static int64_t rows(const struct kernel_call *c)
{
    return is_sequence(c->x) ? tokens(c) / tensor_ranks(c->x) : tokens(c);
}

static int64_t first_row(const struct kernel_call *c)
{
    return is_sequence(c->x) ? tensor_rank(c->x) * rows(c) : 0;
}

static enum dtype act_dtype(const struct kernel_call *c)
{
    return c->x->recipe.autocast ? c->x->p->precision : c->x->recipe.used;
}

/* Equal for a sample whatever rank and micro-step it falls to: elements are counted over the
 * whole run's samples and the whole model; `first` of those of the micro-step's samples are others'. */
static struct dropout dropout(const struct kernel_call *c, enum site site, double p, int64_t per_sample, int64_t first)
{
    uint64_t index = ((uint64_t)c->step->number * 4096 + (uint64_t)(c->block + 2)) * 4 + site;

    return (struct dropout){ .p = p, .key = rng_key(c->x->a.seed, RNG_DROPOUT, index),
                             .first = c->step->samples[c->micro] * per_sample + first };
}

/* From position `at` of the micro-step's samples on, which are whole ones after each other. */
static struct dropout dropout_from(const struct kernel_call *c, enum site site, int64_t at)
{
    int64_t h = c->x->p->model.hidden;

    return dropout(c, site, c->x->p->dropout, c->x->p->seq * h, at * h);
}

struct dropout exec_embed_dropout(const struct kernel_call *c, int64_t at) { return dropout_from(c, SITE_EMBED, at); }

/* On what is added to the residual stream, or to the embedding: so many of this rank's rows, counted by dropout one after the
 * other.  All of them, or where the rank has a share of each sample's positions those that follow each other in a sample. */
struct stretch { int64_t n; struct dropout drop; };

/* From row `at` of rows() on. */
static struct stretch stretch_from(const struct kernel_call *c, enum site site, int64_t at)
{
    struct stretch s = { rows(c) - at, dropout_from(c, site, first_row(c) + at) };
    int64_t seq = plan_rank_seq(c->x->p), row = first_row(c) + at, n, position;

    if (s.drop.p <= 0 || !exec_context_is(c->x))
        return s;
    position = exec_context_position(c->x, row, &n);
    s.n = n < s.n ? n : s.n;
    s.drop = dropout_from(c, site, row / seq * c->x->p->seq + position);
    return s;
}

/* Its heads are some of the whole model's. */
static struct attention attention(const struct kernel_call *c)
{
    const struct plan *p = c->x->p;
    const struct model *m = &p->model;
    int64_t scores = m->heads * p->seq * p->seq;

    return (struct attention){
        .batch = p->micro_batch, .seq = plan_rank_seq(p), .heads = m->heads, .kv_heads = m->kv_heads, .dim = m->head_dim,
        .ld = (m->heads + 2 * m->kv_heads) * m->head_dim, .scale = 1 / sqrt((double)m->attn_scalar),
        .at = act_dtype(c),
        .drop = dropout(c, SITE_ATTENTION, m->attn_dropout > 0 ? p->dropout : 0, tensor_ranks(c->x) * scores,
                        tensor_rank(c->x) * scores),
    };
}

/* ---- linear layers: which places, which shape ---- */

struct linear_place { enum tensor_role role; enum slot x, y, dy, dx, low; };

static const struct linear_place linears[] = {
    { ROLE_QKV,      SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_Q },
    { ROLE_Q,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_Q },
    { ROLE_K,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_K },
    { ROLE_V,        SLOT_NORM1,   SLOT_QKV,    SLOT_DQKV,   SLOT_DN, SLOT_LOW_V },
    { ROLE_ATTN_OUT, SLOT_ATTN,    SLOT_MID,    SLOT_DX,     SLOT_DA, SLOT_LOW_OUT },
    { ROLE_GATE,     SLOT_NORM2,   SLOT_GATE,   SLOT_DG,     SLOT_DN, SLOT_LOW_GATE },
    { ROLE_UP,       SLOT_NORM2,   SLOT_UP,     SLOT_DU,     SLOT_DN, SLOT_LOW_UP },
    { ROLE_DOWN,     SLOT_PRODUCT, SLOT_Y,      SLOT_DX,     SLOT_DU, SLOT_LOW_DOWN },
    { ROLE_HEAD,     SLOT_NORM1,   SLOT_LOGITS, SLOT_LOGITS, SLOT_DX, SLOT_NONE },
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

    if (c->k->adapter != ADAPTER_NONE)
        return false;
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
    if (c->k->adapter == ADAPTER_LORA_A)
        l.out = l.ldy = c->x->p->train.rank;
    if (c->k->adapter == ADAPTER_LORA_B)
        l.in = l.ldx = c->x->p->train.rank;
    return l;
}

/* The weight of a product: where it was in codes, their numbers, [out, in] in the activations' dtype. */
static const void *weight(const struct kernel_call *c, struct linear *l)
{
    if (!c->at[SLOT_WEIGHT])
        return c->param[0];
    l->wt = l->at;
    l->in_out = false;
    return c->at[SLOT_WEIGHT];
}

static void *offset(void *p, int64_t elems, enum dtype dt)
{
    return p ? (char *)p + elems * dtype_bytes(dt) : NULL;
}

static bool is_fresh(const struct kernel_call *c, enum slot slot) { return c->fresh >> slot & 1; }

static bool adds_residual(enum tensor_role role) { return role == ROLE_ATTN_OUT || role == ROLE_DOWN; }

/* What a linear layer reads: all positions of what a norm left, where they have been gathered. */
static const void *input(const struct kernel_call *c, const struct linear_place *at)
{
    return (at->x == SLOT_NORM1 || at->x == SLOT_NORM2) && c->at[SLOT_GATHERED] ? c->at[SLOT_GATHERED] : c->at[at->x];
}

static void *residual_of(const struct kernel_call *c, enum tensor_role role)
{
    return c->at[role == ROLE_DOWN ? SLOT_MID : SLOT_X];
}

static enum site output_site(enum tensor_role role) { return role == ROLE_DOWN ? SITE_MLP : SITE_ATTN_OUT; }

/* What follows a row-parallel product, or one whose dropout is not of one stretch: bias, dropout, residual. */
static int add_residual(const struct kernel_call *c, struct kernels *k, const struct linear_place *at)
{
    int64_t h = c->x->p->model.hidden;
    struct stretch s;

    for (int64_t row = 0; row < rows(c); row += s.n) {
        s = stretch_from(c, output_site(at->role), row);
        if (kernels_ops(k)->residual(k, s.n, h, offset(c->at[at->y], row * h, act_dtype(c)), act_dtype(c), c->param[1], c->param_dt,
                                     offset(residual_of(c, at->role), row * h, act_dtype(c)), &s.drop) < 0)
            return -1;
    }
    return 0;
}

/* The gradient of what a half added to the residual, of all positions, where it has been gathered; NULL. */
static void *gathered_grad(const struct kernel_call *c, const struct linear_place *at)
{
    if (at->dy != SLOT_DX)
        return NULL;
    return c->at[at->role == ROLE_ATTN_OUT && c->at[SLOT_DGATHERED_OUT] ? SLOT_DGATHERED_OUT : SLOT_DGATHERED];
}

/* Of this rank's positions: among all, through its dropout or kept for later, or the residual's. */
static void *own_output_grad(const struct kernel_call *c, const struct linear_place *at)
{
    void *all = gathered_grad(c, at);

    if (all)
        return offset(all, first_row(c) * c->x->p->model.hidden, act_dtype(c));
    if (at->role == ROLE_ATTN_OUT && c->at[SLOT_DY_OUT])
        return c->at[SLOT_DY_OUT];
    return at->dy == SLOT_DX && c->at[SLOT_DY] ? c->at[SLOT_DY] : c->at[at->dy];
}

static void *output_grad(const struct kernel_call *c, const struct linear_place *at)
{
    void *all = gathered_grad(c, at);

    return all ? all : own_output_grad(c, at);
}

/* What an adapter's A left, or the gradient that B handed it, counts alpha / rank. */
static int scale_low(const struct kernel_call *c, struct kernels *k, void *low)
{
    const struct training *t = &c->x->p->train;
    enum dtype at = act_dtype(c);

    return kernels_ops(k)->copy(k, tokens(c) * t->rank, low, at, low, at, t->alpha / (double)t->rank, false);
}

/* What A reads, dropped; or what its backward left, dropped and added to the gradient of the layer's input. */
static int adapter_drop(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    bool back = c->k->fn == FN_ADAPTER_DROP_BACK;
    void *dropped = c->at[SLOT_DROPPED];
    enum dtype t = act_dtype(c);
    int64_t column, n;
    struct linear l = linear_shape(c, at->role, &column);
    struct dropout d = exec_adapter_dropout(c, at->low, l.in);

    n = l.n * l.in;
    if (!back && kernels_ops(k)->copy(k, n, dropped, t, input(c, at), t, 1, false) < 0)
        return -1;
    if (kernels_ops(k)->dropout_back(k, n, dropped, t, &d) < 0)
        return -1;
    return back ? kernels_ops(k)->copy(k, n, c->at[at->dx], t, dropped, t, 1, true) : 0;
}

static const void *adapter_input(const struct kernel_call *c, const struct linear_place *at)
{
    return c->at[SLOT_DROPPED] ? c->at[SLOT_DROPPED] : input(c, at);
}

/* Its A reads what the layer does; its B adds to what the layer left. */
static int adapter(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    const struct dropout none = { 0 };
    void *low = c->at[at->low];
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    if (c->k->adapter == ADAPTER_LORA_A)
        return kernels_ops(k)->linear(k, &l, adapter_input(c, at), c->param[0], NULL, low, NULL, &none) < 0 ? -1 : scale_low(c, k, low);
    void *y = offset(c->at[at->y], column, l.at);
    return kernels_ops(k)->linear(k, &l, low, c->param[0], NULL, y, y, &none);
}

static int adapter_dw(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    bool a = c->k->adapter == ADAPTER_LORA_A;
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    return kernels_ops(k)->linear_dw(k, &l, a ? adapter_input(c, at) : c->at[at->low],
                                     a ? c->at[SLOT_DLOW] : offset(output_grad(c, at), column, l.at), c->grad[0].p, NULL,
                                     c->grad[0].into);
}

static int adapter_dx(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    void *dlow = c->at[SLOT_DLOW];
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    bool drops = c->at[SLOT_DROPPED];

    if (c->k->adapter == ADAPTER_LORA_A)
        return kernels_ops(k)->linear_dx(k, &l, dlow, c->param[0], drops ? c->at[SLOT_DROPPED] : c->at[at->dx], !drops);
    if (kernels_ops(k)->linear_dx(k, &l, offset(output_grad(c, at), column, l.at), c->param[0], dlow, false) < 0)
        return -1;
    return scale_low(c, k, dlow);
}

static int linear(const struct kernel_call *c, struct kernels *k)
{
    enum tensor_role role = (enum tensor_role)c->k->role;
    const struct linear_place *at = linear_place(role);
    int64_t column;
    struct linear l = linear_shape(c, role, &column);
    struct stretch s = adds_residual(role) ? stretch_from(c, output_site(role), 0) : (struct stretch){ .n = rows(c) };
    bool one = s.n == rows(c);

    const void *w = weight(c, &l);

    if (kernels_ops(k)->linear(k, &l, input(c, at), w, one ? c->param[1] : NULL, offset(c->at[at->y], column, l.at),
                               one && adds_residual(role) ? residual_of(c, role) : NULL, one ? &s.drop : NULL) < 0)
        return -1;
    return one ? 0 : add_residual(c, k, at);
}

/* Of a sum over ranks, into what came with it: the sum's own place, or one for the part; the bias follows the sum.  Or what an
 * adapter adds to. */
static int linear_part(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);
    void *y = c->at[is_fresh(c, SLOT_PARTIAL) ? SLOT_PARTIAL : at->y];

    const void *w = weight(c, &l);

    return kernels_ops(k)->linear(k, &l, input(c, at), w, c->x->p->parallel.tensor > 1 ? NULL : c->param[1], y, NULL, NULL);
}

static int unpack(const struct kernel_call *c, struct kernels *k)
{
    struct packed_weight w = exec_packed(c->codes, (void *)(uintptr_t)c->param[0]);

    return kernels_ops(k)->unpack(k, &w, c->at[SLOT_WEIGHT], act_dtype(c));
}

/* What follows the sum. */
static int residual(const struct kernel_call *c, struct kernels *k)
{
    return add_residual(c, k, linear_place((enum tensor_role)c->k->role));
}

static int linear_db(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    l.n = rows(c);
    l.gt = c->grad[1].dt;
    return kernels_ops(k)->linear_db(k, &l, offset(own_output_grad(c, at), column, l.at), c->grad[1].p, c->grad[1].into);
}

static int linear_dw(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);

    return kernels_ops(k)->linear_dw(k, &l, input(c, at), offset(output_grad(c, at), column, l.at), c->grad[0].p,
                                     c->grad[1].wanted ? c->grad[1].p : NULL, c->grad[0].into);
}

static int linear_dx(const struct kernel_call *c, struct kernels *k)
{
    const struct linear_place *at = linear_place((enum tensor_role)c->k->role);
    int64_t column;
    struct linear l = linear_shape(c, at->role, &column);
    enum slot dx = at->role == ROLE_HEAD && c->at[SLOT_DN] ? SLOT_DN : at->dx;  /* a sum over ranks leaves DX */

    const void *w = weight(c, &l);

    return kernels_ops(k)->linear_dx(k, &l, offset(output_grad(c, at), column, l.at), w, c->at[dx], !is_fresh(c, dx));
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
    return kernels_ops(k)->norm(k, m->norm, rows(c), m->hidden, m->norm_eps, c->at[x], c->param[0], c->param[1],
                                c->param_dt, c->at[y], act_dtype(c), c->at[stats]);
}

static int norm_back(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    bool final = c->k->role == ROLE_NORM_FINAL;         /* in place */
    enum slot x, y, stats, dy = final ? SLOT_DX : c->at[SLOT_DSHARE] ? SLOT_DSHARE : SLOT_DN;

    norm_places(c, &x, &y, &stats);
    return kernels_ops(k)->norm_back(k, m->norm, rows(c), m->hidden, c->at[dy], c->at[x],
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

/* The first row of the vocabulary that is this rank's, and columns of the logits: as local_share.h deals them out. */
static struct cut_logits cut_logits(const struct kernel_call *c)
{
    int64_t vocab = c->x->a.share->vocab, ranks = tensor_ranks(c->x);

    return (struct cut_logits){ .n = tokens(c), .vocab = vocab, .part = (vocab + ranks - 1) / ranks,
                                .rank = tensor_rank(c->x), .at = act_dtype(c) };
}

static int upload_labels(const struct kernel_call *c, struct kernels *k, int32_t *to)
{
    int64_t n = tokens(c);

    return kernels_ops(k)->upload(k, n * (int64_t)sizeof *to, to, c->step->labels + c->micro * n);
}

static int upload_ids(const struct kernel_call *c, struct kernels *k)
{
    int64_t n = tokens(c);
    int32_t *ids = c->at[SLOT_IDS];

    if (kernels_ops(k)->upload(k, n * (int64_t)sizeof *ids, ids, c->step->ids + c->micro * n) < 0)
        return -1;
    return c->x->staged ? 0 : upload_labels(c, k, ids + n);
}

static int embed(const struct kernel_call *c, struct kernels *k)
{
    if (upload_ids(c, k) < 0)
        return -1;
    return kernels_ops(k)->embed(k, tokens(c), c->x->p->model.hidden, c->at[SLOT_IDS], c->param[0], c->param_dt,
                                 c->at[SLOT_Y], act_dtype(c));
}

static int embed_rows(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    struct cut_logits l = cut_logits(c);

    if (upload_ids(c, k) < 0)
        return -1;
    return kernels_ops(k)->embed_rows(k, l.n, m->hidden, l.rank * l.part, m->vocab, c->at[SLOT_IDS], c->param[0],
                                      c->param_dt, c->at[is_fresh(c, SLOT_PARTIAL) ? SLOT_PARTIAL : SLOT_Y], l.at);
}

/* From all positions' sum to this rank's positions, sample by sample: a table's rows are positions. */
static int positions(const struct kernel_call *c, struct kernels *k)
{
    const struct plan *p = c->x->p;
    int64_t h = p->model.hidden, row = first_row(c), end = row + rows(c), n;
    struct dropout d = dropout_from(c, SITE_EMBED, row);
    enum dtype at = act_dtype(c);
    char *x = c->at[SLOT_Y];

    if (c->at[SLOT_PARTIAL] && kernels_ops(k)->copy(k, rows(c) * h, x, at, offset(c->at[SLOT_PARTIAL], row * h, at), at,
                                                    1, false) < 0)
        return -1;
    if (!is_sequence(c->x) && !exec_context_is(c->x))
        return kernels_ops(k)->embed_positions(k, end, h, p->seq, c->param[0], c->param_dt, x, at, &d);
    for (; row < end; row += n, x += n * h * dtype_bytes(at)) {
        d = stretch_from(c, SITE_EMBED, row - first_row(c)).drop;
        const char *table = (const char *)c->param[0] + exec_context_position(c->x, row, &n) * h * dtype_bytes(c->param_dt);
        n = n < end - row ? n : end - row;
        if (kernels_ops(k)->embed_positions(k, n, h, n, table, c->param_dt, x, at, &d) < 0)
            return -1;
    }
    return 0;
}

/* Of all positions. */
static void *embed_grad(const struct kernel_call *c)
{
    return c->at[SLOT_DGATHERED] ? c->at[SLOT_DGATHERED] : c->at[SLOT_DX];
}

static int positions_back(const struct kernel_call *c, struct kernels *k)
{
    const struct plan *p = c->x->p;
    struct dropout d = exec_embed_dropout(c, 0);
    int64_t n = tokens(c), h = p->model.hidden;

    if (d.p > 0 && kernels_ops(k)->dropout_back(k, n * h, embed_grad(c), act_dtype(c), &d) < 0)
        return -1;
    if (!c->grad[0].wanted)             /* the table does not train */
        return 0;
    return kernels_ops(k)->embed_positions_back(k, n, h, p->seq, p->model.positions, embed_grad(c), act_dtype(c),
                                                c->grad[0].p, c->grad[0].dt, c->grad[0].into);
}

static double loss_scale(const struct kernel_call *c) { return loss_scale_of(c->step) * c->x->s->seed / (double)tokens(c); }

static int sum_losses(const struct kernel_call *c, struct kernels *k)
{
    c->step->loss_tokens += tokens(c);
    return kernels_ops(k)->sum(k, tokens(c), c->at[SLOT_LOSSES], &c->step->loss_sum);
}

/* Where they lie; those that came with this kernel are brought.  NULL reported. */
static const int32_t *labels(const struct kernel_call *c, struct kernels *k)
{
    int32_t *own = c->at[SLOT_LABELS];

    if (is_fresh(c, SLOT_LABELS) && upload_labels(c, k, own) < 0)
        return NULL;
    return own ? own : (int32_t *)c->at[SLOT_IDS] + tokens(c);
}

static int loss(const struct kernel_call *c, struct kernels *k)
{
    const int32_t *of = labels(c, k);

    if (!of || kernels_ops(k)->cross_entropy(k, tokens(c), c->x->p->model.vocab, c->at[SLOT_LOGITS], act_dtype(c), of,
                                             c->at[SLOT_LOSSES], loss_scale(c)) < 0)
        return -1;
    return sum_losses(c, k);
}

/* Cross-entropy where each rank has some columns of the logits. */
static int cut_loss(const struct kernel_call *c, struct kernels *k)
{
    struct cut_logits l = cut_logits(c);
    bool reads = c->k->fn != FN_LOGITS_MOST && c->k->fn != FN_LOGITS_SUM;
    const int32_t *of = reads ? labels(c, k) : NULL;
    float *most = c->at[SLOT_STATS2], *label = c->at[SLOT_STATS3], *sum = c->at[SLOT_STATS4], *losses = c->at[SLOT_LOSSES];
    void *logits = c->at[SLOT_LOGITS];
    int rc;

    if (reads && !of)
        return -1;
    switch ((enum kernel_fn)c->k->fn) {
    case FN_LOGITS_MOST:  return kernels_ops(k)->logits_most(k, &l, logits, most);
    case FN_LOGITS_LABEL: return kernels_ops(k)->logits_label(k, &l, logits, of, label);
    case FN_LOGITS_SUM:   return kernels_ops(k)->logits_sum(k, &l, logits, most, sum);
    case FN_LOGITS_LOSS:
        rc = kernels_ops(k)->logits_loss(k, &l, logits, of, &(struct logit_sums){ most, label, sum }, losses,
                                         loss_scale(c));
        break;
    default:
        rc = kernels_ops(k)->logits_whole(k, &l, c->at[SLOT_PARTIAL], logits, of, losses, loss_scale(c));
        break;
    }
    return rc < 0 ? -1 : sum_losses(c, k);
}

static int embed_back(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;

    return kernels_ops(k)->embed_back(k, tokens(c), m->hidden, m->vocab, c->at[SLOT_IDS], c->at[SLOT_DX],
                                      act_dtype(c), c->grad[0].p, c->grad[0].dt, c->grad[0].into);
}

static int embed_rows_back(const struct kernel_call *c, struct kernels *k)
{
    const struct model *m = &c->x->p->model;
    struct cut_logits l = cut_logits(c);

    return kernels_ops(k)->embed_rows_back(k, l.n, m->hidden, l.rank * l.part, m->vocab, c->at[SLOT_IDS], embed_grad(c),
                                           l.at, c->grad[0].p, c->grad[0].dt, c->grad[0].into);
}

/* ---- attention and activation ---- */

static int output_back(const struct kernel_call *c, struct kernels *k)
{
    const struct plan *p = c->x->p;
    int64_t h = p->model.hidden;
    void *dy = !c->k->half && c->at[SLOT_DY_OUT] ? c->at[SLOT_DY_OUT] : c->at[SLOT_DY];
    struct stretch s;

    if (kernels_ops(k)->copy(k, rows(c) * h, dy, act_dtype(c), c->at[SLOT_DX], act_dtype(c), 1, false) < 0)
        return -1;
    for (int64_t row = 0; p->dropout > 0 && row < rows(c); row += s.n) {
        s = stretch_from(c, c->k->half ? SITE_MLP : SITE_ATTN_OUT, row);
        if (kernels_ops(k)->dropout_back(k, s.n * h, offset(dy, row * h, act_dtype(c)), act_dtype(c), &s.drop) < 0)
            return -1;
    }
    return 0;
}

/* Whose tokens are not a sample's from the first on. */
static int context_run(const struct kernel_call *c, struct kernels *k)
{
    struct attention a = attention(c);

    return exec_context_run(c, k, &a);
}

static int attend(const struct kernel_call *c, struct kernels *k)
{
    struct attention a = attention(c);
    bool rotary = c->k->fn == FN_ROTARY || c->k->fn == FN_ROTARY_BACK;

    if (exec_context_is(c->x))
        return exec_context_run(c, k, &a);
    if (rotary)
        return kernels_ops(k)->rotary(k, &a, c->x->p->model.rotary_dim, c->x->inv_freq,
                                      c->at[c->k->fn == FN_ROTARY ? SLOT_QKV : SLOT_DQKV], c->k->fn == FN_ROTARY_BACK);
    return exec_attend(c, k, &a);
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
    bool lora = c->k->adapter != ADAPTER_NONE;

    switch ((enum kernel_fn)c->k->fn) {
    case FN_NONE:            return 0;
    case FN_EMBED:           return embed(c, k);
    case FN_POSITIONS:       return positions(c, k);
    case FN_NORM:            return norm(c, k);
    case FN_LINEAR:          return lora ? adapter(c, k) : linear(c, k);
    case FN_LOSS:            return loss(c, k);
    case FN_EMBED_BACK:      return embed_back(c, k);
    case FN_POSITIONS_BACK:  return exec_context_is(c->x) ? context_run(c, k) : positions_back(c, k);
    case FN_NORM_BACK:       return norm_back(c, k);
    case FN_NORM_BACK_KEPT:  return norm_back_kept(c, k);
    case FN_GRAD_KEPT:       return grad_kept(c, k);
    case FN_LINEAR_DW:       return lora ? adapter_dw(c, k) : linear_dw(c, k);
    case FN_LINEAR_DX:       return lora ? adapter_dx(c, k) : linear_dx(c, k);
    case FN_OUTPUT_BACK:     return output_back(c, k);
    case FN_ROTARY: case FN_ROTARY_BACK: case FN_ATTENTION: case FN_ATTENTION_BACK:
        return attend(c, k);
    case FN_ACTIVATION: case FN_ACTIVATION_BACK:
        return activation(c, k);
    case FN_EMBED_ROWS:      return embed_rows(c, k);
    case FN_EMBED_ROWS_BACK: return embed_rows_back(c, k);
    case FN_LINEAR_PART:     return linear_part(c, k);
    case FN_RESIDUAL:        return residual(c, k);
    case FN_UNPACK:          return unpack(c, k);
    case FN_ADAPTER_DROP: case FN_ADAPTER_DROP_BACK:
        return adapter_drop(c, k);
    case FN_LINEAR_DB:       return linear_db(c, k);
    case FN_LOGITS_MOST: case FN_LOGITS_LABEL: case FN_LOGITS_SUM: case FN_LOGITS_LOSS: case FN_LOGITS_WHOLE:
        return cut_loss(c, k);
    case FN_KEYS: case FN_ATTENTION_PART: case FN_ATTENTION_SUM: case FN_ATTENTION_DELTA: case FN_ATTENTION_PART_BACK:
    case FN_DKEYS_ADD: case FN_DKEYS_JOIN: case FN_DEAL: case FN_COLLECT:
        return context_run(c, k);
    case FN_Q_NORM: case FN_Q_NORM_BACK: case NKERNEL_FN:
        break;
    }
    return fail("no kernel for \"%s\"", c->k->name);
}
