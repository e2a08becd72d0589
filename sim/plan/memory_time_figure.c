/* memory_time_figure.c -- memory by category over a step, as a figure. */
#include <stdio.h>
#include <stdlib.h>

#include "base/chart/chart_areas.h"
#include "base/room.h"
#include "sim/plan/figure.h"
#include "sim/plan/memory_time.h"

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
    chart_areas(c, &(struct chart_areas){ m->n, NCAT, m->t, v, name, step_s, (double)limit, NULL });
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
    chart_axis(c, AXIS_X, "time in the step", UNIT_SECONDS, false);
    chart_axis(c, AXIS_Y, "bytes allocated", UNIT_BYTES, false);
    areas(c, &m, overhead, limit, step_s);
    int rc = figure_chart(c, path);
    chart_free(c);
    memory_time_free(&m);
    return rc;
}
