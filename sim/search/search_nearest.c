/* search_nearest.c -- where nothing else is known of what does not fit than a bound: which plan is the nearest, and what it needs. */
#include "sim/search/search_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/room.h"
#include "base/sort.h"
#include "sim/search/enumerate.h"
#include "sim/search/found.h"

/* Plans that are looked at ahead, in case they are asked for: as they were, and what came of it. */
enum { MOST_AHEAD = 8 };
struct ahead { struct work *w; int64_t at[MOST_AHEAD]; struct found was[MOST_AHEAD]; int rc[MOST_AHEAD], n; char why[MOST_AHEAD][256]; };

static int need_one(void *of, int64_t i)
{
    struct ahead *a = of;
    struct found *f = &a->w->found[a->at[i]];

    struct fail_sink before = fail_divert(a->why[i], sizeof a->why[i]);
    struct desk *d = desks_take(&a->w->desks, &f->plan);
    a->was[i] = *f;
    a->rc[i] = search_assess(a->w, a->at[i], a->at[i], &d->s, NULL);
    desks_give(&a->w->desks, d);
    fail_restore(before);
    return 0;
}

/* The plan at i, and others that follow and lack no more than `least`: which of all is to be asked for is known later. */
static int need_on(struct ahead *a, int64_t i, double least)
{
    int idle = parallel_idle(), most = idle < MOST_AHEAD ? idle + 1 : MOST_AHEAD;

    for (int k = 0; k < a->n; k++)
        if (a->at[k] == i)
            return k;
    a->n = 0;
    for (; i < a->w->n && a->n < most && a->w->found[i].over <= least; i++)
        if (!a->w->found[i].refused)
            a->at[a->n++] = i;
    parallel_each(a->n, a->w->o->threads, need_one, a);
    return 0;
}

/* What plan i lacks by its bound. */
static double lacks_by_then(const struct ahead *a, int64_t i)
{
    for (int k = 0; k < a->n; k++)
        if (a->at[k] == i)
            return a->was[k].over;
    return a->w->found[i].over;
}

/* Those of which nobody has asked are as they were. */
static void drop_ahead(struct ahead *a, int64_t i)
{
    for (int k = 0; k < a->n; k++)
        if (a->at[k] == i)
            a->w->found[i] = a->was[k];
}

/* Looks at the plans from `from` on, which do not fit and hence have no time, but for those whose bound lacks more than *least; and of
 * these the one that lacks least, if any was looked at. */
static int need(struct work *w, int64_t from, double *least, struct plan *of, bool *any)
{
    struct ahead *a = room_new(1, sizeof *a);
    double mine = INFINITY;

    a->w = w;
    if (w->n - from > 1)
        sort_stable(&w->found[from], (size_t)(w->n - from), sizeof *w->found, found_by_lack);
    for (int64_t i = from; i < w->n; i++) {
        struct found *f = &w->found[i];
        if (f->refused)
            continue;
        int k = lacks_by_then(a, i) > *least ? -1 : need_on(a, i, *least);
        if (k < 0) {
            drop_ahead(a, i);
            f->at_least = true;
            f->available = cluster_available(&f->plan.cluster);
            f->key = hash_mix(0, (uint64_t)f->order);
            continue;
        }
        if (a->rc[k] < 0) {
            search_cannot(w, i, a->why[k]);
            continue;
        }
        if (f->over < mine) {
            *of = f->plan;
            *any = true;
            mine = f->over;
        }
        *least = fmin(*least, f->over);
    }
    free(a);
    return w->failed ? -1 : 0;
}

/* All that one stands for, and of that which lacks least what saves memory without offload: its bound is no lower. */
static int look_after_all(struct work *w, const struct found *one, double *least)
{
    int64_t from = w->n;
    bool any = false;
    struct plan of;
    int rc;

    w->whole = one;
    rc = one->order >= w->later ? search_take(&one->plan, w) : enumerate(w->o, search_take, w);
    if (rc == 0)
        rc = need(w, from, least, &of, &any);
    from = w->n;
    if (rc == 0 && any && !one->elsewhere)
        rc = enumerate_saving(w->o, &of, true, search_take, w);
    if (rc == 0)
        rc = need(w, from, least, &of, &any);
    w->whole = NULL;
    return rc;
}

/* Those that the one at `i` stood for, and others of its run that bounds left out, say for themselves what they need, and were counted. */
static void were_looked_at(struct work *w, int64_t n, int64_t i)
{
    struct found one = w->found[i];

    for (int64_t k = 0; k < n; k++) {
        struct found *f = &w->found[k];
        bool beside = one.order < w->later && f->order < w->later && search_same_run(&f->plan, &one.plan);
        if (!f->at_least || f->refused || (k != i && !beside))
            continue;
        f->refused = true;
        w->twice += 1 + f->stands_for;
    }
}

/* The nearest of those that do not fit is shown with what it needs: where a bound lacks less than all others
 * do, what it left out is looked at after all. */
int search_find_nearest(struct work *w)
{
    double least = INFINITY;
    int64_t n = w->n;
    int rc = 0;

    for (int64_t i = 0; i < n; i++)
        if (!w->found[i].at_least && !w->found[i].fits && w->found[i].over < least)
            least = w->found[i].over;
    if (n > 1)
        sort_stable(w->found, (size_t)n, sizeof *w->found, found_by_lack);
    for (int64_t i = 0; i < n && !rc; i++) {
        struct found left_out = w->found[i];
        if (!left_out.at_least || left_out.refused || left_out.over >= least)
            continue;
        rc = look_after_all(w, &left_out, &least);
        were_looked_at(w, n, i);
    }
    return rc;
}
