/* nearest.c -- see nearest.h. */
#include "sim/search/nearest.h"

#include <string.h>

#include "base/fail.h"
#include "model/memory/evaluate.h"
#include "sim/search/found.h"

/* A lack is known to one part in 2^HALVINGS of what the allocator would take with room. */
enum { HALVINGS = 4, DOUBLINGS = 6 };

static bool serves(const struct plan *p, int64_t more, struct evaluation *e)
{
    struct plan q = *p;                 /* shares the model; not freed */

    q.cluster.memory += more;
    return evaluation_reserve(&q, e, NULL) == 0 && e->verdict != VERDICT_DOES_NOT_FIT;
}

/* Bytes that the device of an evaluated plan lacks; `least`: it lacks more than that. */
static int64_t lack_of_device(const struct plan *p, int64_t least, struct evaluation *e)
{
    int64_t low = least, high;

    if (serves(p, least, e))
        return least;
    high = e->reserved.reserved_peak - e->reserved.limit;
    high = high > least ? high : least + e->reserved.refused;
    for (int i = 0; i < DOUBLINGS && !serves(p, high, e); i++) {
        low = high;
        high *= 2;
    }
    for (int i = 0; i < HALVINGS; i++) {
        int64_t middle = low + (high - low) / 2;
        if (serves(p, middle, e))
            high = middle;
        else
            low = middle;
    }
    return high;
}

struct asking { const struct search_options *o; struct found *f; int64_t nearest; };

static double share(const struct plan *p, int64_t bytes)
{
    int64_t limit = found_limit(p);

    return (double)bytes / (double)(limit > 1 ? limit : 1);
}

/* What the plan lacks, where that is less than the nearest so far. */
static int ask(struct asking *a, int64_t i)
{
    struct found *f = &a->f[i];
    const struct found *best = a->nearest < 0 ? NULL : &a->f[a->nearest];
    struct evaluation e;

    if (a->o->go_on && !a->o->go_on(a->o->go_on_of, 0, 0))
        return fail("search: stopped before all plans were looked at");
    if (best && f->over >= best->over)
        return 0;
    if (evaluate_allocated(&f->plan, &e) < 0)
        return -1;
    int64_t limit = found_limit(&f->plan), least = e.m.needed > limit ? e.m.needed - limit : 0;
    if (!best || serves(&f->plan, (int64_t)(best->over * (double)limit), &e)) {
        f->over = share(&f->plan, lack_of_device(&f->plan, least, &e));
        a->nearest = !best || f->over < best->over ? i : a->nearest;
    }
    evaluation_free(&e);
    return 0;
}

/* Does the plan hold what is allocated, and PyTorch's allocator not serve it? */
static bool is_refused(const struct found *f) { return f->looked_at && !f->fits && !f->at_least && reserved_is_known(&f->plan); }

static bool keeps_all(const struct plan *p) { return p->strategy == STRAT_DP || p->strategy == STRAT_DDP; }

static int find(struct asking *a, int64_t n)
{
    int64_t other = -1;

    for (int64_t i = 0; i < n; i++)
        if (!is_refused(&a->f[i]))
            other = other < 0 ? i : other;
        else if (ask(a, i) < 0)
            return -1;
    if (other >= 0 && a->nearest >= 0 && reserved_is_known(&a->f[other].plan) && !a->f[other].elsewhere && ask(a, other) < 0)
        return -1;
    a->nearest = a->nearest < 0 ? 0 : a->nearest;
    for (int64_t i = a->nearest + 1; i < n && keeps_all(&a->f[a->nearest].plan) && a->f[i].over <= a->f[a->nearest].over; i++)
        if (a->f[i].over >= a->f[a->nearest].over && !keeps_all(&a->f[i].plan))
            a->nearest = i;
    return 0;
}

int nearest_first(const struct search_options *o, struct found *f, int64_t n)
{
    struct asking a = { .o = o, .f = f, .nearest = -1 };
    struct found first;

    if (n < 2)
        return 0;
    if (find(&a, n) < 0)
        return -1;
    first = f[a.nearest];
    memmove(&f[1], &f[0], (size_t)a.nearest * sizeof *f);
    f[0] = first;
    return 0;
}
