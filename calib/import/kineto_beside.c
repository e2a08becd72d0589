/* kineto_beside.c -- when collectives ran. */
#include "calib/import/kineto_beside.h"

#include <stdlib.h>

#include "base/room.h"
#include "base/sort.h"

static int by_start(const void *a, const void *b)
{
    const struct busy *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

struct busies beside_busies(const struct kineto *k)
{
    struct busies b = { 0 };

    for (int64_t i = 0; i < k->work.n; i++) {
        const struct work *w = &k->work.at[i];
        if (!w->coll)
            continue;
        b.at = room_for(b.at, b.n, &b.cap, sizeof *b.at);
        b.at[b.n++] = (struct busy){ w->start, w->end, w->op };
    }
    if (b.n > 1)
        sort_stable(b.at, (size_t)b.n, sizeof *b.at, by_start);
    return b;
}

/* The first that begins at `start` or later. */
static int64_t first_from(const struct busies *b, int64_t start)
{
    int64_t lo = 0, hi = b->n;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (b->at[mid].start < start)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int64_t beside_cover(const struct busies *b, int64_t start, int64_t end, int *op)
{
    int64_t first = first_from(b, start), covered = 0, until = start, longest = 0;

    *op = -1;
    for (int64_t i = first > 64 ? first - 64 : 0; i < b->n && b->at[i].start < end; i++) {
        const struct busy *c = &b->at[i];
        int64_t from = c->start > until ? c->start : until, to = c->end < end ? c->end : end;
        if (to <= from)
            continue;
        covered += to - from;
        until = to;
        if (to - from > longest) {
            longest = to - from;
            *op = c->op;
        }
    }
    return covered;
}
