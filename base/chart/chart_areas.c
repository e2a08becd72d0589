/* chart_areas.c -- see chart_areas.h.  Each name is a series between the sum of those before it and its own top. */
#include "base/chart/chart_areas.h"

#include <stdio.h>
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

/* When most is there in all. */
static int64_t peak_of(const struct chart_areas *a, double *most)
{
    int64_t best = 0;

    *most = -1;
    for (int64_t i = 0; i < a->n; i++) {
        double sum = 0;
        for (int k = 0; k < a->of; k++)
            sum += a->v[i * a->of + k];
        if (sum > *most) {
            *most = sum;
            best = i;
        }
    }
    return best;
}

/* A step: the amount at its own time and just before the next one's.  Its name says what there is of it at the peak. */
static void area(struct chart *c, const struct chart_areas *a, int name, int64_t peak, double *below)
{
    char words[120];

    snprintf(words, sizeof words, "%.60s %s", a->name[name], unit_shown(c->axis[AXIS_Y].unit, a->v[peak * a->of + name]).s);
    int s = chart_series(c, words, meaning_colour(MEANING_CATEGORY, a->name[name]), MARK_AREA);
    for (int64_t i = 0; i < a->n; i++) {
        double top = below[i] + a->v[i * a->of + name], end = i + 1 < a->n ? a->t[i + 1] : a->until;
        chart_spot(c, s, a->t[i], top)->low = below[i];
        if (end > a->t[i])
            chart_spot(c, s, end, top)->low = below[i];
        below[i] = top;
    }
}

static void mark_peak(struct chart *c, const struct chart_areas *a, int64_t peak, double most)
{
    char words[400];

    snprintf(words, sizeof words, "peak %s%s%.300s", unit_shown(c->axis[AXIS_Y].unit, most).s, a->peak ? ", at " : "", a->peak ? a->peak : "");
    struct spot *p = chart_spot(c, chart_series(c, NULL, 0, MARK_POINTS), a->t[peak], most);
    p->form = SPOT_PEAK;
    p->label = text_keep(&c->kept, words);
}

void chart_areas(struct chart *c, const struct chart_areas *a)
{
    double *below = room_new((size_t)a->n + 1, sizeof *below), most;
    int64_t peak = peak_of(a, &most);
    char words[80];

    c->range[1] = a->until;
    for (int k = 0; k < a->of && a->n > 0; k++)
        if (is_there(a, k))
            area(c, a, k, peak, below);
    if (a->n > 0)
        mark_peak(c, a, peak, most);
    if (a->limit > 0) {
        snprintf(words, sizeof words, "usable %s", unit_shown(c->axis[AXIS_Y].unit, a->limit).s);
        chart_level(c, AXIS_Y, a->limit, words, LEVEL_LIMIT);
    }
    free(below);
}
