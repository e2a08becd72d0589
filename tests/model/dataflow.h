/* dataflow.h -- does a plan's data reach where it must?
 *
 * All ranks of a plan are lowered and their schedules interpreted in lockstep, entry by
 * entry in issue order (that the waits suffice is happens_before.h's), on numbers that are
 * known in advance (dataflow_data.h):
 *   - every kernel finds the parameters that it reads whole, with this step's values;
 *   - at the optimizer a gradient is the mean over ranks and micro-steps, clipped;
 *   - the squared norm is that of all gradients, each counted once;
 *   - optimizer states are those of the step before;
 *   - after the step the parameters that a rank keeps are the new ones;
 *   - nothing is read before it is written, and nothing touched that is not live.
 * The update is not AdamW but the next number of a series, so that weights stay exact.
 *
 *     struct df d;
 *     df_init(&d, &plan);
 *     if (!df_run(&d)) ... d.why
 *     df_free(&d);
 *
 * It shares no code with exec/. */
#ifndef DPX_TEST_DATAFLOW_H
#define DPX_TEST_DATAFLOW_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/fail.h"
#include "model/lower/lower.h"
#include "tests/model/dataflow_data.h"

struct df_entry { const struct op *op; int64_t iteration; };

struct df_rank {
    struct schedules s;
    int64_t *base;                  /* instance 0 of each family in inst[] */
    struct df_inst *inst;
    int64_t ninst;
    struct df_entry *entries;       /* of the schedule that runs */
    int64_t n, cap, at;
    int     micro;                  /* micro-steps begun */
    double  norm;                   /* sum of squares that this rank knows */
    double *tied;                   /* the head's part of a tied embedding's gradient */
    bool    has_tied;
};

struct df {
    const struct plan *p;
    const struct model *m;
    struct recipe r;
    int64_t world;
    struct df_rank *rank;
    struct df_list list;
    int64_t *offset;                /* of a tensor's elements in mean[] */
    double *mean, *v, *w;           /* what gradients must be on average; scratch */
    double norm, clip;              /* squared norm of the mean; what clipping must scale by */
    double tolerance;               /* of gradients: rounding to 16 bits, or division by 3 */
    enum sched_id sched;
    int step;
    void (*spoil)(struct schedules *s, int64_t rank);   /* tests of this file: breaks what was lowered */
    char why[1024];
};

__attribute__((format(printf, 4, 5)))
static inline bool df_fail(struct df *d, int64_t rank, const struct df_entry *e, const char *fmt, ...)
{
    const struct op *o = e ? e->op : NULL;
    int n = snprintf(d->why, sizeof d->why, "rank %" PRId64 " of %" PRId64 ", step %d (%s)", rank, d->world,
                     d->step, sched_name(d->sched));
    va_list ap;

    if (o)
        n += snprintf(d->why + n, sizeof d->why - (size_t)n, ", entry %d (\"%s\" %s %" PRId64 ", iteration %"
                      PRId64 ")", (int)(o - d->rank[rank].s.ops) - d->rank[rank].s.begin[d->sched], o->what,
                      o->of ? o->of : "", o->unit + o->unit_by * e->iteration, e->iteration);
    n += snprintf(d->why + n, sizeof d->why - (size_t)n, ": ");
    va_start(ap, fmt);
    vsnprintf(d->why + n, sizeof d->why - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

static inline bool df_near(const struct df *d, double got, double want, double scale)
{
    return fabs(got - want) <= d->tolerance * scale;      /* a NaN never is */
}

/* ---- layouts ---- */

static inline int df_by_place(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static inline bool df_check_slice(struct df *d, int64_t rank, const struct buf *b, const struct layout *l,
                                  const struct slice *x, int instances)
{
    int64_t end = x->at + x->n * dtype_bytes(x->dtype);
    int last = x->tensor + l->stride * (instances - 1);

    if (x->tensor < 0 || last >= d->m->ntensors)
        return df_fail(d, rank, NULL, "%s holds tensor %d of %d", b->what, last, d->m->ntensors);
    if (x->n < 0 || (x->n > 0 && (x->from < 0 || x->from + x->n > d->m->tensors[x->tensor].numel)))
        return df_fail(d, rank, NULL, "%s holds elements %" PRId64 "+%" PRId64 " of %s", b->what, x->from,
                       x->n, d->m->tensors[x->tensor].name);
    if (x->at < 0 || end > b->bytes)
        return df_fail(d, rank, NULL, "%s of %" PRId64 " bytes holds %s at %" PRId64 "..%" PRId64, b->what,
                       b->bytes, d->m->tensors[x->tensor].name, x->at, end);
    if (end > DF_MOST)
        return df_fail(d, rank, NULL, "%s is more than the test keeps", b->what);
    if (x->dtype != DT_FP32 && x->dtype != DT_BF16 && x->dtype != DT_FP16 && dtype_bytes(x->dtype) != 1)
        return df_fail(d, rank, NULL, "%s holds %s", b->what, dtype_name(x->dtype));
    return true;
}

/* Slices lie inside the buffer and apart from each other. */
static inline bool df_check_layout(struct df *d, int64_t rank, const struct buf *b, int layout,
                                   int instances)
{
    const struct schedules *s = &d->rank[rank].s;
    const struct layout *l = &s->layouts[layout];
    struct slice *sorted = malloc(((size_t)l->nslices + 1) * sizeof *sorted);
    bool good = true;

    if (!sorted)
        abort();
    memcpy(sorted, s->slices + l->slice0, (size_t)l->nslices * sizeof *sorted);
    qsort(sorted, (size_t)l->nslices, sizeof *sorted, df_by_place);
    for (int i = 0; good && i < l->nslices; i++) {
        const struct slice *x = &sorted[i], *before = &sorted[i > 0 ? i - 1 : 0];
        good = df_check_slice(d, rank, b, l, x, instances);
        if (good && i > 0 && x->n > 0 && before->at + before->n * dtype_bytes(before->dtype) > x->at)
            good = df_fail(d, rank, NULL, "%s: slices of %s and %s overlap at %" PRId64, b->what,
                           d->m->tensors[before->tensor].name, d->m->tensors[x->tensor].name, x->at);
    }
    free(sorted);
    return good;
}

static inline bool df_check_layouts(struct df *d, int64_t rank)
{
    const struct schedules *s = &d->rank[rank].s;

    for (int i = 0; i < s->nbufs; i++)
        if (s->bufs[i].layout && !df_check_layout(d, rank, &s->bufs[i], s->bufs[i].layout, s->bufs[i].count))
            return false;
    for (int i = 0; i < s->nacts; i++)
        if (s->acts[i].layout && !df_check_layout(d, rank, &s->bufs[s->acts[i].buf], s->acts[i].layout,
                                                  s->acts[i].at + s->acts[i].n))
            return false;
    return true;
}

/* The slices of an entry's acts that have any of these bits, into d->list. */
static inline bool df_collect(struct df *d, int64_t rank, const struct df_entry *e, int any)
{
    struct df_rank *k = &d->rank[rank];
    const struct op *o = e->op;

    d->list.n = 0;
    for (uint32_t i = 0; i < o->nacts; i++) {
        const struct act *a = &k->s.acts[o->act0 + i];
        const struct layout *l = df_layout(&k->s, a);
        if (!(a->what & any) || k->s.bufs[a->buf].category == CAT_ACTIVATIONS)     /* no tensors of the model */
            continue;
        if (!l && o->kind == OP_COPY && o->u.copy.fn == COPY_ZERO)
            continue;               /* a buffer for whatever comes */
        if (!l && o->kind == OP_COPY && o->u.copy.quant)
            continue;               /* scales: here codes are the numbers */
        if (!l)
            return df_fail(d, rank, e, "the content of %s is not declared", k->s.bufs[a->buf].what);
        for (int64_t at = sched_instance(&k->s, a, e->iteration), end = at + a->n; at < end; at++)
            for (int j = 0; j < l->nslices; j++) {
                struct df_piece x = { &k->inst[k->base[a->buf] + at], k->s.slices[l->slice0 + j], (int)i,
                                      a->what };
                x.s.tensor += l->stride * (int)at;
                df_append(&d->list, x);
            }
    }
    return true;
}

static inline const char *df_tensor(const struct df *d, const struct slice *x)
{
    return d->m->tensors[x->tensor].name;
}

/* ---- compute ---- */

/* The i-th module of a piece; NULL: none. */
static inline const struct module *df_module(const struct df *d, enum piece_id piece, int block, int i)
{
    int of = piece == PIECE_EMBED ? TENSOR_EMBED : piece == PIECE_HEAD ? TENSOR_HEAD : block;

    for (int j = 0; j < d->m->nmodules; j++)
        if (d->m->modules[j].block == of && i-- == 0)
            return &d->m->modules[j];
    return NULL;
}

static inline int df_token_embedding(const struct df *d)
{
    for (int t = 0; t < d->m->ntensors; t++)
        if (d->m->tensors[t].role == ROLE_TOKENS && !d->m->tensors[t].is_bias)
            return t;
    abort();
}

/* A kernel reads this tensor: one slice has all of it, with the weights of this step. */
static inline bool df_reads(struct df *d, int64_t rank, const struct df_entry *e, int tensor)
{
    int64_t numel = d->m->tensors[tensor].numel;

    for (int k = 0; k < d->list.n; k++) {
        const struct df_piece *x = &d->list.p[k];
        if (!(x->what & ACT_READ) || x->s.holds != HOLDS_PARAM || x->s.tensor != tensor || x->s.n != numel)
            continue;
        if (x->s.dtype != d->r.used && !(d->r.autocast && x->s.dtype == d->r.kept))
            return df_fail(d, rank, e, "%s is read in %s", df_tensor(d, &x->s), dtype_name(x->s.dtype));
        for (int64_t i = 0; i < numel; i++) {
            double got = df_get(x->inst, x->s.dtype, x->s.at, i);
            double want = df_state(DF_WEIGHT, tensor, i, d->step);
            if (!(fabs(got - want) <= 0))
                return df_fail(d, rank, e, "parameter %s[%" PRId64 "] is %g, not %g", df_tensor(d, &x->s), i,
                               got, want);
        }
        return true;
    }
    return df_fail(d, rank, e, "nothing that it reads holds all of parameter %s",
                   d->m->tensors[tensor].name);
}

/* Gradients of a tensor go where the entry says; `adds`: a second part. */
static inline bool df_hand_out(struct df *d, int64_t rank, const struct df_entry *e, int tensor, bool adds)
{
    struct slice all = { tensor, HOLDS_GRAD, DT_FP32, 0, d->m->tensors[tensor].numel, 0 };
    bool keep = e->op->u.compute.fate == GRADS_KEEP;
    int64_t placed = 0;

    for (int k = 0; k < d->list.n; k++) {
        const struct df_piece *x = &d->list.p[k];
        int64_t from, n = df_overlap(&all, &x->s, &from);
        if (!(x->what & (ACT_WRITE | ACT_ADD)) || n == 0)
            continue;
        if (keep && ((x->what & ACT_ADD) || n < all.n))
            return df_fail(d, rank, e, "a gradient that is kept does not become %s", df_tensor(d, &all));
        for (int64_t i = from; i < from + n; i++) {
            bool add = adds || (x->what & ACT_ADD);
            double had = add ? df_get(x->inst, x->s.dtype, x->s.at, i - x->s.from) : 0;
            if (isnan(had))
                return df_fail(d, rank, e, "the gradient of %s[%" PRId64 "] is added to nothing",
                               df_tensor(d, &all), i);
            df_put(x->inst, x->s.dtype, x->s.at, i - x->s.from, had + d->v[i]);
        }
        placed += n;
    }
    if (placed != all.n)
        return df_fail(d, rank, e, "%" PRId64 " of %" PRId64 " elements of the gradient of %s have a place",
                       placed, all.n, df_tensor(d, &all));
    return true;
}

/* A kernel made a gradient: part 0, or the head's part 1 of a tied embedding's. */
static inline bool df_produce(struct df *d, int64_t rank, const struct df_entry *e, int tensor, int part)
{
    struct df_rank *k = &d->rank[rank];
    bool in_place = e->op->u.compute.fate == GRADS_IN_PLACE;
    bool tied = d->m->tied && tensor == df_token_embedding(d);
    int64_t numel = d->m->tensors[tensor].numel;

    for (int64_t i = 0; i < numel; i++)
        d->v[i] = k->s.seed * df_grad(tensor, i, d->step, (int)rank, k->micro - 1, part);
    if (in_place || !tied)
        return df_hand_out(d, rank, e, tensor, tied && part == 0);
    if (part == 1) {
        memcpy(k->tied, d->v, (size_t)numel * sizeof *k->tied);
        k->has_tied = true;
        return true;
    }
    if (!k->has_tied)
        return df_fail(d, rank, e, "the head's part of the tied gradient is not there");
    k->has_tied = false;
    for (int64_t i = 0; i < numel; i++)
        d->v[i] += k->tied[i];
    return df_hand_out(d, rank, e, tensor, false);
}

static inline bool df_kernel(struct df *d, int64_t rank, const struct df_entry *e, int index, int block)
{
    enum piece_id piece = e->op->u.compute.piece;
    enum pass pass = e->op->u.compute.pass;
    const struct kernel *kernels = d->rank[rank].s.program.piece[piece].kernels[pass], *k = &kernels[index];
    const struct module *m = k->module >= 0 ? df_module(d, piece, block, k->module) : NULL;
    bool first_tied = k->module == MODULE_TIED;

    if (k->module >= 0 && !m)
        return df_fail(d, rank, e, "kernel %s has no module %d", k->name, k->module);
    for (int t = 0; m && t < m->ntensors; t++)
        if (!df_reads(d, rank, e, m->first + t))
            return false;
    if (k->module == MODULE_TIED && !df_reads(d, rank, e, df_token_embedding(d)))
        return false;
    for (int i = 0; i < index; i++)
        first_tied = first_tied && kernels[i].module != MODULE_TIED;
    if (first_tied && pass == PASS_BACKWARD && !df_produce(d, rank, e, df_token_embedding(d), 1))
        return false;
    for (int i = 0; i < 4 && k->ready[i] >= 0; i++)
        if (!df_produce(d, rank, e, program_tensor(d->p, piece, block, k->ready[i]), 0))
            return false;
    return true;
}

static inline bool df_compute(struct df *d, int64_t rank, const struct df_entry *e)
{
    const struct op *o = e->op;
    struct df_rank *k = &d->rank[rank];
    int block = o->unit + (int)(o->unit_by * e->iteration);

    if (o->u.compute.piece == PIECE_EMBED && o->u.compute.pass == PASS_FORWARD && o->u.compute.k0 == 0)
        k->micro++;
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &k->s.acts[i];
        bool grants = (a->what & ACT_ALLOC) && o->u.compute.fate == GRADS_KEEP &&
                      k->s.bufs[a->buf].category == (enum category)o->u.compute.grads;
        for (int64_t at = sched_instance(&k->s, a, e->iteration), end = at + a->n; grants && at < end; at++)
            k->inst[k->base[a->buf] + at].granted = true;
    }
    if (!df_collect(d, rank, e, ACT_READ | ACT_WRITE | ACT_ADD))
        return false;
    for (int i = o->u.compute.k0; i < o->u.compute.k1; i++)
        if (!df_kernel(d, rank, e, i, block))
            return false;
    return true;
}

/* ---- copies ---- */

/* What a written or added-to slice gets: scale times what other acts read, or (read by the same
 * act) itself. */
static inline bool df_transfer(struct df *d, int64_t rank, const struct df_entry *e, const struct df_piece *x,
                               bool add)
{
    df_fetch(&d->list, ACT_READ, x->what & ACT_READ ? x->act : -1, &x->s, d->v);
    for (int64_t i = 0; i < x->s.n; i++) {
        double had = add ? df_get(x->inst, x->s.dtype, x->s.at, i) : 0, v = e->op->u.copy.scale * d->v[i];
        if (isnan(v) || isnan(had))
            return df_fail(d, rank, e, "%s %s[%" PRId64 "] %s",
                           x->s.holds == HOLDS_GRAD ? "gradient of" : "parameter", df_tensor(d, &x->s),
                           x->s.from + i, isnan(v) ? "is not in what is read" : "is added to nothing");
        d->w[i] = had + v;
    }
    for (int64_t i = 0; i < x->s.n; i++)
        df_put(x->inst, x->s.dtype, x->s.at, i, d->w[i]);
    return true;
}

/* Squares of gradients, or whether they are there (overflow). */
static inline bool df_sum_squares(struct df *d, int64_t rank, const struct df_entry *e, double *sum)
{
    for (int k = 0; k < d->list.n; k++) {
        const struct df_piece *x = &d->list.p[k];
        if (!(x->what & ACT_READ) || x->s.holds != HOLDS_GRAD)
            continue;
        for (int64_t i = 0; i < x->s.n; i++) {
            double v = df_get(x->inst, x->s.dtype, x->s.at, i);
            if (isnan(v))
                return df_fail(d, rank, e, "gradient of %s[%" PRId64 "] was never written",
                               df_tensor(d, &x->s), x->s.from + i);
            *sum += v * v;
        }
    }
    return true;
}

static inline bool df_clip(struct df *d, int64_t rank, const struct df_entry *e)
{
    double norm = d->rank[rank].norm, by = d->p->clip / (sqrt(norm) + 1e-6);

    if (d->p->clip <= 0)
        return true;
    if (!df_near(d, norm, d->norm, d->norm))
        return df_fail(d, rank, e, "the squared norm is %.9g, not %.9g", norm, d->norm);
    for (int k = 0; k < d->list.n; k++) {
        const struct df_piece *x = &d->list.p[k];
        if (!(x->what & ACT_WRITE) || x->s.holds != HOLDS_GRAD)
            continue;
        for (int64_t i = 0; i < x->s.n; i++)
            df_put(x->inst, x->s.dtype, x->s.at, i,
                   (by < 1 ? by : 1) * df_get(x->inst, x->s.dtype, x->s.at, i));
    }
    return true;
}

static inline bool df_copy(struct df *d, int64_t rank, const struct df_entry *e)
{
    enum copy_fn fn = e->op->u.copy.fn;
    int bit = fn == COPY_ADD ? ACT_ADD : ACT_WRITE;
    double unused = 0;

    if (fn == COPY_NOTHING || fn == COPY_LOSS)
        return true;
    if (!df_collect(d, rank, e, ACT_READ | ACT_WRITE | ACT_ADD))
        return false;
    if (fn == COPY_NORM)
        return df_sum_squares(d, rank, e, &d->rank[rank].norm);
    if (fn == COPY_OVERFLOW)
        return df_sum_squares(d, rank, e, &unused);
    if (fn == COPY_CLIP)
        return df_clip(d, rank, e);
    for (int k = 0; k < d->list.n; k++) {
        const struct df_piece *x = &d->list.p[k];
        if (!(x->what & bit))
            continue;
        if (fn == COPY_ZERO)
            for (int64_t i = 0; i < x->s.n; i++)
                df_put(x->inst, x->s.dtype, x->s.at, i, 0);
        else if (!df_transfer(d, rank, e, x, fn == COPY_ADD))
            return false;
    }
    return true;
}

/* ---- the optimizer ---- */

static inline bool df_expect(struct df *d, int64_t rank, const struct df_entry *e, const struct slice *x,
                             const char *what, enum df_of of)
{
    for (int64_t i = 0; i < x->n; i++) {
        double want = df_state(of, x->tensor, x->from + i, d->step);
        if (!(fabs(d->v[i] - want) <= 0))
            return df_fail(d, rank, e, "%s of %s[%" PRId64 "] is %g, not %g", what, df_tensor(d, x),
                           x->from + i, d->v[i], want);
    }
    return true;
}

static inline void df_next(struct df *d, const struct slice *x, enum df_of of)
{
    for (int64_t i = 0; i < x->n; i++)
        d->v[i] = df_state(of, x->tensor, x->from + i, d->step + 1);
}

/* Moments, Adafactor's rows, columns and, of a vector, squares; what blocks of moments in 8 bits have beside their codes. */
static const struct df_states { enum holds holds; enum df_of of; const char *what; } df_states[] = {
    { HOLDS_EXP_AVG, DF_EXP_AVG, "exp_avg" }, { HOLDS_EXP_AVG_SQ, DF_EXP_AVG_SQ, "exp_avg_sq" },
    { HOLDS_ROW_VAR, DF_ROW_VAR, "row_var" }, { HOLDS_COL_VAR, DF_COL_VAR, "col_var" },
    { HOLDS_MAX_AVG, DF_MAX_AVG, "blocks of exp_avg" }, { HOLDS_MAX_SQ, DF_MAX_SQ, "blocks of exp_avg_sq" },
};
enum { DF_NSTATES = sizeof df_states / sizeof *df_states };

/* Elements of one state: what they were, and what they are after the step. */
static inline bool df_step_state(struct df *d, int64_t rank, const struct df_entry *e, struct slice x, const struct df_states *k)
{
    enum { RW = ACT_READ | ACT_WRITE };

    x.holds = (uint8_t)k->holds;
    df_fetch(&d->list, RW, -1, &x, d->v);
    if (!df_expect(d, rank, e, &x, k->what, k->of))
        return false;
    df_next(d, &x, k->of);
    df_store(&d->list, RW, &x, d->v);
    return true;
}

/* Gradient and weights of these elements. */
static inline bool df_step_weights(struct df *d, int64_t rank, const struct df_entry *e, struct slice x, bool has_master)
{
    enum { RW = ACT_READ | ACT_WRITE };

    x.holds = HOLDS_GRAD;
    df_fetch(&d->list, ACT_READ, -1, &x, d->v);
    for (int64_t i = 0; i < x.n; i++) {
        double want = d->mean[d->offset[x.tensor] + x.from + i] * d->clip;
        if (!df_near(d, d->v[i], want, fmax(d->clip, fabs(want))))
            return df_fail(d, rank, e, "the optimizer's gradient of %s[%" PRId64 "] is %.9g, not %.9g",
                           df_tensor(d, &x), x.from + i, d->v[i], want);
    }
    x.holds = has_master ? HOLDS_MASTER : HOLDS_PARAM;
    df_fetch(&d->list, RW, -1, &x, d->v);
    if (!df_expect(d, rank, e, &x, has_master ? "master weight" : "weight", DF_WEIGHT))
        return false;
    df_next(d, &x, DF_WEIGHT);
    df_store(&d->list, RW, &x, d->v);
    x.holds = HOLDS_PARAM;
    df_store(&d->list, ACT_WRITE, &x, d->v);
    return true;
}

/* Which states are updated with the first one, and how many elements each has. */
static inline int64_t df_elems(const struct df *d, const struct slice *first, enum holds h)
{
    const struct tensor *t = &d->m->tensors[first->tensor];
    bool factored = d->p->optimizer == OPTIMIZER_ADAFACTOR, bnb = d->p->optimizer == OPTIMIZER_BNB_ADAMW8;

    if (h == first->holds)
        return first->n;
    if (factored)
        return h == HOLDS_COL_VAR && t->ndim == 2 ? t->shape[1] : 0;
    if (h == HOLDS_EXP_AVG_SQ)
        return bnb || d->p->optimizer == OPTIMIZER_ADAMW ? first->n : 0;
    return bnb && first->dtype == DT_UINT8 && (h == HOLDS_MAX_AVG || h == HOLDS_MAX_SQ) ? ceil_div(t->numel, 256) : 0;
}

/* A first state: all of what it is of.  *elems: how many elements that is. */
static inline bool df_update(struct df *d, int64_t rank, const struct df_entry *e, struct slice x, bool has_master, int64_t *elems)
{
    for (int k = 0; k < DF_NSTATES; k++) {
        struct slice s = x;
        s.n = df_elems(d, &x, df_states[k].holds);
        if (s.n > 0 && !df_step_state(d, rank, e, s, &df_states[k]))
            return false;
    }
    x.n = d->p->optimizer == OPTIMIZER_ADAFACTOR ? d->m->tensors[x.tensor].numel : x.n;
    *elems += x.n;
    return df_step_weights(d, rank, e, x, has_master);
}

static inline bool df_is_first(const struct df *d, uint8_t holds)
{
    return d->p->optimizer == OPTIMIZER_ADAFACTOR ? holds == HOLDS_ROW_VAR || holds == HOLDS_EXP_AVG_SQ : holds == HOLDS_EXP_AVG;
}

static inline bool df_optimizer(struct df *d, int64_t rank, const struct df_entry *e)
{
    bool has_master = false;
    int64_t elems = 0;

    if (!df_collect(d, rank, e, ACT_READ | ACT_WRITE))
        return false;
    for (int k = 0; k < d->list.n; k++) {
        struct df_piece *x = &d->list.p[k];
        has_master |= x->s.holds == HOLDS_MASTER;
        if ((x->what & ACT_ALLOC) && x->s.holds >= HOLDS_EXP_AVG)
            for (int64_t i = 0; i < x->s.n; i++)
                df_put(x->inst, x->s.dtype, x->s.at, i, 0);
    }
    for (int k = 0; k < d->list.n; k++)
        if (df_is_first(d, d->list.p[k].s.holds) && d->list.p[k].s.n > 0 &&
            !df_update(d, rank, e, d->list.p[k].s, has_master, &elems))
            return false;
    if (elems > e->op->u.optimizer.elems)       /* padding may count */
        return df_fail(d, rank, e, "%" PRId64 " elements are updated, %" PRId64 " stated", elems,
                       e->op->u.optimizer.elems);
    return true;
}

/* Initial weights, states of zero. */
static inline bool df_load(struct df *d, int64_t rank, const struct df_entry *e)
{
    if (!df_collect(d, rank, e, ACT_WRITE))
        return false;
    for (int k = 0; k < d->list.n; k++) {
        const struct df_piece *x = &d->list.p[k];
        bool weight = x->s.holds == HOLDS_PARAM || x->s.holds == HOLDS_MASTER;
        for (int64_t i = 0; i < x->s.n; i++)
            df_put(x->inst, x->s.dtype, x->s.at, i,
                   weight ? df_state(DF_WEIGHT, x->s.tensor, x->s.from + i, 0) : 0);
    }
    return true;
}

#endif
