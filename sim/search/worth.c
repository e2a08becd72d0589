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

/* Is it known to be neither the fastest of its strategy and dialect, nor the smallest that is worth its time? */
static bool is_known(const struct found *all, int64_t n, const struct found *f)
{
    bool cell = false, small = ranking_deprecated(&f->plan) != NULL;

    for (int64_t i = 0; i < n && !(cell && small); i++) {
        const struct found *x = &all[i];
        if (!is_sure(x) || x->elsewhere)
            continue;
        cell |= x->plan.strategy == f->plan.strategy && x->plan.dialect == f->plan.dialect && x->step_s <= f->bound_s;
        small |= !ranking_deprecated(&x->plan) && x->needed <= f->needed;
    }
    return cell && small;
}

static int by_bytes(const void *a, const void *b)
{
    const struct found *x = *(const struct found *const *)a, *y = *(const struct found *const *)b;

    return x->needed != y->needed ? (x->needed < y->needed ? -1 : 1) : x->order < y->order ? -1 : x->order > y->order;
}

int64_t worth_more(const struct found *all, int64_t n, int64_t most, int64_t *out)
{
    const struct found **of = room_new((size_t)n + 1, sizeof *of);
    int64_t m = 0;

    for (int64_t i = 0; i < n; i++)
        if (!all[i].at_least && !all[i].assessed && !is_known(all, n, &all[i]))
            of[m++] = &all[i];
    if (m > 1)
        sort_stable(of, (size_t)m, sizeof *of, by_bytes);
    m = m < most ? m : most;
    for (int64_t i = 0; i < m; i++)
        out[i] = of[i] - all;
    free(of);
    return m;
}
