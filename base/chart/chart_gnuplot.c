/* chart_gnuplot.c -- charts as statements for gnuplot.
 *
 * Where things lie is decided here, in pixels, so that letters have their size and nothing is cut off on a telephone too;
 * gnuplot draws.  Names stand in single quotes, where gnuplot expands nothing; the script is read from a pipe and runs in
 * the folder of the figures, so that no path is part of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart.h"

/* Pixels. */
enum { ALONE = 900, WIDE = 1000, NARROW = 350, LINE = 17, BAR = 18, BAR_STEP = 22, HEAD = 23, ROW = 16, PLOT = 320, BELOW = 46 };
#define COLUMN_WIDTH 6.7        /* of a letter, at 12 px, rather too wide */
#define INK "#111111"
#define DIM "#555555"
/* gnuplot's own error bars blot out what lies in their middle. */
#define WHISKERS "vectors heads size screen 0.004,90"

struct layout {
    struct text *to;
    const struct chart *c;
    double width, height;                   /* of the drawing */
    double left, top, across, down;         /* of the plot inside its axes */
    struct scale_of x, y;
    bool   narrow;
};

static double along(const struct scale_of *s, bool logarithmic, double v)
{
    return logarithmic ? log(v / s->from) / log(s->to / s->from) : (v - s->from) / (s->to - s->from);
}

static double px(const struct layout *l, double x) { return l->left + l->across * along(&l->x, l->c->axis[AXIS_X].log, x); }

static double py(const struct layout *l, double y) { return l->top + l->down * (1 - along(&l->y, l->c->axis[AXIS_Y].log, y)); }

static bool drawable(const struct layout *l, const struct spot *p)
{
    return isfinite(p->x) && isfinite(p->y) && !(l->c->axis[AXIS_X].log && p->x <= 0) && !(l->c->axis[AXIS_Y].log && p->y <= 0);
}

static double fit(double v) { return fmax(1, floor(v / COLUMN_WIDTH)); }

static double text_width(const char *s, int most)
{
    int columns = text_columns(s);

    return COLUMN_WIDTH * (columns < most ? columns : most);
}

/* `y` is the middle of the letters; how: left, right or center, and more. */
static void words(const struct layout *l, double x, double y, const char *how, const char *colour, const char *s, double columns)
{
    struct text cut = { 0 };

    text_cut(&cut, s, columns > 1 ? (int)columns : 1);
    text_put(l->to, "set label ");
    text_gnuplot(l->to, cut.s ? cut.s : "");
    text_add(l->to, " at screen %.5f,%.5f %s noenhanced tc rgb '%s'\n", x / l->width, 1 - y / l->height, how, colour);
    text_free(&cut);
}

/* ---- axes ---- */

enum { MOST_TICKS = 64 };       /* of an axis whose numbers are too near each other for a double */

/* The k-th tick of an axis; false: there are no more. */
static bool tick_at(const struct layout *l, enum axis a, int k, double *at, struct shown *name)
{
    const struct chart *c = l->c;
    const struct scale_of *s = a == AXIS_X ? &l->x : &l->y;
    double v = c->axis[a].log ? s->from * pow(s->step, k) : s->from + k * s->step;

    if (a == AXIS_X && c->nticks > 0) {
        if (k >= c->nticks)
            return false;
        *at = c->tick[k].at;
        snprintf(name->s, sizeof name->s, "%.40s", c->tick[k].name);
        return true;
    }
    if (v > s->to * (1 + 1e-9) + 1e-12 || k >= MOST_TICKS)
        return false;
    *at = fabs(v) < 1e-9 * s->step ? 0 : v;
    *name = unit_shown_tick(c->axis[a].unit, *at);
    return true;
}

/* A tick has no name where that would touch the one before it. */
static void ticks(const struct layout *l, enum axis a)
{
    const char *x = a == AXIS_X ? "x" : "y", *comma = "";
    const struct scale_of *s = a == AXIS_X ? &l->x : &l->y;
    double last = -1e9, at;
    struct shown name;

    if (l->c->axis[a].log)
        text_add(l->to, "set logscale %s\n", x);
    /* A logarithmic range a little wider: gnuplot leaves out a tick that rounding puts beside its end. */
    double wider = l->c->axis[a].log ? 1e-6 : 0;
    text_add(l->to, "set %srange [%.9g:%.9g]\nset %stics (", x, s->from * (1 - wider), s->to * (1 + wider), x);
    for (int k = 0; tick_at(l, a, k, &at, &name); k++) {
        double half = text_width(name.s, 40) / 2, middle = a == AXIS_X ? px(l, at) : 0;
        bool room = a == AXIS_Y || (middle - half >= last + 6 && middle + half < l->width);
        text_put(l->to, comma);
        text_gnuplot_tick(l->to, room ? name.s : "");
        text_add(l->to, " %.9g", at);
        comma = ", ";
        last = room ? middle + half : last;
    }
    text_put(l->to, ")\n");
}

/* ---- what colours mean ---- */

struct legend { double x, y; };

static void legend_item(const struct layout *l, struct legend *at, const char *name, int colour, bool draw)
{
    double wide = 26 + text_width(name, 34);

    if (at->x + wide > l->width && at->x > 2) {
        at->x = 2;
        at->y += LINE;
    }
    if (draw) {
        text_add(l->to, "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fc rgb '%s' fs solid noborder\n",
                 at->x / l->width, 1 - (at->y + 5) / l->height, (at->x + 11) / l->width, 1 - (at->y - 6) / l->height,
                 chart_colour(colour, false));
        words(l, at->x + 16, at->y, "left", DIM, name, 34);
    }
    at->x += wide;
}

/* From `top` on, or only measured; returns its height. */
static double legend(const struct layout *l, double top, bool draw)
{
    struct legend at = { 2, top + 10 };
    const struct chart *c = l->c;

    for (int i = 0; i < c->nparts; i++)
        legend_item(l, &at, c->part[i], c->part_colour[i], draw);
    for (int i = 0; c->kind == CHART_XY && i < c->nseries; i++)
        if (c->series[i].name && *c->series[i].name)
            legend_item(l, &at, c->series[i].name, c->series[i].colour, draw);
    return at.x > 2 ? at.y - top + 12 : 0;
}

/* ---- points and lines ---- */

static void number(struct text *t, double v) { text_add(t, isfinite(v) ? " %.9g" : " NaN", v); }

static void data_xy(const struct layout *l)
{
    for (int i = 0; i < l->c->nseries; i++) {
        text_add(l->to, "$s%d << END\n", i);
        for (int64_t k = 0; k < l->c->series[i].n; k++) {
            const struct spot *p = &l->c->series[i].spot[k];
            number(l->to, p->x);
            number(l->to, p->y);
            number(l->to, p->low);
            number(l->to, p->high);
            text_put(l->to, "\n");
        }
        text_put(l->to, "END\n");
    }
}

/* gnuplot complains of a block in which nothing can be drawn. */
static bool has_points(const struct layout *l, const struct curve *s, bool with_low)
{
    for (int64_t i = 0; i < s->n; i++)
        if (drawable(l, &s->spot[i]) && (!with_low || isfinite(s->spot[i].low)))
            return true;
    return false;
}

static const char *with(enum mark m)
{
    switch (m) {
    case MARK_POINTS: return "points pt 7 ps 0.8";
    case MARK_LINE:   return "lines";
    case MARK_BOTH:   return "linespoints pt 7 ps 0.7";
    case MARK_STEPS:  return "steps";
    case MARK_AREA:   return "filledcurves";
    }
    return "points";
}

/* Of lines that lie on each other the first ones are wider, 10 pixels at most. */
static double line_width(const struct chart *c, int series)
{
    return c->nested ? 2 + (c->nseries - 1 - series) * fmin(2, 10.0 / c->nseries) : 2;
}

static void plot_xy(const struct layout *l)
{
    const struct chart *c = l->c;

    text_put(l->to, "plot NaN notitle");
    if (c->diagonal)
        text_put(l->to, ", x with lines lc rgb '" INK "' notitle, 1.1*x with lines dt 2 lc rgb '" DIM "' notitle, "
                        "0.9*x with lines dt 2 lc rgb '" DIM "' notitle");
    for (int i = 0; i < c->nseries; i++) {
        const struct curve *s = &c->series[i];
        if (!has_points(l, s, false))
            continue;
        if (s->mark == MARK_AREA)
            text_add(l->to, ", $s%d using 1:3:2 with filledcurves fs solid 1.0 noborder lc rgb '%s' notitle", i, chart_colour(s->colour, false));
        else
            text_add(l->to, ", $s%d using 1:2 with %s lw %.1f%s lc rgb '%s' notitle", i, with(s->mark), line_width(c, i),
                     s->dashed ? " dt 2" : "", chart_colour(s->colour, false));
        if (s->mark != MARK_AREA && has_points(l, s, true))
            text_add(l->to, ", $s%d using 1:3:(0):($4-$3) with " WHISKERS " lc rgb '%s' notitle", i, chart_colour(s->colour, false));
    }
    text_put(l->to, "\n");
}

/* Where names of points already stand. */
enum { MAX_TAKEN = 32 };
struct taken { double x[MAX_TAKEN], y[MAX_TAKEN], wide[MAX_TAKEN]; int n; };

static bool is_free(const struct layout *l, const struct taken *t, double x, double y, double wide)
{
    if (x < l->left || x + wide > l->left + l->across || y < l->top + 8)
        return false;
    for (int i = 0; i < t->n; i++)
        if (x < t->x[i] + t->wide[i] && t->x[i] < x + wide && fabs(y - t->y[i]) < 14)
            return false;
    return true;
}

/* The name of a point: to its right or left, above or below, wherever there is room first. */
static void spot_label(const struct layout *l, struct taken *t, const struct spot *p)
{
    double wide = text_width(p->label, 40), x = px(l, p->x), y = py(l, p->y), down = y - 10;
    double at = fmax(2, fmin(x + 8, l->width - wide - 2));      /* where nothing is free */

    for (int i = 0; i < 8; i++) {
        double try_x = i % 2 ? x - 8 - wide : x + 8, try_y = y + (i / 2 % 2 ? 1 : -1) * (i < 4 ? 10 : 24);
        if (!is_free(l, t, try_x, try_y, wide))
            continue;
        at = try_x;
        down = try_y;
        break;
    }
    words(l, at, down, "left front", INK, p->label, fmin(40, fit(l->width - at)));
    if (t->n < MAX_TAKEN) {
        t->x[t->n] = at;
        t->y[t->n] = down;
        t->wide[t->n++] = wide;
    }
}

static void spot_labels(const struct layout *l)
{
    struct taken t = { .n = 0 };

    for (int i = 0; i < l->c->nseries; i++)
        for (int64_t k = 0; k < l->c->series[i].n; k++)
            if (l->c->series[i].spot[k].label && drawable(l, &l->c->series[i].spot[k]))
                spot_label(l, &t, &l->c->series[i].spot[k]);
}

static void xy(const struct layout *l)
{
    words(l, 2, l->top - 14, "left", DIM, l->c->axis[AXIS_Y].label, 60);
    ticks(l, AXIS_Y);
    spot_labels(l);
    data_xy(l);
    plot_xy(l);
}

/* ---- bars: the y axis counts pixels, downwards ---- */

static double bars_height(const struct chart *c)
{
    double h = 4;

    for (int i = 0; i < c->nbars; i++)
        h += BAR_STEP + (c->bar[i].label ? HEAD : 0);
    return h;
}

/* The middle of a bar; a group's name has its place above the first of its bars. */
static double bar_middle(const struct chart *c, int bar)
{
    double y = 0;

    for (int i = 0; i <= bar; i++)
        y += (i ? BAR_STEP : 0) + (c->bar[i].label ? HEAD : 0);
    return y + BAR / 2.0 + 2;
}

/* Rectangles of one part in bars that are pale or are not: x y xlow xhigh ylow yhigh.  How many. */
static int data_part(const struct layout *l, int part, bool pale)
{
    const struct chart *c = l->c;
    int n = 0;

    text_add(l->to, "$%c%d << END\n", pale ? 'p' : 's', part);
    for (int b = 0; b < c->nbars; b++) {
        double at = 0, y = bar_middle(c, b);
        for (int k = 0; k < part; k++)
            at += c->bar[b].part[k];
        if (c->bar[b].hatched != pale || !(c->bar[b].part[part] > 0))
            continue;
        text_add(l->to, "%.9g %g %.9g %.9g %.2f %.2f\n", at, y, at, at + c->bar[b].part[part], y - BAR / 2.0, y + BAR / 2.0);
        n++;
    }
    text_put(l->to, "END\n");
    return n;
}

enum extra { EXTRA_INTERVALS, EXTRA_LIMITS, EXTRA_MIDDLES, NEXTRA };

/* Intervals around ends of bars, limits across them, dots.  How many. */
static int data_extra(const struct layout *l, enum extra which)
{
    const struct chart *c = l->c;
    int n = 0;

    text_add(l->to, "$x%d << END\n", (int)which);
    for (int i = 0; i < c->nbars; i++) {
        const struct bar *b = &c->bar[i];
        double y = bar_middle(c, i);
        const double at[NEXTRA] = { b->low, b->limit, b->middle };
        if (!isfinite(at[which]))
            continue;
        n++;
        if (which == EXTRA_INTERVALS)
            text_add(l->to, "%.9g %g %.9g %.9g\n", chart_bar_sum(c, b), y, b->low, b->high);
        else if (which == EXTRA_LIMITS)
            text_add(l->to, "%.9g %.2f 0 %d\n", b->limit, y - BAR / 2.0 - 3, BAR + 6);
        else
            text_add(l->to, "%.9g %g\n", b->middle, y);
    }
    text_put(l->to, "END\n");
    return n;
}

static void plot_bars(const struct layout *l, const bool drawn[2][MAX_PARTS], const bool extra[NEXTRA])
{
    static const char *const how[NEXTRA] = {
        "using 3:2:($4-$3):(0) with " WHISKERS " lw 1.5 lc rgb '" INK "'",
        "using 1:2:3:4 with vectors nohead dt 2 lw 2 lc rgb '" INK "'",
        "using 1:2 with points pt 7 ps 0.7 lc rgb '" INK "'",
    };

    text_put(l->to, "plot NaN notitle");
    for (int pale = 0; pale < 2; pale++)
        for (int i = 0; i < l->c->nparts; i++)
            if (drawn[pale][i])
                text_add(l->to, ", $%c%d using 1:2:3:4:5:6 with boxxyerror fs transparent solid %s noborder lc rgb '%s' notitle",
                         pale ? 'p' : 's', i, pale ? "0.5" : "1.0", chart_colour(l->c->part_colour[i], false));
    for (int i = 0; i < NEXTRA; i++)
        if (extra[i])
            text_add(l->to, ", $x%d %s notitle", i, how[i]);
    text_put(l->to, "\n");
}

/* In front of everything, in order of the bars: chart_page.c finds them as the last words of the drawing. */
static void bar_values(const struct layout *l)
{
    for (int i = 0; i < l->c->nbars; i++) {
        const struct bar *b = &l->c->bar[i];
        double end = chart_bar_sum(l->c, b);
        if (!b->key)
            continue;
        end = fmax(end, isfinite(b->high) ? b->high : end);
        end = fmax(end, isfinite(b->middle) ? b->middle : end);
        words(l, px(l, end) + 8, l->top + bar_middle(l->c, i), "left front", INK, chart_bar_value(l->c, b).s, 24);
    }
}

static void bars(const struct layout *l)
{
    bool drawn[2][MAX_PARTS], extra[NEXTRA];

    text_add(l->to, "set yrange [%g:0]\nunset ytics\nset border 0\n", l->down);
    for (int i = 0; i < l->c->nbars; i++) {
        double y = l->top + bar_middle(l->c, i);
        if (l->c->bar[i].label)
            words(l, 2, y - BAR / 2.0 - 11, "left", INK, l->c->bar[i].label, fit(l->width - 4));
        words(l, l->left - 6, y, "right", DIM, l->c->bar[i].side, 11);
    }
    bar_values(l);
    for (int pale = 0; pale < 2; pale++)
        for (int i = 0; i < l->c->nparts; i++)
            drawn[pale][i] = data_part(l, i, pale) > 0;
    for (int i = 0; i < NEXTRA; i++)
        extra[i] = data_extra(l, (enum extra)i) > 0;
    plot_bars(l, drawn, extra);
}

/* ---- spans: the y axis counts rows, downwards from 0 ---- */

static int data_spans(const struct layout *l, int part)
{
    const struct chart *c = l->c;
    int n = 0;

    text_add(l->to, "$s%d << END\n", part);
    for (int64_t k = 0; k < c->nspans; k++)
        if (c->span[k].colour == c->part_colour[part]) {
            text_add(l->to, "%.9g %d %.9g %.9g %.2f %.2f\n", c->span[k].from, -c->span[k].row, c->span[k].from, c->span[k].to,
                     -c->span[k].row - 0.4, -c->span[k].row + 0.4);
            n++;
        }
    text_put(l->to, "END\n");
    return n;
}

/* Where a box ends: spans have a hair's width at least; where they stand apart, four fifths of a pixel stay free behind a span
 * that is wider than two. */
static void span_end(const struct layout *l, char *to, size_t size)
{
    double pixel = (l->x.to - l->x.from) / l->across;

    if (l->c->apart)
        snprintf(to, size, "($4-$3>%.9g?$4-%.9g:$4-$3<%.9g?$3+%.9g:$4)", 2 * pixel, 0.8 * pixel, 0.4 * pixel, 0.4 * pixel);
    else
        snprintf(to, size, "($4-$3<%.9g?$3+%.9g:$4)", 0.4 * pixel, 0.4 * pixel);
}

static void spans(const struct layout *l)
{
    const struct chart *c = l->c;
    bool drawn[MAX_PARTS];
    char end[160];

    text_add(l->to, "set yrange [%.1f:0.5]\nunset ytics\nset border 0\n", 0.5 - (c->nrows ? c->nrows : 1));
    for (int i = 0; i < c->nrows; i++) {
        bool head = c->row[i][0] == '#';
        words(l, head ? 2 : l->left - 6, l->top + (i + 0.5) * ROW, head ? "left" : "right", head ? INK : DIM, c->row[i] + head,
              head ? fit(l->width - 4) : 11);
    }
    for (int i = 0; i < c->nparts; i++)
        drawn[i] = data_spans(l, i) > 0;
    span_end(l, end, sizeof end);
    text_put(l->to, "plot NaN notitle");
    for (int i = 0; i < c->nparts; i++)
        if (drawn[i])
            text_add(l->to, ", $s%d using 1:2:3:%s:5:6 with boxxyerror fs solid 1.0 noborder lc rgb '%s' notitle", i, end,
                     chart_colour(c->part_colour[i], false));
    text_put(l->to, "\n");
}

/* ---- together ---- */

static struct layout layout_of(const struct chart *c, enum chart_look look, struct text *to)
{
    struct layout l = { .to = to, .c = c, .narrow = look == CHART_NARROW, .x = chart_scale(c, AXIS_X),
                        .width = look == CHART_NARROW ? NARROW : look == CHART_WIDE ? WIDE : ALONE };
    bool alone = look == CHART_SVG || look == CHART_PNG, bars = c->kind == CHART_BARS;

    if (c->kind == CHART_XY)
        l.y = chart_scale(c, AXIS_Y);
    l.left = 80;
    l.across = l.width - l.left - (bars ? 92 : 34);
    l.top = (alone ? 30 : 2) + (c->kind == CHART_XY ? 26 : 4);
    l.height = 1;
    l.top += legend(&l, 0, false);
    l.down = bars ? bars_height(c) : c->kind == CHART_SPANS ? ROW * (c->nrows ? c->nrows : 1) : l.narrow ? PLOT * 0.8 : PLOT;
    l.height = ceil(l.top + l.down + BELOW);
    return l;
}

static void put_terminal(const struct layout *l, enum chart_look look)
{
    static const char *const suffix[NLOOKS] = { ".svg", ".png", "-wide.svg", "-narrow.svg" };
    bool alone = look == CHART_SVG || look == CHART_PNG;

    text_put(l->to, "reset\nset encoding utf8\n");
    text_add(l->to, "set terminal %s size %.0f,%.0f font 'Arial,%d' noenhanced%s\nset output '%s%s'\n",
             look == CHART_PNG ? "pngcairo" : "svg", l->width, l->height, look == CHART_PNG ? 9 : 12,
             alone ? " background rgb 'white'" : "", l->c->id, suffix[look]);
    text_put(l->to, "unset key\nset border 3 lc rgb '" DIM "'\nset grid lt 1 lw 1 lc rgb '#dddddd'\n"
                    "set tics scale 0 noenhanced nomirror textcolor rgb '" DIM "'\n");
    text_add(l->to, "set lmargin at screen %.5f\nset rmargin at screen %.5f\nset tmargin at screen %.5f\nset bmargin at screen %.5f\n",
             l->left / l->width, (l->left + l->across) / l->width, 1 - l->top / l->height, 1 - (l->top + l->down) / l->height);
}

void chart_gnuplot(const struct chart *c, enum chart_look look, struct text *to)
{
    struct layout l = layout_of(c, look, to);
    bool alone = look == CHART_SVG || look == CHART_PNG;

    put_terminal(&l, look);
    if (alone)
        words(&l, l.width / 2, 14, "center", INK, c->title, fit(l.width - 4));
    legend(&l, alone ? 30 : 2, true);
    words(&l, l.left + l.across, l.top + l.down + 36, "right", DIM, c->axis[AXIS_X].label, fit(l.left + l.across));
    ticks(&l, AXIS_X);
    switch (c->kind) {
    case CHART_XY:    xy(&l); break;
    case CHART_BARS:  bars(&l); break;
    case CHART_SPANS: spans(&l); break;
    }
    text_put(to, "unset output\n");
}
