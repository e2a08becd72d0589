/* chart_areas.c -- see chart_areas.h.  Each name is a series between the sum of those before it and its own top. */
#include "base/chart/chart_areas.h"

#include <stdlib.h>

#include "base/chart/meaning.h"
#include "base/room.h"

static bool is_there(const struct chart_areas *a, int name)
{
    for (int64_t i = 0; i < a->n; i++)
        if (a->v[i * a->of + name] > 0)
            return true;
    return false;
}

/* A step: the amount at its own time and just before the next one's. */
static void area(struct chart *c, const struct chart_areas *a, int name, double *below)
{
    int s = chart_series(c, a->name[name], meaning_colour(MEANING_CATEGORY, a->name[name]), MARK_AREA);

    for (int64_t i = 0; i < a->n; i++) {
        double top = below[i] + a->v[i * a->of + name], end = i + 1 < a->n ? a->t[i + 1] : a->until;
        chart_spot(c, s, a->t[i], top)->low = below[i];
        if (end > a->t[i])
            chart_spot(c, s, end, top)->low = below[i];
        below[i] = top;
    }
}

void chart_areas(struct chart *c, const struct chart_areas *a)
{
    double *below = room_new((size_t)a->n + 1, sizeof *below);

    for (int k = 0; k < a->of && a->n > 0; k++)
        if (is_there(a, k))
            area(c, a, k, below);
    if (a->limit > 0) {
        int s = chart_series(c, "usable", 10, MARK_LINE);
        c->series[s].dashed = true;
        chart_spot(c, s, 0, a->limit);
        chart_spot(c, s, a->until, a->limit);
    }
    free(below);
}
