/* chart_svg.c -- charts as SVG.
 *
 * Drawn for the width at which they are shown, so that letters have their size on a telephone
 * too: the page holds every figure twice and shows one.  Colours are the page's variables. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart.h"

/* Pixels. */
enum { LETTER = 12, LINE = 17, BAR = 18, ROW = 16, PLOT = 320 };
#define COLUMN_WIDTH 6.7        /* of a letter, at 12 px, rather too wide */

struct canvas {
    struct text *to;
    const struct chart *c;
    double total;                           /* width of the drawing */
    double left, top, width, height;        /* of the plot inside its axes */
    struct scale_of x, y;
    bool   narrow;
};

static double clamp(double v, double lo, double hi) { return v < lo ? lo : v > hi ? hi : v; }

static double along(const struct scale_of *s, bool logarithmic, double v)
{
    double share = logarithmic ? log(v / s->from) / log(s->to / s->from) : (v - s->from) / (s->to - s->from);

    return clamp(share, -0.001, 1.001);
}

static double px(const struct canvas *v, double x)
{
    return v->left + v->width * along(&v->x, v->c->axis[AXIS_X].log, x);
}

static double py(const struct canvas *v, double y)
{
    return v->top + v->height * (1 - along(&v->y, v->c->axis[AXIS_Y].log, y));
}

static void words(struct canvas *v, double x, double y, const char *class, const char *anchor, const char *s,
                  int most)
{
    struct text cut = { 0 };

    text_cut(&cut, s, most > 1 ? most : 1);
    text_add(v->to, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
    text_html(v->to, cut.s ? cut.s : "");
    text_put(v->to, "</text>\n");
    text_free(&cut);
}

static void line(struct canvas *v, double x1, double y1, double x2, double y2, const char *class)
{
    text_add(v->to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2,
             class);
}

/* ---- axes ---- */

static double next_tick(const struct scale_of *s, bool times, double t)
{
    return times ? t * s->step : t + s->step;
}

static void x_axis(struct canvas *v)
{
    bool times = v->c->axis[AXIS_X].log;
    double bottom = v->top + v->height, last = -1e9;

    for (double t = v->x.from; t <= v->x.to * (1 + 1e-9) + 1e-12; t = next_tick(&v->x, times, t)) {
        double x = px(v, t);
        struct shown s = unit_shown_tick(v->c->axis[AXIS_X].unit, fabs(t) < 1e-9 * v->x.step ? 0 : t);
        double wide = COLUMN_WIDTH * text_columns(s.s);
        line(v, x, v->top, x, bottom, "grid");
        if (x - wide / 2 < last + 6)
            continue;
        words(v, fmin(x, v->total - 8 - wide / 2), bottom + 15, "tick", "middle", s.s, 20);
        last = x + wide / 2;
    }
    words(v, v->left + v->width, bottom + 32, "axis", "end", v->c->axis[AXIS_X].label, 90);
}

static void y_axis(struct canvas *v)
{
    bool times = v->c->axis[AXIS_Y].log;

    for (double t = v->y.from; t <= v->y.to * (1 + 1e-9) + 1e-12; t = next_tick(&v->y, times, t)) {
        line(v, v->left, py(v, t), v->left + v->width, py(v, t), "grid");
        words(v, v->left - 6, py(v, t) + 4, "tick", "end",
              unit_shown_tick(v->c->axis[AXIS_Y].unit, fabs(t) < 1e-9 * v->y.step ? 0 : t).s, 20);
    }
    words(v, 2, v->top - 10, "axis", "start", v->c->axis[AXIS_Y].label, 60);
}

/* ---- what colours mean ---- */

struct legend { double x, y, right; };

static void legend_item(struct canvas *v, struct legend *l, const char *name, const char *class, int colour)
{
    int columns = text_columns(name) < 34 ? text_columns(name) : 34;
    double wide = 26 + COLUMN_WIDTH * columns;

    if (l->x + wide > l->right && l->x > 2) {
        l->x = 2;
        l->y += LINE;
    }
    if (v->to) {
        text_add(v->to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" class=\"%s c%d\"/>", l->x,
                 l->y - 10, class, colour % NCOLOURS);
        words(v, l->x + 16, l->y, "legend", "start", name, 34);
    }
    l->x += wide;
}

/* Draws it from `top`, or only measures it without v->to; returns its height. */
static double legend(struct canvas *v, double top, double right)
{
    struct legend l = { 2, top + 12, right };

    for (int i = 0; i < v->c->nparts; i++)
        legend_item(v, &l, v->c->part[i], "mark", v->c->part_colour[i]);
    if (v->c->kind == CHART_XY && (v->narrow || v->c->nseries > 10))
        for (int i = 0; i < v->c->nseries; i++)
            if (v->c->series[i].name)
                legend_item(v, &l, v->c->series[i].name, "mark", v->c->series[i].colour);
    return l.x > 2 || l.y > top + 12 ? l.y - top + 6 : 0;
}

static double measured_legend(struct canvas v, double right)
{
    v.to = NULL;
    return legend(&v, 0, right);
}

/* ---- frame ---- */

static void open_svg(struct text *to, const struct chart *c, int width, double height, const char *class,
                     bool alone)
{
    text_add(
        to,
        "<svg %sclass=\"%s\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" role=\"img\" aria-label=\"",
        alone ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", class, width, height, width, height);
    text_html(to, c->title);
    text_put(to, ". ");
    text_html(to, c->caption);
    text_put(to, "\">\n");
    if (!alone)
        return;
    text_put(to, "<style>svg{background:#fff;font:12px "
                 "sans-serif}.grid{stroke:#ddd}.tick,.axis,.legend,.side{fill:#555}"
                 ".tip,.dot{fill:#111}.frame,.limit,.error{stroke:#111}.dash{stroke-dasharray:5 "
                 "4}.hatched{fill-opacity:.5}"
                 ".curve{fill:none;stroke-width:2}.band{fill:#999;fill-opacity:.2}.head{font-weight:bold}");
    for (int i = 0; i < NCOLOURS; i++)
        text_add(to, ".c%d{fill:%s}.s%d{stroke:%s}", i, chart_colour(i, false), i, chart_colour(i, false));
    text_put(to, ".curve{fill:none}</style>\n");
}

/* ---- points and lines ---- */

static void diagonal(struct canvas *v)
{
    double lo = v->x.from > 0 ? v->x.from : 0, hi = v->x.to;

    text_put(v->to, "<polygon class=\"band\" points=\"");
    text_add(v->to, "%.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f\"/>\n", px(v, lo), py(v, lo),
             px(v, lo), py(v, 1.1 * lo), px(v, hi / 1.1), py(v, hi), px(v, hi), py(v, hi), px(v, hi),
             py(v, 0.9 * hi), px(v, lo / 0.9), py(v, lo));
    line(v, px(v, lo), py(v, lo), px(v, hi), py(v, hi), "frame");
}

static bool drawable(const struct canvas *v, const struct spot *p)
{
    return isfinite(p->x) && isfinite(p->y) && !(v->c->axis[AXIS_X].log && p->x <= 0)
        && !(v->c->axis[AXIS_Y].log && p->y <= 0);
}

/* Pixels beyond those of the last line, 10 at most. */
static double wider(const struct chart *c, const struct curve *s)
{
    double after = (double)(c->series + c->nseries - 1 - s);

    return after * fmin(2, 10.0 / c->nseries);
}

static void curve(struct canvas *v, const struct curve *s)
{
    double last = NAN;

    text_add(v->to, "<polyline class=\"curve s%d%s\"", s->colour % NCOLOURS, s->dashed ? " dash" : "");
    if (v->c->nested)
        text_add(v->to, " style=\"stroke-width:%.1f\"", 2 + wider(v->c, s));
    text_put(v->to, " points=\"");
    for (int64_t i = 0; i < s->n; i++) {
        if (!drawable(v, &s->spot[i]))
            continue;
        double x = px(v, s->spot[i].x), y = py(v, s->spot[i].y);
        if (s->mark == MARK_STEPS && isfinite(last))
            text_add(v->to, "%.1f,%.1f ", x, last);
        text_add(v->to, "%.1f,%.1f ", x, y);
        last = y;
    }
    text_put(v->to, "\"/>\n");
}

static void spots(struct canvas *v, const struct curve *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const struct spot *p = &s->spot[i];
        if (!drawable(v, p))
            continue;
        if (isfinite(p->low) && isfinite(p->high) && (p->low > 0 || !v->c->axis[AXIS_Y].log))
            line(v, px(v, p->x), py(v, p->low), px(v, p->x), py(v, p->high), "error");
        text_add(v->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" class=\"mark c%d\"/>\n", px(v, p->x),
                 py(v, p->y), s->colour % NCOLOURS);
    }
}

/* Where names of points already stand. */
enum { MAX_TAKEN = 32 };
struct taken { double x[MAX_TAKEN], y[MAX_TAKEN], wide[MAX_TAKEN]; int n; };

static bool is_free(const struct canvas *v, const struct taken *t, double x, double y, double wide)
{
    if (x < v->left || x + wide > v->left + v->width || y < v->top + 8)
        return false;
    for (int i = 0; i < t->n; i++)
        if (x < t->x[i] + t->wide[i] && t->x[i] < x + wide && fabs(y - t->y[i]) < 14)
            return false;
    return true;
}

/* The name of a point: to its right or left, above or below, wherever there is room first. */
static void spot_label(struct canvas *v, struct taken *t, const struct spot *p)
{
    int columns = text_columns(p->label) < 40 ? text_columns(p->label) : 40;
    double wide = COLUMN_WIDTH * columns, x = px(v, p->x), y = py(v, p->y), down = y - 6;
    double at = fmax(2, fmin(x + 8, v->total - wide - 2));      /* where nothing is free */

    for (int i = 0; i < 8; i++) {
        double try_x = i % 2 ? x - 8 - wide : x + 8,
               try_y = y + (i / 2 % 2 ? 1 : -1) * (i < 4 ? 6 : 20) + (i / 2 % 2 ? 8 : 0);
        if (!is_free(v, t, try_x, try_y, wide))
            continue;
        at = try_x;
        down = try_y;
        break;
    }
    words(v, at + wide < x ? at + wide : at, down, "tip", at + wide < x ? "end" : "start", p->label, 40);
    if (t->n < MAX_TAKEN) {
        t->x[t->n] = at;
        t->y[t->n] = down;
        t->wide[t->n++] = wide;
    }
}

static void spot_labels(struct canvas *v)
{
    struct taken t = { .n = 0 };

    for (int i = 0; i < v->c->nseries; i++)
        for (int64_t k = 0; k < v->c->series[i].n; k++)
            if (v->c->series[i].spot[k].label && drawable(v, &v->c->series[i].spot[k]))
                spot_label(v, &t, &v->c->series[i].spot[k]);
}

struct ending { double y; const char *name; int colour; };

static int by_y(const void *a, const void *b)
{
    double x = ((const struct ending *)a)->y, y = ((const struct ending *)b)->y;

    return x < y ? -1 : x > y;
}

/* Each line's name at its end, pushed apart where lines end together. */
static void line_labels(struct canvas *v)
{
    struct ending e[10];
    int n = 0;

    for (int i = 0; i < v->c->nseries; i++) {
        const struct curve *s = &v->c->series[i];
        int64_t k = s->name ? s->n - 1 : -1;
        while (k >= 0 && !drawable(v, &s->spot[k]))
            k--;
        if (k >= 0)
            e[n++] = (struct ending){ py(v, s->spot[k].y), s->name, s->colour };
    }
    qsort(e, (size_t)n, sizeof *e, by_y);
    for (int i = 1; i < n; i++)
        if (e[i].y < e[i - 1].y + 15)
            e[i].y = e[i - 1].y + 15;
    for (int i = n - 1; i >= 0; i--) {
        double lowest = v->top + v->height - 15 * (n - 1 - i);
        if (e[i].y > lowest)
            e[i].y = lowest;
        text_add(v->to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\" class=\"mark c%d\"/>",
                 v->left + v->width + 8, e[i].y - 4, e[i].colour % NCOLOURS);
        words(v, v->left + v->width + 20, e[i].y + 4, "tip", "start", e[i].name, 28);
    }
}

static void xy(const struct chart *c, int width, const char *class, bool alone, struct text *to)
{
    struct canvas v = { .to = to,
                        .c = c,
                        .total = width,
                        .x = chart_scale(c, AXIS_X),
                        .y = chart_scale(c, AXIS_Y),
                        .narrow = width < 600 };
    bool names = !v.narrow && c->nseries <= 10;
    double above = measured_legend(v, width);

    v.left = 72;
    v.top = above + 28;
    v.width = width - v.left - (names ? 220 : 30);
    v.height = v.narrow ? PLOT * 0.8 : PLOT;
    open_svg(to, c, width, v.top + v.height + 42, class, alone);
    legend(&v, 0, width);
    x_axis(&v);
    y_axis(&v);
    if (c->diagonal)
        diagonal(&v);
    for (int i = 0; i < c->nseries; i++) {
        if (c->series[i].mark != MARK_POINTS)
            curve(&v, &c->series[i]);
        if (c->series[i].mark == MARK_POINTS || c->series[i].mark == MARK_BOTH)
            spots(&v, &c->series[i]);
    }
    spot_labels(&v);
    if (names)
        line_labels(&v);
    text_put(to, "</svg>\n");
}

/* ---- bars ---- */

/* Room for a group's heading above its bars, and for the sides' names to their left. */
static double bars_height(const struct chart *c)
{
    double h = 0;

    for (int i = 0; i < c->nbars; i++)
        h += BAR + 4 + (c->bar[i].label ? LINE + 6 : 0);
    return h;
}

static void bar_parts(struct canvas *v, const struct bar *b, double y)
{
    double at = 0;

    for (int i = 0; i < v->c->nparts; i++) {
        if (!(b->part[i] > 0))
            continue;
        double from = px(v, at), to = px(v, at + b->part[i]);
        text_add(v->to,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" class=\"mark c%d%s\"><title>",
                 from, y, to - from, BAR, v->c->part_colour[i] % NCOLOURS, b->hatched ? " hatched" : "");
        text_html(v->to, v->c->part[i]);
        text_add(v->to, ": %s</title></rect>\n", unit_shown(v->c->axis[AXIS_X].unit, b->part[i]).s);
        at += b->part[i];
    }
}

static void bar_marks(struct canvas *v, const struct bar *b, double y)
{
    double sum = chart_bar_sum(v->c, b), end = px(v, sum), middle = y + BAR / 2.0;

    if (isfinite(b->low) && isfinite(b->high)) {
        line(v, px(v, b->low), middle, px(v, b->high), middle, "error");
        line(v, px(v, b->low), y + 4, px(v, b->low), y + BAR - 4, "error");
        line(v, px(v, b->high), y + 4, px(v, b->high), y + BAR - 4, "error");
        end = fmax(end, px(v, b->high));
    }
    if (isfinite(b->middle))
        end = fmax(end, px(v, b->middle));
    if (isfinite(b->middle))
        text_add(v->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" class=\"dot\"/>\n", px(v, b->middle),
                 middle);
    if (isfinite(b->limit))
        line(v, px(v, b->limit), y - 3, px(v, b->limit), y + BAR + 3, "limit dash");
    if (!b->key)
        return;
    text_add(v->to, "<text x=\"%.1f\" y=\"%.1f\" class=\"tip\" data-q=\"%s\">%s</text>\n", end + 6, y + 13,
             b->key, unit_shown(v->c->axis[AXIS_X].unit, isnan(b->value) ? sum : b->value).s);
}

static void bars(const struct chart *c, int width, const char *class, bool alone, struct text *to)
{
    struct canvas v = {
        .to = to, .c = c, .total = width, .x = chart_scale(c, AXIS_X), .narrow = width < 600
    };
    double above = measured_legend(v, width), y;

    v.left = 76;
    v.top = above + 4;
    v.width = width - v.left - 92;
    v.height = bars_height(c) + 4;
    open_svg(to, c, width, v.top + v.height + 42, class, alone);
    legend(&v, 0, width);
    x_axis(&v);
    y = v.top;
    for (int i = 0; i < c->nbars; i++) {
        if (c->bar[i].label) {
            y += LINE + 2;
            words(&v, 2, y, "tip head", "start", c->bar[i].label, (int)(width / COLUMN_WIDTH));
            y += 4;
        }
        words(&v, v.left - 6, y + 13, "side", "end", c->bar[i].side, 14);
        bar_parts(&v, &c->bar[i], y);
        bar_marks(&v, &c->bar[i], y);
        y += BAR + 4;
    }
    text_put(to, "</svg>\n");
}

/* ---- spans ---- */

static void one_span(struct canvas *v, const struct stripe *s, const double *row_y)
{
    double from = px(v, s->from), to = px(v, s->to);

    text_add(v->to, "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" class=\"mark c%d\">", from,
             row_y[s->row], fmax(to - from - (v->c->apart && to - from > 2 ? 0.8 : 0), 0.4), ROW - 3, s->colour % NCOLOURS);
    if (s->what) {
        text_put(v->to, "<title>");
        text_html(v->to, s->what);
        text_put(v->to, "</title>");
    }
    text_put(v->to, "</rect>\n");
}

static void spans(const struct chart *c, int width, const char *class, bool alone, struct text *to)
{
    struct canvas v = {
        .to = to, .c = c, .total = width, .x = chart_scale(c, AXIS_X), .narrow = width < 600
    };
    double *row_y = calloc((size_t)c->nrows + 1, sizeof *row_y), y;

    if (!row_y)
        abort();
    v.left = 76;
    v.top = measured_legend(v, width) + 4;
    v.width = width - v.left - 36;
    y = v.top;
    for (int i = 0; i < c->nrows; i++) {
        y += c->row[i][0] == '#' ? 8 : 0;
        row_y[i] = y;
        y += ROW;
    }
    v.height = y - v.top + 4;
    open_svg(to, c, width, v.top + v.height + 42, class, alone);
    legend(&v, 0, width);
    x_axis(&v);
    for (int i = 0; i < c->nrows; i++) {
        bool head = c->row[i][0] == '#';
        words(&v, head ? 2 : v.left - 6, row_y[i] + 11, head ? "tip head" : "side", head ? "start" : "end",
              c->row[i] + head, head ? 60 : 11);
    }
    for (int64_t i = 0; i < c->nspans; i++)
        one_span(&v, &c->span[i], row_y);
    text_put(to, "</svg>\n");
    free(row_y);
}

void chart_svg(const struct chart *c, int width, const char *class, bool alone, struct text *to)
{
    switch (c->kind) {
    case CHART_XY:    xy(c, width, class, alone, to); break;
    case CHART_BARS:  bars(c, width, class, alone, to); break;
    case CHART_SPANS: spans(c, width, class, alone, to); break;
    }
}
