/* chart_sweep.c -- see chart_sweep.h. */
#include "base/chart/chart_sweep.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"

bool chart_sweep_number(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    if (end == text || (*end && strcmp(end, "k") && strcmp(end, "K")))
        return false;
    *out *= *end ? 1024 : 1;
    return true;
}

void chart_sweep_place(const struct chart_sweep *s, int64_t point, int from, int to, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (int a = from; a < to && n < size; a++) {
        int64_t i = point;
        for (int later = s->naxes - 1; later > a; later--)
            i /= s->n[later];
        n += (size_t)snprintf(out + n, size - n, "%s%s %.40s", a > from ? ", " : "", s->key[a], s->value[a][i % s->n[a]]);
    }
}

/* A key with its unit, where it has one. */
static const char *axis_words(const char *key)
{
    return !strcmp(key, "network") ? "network, Gbit/s of a node" : !strcmp(key, "seq") ? "seq, tokens" : key;
}

/* The last axis as an axis: its numbers, or a place for each word.  Are the numbers far apart? */
static bool x_axis(const struct chart_sweep *s, struct chart *c, bool *numbers)
{
    int last = s->naxes - 1;
    double v, low = INFINITY, high = -INFINITY;

    *numbers = true;
    for (int i = 0; i < s->n[last]; i++) {
        *numbers &= chart_sweep_number(s->value[last][i], &v);
        low = fmin(low, v);
        high = fmax(high, v);
    }
    bool wide = *numbers && low > 0 && high >= 16 * low;
    chart_axis(c, AXIS_X, axis_words(s->key[last]), UNIT_COUNT, wide);
    for (int i = 0; i < s->n[last]; i++) {
        chart_sweep_number(s->value[last][i], &v);
        chart_tick(c, *numbers ? v : i, s->value[last][i]);
    }
    return wide;
}

static int by_place(const void *a, const void *b)
{
    double x = ((const struct chart_tick *)a)->at, y = ((const struct chart_tick *)b)->at;

    return (x > y) - (x < y);
}

struct chart *chart_sweep(const struct chart_sweep *s, const char *id, const char *title, const char *caption, const char *y,
                          enum measure unit)
{
    int64_t each = s->n[s->naxes - 1], all = (s->points + each - 1) / each;
    int64_t drawn = all < CHART_SWEEP_SERIES ? all : CHART_SWEEP_SERIES;
    char words[600], name[200];
    bool numbers;

    snprintf(words, sizeof words, "%s", caption);
    if (drawn < all)
        snprintf(words + strlen(words), sizeof words - strlen(words), "%sThe first %" PRId64 " of %" PRId64 " curves.",
                 *caption ? " " : "", drawn, all);
    struct chart *c = chart_new(CHART_XY, id, title, words);
    bool wide = x_axis(s, c, &numbers);
    chart_axis(c, AXIS_Y, y, unit, wide && unit == UNIT_TOKENS_S);
    for (int64_t k = 0; k < drawn; k++) {
        chart_sweep_place(s, k * each, 0, s->naxes - 1, name, sizeof name);
        int series = chart_series(c, *name ? name : NULL, (int)k, MARK_BOTH);
        for (int64_t i = k * each; i < (k + 1) * each && i < s->points; i++) {
            struct spot p = s->at(s->of, i);
            struct spot *to = chart_spot(c, series, c->tick[i % each].at, p.y);
            to->low = p.low;
            to->high = p.high;
        }
    }
    sort_stable(c->tick, (size_t)c->nticks, sizeof *c->tick, by_place);       /* values may come in any order */
    return c;
}
