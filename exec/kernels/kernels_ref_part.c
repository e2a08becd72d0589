/* The reference of attention over a part of the keys, and of copies of runs: one loop a formula. */
#include "exec/kernels/kernels_ref.h"

#include <math.h>

/* A query, and one of its part's keys. */
struct pair { const struct attention *a; const struct attention_part *p; int64_t sample, head, t, u; };

static int64_t q_at(const struct pair *x) { return (x->sample * x->a->seq + x->t) * x->a->ld + x->head * x->a->dim; }
static int64_t o_at(const struct pair *x) { return ((x->sample * x->a->seq + x->t) * x->a->heads + x->head) * x->a->dim; }
static int64_t row_at(const struct pair *x) { return (x->sample * x->a->heads + x->head) * x->a->seq + x->t; }

/* In rows `ld` apart; v lies `wide` further on. */
static int64_t k_at(const struct pair *x, int64_t ld)
{
    return (x->sample * x->a->seq + x->u) * ld + x->head / (x->a->heads / x->a->kv_heads) * x->a->dim;
}

static int64_t wide(const struct pair *x) { return x->a->kv_heads * x->a->dim; }

static int64_t seen(const struct pair *x) { return x->p->causal ? x->t + 1 : x->t >= x->p->from ? x->p->keys : 0; }

static double dot(const void *x, int64_t at, const void *y, int64_t to, enum dtype t, int64_t n)
{
    double sum = 0;

    for (int64_t j = 0; j < n; j++)
        sum += get(x, t, at + j) * get(y, t, to + j);
    return sum;
}

static double score(const struct pair *x, const void *qkv)
{
    return x->a->scale * dot(qkv, q_at(x), x->p->kv, k_at(x, x->p->ld), x->a->at, x->a->dim);
}

static double weighed(const struct pair *x, const void *qkv, double shift) { return exp(score(x, qkv) - shift); }

/* A number that belongs to the pair, after dropout. */
static double drop(const struct pair *x, double y)
{
    return x->a->drop.p > 0 ? dropped(&x->a->drop, score_index(&x->p->at, x->sample, x->head, x->t, x->u), y) : y;
}

/* sums[dim]: scratch. */
static void attend(struct pair *x, const void *qkv, float *o, float *lse, double *sums)
{
    double before = x->p->fresh ? -INFINITY : (double)lse[row_at(x)], most = before, sum = 0;

    for (x->u = 0; x->u < seen(x); x->u++)
        most = fmax(most, score(x, qkv));
    for (x->u = 0; x->u < seen(x); x->u++)
        sum += weighed(x, qkv, most);
    double all = most + log(sum + exp(before - most));
    for (int64_t j = 0; j < x->a->dim; j++)
        sums[j] = x->p->fresh ? 0 : exp(before - all) * (double)o[o_at(x) + j];
    for (x->u = 0; x->u < seen(x); x->u++) {
        double p = drop(x, weighed(x, qkv, all));
        for (int64_t j = 0; j < x->a->dim; j++)
            sums[j] += p * get(x->p->kv, x->a->at, k_at(x, x->p->ld) + wide(x) + j);
    }
    for (int64_t j = 0; j < x->a->dim; j++)
        o[o_at(x) + j] = (float)sums[j];
    lse[row_at(x)] = (float)all;
}

static double *take_sums(struct kernels *k, int64_t n)
{
    struct cut c = kernels_cut(k);

    return kernels_take(&c, n * (int64_t)sizeof(double), "attention");
}

static void each_query(const struct attention *a, const struct attention_part *p, void (*f)(struct pair *x, void *arg), void *arg)
{
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t t = 0; t < a->seq; t++)
                f(&(struct pair){ a, p, s, h, t, 0 }, arg);
}

struct forward { const void *qkv; float *o, *lse; double *sums; };

static void forward(struct pair *x, void *arg)
{
    const struct forward *f = arg;

    if (seen(x) > 0)
        attend(x, f->qkv, f->o, f->lse, f->sums);
}

int ref_attention_part(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv, float *o,
                       float *lse)
{
    struct forward f = { qkv, o, lse, take_sums(k, a->dim) };

    if (!f.sums)
        return -1;
    each_query(a, p, forward, &f);
    return 0;
}

struct deltas { const void *o, *dout; float *delta; };

static void take_delta(struct pair *x, void *arg)
{
    const struct deltas *d = arg;

    d->delta[row_at(x)] = (float)dot(d->dout, o_at(x), d->o, o_at(x), x->a->at, x->a->dim);
}

int ref_attention_delta(struct kernels *k, const struct attention *a, const void *o, const void *dout, float *delta)
{
    (void)k;
    each_query(a, NULL, take_delta, &(struct deltas){ o, dout, delta });
    return 0;
}

struct back { const void *qkv, *dout; const float *lse, *delta; float *dq; int64_t ldq; void *dkv; int64_t ldkv; double *sums; };

/* Of the score; *p: the probability after dropout. */
static double score_grad(const struct pair *x, const struct back *b, double *p)
{
    double all = weighed(x, b->qkv, (double)b->lse[row_at(x)]);
    double dp = drop(x, dot(b->dout, o_at(x), x->p->kv, k_at(x, x->p->ld) + wide(x), x->a->at, x->a->dim));

    *p = drop(x, all);
    return all * (dp - (double)b->delta[row_at(x)]);
}

static void put_dq(struct pair *x, void *arg)
{
    const struct back *b = arg;
    float *dq = b->dq + (x->sample * x->a->seq + x->t) * b->ldq + x->head * x->a->dim;
    double p;

    if (seen(x) == 0)
        return;
    for (int64_t j = 0; j < x->a->dim; j++)
        b->sums[j] = x->p->fresh ? 0 : (double)dq[j];
    for (x->u = 0; x->u < seen(x); x->u++) {
        double ds = x->a->scale * score_grad(x, b, &p);
        for (int64_t j = 0; j < x->a->dim; j++)
            b->sums[j] += ds * get(x->p->kv, x->a->at, k_at(x, x->p->ld) + j);
    }
    for (int64_t j = 0; j < x->a->dim; j++)
        dq[j] = (float)b->sums[j];
}

/* dk and dv of key u, from all heads that share it, the first of which is x's. */
static void put_dkv(struct pair x, const struct back *b)
{
    const struct attention *a = x.a;
    int64_t end = x.head + a->heads / a->kv_heads, at = k_at(&x, b->ldkv);
    double *dk = b->sums, *dv = b->sums + a->dim, p;

    for (int64_t j = 0; j < a->dim; j++)
        dk[j] = dv[j] = 0;
    for (; x.head < end; x.head++)
        for (x.t = 0; x.t < a->seq; x.t++) {
            if (x.u >= seen(&x))
                continue;
            double ds = a->scale * score_grad(&x, b, &p);
            for (int64_t j = 0; j < a->dim; j++) {
                dk[j] += ds * get(b->qkv, a->at, q_at(&x) + j);
                dv[j] += p * get(b->dout, a->at, o_at(&x) + j);
            }
        }
    for (int64_t j = 0; j < a->dim; j++) {
        put(b->dkv, a->at, at + j, dk[j]);
        put(b->dkv, a->at, at + wide(&x) + j, dv[j]);
    }
}

int ref_attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv,
                            const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                            int64_t ldkv)
{
    struct back b = { qkv, dout, lse, delta, dq, ldq, dkv, ldkv, take_sums(k, 2 * a->dim) };

    if (!b.sums)
        return -1;
    each_query(a, p, put_dq, &b);
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h += a->heads / a->kv_heads)
            for (int64_t u = 0; u < a->seq; u++)
                put_dkv((struct pair){ a, p, s, h, 0, u }, &b);
    return 0;
}

int ref_copy_runs(struct kernels *k, const struct runs *r, void *dst, const void *src)
{
    (void)k;
    for (int64_t i = 0; i < r->n[0]; i++)
        for (int64_t j = 0; j < r->n[1]; j++)
            for (int64_t e = 0; e < r->run; e++) {
                int64_t to = i * r->to[0] + j * r->to[1] + e;
                double x = get(src, r->st, i * r->from[0] + j * r->from[1] + e);
                put(dst, r->dt, to, r->add ? get(dst, r->dt, to) + x : x);
            }
    return 0;
}
