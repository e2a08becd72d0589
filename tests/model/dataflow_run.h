/* dataflow_run.h -- the ranks of dataflow.h in lockstep, and their collectives. */
#ifndef DPX_TEST_DATAFLOW_RUN_H
#define DPX_TEST_DATAFLOW_RUN_H

#include "tests/model/dataflow.h"

/* ---- collectives ---- */

/* A collective's input or output on one rank; inst NULL: it has none. */
struct df_region { struct df_inst *inst; int64_t at, bytes; };

/* Rank j of the process group that `rank` is in. */
static inline int64_t df_member(const struct df *d, int64_t rank, enum group g, int64_t size, int64_t j)
{
    if (g == GROUP_REPLICA)                 /* equal places in the shard groups */
        return rank % (d->world / size) + j * (d->world / size);
    return rank / size * size + j;
}

/* What a collective moves: where it broadcasts bytes, those of the elements that its buffer holds. */
static inline enum dtype df_element(const struct df_rank *k, const struct op *o)
{
    if (o->u.coll.dtype != DT_UINT8 || o->u.coll.op != COLL_BROADCAST)
        return o->u.coll.dtype;
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct layout *l = df_layout(&k->s, &k->s.acts[i]);
        if (l && l->nslices > 0)
            return k->s.slices[l->slice0].dtype;
    }
    return DT_UINT8;
}

static inline bool df_one_region(struct df *d, int64_t rank, const struct df_entry *e, const struct act *a,
                                 struct df_region *out)
{
    struct df_rank *k = &d->rank[rank];
    const struct op *o = e->op;
    const struct layout *l = df_layout(&k->s, a);

    if (out->inst)
        return df_fail(d, rank, e, "a collective with two inputs or two outputs");
    if (a->n != 1)
        return df_fail(d, rank, e, "a collective on %d instances of %s", a->n, k->s.bufs[a->buf].what);
    out->inst = &k->inst[k->base[a->buf] + sched_instance(&k->s, a, e->iteration)];
    out->bytes = k->s.bufs[a->buf].bytes;
    out->at = a->layout && l->nslices ? INT64_MAX : 0;
    for (int i = 0; a->layout && i < l->nslices; i++)
        if (k->s.slices[l->slice0 + i].at < out->at)
            out->at = k->s.slices[l->slice0 + i].at;
    if (out->inst->granted && l && l->nslices > 1)
        return df_fail(d, rank, e, "%s is not one piece of memory", k->s.bufs[a->buf].what);
    for (int i = 0; l && i < l->nslices; i++)
        if (k->s.slices[l->slice0 + i].dtype != df_element(k, o))
            return df_fail(d, rank, e, "%s holds %s", k->s.bufs[a->buf].what,
                           dtype_name(k->s.slices[l->slice0 + i].dtype));
    return true;
}

/* Where the entry reads (ACT_READ) or writes, and that it is large enough for `elems`. */
static inline bool df_region(struct df *d, int64_t rank, const struct df_entry *e, int bit, int64_t elems,
                             struct df_region *out)
{
    const struct op *o = e->op;

    *out = (struct df_region){ 0 };
    for (uint32_t i = o->act0; i < o->act0 + o->nacts; i++) {
        const struct act *a = &d->rank[rank].s.acts[i];
        if ((a->what & bit) && !df_one_region(d, rank, e, a, out))
            return false;
    }
    if (!out->inst)
        return df_fail(d, rank, e, "a collective that %s nothing", bit == ACT_READ ? "reads" : "writes");
    if (out->at + elems * dtype_bytes(df_element(&d->rank[rank], o)) > out->bytes)
        return df_fail(d, rank, e, "%" PRId64 " elements from byte %" PRId64 " of %" PRId64, elems, out->at,
                       out->bytes);
    return true;
}

/* Which part of the whole member j reads or writes: [from, from+n) elements; n = 0: nothing. */
static inline void df_part(const struct op *o, int64_t size, int64_t j, bool reads, int64_t *from, int64_t *n)
{
    int64_t elems = o->u.coll.elems;
    bool root = j == o->u.coll.root, chunk = false, none = false;

    switch ((enum coll_op)o->u.coll.op) {
    case COLL_ALL_REDUCE:     break;
    case COLL_ALL_GATHER:     chunk = reads; break;
    case COLL_REDUCE_SCATTER: chunk = !reads; break;
    case COLL_BROADCAST:      none = reads && !root; break;
    case COLL_REDUCE:         none = !reads && !root; break;
    case COLL_SCATTER:        none = reads && !root; chunk = !reads; break;
    case COLL_GATHER:         none = !reads && !root; chunk = reads; break;
    case COLL_ALL_TO_ALL:
    case COLL_SEND:
    case COLL_RECV:           /* no lowering has them */
    case COLL_BARRIER:
    case NCOLL:               none = true; break;
    }
    *from = chunk ? elems / size * j : 0;
    *n = none ? 0 : chunk ? elems / size : elems;
}

static inline double df_reduced(const struct op *o, double a, double b)
{
    return o->u.coll.red == RED_MAX ? (a > b ? a : b) : a + b;
}

/* Buffers of all members: gathered into `whole`, then dealt out. */
static inline bool df_move(struct df *d, int64_t rank, int64_t size, double *whole)
{
    const struct op *o = d->rank[rank].entries[d->rank[rank].at].op;
    enum dtype dt = df_element(&d->rank[rank], o);
    int64_t from, n, per = dtype_bytes(dt) / dtype_bytes(o->u.coll.dtype);
    struct df_region at;

    for (int64_t i = 0; i < o->u.coll.elems / per; i++)
        whole[i] = o->u.coll.red == RED_NONE ? NAN : o->u.coll.red == RED_MAX ? -INFINITY : 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < size; j++) {
            int64_t r = df_member(d, rank, sched_group(&d->rank[rank].s, o)->is, size, j);
            const struct df_entry *mine = &d->rank[r].entries[d->rank[r].at];
            df_part(o, size, j, pass == 0, &from, &n);
            from /= per;
            n /= per;
            if (n == 0)
                continue;
            if (!df_region(d, r, mine, pass == 0 ? ACT_READ : ACT_WRITE, n, &at))
                return false;
            for (int64_t i = 0; i < n; i++) {
                double *x = &whole[from + i];
                if (pass == 1)
                    df_put(at.inst, dt, at.at, i, o->u.coll.red == RED_AVG ? *x / (double)size : *x);
                else
                    *x = o->u.coll.red == RED_NONE ? df_get(at.inst, dt, at.at, i)
                                                   : df_reduced(o, *x, df_get(at.inst, dt, at.at, i));
            }
        }
    return true;
}

static inline bool df_reduces(const struct op *o)
{
    return o->u.coll.op == COLL_ALL_REDUCE || o->u.coll.op == COLL_REDUCE_SCATTER ||
           o->u.coll.op == COLL_REDUCE;
}

static inline bool df_collective(struct df *d, int64_t rank, int64_t size)
{
    const struct df_entry *e = &d->rank[rank].entries[d->rank[rank].at];
    const struct op *o = e->op;
    double sum = 0, *whole;
    bool good;

    for (int64_t j = 0; j < size; j++)
        sum += d->rank[df_member(d, rank, sched_group(&d->rank[rank].s, o)->is, size, j)].norm;
    for (int64_t j = 0; o->u.coll.of == OF_NORM && j < size; j++)
        d->rank[df_member(d, rank, sched_group(&d->rank[rank].s, o)->is, size, j)].norm = sum;
    if (o->u.coll.of != OF_BUFFERS || o->u.coll.op == COLL_BARRIER)
        return true;
    enum dtype dt = df_element(&d->rank[rank], o);
    if (dt != DT_FP32 && dt != DT_BF16 && dt != DT_INT8)
        return df_fail(d, rank, e, "buffers of %s", dtype_name(o->u.coll.dtype));
    if (df_reduces(o) != (o->u.coll.red != RED_NONE) || o->u.coll.red == RED_PREMUL_SUM)
        return df_fail(d, rank, e, "reduces by \"%s\"", red_name(o->u.coll.red));
    whole = malloc(((size_t)o->u.coll.elems + 1) * sizeof *whole);
    if (!whole)
        abort();
    good = df_move(d, rank, size, whole);
    free(whole);
    return good;
}

static inline bool df_same(const struct op *a, const struct op *b)
{
    return a->u.coll.op == b->u.coll.op && a->u.coll.dtype == b->u.coll.dtype &&
           a->u.coll.of == b->u.coll.of && a->u.coll.red == b->u.coll.red &&
           a->u.coll.root == b->u.coll.root && a->u.coll.elems == b->u.coll.elems;
}

/* The members of the group all stand at the same collective: 1, 0 not yet, -1 another one. */
static inline int df_met(struct df *d, int64_t rank, int64_t size)
{
    const struct df_entry *e = &d->rank[rank].entries[d->rank[rank].at];
    const struct op *o = e->op;

    for (int64_t j = 0; j < size; j++) {
        int64_t r = df_member(d, rank, sched_group(&d->rank[rank].s, o)->is, size, j);
        const struct df_rank *k = &d->rank[r];
        const struct op *q = k->at < k->n ? k->entries[k->at].op : NULL;
        if (!q || q->u.coll.group != o->u.coll.group)
            return 0;
        if (!df_same(o, q)) {
            df_fail(d, rank, e, "rank %" PRId64 " calls %s of %" PRId64 " %s meanwhile", r, q->what,
                    q->u.coll.elems, dtype_name(q->u.coll.dtype));
            return -1;
        }
    }
    return 1;
}

/* ---- entries ---- */

/* All that the entry names is live; what it frees (`frees`) goes. */
static inline bool df_live(struct df *d, int64_t rank, const struct df_entry *e, bool frees)
{
    struct df_rank *k = &d->rank[rank];

    for (uint32_t i = e->op->act0; i < e->op->act0 + e->op->nacts; i++) {
        const struct act *a = &k->s.acts[i];
        for (int64_t at = sched_instance(&k->s, a, e->iteration), end = at + a->n; at < end; at++) {
            struct df_inst *x = &k->inst[k->base[a->buf] + at];
            if (!frees && !x->live)
                return df_fail(d, rank, e, "%s %" PRId64 " is dead", k->s.bufs[a->buf].what, at);
            if (frees && (a->what & ACT_FREE))
                df_release(x);
        }
    }
    return true;
}

static inline bool df_before(struct df *d, int64_t rank, const struct df_entry *e)
{
    struct df_rank *k = &d->rank[rank];

    for (uint32_t i = e->op->act0; i < e->op->act0 + e->op->nacts; i++) {
        const struct act *a = &k->s.acts[i];
        int64_t first = sched_instance(&k->s, a, e->iteration);
        for (int64_t at = first; (a->what & ACT_ALLOC) && at < first + a->n; at++)
            df_alloc(&k->inst[k->base[a->buf] + at]);
    }
    return df_live(d, rank, e, false);
}

/* An entry that is no collective. */
static inline bool df_entry(struct df *d, int64_t rank, const struct df_entry *e)
{
    const struct op *o = e->op;
    bool good = df_before(d, rank, e);

    if (good && (o->flags & OPF_LOAD))
        good = df_load(d, rank, e);
    if (good && o->kind == OP_COMPUTE)
        good = df_compute(d, rank, e);
    if (good && o->kind == OP_COPY)
        good = df_copy(d, rank, e);
    if (good && o->kind == OP_OPTIMIZER)
        good = df_optimizer(d, rank, e);
    return good && df_live(d, rank, e, true);
}

/* Up to the rank's next collective, or the end. */
static inline bool df_advance(struct df *d, int64_t rank)
{
    struct df_rank *k = &d->rank[rank];

    for (; k->at < k->n && k->entries[k->at].op->kind != OP_COLL; k->at++)
        if (!df_entry(d, rank, &k->entries[k->at]))
            return false;
    return k->at >= k->n || df_before(d, rank, &k->entries[k->at]);
}

/* Performs the collective that `rank` stands at, if all have come; all go on. */
static inline int df_meet(struct df *d, int64_t rank)
{
    struct df_rank *k = &d->rank[rank];
    const struct op *o = k->entries[k->at].op;
    int64_t size = sched_group(&k->s, o)->ranks;
    int met = df_met(d, rank, size);

    if (met <= 0)
        return met;
    if (!df_collective(d, rank, size))
        return -1;
    for (int64_t j = 0; j < size; j++) {
        int64_t r = df_member(d, rank, sched_group(&d->rank[rank].s, o)->is, size, j);
        if (!df_live(d, r, &d->rank[r].entries[d->rank[r].at], true))
            return -1;
        d->rank[r].at++;
        if (!df_advance(d, r))
            return -1;
    }
    return 1;
}

static inline int df_list_entry(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    struct df_rank *k = arg;

    (void)s;
    if (k->n == k->cap) {
        k->cap = k->cap ? 2 * k->cap : 256;
        k->entries = realloc(k->entries, (size_t)k->cap * sizeof *k->entries);
        if (!k->entries)
            abort();
    }
    k->entries[k->n++] = (struct df_entry){ o, iteration };
    return 0;
}

/* ---- steps ---- */

/* What gradients must be at the optimizer of this step. */
static inline void df_plan_step(struct df *d)
{
    double of = (double)(d->world * d->p->accumulation);

    d->norm = 0;
    for (int t = 0; t < d->m->ntensors; t++)
        for (int64_t i = 0; i < d->m->tensors[t].numel; i++) {
            double *x = &d->mean[d->offset[t] + i];
            *x = 0;
            for (int r = 0; r < d->world; r++)
                for (int m = 0; m < d->p->accumulation; m++) {
                    *x += df_grad(t, i, d->step, r, m, 0);
                    if (d->m->tied && d->m->tensors[t].role == ROLE_TOKENS)
                        *x += df_grad(t, i, d->step, r, m, 1);
                }
            *x /= of;
            d->norm += *x * *x;
        }
    double by = d->p->clip / (sqrt(d->norm) + 1e-6);
    d->clip = d->p->clip > 0 && by < 1 ? by : 1;
}

/* The parameters that a rank keeps are those after the step. */
static inline bool df_kept(struct df *d, int64_t rank, int step)
{
    struct df_rank *k = &d->rank[rank];

    for (int b = 0; b < k->s.nbufs; b++) {
        const struct layout *l = k->s.bufs[b].layout ? &k->s.layouts[k->s.bufs[b].layout] : NULL;
        for (int i = 0; l && i < k->s.bufs[b].count; i++)
            for (int j = 0; k->inst[k->base[b] + i].live && j < l->nslices; j++) {
                struct slice x = k->s.slices[l->slice0 + j];
                bool weight = x.holds == HOLDS_MASTER ||
                              (x.holds == HOLDS_PARAM && k->s.bufs[b].category == CAT_PARAMS);
                x.tensor += l->stride * i;
                for (int64_t m = 0; weight && m < x.n; m++) {
                    double got = df_get(&k->inst[k->base[b] + i], x.dtype, x.at, m);
                    double want = df_state(DF_WEIGHT, x.tensor, x.from + m, step);
                    if (!(fabs(got - want) <= 0))
                        return df_fail(d, rank, NULL, "%s: %s[%" PRId64 "] is %g after the step, not %g",
                                       k->s.bufs[b].what, df_tensor(d, &x), x.from + m, got, want);
                }
            }
    }
    return true;
}

static inline bool df_schedule(struct df *d, enum sched_id id)
{
    int64_t done = 0;

    d->sched = id;
    for (int64_t r = 0; r < d->world; r++) {
        struct df_rank *k = &d->rank[r];
        k->n = k->at = k->micro = 0;
        k->norm = 0;
        sched_walk(&k->s, id, df_list_entry, k);
        if (!df_advance(d, r))
            return false;
    }
    while (done < d->world) {
        bool moved = false;
        done = 0;
        for (int64_t r = 0; r < d->world; r++) {
            int met = d->rank[r].at < d->rank[r].n ? df_meet(d, r) : 0;
            if (met < 0)
                return false;
            moved |= met > 0;
            done += d->rank[r].at >= d->rank[r].n;
        }
        for (int64_t r = 0; !moved && r < d->world; r++)
            if (d->rank[r].at < d->rank[r].n)
                return df_fail(d, r, &d->rank[r].entries[d->rank[r].at],
                               "the others of its group never come");
    }
    return true;
}

/* ---- the whole ---- */

static inline void df_init(struct df *d, const struct plan *p)
{
    int64_t n = 0, widest = 0;

    memset(d, 0, sizeof *d);
    d->p = p;
    d->m = &p->model;
    d->r = plan_recipe(p);
    d->world = p->cluster.world_size;
    d->tolerance = p->precision == DT_FP32 && p->reduce_dtype == DT_FP32 ? 1e-5 : 0.04;
    d->rank = calloc((size_t)d->world, sizeof *d->rank);
    d->offset = calloc((size_t)d->m->ntensors, sizeof *d->offset);
    for (int t = 0; d->offset && t < d->m->ntensors; t++) {
        d->offset[t] = n;
        n += d->m->tensors[t].numel;
        if (d->m->tensors[t].numel > widest)
            widest = d->m->tensors[t].numel;
    }
    d->mean = calloc((size_t)n, sizeof *d->mean);
    d->v = calloc((size_t)widest, sizeof *d->v);
    d->w = calloc((size_t)widest, sizeof *d->w);
    for (int64_t r = 0; d->rank && r < d->world; r++)
        d->rank[r].tied = calloc((size_t)widest, sizeof *d->v);
    if (!d->rank || !d->offset || !d->mean || !d->v || !d->w)
        abort();
}

static inline void df_free(struct df *d)
{
    for (int64_t r = 0; r < d->world; r++) {
        struct df_rank *k = &d->rank[r];
        for (int64_t i = 0; i < k->ninst; i++)
            df_release(&k->inst[i]);
        free(k->inst);
        free(k->base);
        free(k->entries);
        free(k->tied);
        schedules_free(&k->s);
    }
    free(d->rank);
    free(d->offset);
    free(d->mean);
    free(d->v);
    free(d->w);
    free(d->list.p);
}

static inline bool df_lower(struct df *d, int64_t rank)
{
    struct df_rank *k = &d->rank[rank];

    k->s.detailed = true;
    if (lower(d->p, rank, &k->s) < 0)
        return df_fail(d, rank, NULL, "is not lowered");
    if (d->spoil)
        d->spoil(&k->s, rank);
    k->base = calloc((size_t)k->s.nbufs + 1, sizeof *k->base);
    for (int b = 0; k->base && b < k->s.nbufs; b++) {
        k->base[b] = k->ninst;
        k->ninst += k->s.bufs[b].count;
    }
    k->inst = calloc((size_t)k->ninst + 1, sizeof *k->inst);
    if (!k->base || !k->inst)
        abort();
    for (int b = 0; b < k->s.nbufs; b++)
        for (int i = 0; i < k->s.bufs[b].count; i++)
            k->inst[k->base[b] + i].bytes = k->s.bufs[b].bytes;
    return df_check_layouts(d, rank);
}

/* init, first, and steady twice. */
static inline bool df_run(struct df *d)
{
    static const enum sched_id order[] = { SCHED_INIT, SCHED_FIRST, SCHED_STEADY, SCHED_STEADY };

    for (int64_t r = 0; r < d->world; r++)
        if (!df_lower(d, r))
            return false;
    for (int i = 0; i < 4; i++) {
        d->step = i > 0 ? i - 1 : 0;
        df_plan_step(d);
        if (!df_schedule(d, order[i]))
            return false;
        for (int64_t r = 0; r < d->world; r++) {
            if (!df_kept(d, r, i))
                return false;
            if (i > 0 && d->rank[r].micro != d->p->accumulation)
                return df_fail(d, r, NULL, "%d micro-steps", d->rank[r].micro);
        }
    }
    return true;
}

#endif
