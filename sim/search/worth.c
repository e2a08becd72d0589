/* worth.c -- see worth.h. */
#include "sim/search/worth.h"

#include <math.h>
#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"
#include "sim/search/found.h"
#include "sim/search/ranking.h"

/* What needs less than this share of what there is the allocator hardly refuses. */
#define SURE 0.9

static bool is_sure(const struct found *f)
{
    return f->fits && !f->refused && (f->looked_at || (double)f->needed <= SURE * (double)f->available);
}

static int by_step(const void *a, const void *b)
{
    const struct found *x = *(const struct found *const *)a, *y = *(const struct found *const *)b;

    return x->step_s < y->step_s ? -1 : x->step_s > y->step_s;
}

double worth_ideas_s(const struct found *f, int64_t n, const struct found *grid, int64_t ngrid, int64_t ideas)
{
    const struct found **of = room_new((size_t)(n + ngrid) + 1, sizeof *of);
    int64_t m = 0, known = 0;

    for (int64_t i = 0; i < n + ngrid; i++) {
        const struct found *x = i < n ? &f[i] : &grid[i - n];
        if (is_sure(x))
            of[m++] = x;
    }
    if (m > 1)
        sort_stable(of, (size_t)m, sizeof *of, by_step);
    double s = INFINITY;
    for (int64_t i = 0; i < m && known < ideas; i++) {
        bool new = true;
        for (int64_t k = 0; new && k < known; k++)
            new = !ranking_same_idea(&of[k]->plan, &of[i]->plan);
        if (new) {
            const struct found *x = of[i];
            of[i] = of[known];
            of[known++] = x;
            s = known == ideas ? x->step_s : s;
        }
    }
    free(of);
    return s;
}

/* What is known: the fastest of each strategy and dialect, and the front of memory against time of what its framework has not deprecated. */
struct known { double cell_s[NSTRATEGY][NDIALECT]; const struct found **front; int64_t nfront; };

static void learn(struct known *k, const struct found *all, int64_t n)
{
    int64_t m = 0, least = INT64_MAX;

    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            k->cell_s[s][d] = INFINITY;
    k->front = room_new((size_t)n + 1, sizeof *k->front);
    k->nfront = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!is_sure(&all[i]))
            continue;
        double *cell = &k->cell_s[all[i].plan.strategy][all[i].plan.dialect];
        *cell = fmin(*cell, all[i].step_s);
        if (!ranking_deprecated(&all[i].plan))
            k->front[m++] = &all[i];
    }
    if (m > 1)
        sort_stable(k->front, (size_t)m, sizeof *k->front, by_step);
    for (int64_t i = 0; i < m; i++)
        if (k->front[i]->needed < least) {
            least = k->front[i]->needed;
            k->front[k->nfront++] = k->front[i];
        }
}

int64_t worth_replays(const struct found *all, int64_t n, int64_t *out)
{
    const struct found *best[NSTRATEGY][NDIALECT] = { 0 };
    int64_t m = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct found **cell = &best[all[i].plan.strategy][all[i].plan.dialect];
        if (all[i].fits && !all[i].refused && (!*cell || found_by_rank(&all[i], *cell) < 0))
            *cell = &all[i];
    }
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if (best[s][d] && !is_sure(best[s][d]))
                out[m++] = best[s][d] - all;
    return m;
}

/* Is it neither the fastest of its strategy and dialect, nor on the front?  By its bounds. */
static bool is_beaten(const struct known *k, const struct found *f)
{
    bool beaten = false;

    for (int64_t i = 0; i < k->nfront && k->front[i]->step_s <= f->bound_s; i++)
        beaten |= k->front[i]->needed <= f->needed;
    return beaten && k->cell_s[f->plan.strategy][f->plan.dialect] <= f->bound_s;
}

static int by_bytes(const void *a, const void *b)
{
    const struct found *x = *(const struct found *const *)a, *y = *(const struct found *const *)b;

    return x->needed != y->needed ? (x->needed < y->needed ? -1 : 1) : x->order < y->order ? -1 : x->order > y->order;
}

int64_t worth_more(const struct found *all, int64_t n, int64_t most, int64_t *out)
{
    const struct found **of = room_new((size_t)n + 1, sizeof *of);
    struct known k;
    int64_t m = 0;

    learn(&k, all, n);
    for (int64_t i = 0; i < n; i++)
        if (!all[i].at_least && !all[i].assessed && !is_beaten(&k, &all[i]))
            of[m++] = &all[i];
    free(k.front);
    if (m > 1)
        sort_stable(of, (size_t)m, sizeof *of, by_bytes);
    m = m < most ? m : most;
    for (int64_t i = 0; i < m; i++)
        out[i] = of[i] - all;
    free(of);
    return m;
}

bool worth_is_in_place(const struct found *all, int64_t n, const struct plan *p)
{
    for (int64_t i = 0; i < n; i++)
        if (all[i].fits && !all[i].elsewhere && all[i].plan.strategy == p->strategy && all[i].plan.dialect == p->dialect)
            return true;
    return false;
}
