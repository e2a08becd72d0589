/* measured_cost.c -- interpolation in measured series, and the error that it adds. */
#include "sim/price/measured_cost.h"

#include <math.h>
#include <string.h>

#include "sim/price/coll_cost.h"

/* Half of a 90 % interval around a median: what the same kernel takes elsewhere in a program, with
 * other neighbours in the caches (two calibrations of one machine differ by 2 to 5 % in nine kernels of ten
 * above 1 ms, each of them by 1/sqrt 2 of that: tests/accuracy/repeats.sh), and a part of its samples' spread:
 * of that most is chance, which hundreds of kernels a step average out, but where samples differ medians do as well. */
#define LEAST_ERROR .03
#define OF_SPREAD   .25
/* Of a 95 % interval, what 90 % of them hold. */
#define OF_CONFIDENCE (1.645 / 1.96)
/* More for each factor of e between the query and the nearest point: products, attention and
 * passes over memory, each leaving out one of the sizes of a grid (tests/sim/test_measured.c). */
#define ERROR_OF_DISTANCE .10
#define ERROR_MOST .60
/* Kernels of the same class, but other functions, stand in for one that was not measured. */
#define ERROR_OTHER_KERNEL .35

/* The reach of a measurement, in logarithms; as gemm_cost.c. */
#define REACH .7

static double error_at(double spread, double distance)
{
    return fmin(ERROR_MOST, LEAST_ERROR + OF_SPREAD * spread + ERROR_OF_DISTANCE * distance);
}

/* A query, and what its kernel is called where it is a framework's; 0: the executor's own, which have an fn. */
struct asked { const struct kernel_query *q; uint32_t what; };

static struct asked asked(const struct kernel_query *q)
{
    char words[MEASURED_WORDS];

    if (q->set == KERNELS_DPX)
        return (struct asked){ q, 0 };
    measured_words(q->pass, q->k, words);
    return (struct asked){ q, measured_word(words) };
}

static bool of_set(const struct measured_kernel *p, const struct asked *a)
{
    return p->set == (uint8_t)a->q->set;
}

/* Points of other kernels than the one asked for count where there are no others. */
static double weight(const struct measured_kernel *p, const struct asked *a, double far)
{
    double w = exp(-far * far / (2 * REACH * REACH)) + 1e-12 / (1 + far);

    return w * (p->dropout != a->q->dropout ? 1e-3 : 1) * (p->what != a->what ? 1e-3 : 1);
}

/* ---- one size: bytes, FLOPs or tokens ---- */

/* The measured points nearest to x, from below and from above, while they are offered. */
struct bracket {
    double x;
    bool   has[2];
    double at[2], s[2], spread[2];      /* below or equal, above */
};

static void offer(struct bracket *b, double at, double s, double spread)
{
    int side = at > b->x;

    if (b->has[side] && fabs(at - b->x) >= fabs(b->at[side] - b->x))
        return;
    b->has[side] = true;
    b->at[side] = at;
    b->s[side] = s;
    b->spread[side] = spread;
}

/* Straight lines between points; beyond them in proportion.  What is smaller than all points is not
 * called outside: it takes less than they do, whatever it takes. */
static bool between(const struct bracket *b, struct estimate *out)
{
    int one = b->has[0] ? 0 : 1;

    if (!b->has[0] && !b->has[1])
        return false;
    if (b->has[0] && b->has[1]) {
        double f = (b->x - b->at[0]) / (b->at[1] - b->at[0]);
        double near = fmin(log(b->x / b->at[0]), log(b->at[1] / b->x));
        *out = (struct estimate){ b->s[0] + f * (b->s[1] - b->s[0]),
                                  error_at(fmax(b->spread[0], b->spread[1]), near / 2), false,
                                  fmax(b->spread[0], b->spread[1]) };
        return true;
    }
    double far = fabs(log(b->x / b->at[one]));
    *out = (struct estimate){ b->s[one] * b->x / b->at[one], error_at(b->spread[one], far),
                              one == 0 && far > 1e-9, b->spread[one] };
    return true;
}

/* ---- products ---- */

/* Which of a layer's products the executor's function computes; a framework's name theirs otherwise, and all count as forward. */
static enum gemm_of product_of(int fn)
{
    return fn == FN_LINEAR_DW ? GEMM_DW : fn == FN_LINEAR_DX ? GEMM_DX : GEMM_FORWARD;
}

static enum gemm_rows rows_of(enum dtype t, int fn, int64_t m, int64_t n, int64_t k)
{
    return t == DT_BF16 || t == DT_FP16 ? gemm_rows_16(product_of(fn), m, n, k) : ROWS_WHOLE;
}

static double distance(const struct measured_kernel *p, const struct kernel *k)
{
    double m = log((double)(k->m * k->batch) / (double)(p->m * p->batch));
    double n = log((double)k->n / (double)p->n), d = log((double)k->k / (double)p->k);

    return sqrt(m * m + n * n + d * d);
}

/* Logarithms of measured over prior, weighted by nearness, fall off within REACH; with the same
 * weights but another number of tokens they are nearly equal.  A library has other kernels for other rows: points of such count where there
 * are no others. */
static bool product(const struct measured_device *d, const struct gemm_device *on, const struct asked *a,
                    struct estimate *out)
{
    const struct kernel *k = a->q->k;
    double weights = 0, sum = 0, near = INFINITY, spread = 0;
    struct gemm g = { k->batch, k->m, k->n, k->k, k->bytes, rows_of(d->precision, k->fn, k->m, k->n, k->k), k->sums };

    for (int i = 0; i < d->nkernel; i++) {
        const struct measured_kernel *p = &d->kernel[i];
        if (p->m <= 0 || p->fn != k->fn || p->scaled != (k->scaled != SCALED_NONE) || !of_set(p, a))
            continue;
        struct gemm there = { p->batch, p->m, p->n, p->k, p->bytes, rows_of(d->precision, p->fn, p->m, p->n, p->k), 0 };
        double far = distance(p, k), w = weight(p, a, far) * (there.rows != g.rows ? 1e-3 : 1);
        if (far < near) {
            near = far;
            spread = p->spread;
        }
        weights += w;
        sum += w * log(p->s / gemm_prior(on, &there, NULL));
    }
    if (!(weights > 0))
        return false;
    *out = (struct estimate){ gemm_prior(on, &g, NULL) * exp(sum / weights), error_at(spread, near), near > REACH, spread };
    return true;
}

/* ---- attention ---- */

/* Work is in proportion to the heads and samples; sequences of other lengths by their rate. */
static bool attention(const struct measured_device *d, const struct asked *a, struct estimate *out)
{
    const struct kernel_query *q = a->q;
    struct bracket same = { .x = q->k->flops };
    double weights = 0, sum = 0, near = INFINITY, spread = 0;

    for (int i = 0; i < d->nkernel; i++) {
        const struct measured_kernel *p = &d->kernel[i];
        if (p->kind != KC_ATTENTION || p->fn != q->k->fn || p->m > 0 || !(p->flops > 0) || !of_set(p, a))
            continue;
        if (p->seq == q->seq && p->dim == q->dim && p->dropout == q->dropout && p->what == a->what)
            offer(&same, p->flops, p->s, p->spread);
        double seq = log((double)q->seq / (double)p->seq), dim = log((double)q->dim / (double)p->dim);
        double far = sqrt(seq * seq + dim * dim), w = weight(p, a, far);
        if (far < near) {
            near = far;
            spread = p->spread;
        }
        weights += w;
        sum += w * log(p->s / p->flops);
    }
    if (between(&same, out))
        return true;
    if (!(weights > 0))
        return false;
    *out = (struct estimate){ q->k->flops * exp(sum / weights), error_at(spread, near), near > REACH, spread };
    return true;
}

/* ---- kernels that live off memory ---- */

static bool by_bytes(const struct measured_device *d, const struct asked *a, bool any_dropout, bool any_fn,
                     struct estimate *out)
{
    const struct kernel_query *q = a->q;
    struct bracket b = { .x = (double)q->k->bytes };

    for (int i = 0; i < d->nkernel; i++) {
        const struct measured_kernel *p = &d->kernel[i];
        if (p->m == 0 && p->bytes > 0 && p->kind == q->k->kind && of_set(p, a) &&
            (any_fn || (p->fn == q->k->fn && p->what == a->what)) &&
            (any_dropout || p->dropout == q->dropout))
            offer(&b, (double)p->bytes, p->s, p->spread);
    }
    return between(&b, out);
}

static bool streaming(const struct measured_device *d, const struct asked *a, struct estimate *out)
{
    if (by_bytes(d, a, false, false, out) || by_bytes(d, a, true, false, out))
        return true;
    if (!by_bytes(d, a, true, true, out))
        return false;
    out->error = fmin(ERROR_MOST, out->error + ERROR_OTHER_KERNEL);
    out->outside = true;
    return true;
}

static bool same(const struct measured_kernel *p, const struct asked *a)
{
    const struct kernel_query *q = a->q;
    const struct kernel *k = q->k;

    return of_set(p, a) && p->what == a->what && p->fn == k->fn && p->kind == (uint8_t)k->kind && p->m == k->m && p->n == k->n && p->k == k->k &&
           p->batch == k->batch && p->bytes == k->bytes && p->dropout == q->dropout &&
           (k->kind != KC_ATTENTION || k->m > 0 ||
            (p->seq == q->seq && p->dim == q->dim && fabs(p->flops - k->flops) <= 1e-6 * k->flops));
}

static bool kernel(const struct measured_device *d, const struct gemm_device *on, const struct kernel_query *q,
                   struct estimate *out)
{
    struct asked a = asked(q);

    for (int i = 0; i < d->nkernel; i++)
        if (same(&d->kernel[i], &a)) {
            *out = (struct estimate){ d->kernel[i].s, error_at(d->kernel[i].spread, 0), false, d->kernel[i].spread };
            return true;
        }
    if (q->k->m > 0)
        return product(d, on, &a, out);
    return q->k->kind == KC_ATTENTION ? attention(d, &a, out) : streaming(d, &a, out);
}

bool measured_kernel(const struct measured_device *d, const struct gemm_device *on, const struct kernel_query *q,
                     struct estimate *out)
{
    bool known = kernel(d, on, q, out);

    out->s *= measured_pace(d);
    return known;
}

bool measured_pass(const struct measured_device *d, enum kernel_set set, enum measured_pass pass, double bytes,
                   struct estimate *out)
{
    struct bracket b = { .x = bytes };

    for (int i = 0; i < d->nbytes; i++)
        if (d->bytes[i].pass == pass && d->bytes[i].set == (uint8_t)set)
            offer(&b, (double)d->bytes[i].bytes, d->bytes[i].s, d->bytes[i].spread);
    bool known = between(&b, out);
    out->s *= measured_pace(d);
    return known;
}

/* ---- collectives ---- */

enum { SWEEPS = 16 };

static bool is_of(const struct measured_coll *p, const struct coll_query *q, enum dtype t)
{
    return p->op == q->op && p->star == q->star && p->dtype == t && p->bytes > 0 && p->s > 0;
}

/* The sweeps of one operation and dtype, each group of ranks for itself. */
static int sweeps_of(const struct measured_device *d, const struct coll_query *q, enum dtype t,
                     struct coll_points out[SWEEPS])
{
    struct coll_points *at = NULL;
    int n = 0;

    for (int i = 0; i < d->ncoll; i++) {
        const struct measured_coll *p = &d->coll[i];
        if (!is_of(p, q, t))
            continue;
        if (!at || at->ranks != p->ranks || at->per_node != p->per_node) {
            if (n == SWEEPS)
                break;
            at = &out[n++];
            at->op = p->op;
            at->ranks = p->ranks;
            at->per_node = p->per_node;
            at->n = 0;
        }
        if (at->n == COLL_POINTS_MAX || (at->n > 0 && (double)p->bytes <= at->bytes[at->n - 1]))
            continue;
        at->bytes[at->n] = (double)p->bytes;
        at->spread[at->n] = fmin(hypot(OF_SPREAD * p->spread, OF_CONFIDENCE * p->unsure), ERROR_MOST / 2);
        at->seconds[at->n++] = p->s;
    }
    return n;
}

/* The query's own dtype, else another's. */
static int sweeps_near(const struct measured_device *d, const struct coll_query *q, struct coll_points out[SWEEPS])
{
    static const enum dtype others[] = { DT_FP32, DT_BF16, DT_FP16 };
    int n = sweeps_of(d, q, q->dtype, out);

    for (size_t i = 0; n == 0 && i < sizeof others / sizeof *others; i++)
        n = sweeps_of(d, q, others[i], out);
    return n;
}

/* A barrier is an all-reduce of nothing; a receive is the send that it meets; scatter and gather go through the root
 * either way. */
static struct coll_query as_measured(const struct coll_query *q)
{
    struct coll_query a = *q;

    if (a.op == COLL_BARRIER) {
        a.op = COLL_ALL_REDUCE;
        a.bytes = 1;
    }
    if (a.op == COLL_RECV)
        a.op = COLL_SEND;
    return a;
}

bool measured_coll(const struct cluster *c, const struct coll_query *query, struct estimate *out)
{
    struct coll_points sweep[SWEEPS];
    struct coll_query as = as_measured(query), *q = &as;
    struct cost cost;
    int n = sweeps_near(c->measured, q, sweep);

    if (n == 0 && (q->op == COLL_SCATTER || q->op == COLL_GATHER)) {
        as.star = !as.star;
        n = sweeps_near(c->measured, q, sweep);
    }
    for (int i = 0; i < n; i++)
        if (coll_points_prepare(&sweep[i]) < 0)
            return false;
    if (n == 0 || coll_cost_measured(c, sweep, n, q->op, q->ranks, q->per_node, q->bytes, &cost) < 0 ||
        cost.basis != BASIS_MEASURED)
        return false;
    double pace = q->ranks > q->per_node ? 1 : measured_pace(c->measured);       /* a link has its own */
    *out = (struct estimate){ cost.s * pace, log(cost.high_s / cost.s), cost.outside, 0 };
    return true;
}

/* ---- overlap ---- */

static bool products(enum kernel_class kind)
{
    return kind == KC_GEMM || kind == KC_ATTENTION;
}

bool measured_beside_copy(const struct measured_device *d, enum kernel_class kind, double *compute, double *copy)
{
    double sum[2] = { 0, 0 };
    int n = 0;

    for (int i = 0; i < d->noverlap; i++)
        if (d->overlap[i].op == NCOLL && products(d->overlap[i].kind) == products(kind)) {
            sum[0] += d->overlap[i].compute;
            sum[1] += d->overlap[i].other;
            n++;
        }
    if (n == 0)
        return false;
    *compute = fmax(1, sum[0] / n);
    *copy = fmax(1, sum[1] / n);
    return true;
}

/* A cluster that just holds the group. */
static struct cluster around(const struct cluster *c, int64_t ranks, int64_t per_node)
{
    struct cluster a = *c;

    a.gpus_per_node = per_node;
    a.nodes = ranks / per_node;
    a.world_size = ranks;
    return a;
}

/* The collective of a point, alone, as it was timed beside compute; of another group as much longer as
 * sweeps say.  Not a sweep's seconds: its buffers are in no cache, and what a collective waits for is the
 * same with both.  Nor at another pace: a turn is a turn. */
static bool timed_alone(const struct cluster *c, const struct coll_query *q, const struct measured_overlap *p,
                        double alone_s, double *s)
{
    struct coll_query here = *q, there;
    struct estimate of_here, of_there;

    *s = p->bytes > 0 ? p->alone_s : alone_s;
    if (p->bytes == 0 || (p->ranks == q->ranks && p->per_node == q->per_node))
        return *s > 0;
    here.op = (enum coll_op)p->op;
    here.bytes = p->bytes;
    there = here;
    there.ranks = p->ranks;
    there.per_node = p->per_node;
    if (p->per_node < 1 || p->ranks < p->per_node)
        return false;
    struct cluster its = around(c, p->ranks, p->per_node);
    if (!measured_coll(c, &here, &of_here) || !measured_coll(&its, &there, &of_there))
        return false;
    *s *= of_here.s / of_there.s;
    return true;
}

/* What one point says: seconds that the collective loses, and compute's loss in units of its work.  It
 * cannot work longer than it takes alone: more is chance, where the quotients are large. */
static bool losses(const struct cluster *c, const struct coll_query *q, const struct measured_overlap *p,
                   double alone_s, double *late_s, double *works)
{
    double timed_s;

    if (!timed_alone(c, q, p, alone_s, &timed_s))
        return false;
    *late_s = (fmax(p->other, 1) - 1) * timed_s;
    *works = fmin((fmax(p->compute, 1) - 1) * fmax(p->other, 1), 1);
    return true;
}

/* Operations of which no overlap was timed lose what their nearest relatives do. */
static bool overlap_known(const struct measured_device *d, enum coll_op op)
{
    for (int i = 0; i < d->noverlap; i++)
        if (d->overlap[i].op == (int)op)
            return true;
    return false;
}

/* Time lost: as at the least size below it, in proportion above the largest, a line in between. */
static double late_at(const struct bracket *b)
{
    if (b->has[0] && b->has[1])
        return b->s[0] + (b->s[1] - b->s[0]) * (b->x - b->at[0]) / (b->at[1] - b->at[0]);
    return b->has[1] ? b->s[1] : b->s[0] * fmax(1, b->x / fmax(b->at[0], 1));
}

/* What of a core's time it works: of the nearest sizes, a line between them. */
static double share_at(const struct bracket *b)
{
    if (b->has[0] && b->has[1])
        return b->s[0] + (b->s[1] - b->s[0]) * (b->x - b->at[0]) / (b->at[1] - b->at[0]);
    return b->has[1] ? b->s[1] : b->s[0];
}

/* The mean over kernels of what a collective of one measured size loses.  `i`: the first point of the
 * size; false where an earlier one was it. */
static bool mean_loss(const struct cluster *c, const struct coll_query *q, enum coll_op op, enum kernel_class kind,
                      double alone_s, int i, double *late_s, double *works)
{
    const struct measured_device *d = c->measured;
    int64_t bytes = d->overlap[i].bytes;
    double late, work;
    int n = 0;

    *late_s = *works = 0;
    for (int k = 0; k < d->noverlap; k++) {
        const struct measured_overlap *p = &d->overlap[k];
        if (p->op != (int)op || products(p->kind) != products(kind) || p->bytes != bytes ||
            !losses(c, q, p, alone_s, &late, &work))
            continue;
        if (n == 0 && k < i)
            return false;
        *late_s += late;
        *works += work;
        n++;
    }
    if (n > 0) {
        *late_s /= n;
        *works /= n;
    }
    return n > 0;
}

bool measured_beside(const struct cluster *c, const struct coll_query *q, enum kernel_class kind, double alone_s,
                     double *compute, double *coll)
{
    const struct measured_device *d = c->measured;
    enum coll_op op = overlap_known(d, q->op) ? q->op : COLL_ALL_GATHER;
    struct bracket time = { .x = (double)q->bytes }, work = { .x = (double)q->bytes };
    double late, works;

    if (!(alone_s > 0))
        return false;
    for (int i = 0; i < d->noverlap; i++) {
        double at = d->overlap[i].bytes > 0 ? (double)d->overlap[i].bytes : time.x;
        if (!mean_loss(c, q, op, kind, alone_s, i, &late, &works))
            continue;
        offer(&time, at, late, 0);
        offer(&work, at, works, 0);
    }
    if (!time.has[0] && !time.has[1])
        return false;
    *coll = 1 + late_at(&time) / alone_s;
    *compute = 1 + share_at(&work) / *coll;
    return true;
}
