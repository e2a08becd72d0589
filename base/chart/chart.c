/* chart.c -- what a figure holds, and the round numbers of its axes. */
#include "base/chart/chart.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"

/* Okabe and Ito's palette, told apart with every common kind of colour blindness, four of Tol's
 * muted one, and a pale one; on a dark page lighter where contrast asks for it. */
static const char *const light[NCOLOURS] = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
    "#882255", "#999933", "#332288", "#777777", "#117733", "#aa4499", "#e3e3e3"
};
static const char *const dark[NCOLOURS] = {
    "#3d9fdc", "#f07b2c", "#20bd8f", "#dd93bb", "#f0b429", "#7cc8f2",
    "#c9628f", "#bdbd55", "#8a80d8", "#a0a0a0", "#4fae70", "#d07cc2", "#2b3036"
};

/* What lies around figures. */
static const struct { const char *name, *light, *dark; } surfaces[] = {
    { "bg", "#f6f6f3", "#101316" },     { "card", "#ffffff", "#181c20" },   { "soft", "#f1f1ed", "#22272d" },
    { "line", "#dcdcd6", "#343a41" },   { "fg", "#1b1d20", "#e8e8e6" },     { "dim", "#565b61", "#a9afb6" },
    { "good", "#0067a3", "#7cc8f2" },   { "warn", "#8a5a00", "#f0c35a" },   { "bad", "#b03a00", "#f9a15f" },
};

const char *chart_colour(int colour, bool on_dark)
{
    return (on_dark ? dark : light)[colour % NCOLOURS];
}

const char *chart_surface(int i, bool on_dark, const char **colour)
{
    if (i >= (int)(sizeof surfaces / sizeof *surfaces))
        return NULL;
    *colour = on_dark ? surfaces[i].dark : surfaces[i].light;
    return surfaces[i].name;
}

static void *more(void *p, int64_t n, size_t size)
{
    p = realloc(p, (size_t)(n + 1) * size);
    if (!p)
        abort();
    memset((char *)p + (size_t)n * size, 0, size);
    return p;
}

static const char *keep(struct chart *c, const char *s) { return s ? text_keep(&c->kept, s) : NULL; }

struct chart *chart_new(enum chart_kind k, const char *id, const char *title, const char *caption)
{
    struct chart *c = more(NULL, 0, sizeof *c);

    c->kind = k;
    c->id = keep(c, id);
    c->title = keep(c, title);
    c->caption = keep(c, caption);
    c->axis[AXIS_X].label = c->axis[AXIS_Y].label = "";
    return c;
}

void chart_free(struct chart *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->nseries; i++)
        free(c->series[i].spot);
    free(c->series);
    free(c->bar);
    free(c->row);
    free(c->span);
    free(c->tick);
    free(c->level);
    text_kept_free(c->kept);
    free(c);
}

void chart_axis(struct chart *c, enum axis a, const char *label, enum measure u, bool logarithmic)
{
    c->axis[a].label = keep(c, label);
    c->axis[a].unit = u;
    c->axis[a].log = logarithmic;
}

struct chart_tick *chart_tick(struct chart *c, double at, const char *name)
{
    c->tick = more(c->tick, c->nticks, sizeof *c->tick);
    c->tick[c->nticks] = (struct chart_tick){ .at = at, .name = keep(c, name) };
    return &c->tick[c->nticks++];
}

void chart_level(struct chart *c, enum axis a, double at, const char *words, enum level_look look)
{
    c->level = more(c->level, c->nlevels, sizeof *c->level);
    c->level[c->nlevels++] = (struct chart_level){ a, at, keep(c, words), look };
}

int chart_series(struct chart *c, const char *name, int colour, enum mark m)
{
    c->series = more(c->series, c->nseries, sizeof *c->series);
    c->series[c->nseries].name = keep(c, name);
    c->series[c->nseries].colour = colour;
    c->series[c->nseries].mark = m;
    return c->nseries++;
}

struct spot *chart_spot(struct chart *c, int series, double x, double y)
{
    struct curve *s = &c->series[series];

    s->spot = room_for(s->spot, s->n, &s->room, sizeof *s->spot);
    s->spot[s->n] = (struct spot){ .x = x, .y = y, .low = NAN, .high = NAN };
    return &s->spot[s->n++];
}

int chart_part(struct chart *c, const char *name, int colour)
{
    assert(c->nparts < MAX_PARTS);
    c->part[c->nparts] = keep(c, name);
    c->part_colour[c->nparts] = colour;
    return c->nparts++;
}

struct bar *chart_bar(struct chart *c, const char *label, const char *side, bool hatched)
{
    struct bar *b;

    c->bar = more(c->bar, c->nbars, sizeof *c->bar);
    b = &c->bar[c->nbars++];
    b->label = keep(c, label);
    b->side = keep(c, side);
    b->hatched = hatched;
    b->value = b->low = b->high = b->middle = b->limit = NAN;
    return b;
}

int chart_row(struct chart *c, const char *name)
{
    c->row = more(c->row, c->nrows, sizeof *c->row);
    c->row[c->nrows].name = keep(c, name);
    return c->nrows++;
}

void chart_span(struct chart *c, int row, int colour, double from, double to, const char *what)
{
    c->span = room_for(c->span, c->nspans, &c->room_spans, sizeof *c->span);
    c->span[c->nspans++] = (struct stripe){ row, colour, from, to, keep(c, what) };
}

double chart_bar_sum(const struct chart *c, const struct bar *b)
{
    double sum = 0;

    for (int i = 0; i < c->nparts; i++)
        sum += b->part[i];
    return sum;
}

struct shown chart_bar_value(const struct chart *c, const struct bar *b)
{
    return unit_shown(c->axis[AXIS_X].unit, isnan(b->value) ? chart_bar_sum(c, b) : b->value);
}

/* ---- scales ---- */

/* What is larger than anything that is measured, or smaller, would leave an axis without round numbers. */
#define LARGEST 1e100

static void widen(struct scale_of *s, double v)
{
    if (!(fabs(v) < LARGEST))
        return;
    v = fabs(v) < 1 / LARGEST ? 0 : v;
    s->from = fmin(s->from, v);
    s->to = fmax(s->to, v);
}

static struct scale_of extent(const struct chart *c, enum axis a)
{
    struct scale_of s = { INFINITY, -INFINITY, 0 };

    for (int i = 0; i < c->nseries; i++)
        for (int64_t k = 0; k < c->series[i].n; k++) {
            const struct spot *p = &c->series[i].spot[k];
            if (c->axis[a].log && !((a == AXIS_X ? p->x : p->y) >= 1 / LARGEST))
                continue;
            widen(&s, a == AXIS_X ? p->x : p->y);
            if (a == AXIS_Y && !c->axis[a].log) {
                widen(&s, p->low);
                widen(&s, p->high);
            }
        }
    for (int i = 0; i < c->nbars; i++) {
        widen(&s, chart_bar_sum(c, &c->bar[i]));
        widen(&s, c->bar[i].high);
        widen(&s, c->bar[i].middle);
        widen(&s, c->bar[i].limit);
    }
    for (int64_t i = 0; i < c->nspans; i++)
        widen(&s, c->span[i].to);
    for (int i = 0; i < c->nlevels; i++)
        if (c->level[i].axis == a)
            widen(&s, c->level[i].at);
    if (s.from > s.to)
        s.from = s.to = c->axis[a].log ? 1 : 0;
    return s;
}

/* 1, 2 or 5 times a power of the base that people count in. */
static double round_step(double raw, enum measure u)
{
    double power = u == UNIT_BYTES && raw >= 1 ? exp2(10 * floor(log2(raw) / 10)) : 1;
    double rest = raw / power, ten = pow(10, floor(log10(rest)));
    double m = rest / ten;

    if (u == UNIT_BYTES)
        return exp2(ceil(log2(rest))) * power;
    if (u == UNIT_COUNT && raw < 1)
        return 1;
    return (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10) * ten;
}

/* Powers of two for bytes, of ten for the rest: at most seven ticks. */
static struct scale_of log_scale(struct scale_of s, enum measure u)
{
    double decades;

    if (u == UNIT_BYTES) {
        s.from = exp2(2 * floor(log2(s.from) / 2 + 1e-9));
        s.to = exp2(2 * ceil(log2(s.to) / 2 - 1e-9));
        s.to = s.to > s.from ? s.to : 4 * s.from;
        s.step = exp2(2 * ceil(log2(s.to / s.from) / 12));
        return s;
    }

    s.from = pow(10, floor(log10(s.from) + 1e-9));
    s.to = pow(10, ceil(log10(s.to) - 1e-9));
    if (s.to <= s.from)
        s.to = 10 * s.from;
    decades = log10(s.to / s.from);
    s.step = pow(10, ceil(decades / 6));
    return s;
}

/* A twentieth around what is drawn; ticks at round numbers inside. */
static struct scale_of close_scale(struct scale_of s, enum measure u)
{
    double more = s.to > s.from ? (s.to - s.from) / 20 : fabs(s.to) / 20;

    s.from = s.from > 0 && s.from < more ? 0 : s.from - more;
    s.to += more > 0 ? more : 1;
    s.step = round_step((s.to - s.from) / 5, u);
    return s;
}

/* Around one value: what is beyond 2^53 plus 1 is itself. */
static double least_wide(double v) { return fmax(1, 1e-6 * fabs(v)); }

/* From the first tick to the last, with a thirtieth of that on either side. */
static struct scale_of tick_scale(const struct chart *c, struct scale_of s)
{
    widen(&s, c->tick[0].at);
    widen(&s, c->tick[c->nticks - 1].at);
    if (c->axis[AXIS_X].log) {
        double more = s.to > s.from ? pow(s.to / s.from, 1 / 30.0) : 2;
        return (struct scale_of){ s.from / more, s.to * more, more };
    }
    double more = s.to > s.from ? (s.to - s.from) / 30 : least_wide(s.to);
    return (struct scale_of){ s.from - more, s.to + more, more };
}

struct scale_of chart_scale(const struct chart *c, enum axis a)
{
    struct scale_of s = extent(c, a);

    if (a == AXIS_X && c->nticks > 0)
        return tick_scale(c, s);
    if (a == AXIS_X && c->range[1] > c->range[0])
        return (struct scale_of){ c->range[0], c->range[1], round_step((c->range[1] - c->range[0]) / 8, c->axis[a].unit) };
    if (c->close)
        return close_scale(s, c->axis[a].unit);
    if (c->diagonal) {              /* both axes alike */
        struct scale_of other = extent(c, a == AXIS_X ? AXIS_Y : AXIS_X);
        widen(&s, other.from);
        widen(&s, other.to);
    }
    if (c->axis[a].log)
        return log_scale(s, c->axis[a].unit);
    if (s.from > 0 && (c->kind != CHART_XY || s.from < 0.5 * s.to || c->axis[a].unit != UNIT_LOSS))
        s.from = 0;
    if (s.to - s.from <= 1e-9 * fmax(fabs(s.from), fabs(s.to)))
        s.to = s.from + least_wide(s.from);
    s.step = round_step((s.to - s.from) / 5, c->axis[a].unit);
    s.from = s.step * floor(s.from / s.step + 1e-9);
    s.to = s.step * ceil(s.to / s.step - 1e-9);
    if (s.to <= s.from)             /* less apart than a step's tolerance */
        s.to = s.from + s.step;
    return s;
}
