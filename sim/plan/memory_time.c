/* memory_time.c -- see memory_time.h. */
#include "sim/plan/memory_time.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"

void memory_time(const struct schedules *s, const struct run *r, int64_t columns, struct memory_time *out)
{
    struct point *p = room_new((size_t)r->n + 1, sizeof *p);
    int64_t (*by)[NCAT] = room_new((size_t)r->n + 1, sizeof *by);
    int64_t n = ledger_curve_by(s, SCHED_STEADY, p, by, r->n);
    double begun = 0;

    *out = (struct memory_time){ .n = n < columns ? n : columns, .at = p, .by = by };
    out->t = room_new((size_t)out->n + 1, sizeof *out->t);
    for (int64_t c = 0; c < out->n; c++) {
        int64_t first = n * c / out->n, most = first;
        double when = begun;
        for (int64_t i = first; i < n * (c + 1) / out->n; i++) {
            begun = r->ran[i].start > begun ? r->ran[i].start : begun;
            if (p[i].peak > p[most].peak || i == first) {
                most = i;
                when = begun;
            }
        }
        out->t[c] = when;
        p[c] = p[most];             /* most >= c */
        memmove(by[c], by[most], sizeof *by);
    }
}

void memory_time_free(struct memory_time *m)
{
    free(m->t);
    free(m->at);
    free(m->by);
}
