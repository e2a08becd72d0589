/* kineto_step.c -- lengths of unions and what compute leaves free of collectives, for each step; the evidence of prefetching. */
#include "calib/trace/kineto_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cover.h"
#include "base/room.h"
#include "base/sort.h"

void kineto_work_add(struct work_list *l, const struct work *s)
{
    l->at = room_for(l->at, l->n, &l->cap, sizeof *l->at);
    l->at[l->n++] = *s;
}

static int by_start(const void *a, const void *b)
{
    const struct work *x = a, *y = b;

    return x->start != y->start ? (x->start > y->start) - (x->start < y->start)
                                : (x->end > y->end) - (x->end < y->end);
}

static int by_launch(const void *a, const void *b)
{
    const struct work *x = *(const struct work *const *)a, *y = *(const struct work *const *)b;

    return x->launch != y->launch ? (x->launch > y->launch) - (x->launch < y->launch)
                                  : (x->start > y->start) - (x->start < y->start);
}

static double seconds(int64_t ns)
{
    return 1e-9 * (double)ns;
}

static void *array(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);

    if (!p)
        abort();
    return p;
}

/* What compute covers. */
static struct cover cover_of(const struct work_list *l)
{
    struct cover c = { 0 };

    for (int64_t i = 0; i < l->n; i++)
        if (!l->at[i].coll)
            cover_add(&c, l->at[i].start, l->at[i].end);
    return c;
}

/* ---- figures ---- */

/* Lengths of unions: they come in order of start, so each is new from where the last of its kind
 * ended. */
struct unions { int64_t phase[WORK_PHASES], compute, comm, sharding; };

static int64_t new_from(int64_t *until, const struct work *s)
{
    int64_t from = s->start > *until ? s->start : *until;

    if (s->end > *until)
        *until = s->end;
    return from < s->end ? from : s->end;
}

static void add_compute(const struct work *s, struct unions *u, struct measures *m)
{
    m->v[M_FORWARD + s->phase] += seconds(s->end - new_from(&u->phase[s->phase], s));
    m->v[M_COMPUTE] += seconds(s->end - new_from(&u->compute, s));
}

static void add_coll(const struct work *s, const struct cover *c, struct unions *u, struct measures *m)
{
    int64_t from = new_from(&u->comm, s);

    m->v[M_COMM] += seconds(s->end - from);
    m->v[M_EXPOSED] += seconds(cover_free_of(c, from, s->end));
    if (s->op == COLL_ALL_GATHER || s->op == COLL_REDUCE_SCATTER)
        m->v[M_SHARDING] += seconds(s->end - new_from(&u->sharding, s));
    m->v[m_coll(s->op, M_CALLS)] += 1;
    m->v[m_coll(s->op, M_BYTES)] += s->bytes >= 0 ? (double)s->bytes : NAN;
    m->v[m_coll(s->op, M_TIME)] += seconds(s->end - s->start);
    m->v[m_coll(s->op, M_ALONE)] += seconds(cover_free_of(c, s->start, s->end));
}

/* The host's clock and the device's may differ in how long a step is: the one that runs ahead is faster
 * for a while.  The longer one counts. */
static void step_lengths(const struct work_list *l, const struct window *w, int n, struct measures *out)
{
    int64_t *first = array(n, sizeof *first), *last = array(n, sizeof *last);

    for (int64_t i = 0; i < l->n; i++) {
        const struct work *s = &l->at[i];
        if (s->window < 0)
            continue;
        if (last[s->window] == 0)
            first[s->window] = s->start;
        if (s->end > last[s->window])
            last[s->window] = s->end;
    }
    for (int i = 0; i < n; i++) {
        int64_t host = w[i].end - w[i].start, device = last[i] - first[i];
        out[i].v[M_STEP] = seconds(host > device ? host : device);
    }
    free(first);
    free(last);
}

/* ---- prefetch ---- */

struct order {
    const struct work **gather, **scatter, **compute;   /* of one step's backward, as issued */
    int64_t ngather, nscatter, ncompute;
};

/* When the unit whose gradients `reduce` takes is done: the end of the last main compute issued
 * before it. */
static int64_t unit_done(const struct order *o, const struct work *reduce)
{
    int64_t lo = 0, hi = o->ncompute;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (o->compute[mid]->launch < reduce->launch)
            lo = mid + 1;
        else
            hi = mid;
    }
    int64_t done = lo ? o->compute[lo - 1]->end : reduce->start;
    return done < reduce->start ? done : reduce->start;
}

/* Units are gathered and reduced in the same order: gather k is for the unit after the one whose
 * gradients reduce-scatter k-1 takes.  More gathers than that: the units are others, and nothing
 * is known. */
static void prefetch(const struct order *o, struct measures *m)
{
    if (o->ngather > o->nscatter || o->ngather < 2)
        return;
    for (int64_t k = 1; k < o->ngather; k++) {
        m->v[M_GATHERS] += 1;
        m->v[M_ISSUED_AHEAD] += o->gather[k]->launch < o->scatter[k - 1]->launch;
        m->v[M_STARTED_AHEAD] += o->gather[k]->start < unit_done(o, o->scatter[k - 1]);
    }
}

static void sort_by_launch(const struct work **at, int64_t n)
{
    if (n > 1)
        sort_stable(at, (size_t)n, sizeof *at, by_launch);
}

/* The evidence of prefetching: of backward, or reductions of gradients. */
static bool tells_prefetch(const struct work *s)
{
    if (s->window < 0)
        return false;
    if (s->coll)
        return s->op == COLL_REDUCE_SCATTER || (s->op == COLL_ALL_GATHER && s->phase == WORK_BACKWARD);
    return !s->side && s->phase == WORK_BACKWARD;
}

/* The work of each window, in the order of the list: that of window i is at[first[i]] to at[first[i + 1]]. */
struct by_window { const struct work **at; int64_t *first; };

static struct by_window by_window(const struct work_list *l, int n)
{
    struct by_window b = { array(l->n, sizeof *b.at), array(n + 1, sizeof *b.first) };

    for (int64_t i = 0; i < l->n; i++)
        if (tells_prefetch(&l->at[i]))
            b.first[l->at[i].window + 1]++;
    for (int i = 0; i < n; i++)
        b.first[i + 1] += b.first[i];
    for (int64_t i = l->n - 1; i >= 0; i--)     /* from the end: first[i + 1] counts down to where i begins */
        if (tells_prefetch(&l->at[i]))
            b.at[--b.first[l->at[i].window + 1]] = &l->at[i];
    memmove(b.first, b.first + 1, (size_t)n * sizeof *b.first);
    b.first[n] = 0;
    for (int64_t i = 0; i < l->n; i++)
        b.first[n] += tells_prefetch(&l->at[i]);
    return b;
}

/* Of one window's work; `o` has room for it. */
static void prefetch_of(const struct work *const *at, int64_t n, struct order *o, struct measures *m)
{
    o->ngather = o->nscatter = o->ncompute = 0;
    for (int64_t i = 0; i < n; i++)
        if (!at[i]->coll)
            o->compute[o->ncompute++] = at[i];
        else if (at[i]->op == COLL_REDUCE_SCATTER)
            o->scatter[o->nscatter++] = at[i];
        else
            o->gather[o->ngather++] = at[i];
    sort_by_launch(o->gather, o->ngather);
    sort_by_launch(o->scatter, o->nscatter);
    sort_by_launch(o->compute, o->ncompute);
    prefetch(o, m);
}

static void prefetch_all(const struct work_list *l, int n, struct measures *out)
{
    struct by_window b = by_window(l, n);
    int64_t most = 0;

    for (int i = 0; i < n; i++)
        if (b.first[i + 1] - b.first[i] > most)
            most = b.first[i + 1] - b.first[i];
    struct order o = { array(most, sizeof *o.gather), array(most, sizeof *o.scatter), array(most, sizeof *o.compute), 0, 0, 0 };
    for (int i = 0; i < n; i++)
        prefetch_of(b.at + b.first[i], b.first[i + 1] - b.first[i], &o, &out[i]);
    free(o.gather);
    free(o.scatter);
    free(o.compute);
    free(b.at);
    free(b.first);
}

/* ---- together ---- */

static void forget_phases(struct measures *m)
{
    for (int i = 0; i < WORK_PHASES; i++)
        m->v[M_FORWARD + i] = NAN;
    m->v[M_GATHERS] = m->v[M_ISSUED_AHEAD] = m->v[M_STARTED_AHEAD] = NAN;
}

void kineto_measure(struct work_list *l, const struct window *w, int n, bool phases, struct measures *out)
{
    struct unions *u = array(n, sizeof *u);
    struct cover c;

    if (l->n > 1)
        sort_stable(l->at, (size_t)l->n, sizeof *l->at, by_start);
    memset(out, 0, (size_t)n * sizeof *out);
    c = cover_of(l);
    for (int64_t i = 0; i < l->n; i++) {
        const struct work *s = &l->at[i];
        if (s->window < 0)
            continue;
        if (s->coll)
            add_coll(s, &c, &u[s->window], &out[s->window]);
        else
            add_compute(s, &u[s->window], &out[s->window]);
    }
    step_lengths(l, w, n, out);
    for (int i = 0; i < n; i++) {
        out[i].v[M_SHARDING] /= out[i].v[M_STEP] > 0 ? out[i].v[M_STEP] : NAN;
        if (!phases)
            forget_phases(&out[i]);
    }
    if (phases)
        prefetch_all(l, n, out);
    cover_free(&c);
    free(u);
}

/* NAN last. */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

struct measures kineto_measures_median(const struct measures *m, int n)
{
    double *v = array(n, sizeof *v);
    struct measures out;

    for (int k = 0; k < NMEASURE; k++) {
        for (int i = 0; i < n; i++)
            v[i] = m[i].v[k];
        sort_stable(v, (size_t)n, sizeof *v, by_value);
        /* A count must be one that happened: the lower of the two in the middle. */
        out.v[k] = v[(n - 1) / 2];
        if (n % 2 == 0 && (k < M_GATHERS || (k >= M_COLL && (k - M_COLL) % M_PER_COLL > M_BYTES)))
            out.v[k] = (v[n / 2 - 1] + v[n / 2]) / 2;
    }
    free(v);
    return out;
}
