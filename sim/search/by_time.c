/* by_time.c -- see by_time.h. */
#include "sim/search/by_time.h"

#include <stdlib.h>

#include "base/parallel.h"
#include "base/room.h"
#include "base/sort.h"
#include "model/plan/knob.h"
#include "sim/search/bounds.h"

/* Plans of a wave, and those of it that a thread takes at a time: neighbours have equal kernels, and prices are kept. */
enum { WAVE = 32, TOGETHER = 2 };

struct wave {
    const struct by_time *b;
    const int64_t *at;
    int64_t n;
};

struct bounded { double s; int64_t at; };

static int by_seconds(const void *a, const void *b)
{
    const struct bounded *x = a, *y = b;

    if (x->s != y->s)
        return x->s < y->s ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The last plan with the same kernels, as many micro-steps and the same framework has the same bound. */
static double bound_of(const struct by_time *b, const struct found *f, const struct found *before, struct cost_cache **cache)
{
    if (before && before->program == f->program && knob_cell(&before->plan) == knob_cell(&f->plan) &&
        before->plan.accumulation == f->plan.accumulation)
        return before->bound_s;
    if (!*cache)
        *cache = cost_cache_new(&f->plan);
    cost_cache_use(*cache, &f->plan);
    return bounds_step_s(&f->plan, b->programs->of[f->program].program, *cache);
}

/* Places of the plans by their bounds; how many. */
static int64_t order(const struct by_time *b, int64_t *out)
{
    struct bounded *all = room_new((size_t)(b->n - b->from) + 1, sizeof *all);
    struct cost_cache *cache = NULL;
    int64_t m = 0;

    for (int64_t i = b->from; i < b->n; i++)
        if (!b->found[i].at_least && !b->found[i].assessed) {
            b->found[i].bound_s = bound_of(b, &b->found[i], m ? &b->found[all[m - 1].at] : NULL, &cache);
            all[m++] = (struct bounded){ b->found[i].bound_s, i };
        }
    if (m > 1)
        sort_stable(all, (size_t)m, sizeof *all, by_seconds);
    for (int64_t i = 0; i < m; i++)
        out[i] = all[i].at;
    cost_cache_free(cache);
    free(all);
    return m;
}

static int some_of_wave(void *of, int64_t part)
{
    struct wave *v = of;
    int64_t i = part * TOGETHER;
    struct desk *d = desks_take(v->b->desks, &v->b->found[v->at[i]].plan);
    int rc = 0;

    for (; i < v->n && i < (part + 1) * TOGETHER && rc == 0; i++)
        rc = v->b->look(v->b->of, v->at[i], d);
    desks_give(v->b->desks, d);
    return rc;
}

/* The fastest first: those behind it need not be asked about. */
static int run_wave(struct wave *v, double *best_s)
{
    struct bounded fits[WAVE];
    int64_t n = 0;
    int rc = parallel_each((v->n + TOGETHER - 1) / TOGETHER, v->b->threads, some_of_wave, v);

    for (int64_t i = 0; i < v->n; i++) {
        const struct found *f = &v->b->found[v->at[i]];
        if (f->fits && !f->refused)
            fits[n++] = (struct bounded){ f->step_s, v->at[i] };
    }
    if (n > 1)
        sort_stable(fits, (size_t)n, sizeof *fits, by_seconds);
    for (int64_t i = 0; i < n && rc == 0 && v->b->learn; i++)
        rc = v->b->learn(v->b->of, fits[i].at, best_s);
    return rc;
}

static double limit_of(const struct by_time *b, const double *best_s) { return b->limit ? b->limit(b->of) : BY_TIME_FAR * *best_s; }

int by_time_run(const struct by_time *b, double *best_s)
{
    int64_t *at = room_new((size_t)(b->n - b->from) + 1, sizeof *at), n = order(b, at), from = 0;
    struct wave v = { .b = b };
    double limit;
    int rc = 0;

    while (rc == 0 && from < n && b->found[at[from]].bound_s <= (limit = limit_of(b, best_s))) {
        v.at = at + from;
        for (v.n = 0; v.n < WAVE && from < n && b->found[at[from]].bound_s <= limit; v.n++)
            from++;
        rc = run_wave(&v, best_s);
    }
    for (; rc == 0 && !b->limit && from < n; from++)
        b->found[at[from]].too_slow = true;
    desks_clear(b->desks);
    free(at);
    return rc;
}

int by_time_look(const struct by_time *b, const int64_t *at, int64_t n)
{
    struct wave v = { .b = b };
    int rc = 0;

    for (int64_t from = 0; from < n && rc == 0; from += v.n) {
        v.at = at + from;
        v.n = n - from < WAVE ? n - from : WAVE;
        rc = run_wave(&v, NULL);
    }
    desks_clear(b->desks);
    return rc;
}
