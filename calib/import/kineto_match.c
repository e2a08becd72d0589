/* kineto_match.c -- a step's kernels against the expected list: anchors first, then what lies between them. */
#include "calib/import/kineto_match.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "base/sort.h"
#include "calib/import/kineto_anchors.h"
#include "calib/store/words.h"

enum { SLOTS = 1 << 14 };

/* Where no sample is above a nanosecond: fused into another kernel. */
#define LEAST_S 1e-9
/* A call is beside a collective if that ran for half of it, and alone if for a tenth at most. */
#define BESIDE .5
#define ALONE  .1
/* Of the calls of a kernel so many alone, or all count. */
#define ENOUGH_ALONE .2

/* ---- what was timed ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    return (h ^ x) * UINT64_C(1099511628211);
}

static uint64_t key_of(const struct series *s, const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (const char *c = name; *c; c++)
        h = mix(h, (unsigned char)*c);
    const int64_t parts[] = { s->kind, s->bytes, s->m, s->n, s->k, s->batch, s->ranks, s->per_node, s->dtype };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        h = mix(h, (uint64_t)parts[i]);
    return h ^ h >> 29;
}

static bool is_same(const struct timed *t, const struct series *s, const char *name)
{
    const struct series *o = &t->of;

    return o->kind == s->kind && o->bytes == s->bytes && o->m == s->m && o->n == s->n && o->k == s->k && o->batch == s->batch
           && o->ranks == s->ranks && o->per_node == s->per_node && o->dtype == s->dtype && !strcmp(t->name, name);
}

static struct timed *timed_of(struct match *m, const struct series *s, const char *name)
{
    uint64_t at = key_of(s, name) % SLOTS;

    for (; m->slot[at]; at = (at + 1) % SLOTS)
        if (is_same(m->timed[m->slot[at] - 1], s, name))
            return m->timed[m->slot[at] - 1];
    struct timed *t = room_new(1, sizeof *t);
    m->timed = room_for(m->timed, m->n, &m->cap, sizeof *m->timed);
    m->timed[m->n++] = t;
    if (2 * m->n < SLOTS)                       /* beyond: the last is found again by luck only, and stays apart */
        m->slot[at] = m->n;
    t->of = *s;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->of.name = t->name;
    return t;
}

static void call_add(struct timed *t, double s, int beside, int step)
{
    t->call = room_for(t->call, t->ncalls, &t->cap, sizeof *t->call);
    t->call[t->ncalls++] = (struct call_time){ s > LEAST_S ? s : LEAST_S, beside, step };
}

static void call_of(struct match *m, const struct expected *x, double s, int beside)
{
    struct series of = { .dtype = m->p->precision, .algorithm = kernels_name(m->p->kernels) };
    char name[MEASURED_WORDS];

    if (x->kernel) {
        const struct kernel *k = x->kernel;
        bool attention = k->kind == KC_ATTENTION && k->m == 0;
        of.kind = SERIES_KERNEL;
        of.class = (int)k->kind;
        of.m = k->m;
        of.n = k->n;
        of.k = k->k;
        of.batch = k->batch;
        of.bytes = k->bytes;
        of.flops = k->flops;
        of.dropout = m->p->dropout > 0;
        of.seq = attention ? m->p->seq : 0;
        of.dim = attention ? m->p->model.head_dim : 0;
        measured_words(x->pass, k, name);
        if (k->scaled)
            of.dtype = DT_FP8;          /* of 4 bits too: not of the plan's precision */
    } else {
        of.kind = SERIES_PASS;
        of.bytes = x->bytes;
        snprintf(name, sizeof name, "%s", pass_words[x->kind == EXPECT_OPTIMIZER ? MP_ADAMW : MP_COPY]);
    }
    call_add(timed_of(m, &of, name), s, beside, m->step);
}

/* ---- one step ---- */

static int by_launch(const void *a, const void *b)
{
    const struct work *x = *(const struct work *const *)a, *y = *(const struct work *const *)b;

    return x->launch != y->launch ? (x->launch > y->launch) - (x->launch < y->launch)
                                  : (x->start > y->start) - (x->start < y->start);
}

static int beside_of(const struct stretch *s)
{
    return s->ns > 0 && (double)s->covered > BESIDE * (double)s->ns ? s->op : -1;
}

/* What ran partly beside a collective tells neither what it takes alone nor beside it: as if beside one that is
 * not known. */
enum { PARTLY = KINETO_COLLS };
static int told_of(const struct stretch *s)
{
    int op = beside_of(s);

    return op >= 0 && op < NCOLL ? op : (double)s->covered > ALONE * (double)s->ns ? PARTLY : -1;
}

static bool lives_off_memory(const struct expected *x, bool optimizer)
{
    return !expected_anchor(x) && (x->kind == EXPECT_OPTIMIZER) == optimizer;
}

/* Shares a stretch among the plan's entries i0 to i1, by bytes.  False where there are none. */
static bool share(struct match *m, int64_t i0, int64_t i1, double s, int beside, bool optimizer)
{
    double bytes = 0;

    for (int64_t i = i0; i < i1; i++)
        bytes += lives_off_memory(&m->x->at[i], optimizer) ? (double)m->x->at[i].bytes : 0;
    if (!(bytes > 0))
        return false;
    for (int64_t i = i0; i < i1; i++)
        if (lives_off_memory(&m->x->at[i], optimizer) && m->x->at[i].bytes > 0)
            call_of(m, &m->x->at[i], s * (double)m->x->at[i].bytes / bytes, beside);
    return true;
}

/* A stretch and what is left of those before it.  The optimizer's kernels are marked as such, or not. */
static double spread_out(struct match *m, int64_t i0, int64_t i1, const struct stretch *s, double left)
{
    double own = 1e-9 * (double)(s->ns - s->optimizer_ns) + left, optimizer = 1e-9 * (double)s->optimizer_ns;
    int beside = told_of(s);

    if (optimizer > 0 && share(m, i0, i1, optimizer, beside, true))
        optimizer = 0;
    own += optimizer;
    if (s->optimizer_ns == 0) {
        /* Not marked: both by bytes. */
        double of[2] = { 0, 0 };
        for (int64_t i = i0; i < i1; i++)
            of[m->x->at[i].kind == EXPECT_OPTIMIZER] += expected_anchor(&m->x->at[i]) ? 0 : (double)m->x->at[i].bytes;
        if (of[1] > 0) {
            double part = own * of[1] / (of[0] + of[1]);
            share(m, i0, i1, part, beside, true);
            own -= part;
        }
    }
    return own > 0 && share(m, i0, i1, own, beside, false) ? 0 : own;
}

/* Where the trace has had just the anchors that the plan has had, what lay between them is shared: after each, where
 * both have one order, and at a block's end where its compiled backward has another. */
static void take_step(struct match *m, const struct anchors *a)
{
    int64_t *at = room_new((size_t)a->n + 1, sizeof *at), n = 0, from = 0, last = -1;
    struct stretch between = { .op = -1 };
    double left = 0;

    for (int64_t i = 0; i < m->x->n; i++)
        if (expected_anchor(&m->x->at[i]))
            at[n++] = i;
    for (int64_t i = 0; i < a->n; i++) {
        const struct anchor *this = &a->at[i];
        anchors_more(&between, &this->before);
        call_of(m, &m->x->at[at[this->which]], 1e-9 * (double)this->of.ns, told_of(&this->of));
        last = this->which > last ? this->which : last;
        if (last > i)
            continue;
        left = spread_out(m, from, at[last], &between, left);
        from = at[last] + 1;
        between = (struct stretch){ .op = -1 };
    }
    spread_out(m, from, m->x->n, &a->after, left);
    free(at);
}

/* Copies and casts on other streams than compute's: together, by bytes. */
static void take_side(struct match *m, double s)
{
    double bytes = 0;

    for (int64_t i = 0; i < m->x->nside; i++)
        bytes += (double)m->x->side[i].bytes;
    for (int64_t i = 0; i < m->x->nside && s > 0; i++)
        call_of(m, &m->x->side[i], s * (double)m->x->side[i].bytes / bytes, PARTLY);
}

/* ---- the issuing thread ---- */

/* A launch waits for the host to get there: that time is what the launch took.  Where it is this many times the usual
 * one, the host waited for the device. */
#define WAITED 50

static int by_length(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double usual(int64_t *gap, int64_t n)
{
    if (n > 1)
        sort_stable(gap, (size_t)n, sizeof *gap, by_length);
    return n ? (double)gap[n / 2] : 0;
}

/* Seconds of one kernel or copy of the plan, or one collective, of a step. */
static void take_issue(struct match *m, const struct work *const *at, int64_t n)
{
    int64_t *gap = room_new((size_t)n + 1, sizeof *gap);
    const int64_t issued[TRACED_HOOKED] = { m->x->issued[PASS_FORWARD], m->x->issued[PASS_BACKWARD], m->x->ncolls };

    for (int kind = 0; kind < TRACED_HOOKED; kind++) {
        struct series of = { .kind = SERIES_OWN, .dtype = m->p->precision, .algorithm = kernels_name(m->p->kernels) };
        int64_t found = 0;
        double sum = 0;

        for (int64_t i = 1; i < n; i++) {
            int is = at[i]->coll ? TRACED_COLL : at[i]->phase == WORK_BACKWARD ? TRACED_BACKWARD : TRACED_FORWARD;
            if (is == kind && (at[i]->coll || at[i]->phase != WORK_OPTIMIZER) && at[i]->launch > at[i - 1]->launch)
                gap[found++] = at[i]->launch - at[i - 1]->launch;
        }
        double most = WAITED * usual(gap, found);
        for (int64_t i = 0; i < found; i++)
            sum += (double)gap[i] <= most ? 1e-9 * (double)gap[i] : 0;
        if (sum > 0 && issued[kind] > 0)
            call_add(timed_of(m, &of, traced_words[kind + (m->x->hooks ? TRACED_HOOKED : 0)]), sum / (double)issued[kind], -1, m->step);
    }
    free(gap);
}

/* All work of a step, in order of launch. */
static void take_launches(struct match *m, const struct kineto *k, int step)
{
    const struct work **at = room_new((size_t)k->work.n + 1, sizeof *at);
    int64_t n = 0;

    for (int64_t i = 0; i < k->work.n; i++)
        if (k->work.at[i].window == step - 1)
            at[n++] = &k->work.at[i];
    if (n > 1)
        sort_stable(at, (size_t)n, sizeof *at, by_launch);
    if (k->phases)
        take_issue(m, at, n);
    free(at);
}

static int match_step(struct match *m, const struct kineto *k, const struct busies *b, const char *path, int step)
{
    const struct work **at = room_new((size_t)k->work.n + 1, sizeof *at);
    double side = 0;
    int64_t n = 0;

    for (int64_t i = 0; i < k->work.n; i++) {
        const struct work *w = &k->work.at[i];
        if (w->window != step - 1 || w->coll)
            continue;
        if (w->side)
            side += 1e-9 * (double)(w->end - w->start);
        else
            at[n++] = w;
    }
    if (n > 1)
        sort_stable(at, (size_t)n, sizeof *at, by_launch);
    struct anchors a = anchors_of(at, n, m->x, b);
    free(at);
    int rc = anchors_place(&a, m->x, k, path, step);
    if (rc == 0) {
        take_step(m, &a);
        take_side(m, side);
        take_launches(m, k, step);
    }
    anchors_free(&a);
    return rc;
}

/* ---- collectives and copies ---- */

/* The plan's collective of this operation and size; of older profilers, which do not say the size, the only one. */
static const struct expected_coll *planned(const struct expectation *x, const struct work *w)
{
    const struct expected_coll *only = NULL;

    for (int64_t i = 0; i < x->ncolls; i++) {
        const struct expected_coll *c = &x->coll[i];
        if ((int)c->op != w->op || (w->group_size > 0 && w->group_size != c->ranks))
            continue;
        if (w->bytes == c->bytes)
            return c;
        if (w->bytes < 0 && only && only->bytes != c->bytes)
            return NULL;
        only = w->bytes < 0 ? c : only;
    }
    return only;
}

static struct timed *coll_of(struct match *m, const struct expected_coll *c)
{
    struct series of = { .kind = SERIES_COLL, .dtype = c->dtype, .algorithm = "nccl", .ranks = c->ranks,
                         .per_node = c->per_node, .bytes = c->bytes };

    return timed_of(m, &of, coll_name(c->op));
}

/* Call i of one rank is call i of the others where all are in one group: the shortest one did not wait. */
static void coll_call(const struct match *m, struct timed *t, int64_t i, double s)
{
    if (plan_is_data_parallel(m->p) && i < t->ncalls)
        t->call[i].s = fmin(t->call[i].s, s);
    else
        call_add(t, s, -1, m->step);
}

static void take_colls(struct match *m, const struct kineto *k, int first, int last)
{

    for (int i = 0; i < m->n; i++)
        m->timed[i]->taken = 0;
    for (int64_t i = 0; i < k->work.n; i++) {       /* in order of start: kineto_measure() */
        const struct work *w = &k->work.at[i];
        if (!w->coll || w->window < first - 1 || w->window > last - 1 || w->end <= w->start)
            continue;
        const struct expected_coll *c = planned(m->x, w);
        if (!c) {
            m->colls_left += w->op < NCOLL;
            continue;
        }
        struct timed *t = coll_of(m, c);
        coll_call(m, t, t->taken++, 1e-9 * (double)(w->end - w->start));
    }
}

static void take_copies(struct match *m, const struct kineto *k)
{
    for (int64_t i = 0; i < k->ncopies; i++) {
        struct series of = { .kind = SERIES_PASS, .dtype = m->p->precision, .algorithm = kernels_name(m->p->kernels),
                             .bytes = k->copy[i].bytes };
        call_add(timed_of(m, &of, pass_words[k->copy[i].to_host ? MP_TO_HOST : MP_FROM_HOST]), k->copy[i].seconds, -1, m->step);
    }
}

/* ---- all ---- */

void match_open(struct match *m, const struct plan *p)
{
    *m = (struct match){ .p = p, .slot = room_new(SLOTS, sizeof *m->slot) };
}

int match_trace(struct match *m, const struct expectation *x, const struct kineto *k, const char *path, int first, int last)
{
    struct busies b = beside_busies(k);
    int rc = 0;

    m->x = x;

    for (int step = first; step <= last && rc == 0; step++, m->step++)
        rc = match_step(m, k, &b, path, step);
    free(b.at);
    if (rc < 0)
        return -1;
    take_colls(m, k, first, last);
    take_copies(m, k);
    m->traces++;
    m->steps += last - first + 1;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Calls of one kernel in one step may take times that differ, as their stretches do: a step's mean is one sample, so that the median over the steps is
 * a step's sum. */
static int64_t step_means(struct timed *t, bool all)
{
    int64_t n = 0, calls = 0;
    double sum = 0;

    for (int64_t i = 0; i < t->ncalls; i++) {
        bool counts = all || t->call[i].beside < 0, ends = i + 1 == t->ncalls || t->call[i + 1].step != t->call[i].step;
        sum += counts ? t->call[i].s : 0;
        calls += counts;
        if (!ends)
            continue;
        if (calls > 0)
            t->seconds[n++] = sum / (double)calls;
        sum = 0;
        calls = 0;
    }
    return n;
}

/* The times that count.  Of a collective the faster half: the rest also waited for another rank. */
static void choose(struct timed *t)
{
    int64_t alone = 0, n = 0;

    for (int64_t i = 0; i < t->ncalls; i++)
        alone += t->call[i].beside < 0;
    bool all = (double)alone < ENOUGH_ALONE * (double)t->ncalls;
    t->seconds = room_new((size_t)t->ncalls + 1, sizeof *t->seconds);
    if (t->of.kind == SERIES_KERNEL || t->of.kind == SERIES_PASS)
        n = step_means(t, all);
    else
        for (int64_t i = 0; i < t->ncalls; i++)
            if (all || t->call[i].beside < 0)
                t->seconds[n++] = t->call[i].s;
    if (t->of.kind == SERIES_COLL) {
        sort_stable(t->seconds, (size_t)n, sizeof *t->seconds, by_value);
        n = (n + 1) / 2;
    }
    t->mean = 0;
    for (int64_t i = 0; i < n; i++)
        t->mean += t->seconds[i] / (double)n;
    t->of.seconds = t->seconds;
    t->of.nsamples = (int)n;
}

/* ---- what kernels lose beside collectives ---- */

enum { PRODUCTS, STREAMING, NKINDS };
static const enum kernel_class class_of[NKINDS] = { KC_GEMM, KC_ELEMENTWISE };

/* Seconds of the calls beside a collective, and of as many alone. */
struct loss { double beside, alone; int64_t n; };

static void add_losses(const struct match *m, struct loss loss[NKINDS][NCOLL])
{
    for (int i = 0; i < m->n; i++) {
        const struct timed *t = m->timed[i];
        if (t->of.kind != SERIES_KERNEL)
            continue;
        int kind = t->of.class == KC_GEMM || t->of.class == KC_ATTENTION ? PRODUCTS : STREAMING;
        for (int64_t c = 0; c < t->ncalls; c++) {
            int op = t->call[c].beside;
            if (op < 0 || op >= NCOLL)
                continue;
            loss[kind][op].beside += t->call[c].s;
            loss[kind][op].alone += t->mean;
            loss[kind][op].n++;
        }
    }
}

static void series_one(struct match *m, const struct series *s)
{
    m->series = room_for(m->series, m->nseries, &m->cap_series, sizeof *m->series);
    m->series[m->nseries++] = *s;
}

/* The collective's own times are from beside compute already: it loses nothing more. */
static void add_overlap(struct match *m, enum kernel_class kind, const struct timed *coll, const struct loss *l)
{
    enum { BEFORE_COLL, BEFORE_KERNEL };
    double *s = &m->overlap[3 * m->noverlaps];
    char (*words)[128] = m->words[m->noverlaps++];
    const char *kernels = class_words[kind];
    struct series of = { .kind = SERIES_OVERLAP, .dtype = m->p->precision, .algorithm = "nccl", .ranks = coll->of.ranks,
                         .per_node = coll->of.per_node, .bytes = coll->of.bytes, .nsamples = 1 };

    snprintf(words[BEFORE_COLL], sizeof words[0], "alone before %s", coll->name);
    snprintf(words[BEFORE_KERNEL], sizeof words[0], "alone before %s", kernels);
    s[0] = fmax(l->beside, l->alone) / (double)l->n;
    s[1] = l->alone / (double)l->n;
    s[2] = coll->mean;
    const struct { const char *name, *beside; double *s; } rows[] = {
        { kernels, coll->name, &s[0] }, { kernels, words[BEFORE_COLL], &s[1] },
        { coll->name, kernels, &s[2] }, { coll->name, words[BEFORE_KERNEL], &s[2] } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        of.name = rows[i].name;
        of.beside = rows[i].beside;
        of.seconds = rows[i].s;
        series_one(m, &of);
    }
}

/* The collective of an operation on which most time goes stands for it. */
static const struct timed *coll_most(const struct match *m, enum coll_op op)
{
    const struct timed *most = NULL;

    for (int i = 0; i < m->n; i++) {
        const struct timed *t = m->timed[i];
        if (t->of.kind == SERIES_COLL && !strcmp(t->name, coll_name(op)) &&
            (!most || t->mean * (double)t->ncalls > most->mean * (double)most->ncalls))
            most = t;
    }
    return most;
}

void match_series(struct match *m)
{
    struct loss loss[NKINDS][NCOLL] = { 0 };

    for (int i = 0; i < m->n; i++)
        choose(m->timed[i]);
    for (int i = 0; i < m->n; i++)
        series_one(m, &m->timed[i]->of);
    m->overlap = room_new((size_t)3 * NKINDS * NCOLL, sizeof *m->overlap);
    m->words = room_new((size_t)NKINDS * NCOLL, sizeof *m->words);
    add_losses(m, loss);
    for (int kind = 0; kind < NKINDS; kind++)
        for (int op = 0; op < NCOLL; op++) {
            const struct timed *coll = loss[kind][op].n ? coll_most(m, (enum coll_op)op) : NULL;
            if (coll)
                add_overlap(m, class_of[kind], coll, &loss[kind][op]);
        }
}

void match_free(struct match *m)
{
    for (int i = 0; i < m->n; i++) {
        free(m->timed[i]->call);
        free(m->timed[i]->seconds);
        free(m->timed[i]);
    }
    free(m->timed);
    free(m->slot);
    free(m->series);
    free(m->words);
    free(m->overlap);
    memset(m, 0, sizeof *m);
}
