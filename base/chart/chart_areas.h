/* chart_areas.h -- amounts over time, stacked by what they are of: memory by category.
 *
 *     struct chart *c = chart_new(CHART_XY, "memory", "Memory over one step", "...");
 *     chart_areas(c, &(struct chart_areas){ .n = n, .of = k, .t = t, .v = v, .name = names, .until = step_s, .limit = bytes });
 *
 * An amount holds from its time to the next one's, the last one to `until`.  What is zero throughout is left out.
 * The peak is marked, and the legend says what there is of each then. */
#ifndef DPX_CHART_AREAS_H
#define DPX_CHART_AREAS_H

#include "base/chart/chart.h"

struct chart_areas {
    int64_t n;
    int     of;
    const double *t;                /* [n], ascending */
    const double *v;                /* [n][of]: of each name, 0 or more */
    const char *const *name;        /* [of]: categories of meaning.h */
    double  until;
    double  limit;                  /* a dashed line; not above 0: none */
    const char *peak;               /* at what it peaks; NULL: not known */
};

/* Axes are the caller's, set before.  Everything is copied. */
void chart_areas(struct chart *c, const struct chart_areas *a);

#endif
