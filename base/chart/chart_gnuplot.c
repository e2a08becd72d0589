/* chart_gnuplot.c -- the same charts drawn by gnuplot, for slides and for papers.
 *
 * Names stand in single quotes, where gnuplot expands nothing; the script is read from a pipe
 * and runs in the folder of the figures, so that no path is part of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/chart/chart.h"

enum { WIDTH = 900, HEIGHT = 480 };

static void label(struct text *t, const char *which, const char *words)
{
    text_add(t, "set %s ", which);
    text_gnuplot(t, words);
    text_put(t, "\n");
}

/* The same ticks as on the page. */
static void ticks(const struct chart *c, enum axis a, struct text *t)
{
    struct scale_of s = chart_scale(c, a);
    const char *x = a == AXIS_X ? "x" : "y", *comma = "";

    text_add(t, "set %srange [%.9g:%.9g]\nset %stics (", x, s.from, s.to, x);
    for (double v = s.from; v <= s.to * (1 + 1e-9) + 1e-12; v = c->axis[a].log ? v * s.step : v + s.step) {
        text_put(t, comma);
        text_gnuplot_tick(t, unit_shown_tick(c->axis[a].unit, fabs(v) < 1e-9 * s.step ? 0 : v).s);
        text_add(t, " %.9g", v);
        comma = ", ";
    }
    text_add(t, ")\n%s", c->axis[a].log ? "set logscale " : "");
    text_put(t, c->axis[a].log ? x : "");
    text_put(t, "\n");
}

/* Where a bar lies, upwards from the last: its group's name has a place above it. */
static double bar_place(const struct chart *c, int bar)
{
    double y = 0;

    for (int i = 0; i <= bar; i++)
        y -= c->bar[i].label ? 2 : 1;
    return y;
}

static void number(struct text *t, double v) { text_add(t, isfinite(v) ? " %.9g" : " NaN", v); }

/* ---- data ---- */

static void data_xy(const struct chart *c, struct text *t)
{
    for (int i = 0; i < c->nseries; i++) {
        text_add(t, "$s%d << END\n", i);
        for (int64_t k = 0; k < c->series[i].n; k++) {
            const struct spot *p = &c->series[i].spot[k];
            number(t, p->x);
            number(t, p->y);
            number(t, p->low);
            number(t, p->high);
            text_put(t, "\n");
        }
        text_put(t, "END\n");
    }
}

/* Rectangles: x y xlow xhigh ylow yhigh, a block for each colour. */
static void data_bars(const struct chart *c, struct text *t)
{
    for (int i = 0; i < c->nparts; i++) {
        text_add(t, "$s%d << END\n", i);
        for (int b = 0; b < c->nbars; b++) {
            double at = 0;
            for (int k = 0; k < i; k++)
                at += c->bar[b].part[k];
            double y = bar_place(c, b);
            text_add(t, "%.9g %g %.9g %.9g %.2f %.2f\n", at, y, at, at + c->bar[b].part[i], y - 0.4, y + 0.4);
        }
        text_put(t, "END\n");
    }
    text_put(t, "$errors << END\n");
    for (int b = 0; b < c->nbars; b++)
        if (isfinite(c->bar[b].low))
            text_add(t, "%.9g %g %.9g %.9g\n", chart_bar_sum(c, &c->bar[b]), bar_place(c, b), c->bar[b].low,
                     c->bar[b].high);
    text_put(t, "END\n$limits << END\n");
    for (int b = 0; b < c->nbars; b++)
        if (isfinite(c->bar[b].limit))
            text_add(t, "%.9g %.2f 0 %.1f\n", c->bar[b].limit, bar_place(c, b) - 0.5, 1.0);
    text_put(t, "END\n");
}

/* gnuplot complains of a block in which nothing can be drawn. */
static bool has_low(const struct chart *c, int series)
{
    for (int64_t i = 0; series >= 0 && i < c->series[series].n; i++)
        if (isfinite(c->series[series].spot[i].low))
            return true;
    for (int b = 0; series < 0 && b < c->nbars; b++)
        if (isfinite(c->bar[b].low))
            return true;
    return false;
}

static bool has_points(const struct curve *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (isfinite(s->spot[i].x) && isfinite(s->spot[i].y))
            return true;
    return false;
}

static bool has_limit(const struct chart *c)
{
    for (int b = 0; b < c->nbars; b++)
        if (isfinite(c->bar[b].limit))
            return true;
    return false;
}

static void data_spans(const struct chart *c, struct text *t)
{
    for (int i = 0; i < c->nparts; i++) {
        text_add(t, "$s%d << END\n", i);
        for (int64_t k = 0; k < c->nspans; k++)
            if (c->span[k].colour == c->part_colour[i])
                text_add(t, "%.9g %d %.9g %.9g %.2f %.2f\n", c->span[k].from, -c->span[k].row,
                         c->span[k].from, c->span[k].to, -c->span[k].row - 0.4, -c->span[k].row + 0.4);
        text_put(t, "END\n");
    }
}

/* ---- how it is drawn ---- */

static const char *with(enum mark m)
{
    switch (m) {
    case MARK_POINTS: return "points pt 7 ps 1";
    case MARK_LINE:   return "lines lw 2";
    case MARK_BOTH:   return "linespoints pt 7 ps 0.7 lw 2";
    case MARK_STEPS:  return "steps lw 2";
    }
    return "points";
}

static void plot_xy(const struct chart *c, struct text *t)
{
    text_put(t, "plot NaN notitle");
    if (c->diagonal)
        text_put(
            t, ", x with lines lc rgb '#111111' title 'equal', 1.1*x with lines dt 2 lc rgb '#777777' title "
               "'10 % away', 0.9*x with lines dt 2 lc rgb '#777777' notitle");
    for (int i = 0; i < c->nseries; i++) {
        const struct curve *s = &c->series[i];
        if (!has_points(s))
            continue;
        text_add(t, ", $s%d using 1:2 with %s%s lc rgb '%s' title ", i, with(s->mark),
                 s->dashed ? " dt 2" : "", chart_colour(s->colour, false));
        text_gnuplot(t, s->name ? s->name : "");
        if (s->mark == MARK_POINTS && has_low(c, i))
            text_add(t, ", $s%d using 1:2:3:4 with yerrorbars pt 0 lc rgb '%s' notitle", i,
                     chart_colour(s->colour, false));
    }
    text_put(t, "\n");
}

/* Where a box ends: a thousandth of the width stays white behind a span that is wider than two, where spans stand apart. */
static void box_end(const struct chart *c, char *to, size_t size)
{
    double until = 0;

    for (int64_t k = 0; k < c->nspans; k++)
        until = fmax(until, c->span[k].to);
    if (c->apart)
        snprintf(to, size, "($4-$3>%.9g?$4-%.9g:$4)", until / 500, until / 1000);
    else
        snprintf(to, size, "4");
}

static void plot_boxes(const struct chart *c, struct text *t)
{
    char end[80];

    box_end(c, end, sizeof end);
    text_put(t, c->nparts ? "plot " : "plot NaN notitle");
    for (int i = 0; i < c->nparts; i++) {
        text_add(t, "%s$s%d using 1:2:3:%s:5:6 with boxxyerror fs solid 0.85 noborder lc rgb '%s' title ",
                 i ? ", " : "", i, end, chart_colour(c->part_colour[i], false));
        text_gnuplot(t, c->part[i]);
    }
    if (has_low(c, -1))
        text_put(t, ", $errors using 1:2:3:4 with xerrorbars pt 0 lw 1.5 lc rgb '#111111' notitle");
    if (has_limit(c))
        text_put(t, ", $limits using 1:2:3:4 with vectors nohead dt 2 lw 2 lc rgb '#111111' notitle");
    text_put(t, "\n");
}

static void row_name(struct text *t, const char *name, double y)
{
    text_put(t, t->s[t->n - 1] == '(' ? "" : ", ");
    text_gnuplot_tick(t, name);
    text_add(t, " %g", y);
}

static double rows_of(const struct chart *c)
{
    return c->kind == CHART_SPANS ? c->nrows : c->nbars > 0 ? -bar_place(c, c->nbars - 1) : 1;
}

static void row_names(const struct chart *c, struct text *t)
{
    bool bars = c->kind == CHART_BARS;

    text_add(t, "set yrange [%.1f:%.1f]\nset ytics scale 0 (", -rows_of(c) + (bars ? -0.6 : 0.4),
             bars ? -0.4 : 0.6);
    for (int i = 0; i < (bars ? c->nbars : c->nrows); i++) {
        if (bars && c->bar[i].label)
            row_name(t, c->bar[i].label, bar_place(c, i) + 1);
        row_name(t, bars ? c->bar[i].side : c->row[i] + (c->row[i][0] == '#'), bars ? bar_place(c, i) : -i);
    }
    text_put(t, ")\n");
}

/* Names of single points. */
static void point_names(const struct chart *c, struct text *t)
{
    for (int i = 0; i < c->nseries; i++)
        for (int64_t k = 0; k < c->series[i].n; k++) {
            const struct spot *p = &c->series[i].spot[k];
            if (!p->label || !isfinite(p->x) || !isfinite(p->y))
                continue;
            text_put(t, "set label ");
            text_gnuplot(t, p->label);
            text_add(t, " at %.9g,%.9g center offset 0,0.8 noenhanced\n", p->x, p->y);
        }
}

static void draw(const struct chart *c, const char *terminal, const char *suffix, struct text *t)
{
    int height = c->kind == CHART_XY ? HEIGHT : 170 + (int)(22 * rows_of(c));

    text_add(t, "set terminal %s size %d,%d noenhanced background rgb 'white'\nset output '%s.%s'\n",
             terminal, WIDTH, height, c->id, suffix);
    if (c->kind == CHART_XY)
        plot_xy(c, t);
    else
        plot_boxes(c, t);
    text_put(t, "unset output\n");
}

void chart_gnuplot(const struct chart *c, struct text *t)
{
    text_put(t, "reset\nset encoding utf8\nset grid lc rgb '#dddddd'\nset key below Left reverse samplen 1.5 "
                "font ',10' noenhanced\n");
    text_put(
        t,
        "set title noenhanced\nset xlabel noenhanced\nset ylabel noenhanced\nset tics noenhanced nomirror\n");
    label(t, "title", c->title);
    label(t, "xlabel", c->axis[AXIS_X].label);
    ticks(c, AXIS_X, t);
    if (c->kind == CHART_XY) {
        label(t, "ylabel", c->axis[AXIS_Y].label);
        ticks(c, AXIS_Y, t);
        point_names(c, t);
        data_xy(c, t);
    } else {
        row_names(c, t);
        (c->kind == CHART_BARS ? data_bars : data_spans)(c, t);
    }
    draw(c, "svg", "svg", t);
    draw(c, "pngcairo", "png", t);
}
