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

static void attend(struct pair *x, const void *qkv, float *o, float *lse)
{
    double before = x->p->fresh ? -INFINITY : (double)lse[row_at(x)], most = before, sum = 0;

    for (x->u = 0; x->u < seen(x); x->u++)
        most = fmax(most, score(x, qkv));
    for (x->u = 0; x->u < seen(x); x->u++)
        sum += exp(score(x, qkv) - most);
    double all = most + log(sum + exp(before - most));
    for (int64_t j = 0; j < x->a->dim; j++) {
        double y = x->p->fresh ? 0 : exp(before - all) * (double)o[o_at(x) + j];
        for (x->u = 0; x->u < seen(x); x->u++)
            y += exp(score(x, qkv) - all) * get(x->p->kv, x->a->at, k_at(x, x->p->ld) + wide(x) + j);
        o[o_at(x) + j] = (float)y;
    }
    lse[row_at(x)] = (float)all;
}

static void each_query(const struct attention *a, const struct attention_part *p, void (*f)(struct pair *x, void *arg), void *arg)
{
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t t = 0; t < a->seq; t++)
                f(&(struct pair){ a, p, s, h, t, 0 }, arg);
}

struct forward { const void *qkv; float *o, *lse; };

static void forward(struct pair *x, void *arg)
{
    const struct forward *f = arg;

    if (seen(x) > 0)
        attend(x, f->qkv, f->o, f->lse);
}

int ref_attention_part(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv, float *o,
                       float *lse)
{
    (void)k;
    each_query(a, p, forward, &(struct forward){ qkv, o, lse });
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

struct back { const void *qkv, *dout; const float *lse, *delta; float *dq; int64_t ldq; };

/* Of the score; *p: the probability. */
static double score_grad(const struct pair *x, const struct back *b, double *p)
{
    *p = exp(score(x, b->qkv) - (double)b->lse[row_at(x)]);
    return *p * (dot(b->dout, o_at(x), x->p->kv, k_at(x, x->p->ld) + wide(x), x->a->at, x->a->dim) - (double)b->delta[row_at(x)]);
}

static void put_dq(struct pair *x, void *arg)
{
    const struct back *b = arg;
    float *dq = b->dq + (x->sample * x->a->seq + x->t) * b->ldq + x->head * x->a->dim;
    double p;

    for (int64_t j = 0; j < x->a->dim; j++) {
        double sum = x->p->fresh ? 0 : (double)dq[j];
        for (x->u = 0; x->u < seen(x); x->u++)
            sum += x->a->scale * score_grad(x, b, &p) * get(x->p->kv, x->a->at, k_at(x, x->p->ld) + j);
        dq[j] = (float)sum;
    }
}

/* dk and dv of key u: element j of its head `kv`. */
static void put_dkv(const struct attention *a, const struct attention_part *p, const struct back *b, struct pair x, int64_t j,
                    void *dkv, int64_t ldkv)
{
    int64_t group = a->heads / a->kv_heads, end = x.head + group, at = k_at(&x, ldkv) + j;
    double dk = 0, dv = 0, prob;

    for (; x.head < end; x.head++)
        for (x.t = 0; x.t < a->seq; x.t++)
            if (x.u < (p->causal ? x.t + 1 : x.t >= p->from ? p->keys : 0)) {
                double ds = score_grad(&x, b, &prob);
                dk += a->scale * ds * get(b->qkv, a->at, q_at(&x) + j);
                dv += prob * get(b->dout, a->at, o_at(&x) + j);
            }
    put(dkv, a->at, at, dk);
    put(dkv, a->at, at + wide(&x), dv);
}

int ref_attention_part_back(struct kernels *k, const struct attention *a, const struct attention_part *p, const void *qkv,
                            const float *lse, const void *dout, const float *delta, float *dq, int64_t ldq, void *dkv,
                            int64_t ldkv)
{
    struct back b = { qkv, dout, lse, delta, dq, ldq };

    (void)k;
    each_query(a, p, put_dq, &b);
    for (int64_t s = 0; s < a->batch; s++)
        for (int64_t h = 0; h < a->heads; h += a->heads / a->kv_heads)
            for (int64_t u = 0; u < a->seq; u++)
                for (int64_t j = 0; j < a->dim; j++)
                    put_dkv(a, p, &b, (struct pair){ a, p, s, h, 0, u }, j, dkv, ldkv);
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
