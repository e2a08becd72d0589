/* search_asked.c -- data parallelism alone, grids, or both, as the search was asked. */
#include "sim/search/search.h"

#include <math.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "sim/search/found.h"
#include "sim/search/grid.h"

/* Where nothing fits and the nearest in device memory is asked for, data parallelism is searched once more; grids are looked at once. */
static int search_alone(struct search_options *o, struct grid **beside, struct search_result *out)
{
    int rc = search_data(o, beside, out);

    if (rc < 0 || !o->nearest_in_place || out->nfit > 0 || out->partial)
        return rc;
    search_free(out);
    o->answer_only = false;
    o->in_place = true;
    return search_data(o, NULL, out);
}

/* The fastest that does not wait for memory: what others are compared with (ranking.h).  Of the fittest few; INFINITY: none of these. */
static int incumbent(struct search_result *r, double *best_s)
{
    *best_s = INFINITY;
    for (int64_t i = 0; i < r->nfit && i < SEARCH_LOOKS && *best_s == INFINITY; i++) {
        struct found *f = &r->found[i];
        if (!f->looked_at)
            continue;
        if (found_learn_waits(f) < 0)
            return -1;
        if (!f->waits)
            *best_s = f->step_s;
    }
    return 0;
}

/* Grids join what data parallelism has, which fits; where all of that keeps data elsewhere they were not looked at yet. */
static int join(const struct search_options *o, struct grid *beside, struct search_result *out)
{
    double best_s;

    if (!beside) {
        beside = grid_new(o);
        if (incumbent(out, &best_s) < 0 || grid_take_cells(beside) < 0 || grid_beside(beside, &best_s) < 0) {
            grid_drop(beside);
            search_free(out);
            return -1;
        }
    }
    grid_join(beside, out);
    return 0;
}

static int search_as_asked(const struct search_options *asked, struct search_result *out)
{
    struct search_options here = *asked, *o = &here;
    struct grid *beside = NULL;
    char why[256];
    int rc;

    if (o->grid == GRID_ONLY)
        return grid_search(o, out);
    if (o->grid == GRID_NONE)
        return search_alone(o, NULL, out);
    struct fail_sink before = fail_divert(why, sizeof why);
    rc = search_alone(o, o->grid == GRID_BESIDE ? &beside : NULL, out);
    fail_restore(before);
    if (rc == 0 && beside && out->nfit > 0)
        return join(o, beside, out);
    grid_drop(beside);
    if (out->stopped)
        return fail("%s", why);
    if (out->partial)
        return 0;
    if (rc < 0 || out->nfit == 0)
        return grid_search_next(o, rc, why, out);
    return o->grid == GRID_BESIDE ? join(o, NULL, out) : 0;
}

struct asking { const struct search_options *o; struct search_result *out; };

static int ask(void *of, int64_t i)
{
    const struct asking *a = of;

    (void)i;
    return search_as_asked(a->o, a->out);
}

/* One piece, so that threads are started once. */
int search(const struct search_options *o, struct search_result *out)
{
    return parallel_each(1, o->threads, ask, &(struct asking){ o, out });
}
