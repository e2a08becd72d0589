/* exec_kernel.c -- from the places of a block program to calls of kernels.h. */
#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "exec/kernels/rng.h"
#include "exec/run/exec_kernel.h"

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

struct stretch exec_stretch(const struct kernel_call *c, enum site site, int64_t at)
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
        d = exec_stretch(c, SITE_EMBED, row - first_row(c)).drop;
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
        s = exec_stretch(c, c->k->half ? SITE_MLP : SITE_ATTN_OUT, row);
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

    switch ((enum kernel_fn)c->k->fn) {
    case FN_NONE:            return 0;
    case FN_EMBED:           return embed(c, k);
    case FN_POSITIONS:       return positions(c, k);
    case FN_NORM:            return norm(c, k);
    case FN_LOSS:            return loss(c, k);
    case FN_EMBED_BACK:      return embed_back(c, k);
    case FN_POSITIONS_BACK:  return exec_context_is(c->x) ? context_run(c, k) : positions_back(c, k);
    case FN_NORM_BACK:       return norm_back(c, k);
    case FN_NORM_BACK_KEPT:  return norm_back_kept(c, k);
    case FN_GRAD_KEPT:       return grad_kept(c, k);
    case FN_OUTPUT_BACK:     return output_back(c, k);
    case FN_ROTARY: case FN_ROTARY_BACK: case FN_ATTENTION: case FN_ATTENTION_BACK:
        return attend(c, k);
    case FN_ACTIVATION: case FN_ACTIVATION_BACK:
        return activation(c, k);
    case FN_EMBED_ROWS:      return embed_rows(c, k);
    case FN_EMBED_ROWS_BACK: return embed_rows_back(c, k);
    case FN_LINEAR: case FN_LINEAR_DW: case FN_LINEAR_DX: case FN_LINEAR_PART: case FN_LINEAR_DB: case FN_RESIDUAL: case FN_UNPACK:
    case FN_ADAPTER_DROP: case FN_ADAPTER_DROP_BACK: case FN_FLOAT8_X: case FN_FLOAT8_W: case FN_FLOAT8_DY:
        return exec_linear(c, k);
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
