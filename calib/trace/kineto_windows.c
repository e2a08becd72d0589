/* kineto_windows.c -- steps by the marks of the profiler, by the optimizer, or by the period of kernel names. */
#include "calib/trace/kineto_windows.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "base/sort.h"

static void window_add(struct window **at, int64_t *n, int64_t *cap, int64_t start, int64_t end)
{
    *at = room_for(*at, *n, cap, sizeof **at);
    (*at)[(*n)++] = (struct window){ start, end };
}

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

void windows_marks_add(struct marks *m, const struct trace_event *e)
{
    int64_t end = e->ts + e->dur;

    if (starts(e->name, "ProfilerStep#"))
        window_add(&m->step, &m->nstep, &m->cap_step, e->ts, end);
    else if (starts(e->name, "Optimizer.step#"))
        window_add(&m->optimizer, &m->noptimizer, &m->cap_optimizer, e->ts, end);
    else if (starts(e->name, "autograd::engine::evaluate_function"))
        window_add(&m->backward, &m->nbackward, &m->cap_backward, e->ts, end);
}

void windows_marks_free(struct marks *m)
{
    free(m->step);
    free(m->optimizer);
    free(m->backward);
}

static int by_start(const void *a, const void *b)
{
    const struct window *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

static int by_launch(const void *a, const void *b)
{
    const struct work *x = a, *y = b;

    return x->launch != y->launch ? (x->launch > y->launch) - (x->launch < y->launch)
                                  : (x->start > y->start) - (x->start < y->start);
}

static void sort_windows(struct window *w, int64_t n)
{
    if (n > 1)
        sort_stable(w, (size_t)n, sizeof *w, by_start);
}

/* Windows inside of others (a checkpoint's own backward) become part of them. */
static int64_t merged(struct window *w, int64_t n)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || w[i].start > w[kept - 1].end)
            w[kept++] = w[i];
        else if (w[i].end > w[kept - 1].end)
            w[kept - 1].end = w[i].end;
    return kept;
}

static struct window *windows(int64_t n)
{
    struct window *w = calloc((size_t)n, sizeof *w);

    if (!w)
        abort();
    return w;
}

/* ---- repetition ---- */

int64_t windows_period_of(const uint64_t *h, int64_t n)
{
    int64_t *z = calloc((size_t)n + 1, sizeof *z);
    int64_t found = 0;

    if (!z)
        abort();
    /* z[p]: how many of the last entries equal those p before them (the Z function of h read
     * backwards: linear, Gusfield 1997). */
#define BACK(i) h[n - 1 - (i)]
    for (int64_t p = 1, left = 0, right = 0; p < n && !found; p++) {
        if (p < right)
            z[p] = z[p - left] < right - p ? z[p - left] : right - p;
        while (p + z[p] < n && BACK(z[p]) == BACK(p + z[p]))
            z[p]++;
        if (p + z[p] > right) {
            left = p;
            right = p + z[p];
        }
        if (z[p] >= p && 2 * (p + z[p]) >= n)
            found = p;
    }
#undef BACK
    free(z);
    return found;
}

/* Whole periods from the end backwards, each from the launch of its first to that of the next. */
static int repeated(struct work_list *w, struct window **out)
{
    uint64_t *h = calloc((size_t)w->n + 1, sizeof *h);
    int64_t period, steps = 0;

    if (!h)
        abort();
    sort_stable(w->at, (size_t)w->n, sizeof *w->at, by_launch);
    for (int64_t i = 0; i < w->n; i++)
        h[i] = w->at[i].hash;
    period = windows_period_of(h, w->n);
    if (period > 0) {
        int64_t first = w->n - period;
        while (first >= period && memcmp(&h[first - period], &h[first], (size_t)period * sizeof *h) == 0)
            first -= period;
        steps = (w->n - first) / period;
        *out = windows(steps);
        for (int64_t i = 0; i < steps; i++) {
            int64_t from = first + i * period, next = from + period;
            (*out)[i].start = w->at[from].launch;
            (*out)[i].end = next < w->n ? w->at[next].launch : w->at[w->n - 1].end + 1;
        }
    }
    free(h);
    return (int)steps;
}

/* ---- steps ---- */

int windows_marks_windows(struct marks *m, struct work_list *w, struct window **out, int *n, const char **by)
{
    sort_windows(m->step, m->nstep);
    sort_windows(m->optimizer, m->noptimizer);
    sort_windows(m->backward, m->nbackward);
    m->noptimizer = merged(m->optimizer, m->noptimizer);
    m->nbackward = merged(m->backward, m->nbackward);
    if (m->nstep > 0) {
        *by = "ProfilerStep";
        *n = (int)m->nstep;
        *out = windows(m->nstep);
        memcpy(*out, m->step, (size_t)m->nstep * sizeof **out);
    } else if (m->noptimizer > 1) {
        *by = "optimizer";
        *n = (int)m->noptimizer - 1;
        *out = windows(*n);
        for (int i = 0; i < *n; i++)
            (*out)[i] = (struct window){ m->optimizer[i].end, m->optimizer[i + 1].end };
    } else {
        *by = "repetition";
        *n = repeated(w, out);
    }
    return *n > 0 ? 0 : -1;
}

/* Index of the window around t, or -1: of those that begin before, the last. */
static int64_t around(const struct window *w, int64_t n, int64_t t)
{
    int64_t lo = 0, hi = n;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (w[mid].start <= t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && t < w[lo - 1].end ? lo - 1 : -1;
}

/* Reductions of gradients belong to backward wherever they were called: frameworks call the last
 * ones when autograd is done. */
void windows_marks_assign(const struct marks *m, struct work_list *w, const struct window *step, int n)
{
    for (int64_t i = 0; i < w->n; i++) {
        struct work *x = &w->at[i];
        x->window = (int32_t)around(step, n, x->launch);
        x->phase = around(m->optimizer, m->noptimizer, x->launch) >= 0 ? WORK_OPTIMIZER
                 : around(m->backward, m->nbackward, x->launch) >= 0 ? WORK_BACKWARD
                 : x->coll && x->op == COLL_REDUCE_SCATTER ? WORK_BACKWARD : WORK_FORWARD;
    }
}
