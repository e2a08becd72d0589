/* memory_time.c -- see memory_time.h. */
#include "sim/plan/memory_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_areas.h"
#include "base/room.h"
#include "sim/plan/figure.h"

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

/* ---- a figure ---- */

enum { COLUMNS = 2000 };

/* What is always there lies below: the overhead that no schedule counts, and the workspaces that they do. */
static void areas(struct chart *c, const struct memory_time *m, int64_t overhead, int64_t limit, double step_s)
{
    double *v = room_new((size_t)m->n * NCAT + 1, sizeof *v);
    const char *name[NCAT];

    for (int k = 0; k < NCAT; k++) {
        enum category of = k == 0 ? CAT_OVERHEAD : (enum category)(k - 1);
        name[k] = category_name(of);
        for (int64_t i = 0; i < m->n; i++)
            v[i * NCAT + k] = (double)(m->by[i][of] + (of == CAT_OVERHEAD ? overhead : 0));
    }
    chart_areas(c, &(struct chart_areas){ m->n, NCAT, m->t, v, name, step_s, (double)limit });
    free(v);
}

_Static_assert(CAT_OVERHEAD == NCAT - 1, "areas()");

int memory_time_figure(const struct trace_role *role, int64_t overhead, int64_t limit, double step_s, const char *path)
{
    char title[80];
    struct memory_time m;

    snprintf(title, sizeof title, "Memory over one step, rank %lld", (long long)role->s->rank);
    struct chart *c = chart_new(CHART_XY, "figure", title, "");
    memory_time(role->s, role->r, COLUMNS, &m);
    areas(c, &m, overhead, limit, step_s);
    chart_axis(c, AXIS_X, "time in the step", UNIT_SECONDS, false);
    chart_axis(c, AXIS_Y, "bytes allocated", UNIT_BYTES, false);
    int rc = figure_chart(c, path, "--json --detail prints the same as numbers");
    chart_free(c);
    memory_time_free(&m);
    return rc;
}
