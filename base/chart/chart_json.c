/* chart_json.c -- see chart_json.h.  Whatever the request holds, numbers and places are checked here, and texts drawn as text. */
#include "base/chart/chart_json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_areas.h"
#include "base/chart/chart_svg.h"
#include "base/fail.h"
#include "base/room.h"

/* What one drawing may hold; widths in pixels. */
enum { MOST_ROWS = 200, MOST_TICKS = 200, MOST_SERIES = 64, MOST_LEVELS = 16, MOST_BARS = 200, MOST_NAMES = 32, LEAST_WIDTH = 200, MOST_WIDTH = 8000 };
#define MOST_NUMBERS 4000000

static const json_t *get(const json_t *j, const char *key) { return json_object_get(j, key); }
static const json_t *at(const json_t *j, size_t i) { return json_array_get(j, i); }
static double number(const json_t *j) { return json_is_number(j) ? json_number_value(j) : NAN; }
static const char *word(const json_t *j, const char *key) { return json_string_value(get(j, key)) ? json_string_value(get(j, key)) : ""; }
static bool yes(const json_t *j, const char *key) { return json_is_true(get(j, key)); }

/* An array of at most that many; none counts as empty. */
static int list(const json_t *j, const char *key, size_t most, const json_t **out)
{
    *out = get(j, key);
    if (*out && !json_is_array(*out))
        return fail("draw: %s: an array", key);
    return json_array_size(*out) <= most ? 0 : fail("draw: %s: at most %zu", key, most);
}

static int colour(const json_t *j, const char *what, int least, int *out)
{
    double v = j ? number(j) : 0;

    if (!(v >= least && v < NCOLOURS) || v != floor(v))
        return fail("draw: %s: a colour is %d to %d", what, least, NCOLOURS - 1);
    *out = (int)v;
    return 0;
}

/* ---- axes ---- */

static int axis(struct chart *c, const json_t *j, const char *key, enum axis a)
{
    static const struct { const char *name; enum measure unit; } units[] = {
        { "bytes", UNIT_BYTES }, { "seconds", UNIT_SECONDS }, { "count", UNIT_COUNT }, { "none", UNIT_TEXT },
    };
    const json_t *of = get(j, key);

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(of ? word(of, "unit") : "none", units[i].name)) {
            chart_axis(c, a, word(of, "label"), units[i].unit, yes(of, "log"));
            return 0;
        }
    return fail("draw: %s: unit: bytes, seconds, count or none", key);
}

static int ticks(struct chart *c, const json_t *j)
{
    const json_t *all;
    double last = -INFINITY;

    if (list(j, "ticks", MOST_TICKS, &all) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(all); i++) {
        double v = number(get(at(all, i), "at"));
        if (!(v >= last))
            return fail("draw: ticks: numbers in ascending order");
        struct chart_tick *t = chart_tick(c, v, word(at(all, i), "name"));
        t->below = *word(at(all, i), "below") ? text_keep(&c->kept, word(at(all, i), "below")) : NULL;
        t->now = yes(at(all, i), "now");
        last = v;
    }
    return 0;
}

static int levels(struct chart *c, const json_t *j)
{
    const json_t *all;

    if (list(j, "levels", MOST_LEVELS, &all) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const char *look = word(at(all, i), "look");
        double v = number(get(at(all, i), "at"));
        if (!isfinite(v))
            return fail("draw: levels: at: a number");
        chart_level(c, *word(at(all, i), "axis") == 'x' ? AXIS_X : AXIS_Y, v, word(at(all, i), "words"),
                    !strcmp(look, "dotted") ? LEVEL_DOTTED : !strcmp(look, "thin") ? LEVEL_THIN : LEVEL_LIMIT);
    }
    return 0;
}

/* ---- kinds ---- */

static int spots(struct chart *c, int series, const json_t *all)
{
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *s = at(all, i), *label = at(s, 5);
        double form = at(s, 4) ? number(at(s, 4)) : 0;
        if (!json_is_array(s) || !(form >= 0 && form < 128))
            return fail("draw: spots: [x, y, low, high, form from 0 to 127, label]");
        struct spot *p = chart_spot(c, series, number(at(s, 0)), number(at(s, 1)));
        p->low = number(at(s, 2));
        p->high = number(at(s, 3));
        p->form = (unsigned)form;
        p->label = json_is_string(label) ? text_keep(&c->kept, json_string_value(label)) : NULL;
    }
    return 0;
}

static int points(struct chart *c, const json_t *j)
{
    const json_t *all, *of;
    int ink = 0;

    if (list(j, "series", MOST_SERIES, &all) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *s = at(all, i);
        if (colour(get(s, "colour"), "series", 0, &ink) < 0 || list(s, "spots", MOST_NUMBERS, &of) < 0)
            return -1;
        int series = chart_series(c, *word(s, "name") ? word(s, "name") : NULL, ink, yes(s, "line") ? MARK_BOTH : MARK_POINTS);
        if (spots(c, series, of) < 0)
            return -1;
    }
    return 0;
}

/* The table of [moment][name]: finite, not below 0. */
static int amounts(const json_t *t, const json_t *v, size_t names, double *times, double *out)
{
    double last = 0;

    for (size_t i = 0; i < json_array_size(t); i++) {
        times[i] = number(at(t, i));
        if (!(times[i] >= last && isfinite(times[i])) || json_array_size(at(v, i)) != names)
            return fail("draw: areas: t: seconds in ascending order; v: of each a number of each name");
        last = times[i];
        for (size_t k = 0; k < names; k++) {
            out[i * names + k] = number(at(at(v, i), k));
            if (!(out[i * names + k] >= 0 && isfinite(out[i * names + k])))
                return fail("draw: areas: v: numbers from 0 on");
        }
    }
    return 0;
}

static int areas(struct chart *c, const json_t *j)
{
    const json_t *of = get(j, "areas"), *names, *t, *v;
    const char *name[MOST_NAMES];

    if (list(of, "names", MOST_NAMES, &names) < 0 || list(of, "t", MOST_NUMBERS / MOST_NAMES, &t) < 0 || list(of, "v", MOST_NUMBERS / MOST_NAMES, &v) < 0)
        return -1;
    size_t n = json_array_size(t), k = json_array_size(names);
    double until = number(get(of, "until"));
    if (!(until > 0 && isfinite(until)))
        return fail("draw: areas: until: seconds");
    for (size_t i = 0; i < k; i++)
        name[i] = json_is_string(at(names, i)) ? json_string_value(at(names, i)) : "";
    double *times = room_new(n + 1, sizeof *times), *amount = room_new(n * k + 1, sizeof *amount);
    int rc = amounts(t, v, k, times, amount);
    if (rc == 0)
        chart_areas(c, &(struct chart_areas){ (int64_t)n, (int)k, times, amount, name, until, 0, *word(of, "peak") ? word(of, "peak") : NULL });
    free(times);
    free(amount);
    return rc;
}

/* A bar of one colour: its part is that colour's. */
static int part_of(struct chart *c, int ink)
{
    for (int i = 0; i < c->nparts; i++)
        if (c->part_colour[i] == ink)
            return i;
    return chart_part(c, NULL, ink);
}

static int bars(struct chart *c, const json_t *j)
{
    const json_t *all;
    int ink = 0;

    if (list(j, "bars", MOST_BARS, &all) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *b = at(all, i);
        double v = number(get(b, "value"));
        if (colour(get(b, "colour"), "bars", 0, &ink) < 0)
            return -1;
        if (!(v >= 0 && isfinite(v)))
            return fail("draw: bars: value: a number from 0 on");
        int part = part_of(c, ink);
        struct bar *to = chart_bar(c, word(b, "label"), NULL, false);
        to->part[part] = v;
        to->low = number(get(b, "low"));
        to->high = number(get(b, "high"));
        to->words = text_keep(&c->kept, word(b, "words"));
    }
    return 0;
}

static int spans(struct chart *c, const json_t *j)
{
    const json_t *parts, *rows, *all;
    int ink = 0;

    if (list(j, "parts", MAX_PARTS, &parts) < 0 || list(j, "rows", MOST_ROWS, &rows) < 0 || list(j, "spans", MOST_NUMBERS / 4, &all) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        if (colour(get(at(parts, i), "colour"), "parts", COLOUR_BARE, &ink) < 0)
            return -1;
        chart_part(c, word(at(parts, i), "name"), ink);
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        int row = chart_row(c, word(at(rows, i), "name"));
        c->row[row].main = yes(at(rows, i), "main");
    }
    for (size_t i = 0; i < json_array_size(all); i++) {
        double row = number(at(at(all, i), 0)), from = number(at(at(all, i), 2)), to = number(at(at(all, i), 3));
        if (!(row >= 0 && row < c->nrows) || !isfinite(from) || !(to >= from && isfinite(to)))
            return fail("draw: spans: [row, colour, from, to]");
        if (colour(at(at(all, i), 1), "spans", COLOUR_BARE, &ink) < 0)
            return -1;
        chart_span(c, (int)row, ink, from, to, NULL);
    }
    return 0;
}

/* ---- together ---- */

typedef int reader(struct chart *c, const json_t *j);

static const struct { const char *name; enum chart_kind kind; reader *read; } kinds[] = {
    { "points", CHART_XY, points }, { "areas", CHART_XY, areas }, { "bars", CHART_BARS, bars }, { "spans", CHART_SPANS, spans },
};

static int read_chart(struct chart *c, const json_t *j, reader *read)
{
    const json_t *range;

    c->close = yes(j, "close");
    c->band = yes(j, "band");
    if (axis(c, j, "x", AXIS_X) < 0 || axis(c, j, "y", AXIS_Y) < 0 || ticks(c, j) < 0 || levels(c, j) < 0 || read(c, j) < 0)
        return -1;
    range = get(j, "range");
    if (range && !(isfinite(number(at(range, 0))) && number(at(range, 1)) > number(at(range, 0)) && isfinite(number(at(range, 1)))))
        return fail("draw: range: [from, to]");
    for (int i = 0; range && i < 2; i++)
        c->range[i] = number(at(range, (size_t)i));
    return 0;
}

static int draw(const json_t *j, struct text *to)
{
    double width = number(get(j, "width"));

    if (!json_is_object(j))
        return fail("draw: a request is a JSON object");
    if (!(width >= LEAST_WIDTH && width <= MOST_WIDTH))
        return fail("draw: width: %d to %d pixels", LEAST_WIDTH, MOST_WIDTH);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(word(j, "kind"), kinds[i].name)) {
            struct chart *c = chart_new(kinds[i].kind, word(j, "id"), word(j, "title"), word(j, "caption"));
            int rc = read_chart(c, j, kinds[i].read);
            if (rc == 0)
                chart_svg(c, yes(j, "file") ? CHART_FILE : CHART_PAGE, width, to);
            chart_free(c);
            return rc;
        }
    return fail("draw: kind: points, areas, bars or spans");
}

int chart_answer(const char *request, char **answer)
{
    char why[1600] = "";
    struct fail_sink before = fail_divert(why, sizeof why);
    struct text svg = { 0 };
    json_error_t e;
    json_t *j = json_loads(request, JSON_REJECT_DUPLICATES, &e), *doc = NULL;
    int rc = j ? draw(j, &svg) : fail("draw: malformed JSON: %s", e.text);

    if (rc == 0)
        doc = json_pack("{s:s#}", "svg", svg.s, (int)svg.n);
    *answer = doc ? json_dumps(doc, JSON_COMPACT) : strdup(why);
    fail_restore(before);
    text_free(&svg);
    json_decref(doc);
    json_decref(j);
    if (!*answer)
        abort();
    return doc ? 0 : 2;
}
