/* chart_xy.c -- points, lines and areas over two axes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/chart/chart_draw.h"
#include "base/room.h"

/* ---- areas ---- */

/* For each pixel of the plot the moment at which most is there, so that a peak shorter than a pixel is seen: `top` is the series on top
 * of the stack, of which a moment is a spot and the next one holds until it ends.  -1: nothing yet. */
static int64_t *moments(const struct drawing *d, const struct curve *top, int pixels)
{
    int64_t *at = room_new((size_t)pixels + 1, sizeof *at);

    for (int p = 0; p < pixels; p++)
        at[p] = -1;
    for (int64_t i = 0; i < top->n; i++) {
        double end = i + 1 < top->n ? top->spot[i + 1].x : top->spot[i].x;
        int from = (int)fmax(0, floor(svg_x(d, top->spot[i].x) - d->left));
        int to = (int)fmin(pixels - 1, floor(svg_x(d, end) - d->left));
        for (int p = from; p <= to; p++)
            if (at[p] < 0 || top->spot[i].y > top->spot[at[p]].y)
                at[p] = i;
    }
    return at;
}

/* One of the stack: along its tops, and back along its feet. */
static void area(const struct drawing *d, const struct curve *s, const int64_t *at, int pixels)
{
    bool any = false;

    for (int back = 0; back < 2; back++)
        for (int k = 0, q; k < pixels; k = q) {
            int p = back ? pixels - 1 - k : k;
            for (q = k + 1; q < pixels && at[back ? pixels - 1 - q : q] == at[p]; q++)
                ;
            if (at[p] < 0)
                continue;
            double y = svg_y(d, back ? s->spot[at[p]].low : s->spot[at[p]].y), end = d->left + (back ? pixels - q : q);
            if (!any)
                text_add(d->to, "<path d=\"M%.0f %.1fH%.0f", d->left + p, y, end);
            else
                text_add(d->to, "V%.1fH%.0f", y, end);
            any = true;
        }
    if (any)
        text_add(d->to, "Z\" fill=\"%s\"/>", svg_colour(d, s->colour).s);
}

/* Series that are areas are one stack, in their order. */
static void areas(const struct drawing *d)
{
    const struct curve *top = NULL;
    int pixels = (int)d->across;

    for (int i = 0; i < d->c->nseries; i++)
        if (d->c->series[i].mark == MARK_AREA)
            top = &d->c->series[i];
    if (!top)
        return;
    int64_t *at = moments(d, top, pixels);
    for (int i = 0; i < d->c->nseries; i++)
        if (d->c->series[i].mark == MARK_AREA && d->c->series[i].n == top->n)
            area(d, &d->c->series[i], at, pixels);
    free(at);
}

/* ---- lines ---- */

/* Of lines that lie on each other the first ones are wider, 10 pixels at most. */
static double line_width(const struct chart *c, int series)
{
    return c->nested ? 2 + (c->nseries - 1 - series) * fmin(2, 10.0 / c->nseries) : 2.2;
}

/* Only neighbours are joined: a spot without a value ends a line. */
static void line(const struct drawing *d, int series)
{
    const struct curve *s = &d->c->series[series];
    bool open = false, any = false;

    for (int64_t i = 0; i < s->n; i++) {
        if (!svg_can(d, &s->spot[i])) {
            open = false;
            continue;
        }
        if (!any)
            text_put(d->to, "<path class=\"curve\" d=\"");
        if (open && s->mark == MARK_STEPS)
            text_add(d->to, "H%.1f", svg_x(d, s->spot[i].x));
        text_add(d->to, "%s%.1f %.1f", open ? "L" : "M", svg_x(d, s->spot[i].x), svg_y(d, s->spot[i].y));
        open = any = true;
    }
    if (any)
        text_add(d->to, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\"%s/>", svg_colour(d, s->colour).s,
                 line_width(d->c, series), s->dashed ? " stroke-dasharray=\"6 4\"" : "");
}

static bool has_interval(const struct drawing *d, const struct spot *p)
{
    return svg_can(d, p) && isfinite(p->low) && isfinite(p->high);
}

static double bound(const struct drawing *d, double y) { return fmin(d->top + d->down, fmax(d->top, svg_y(d, y))); }

/* From spot to spot, where both have an interval. */
static void band(const struct drawing *d, const struct curve *s)
{
    for (int64_t i = 0; i + 1 < s->n; i++) {
        const struct spot *a = &s->spot[i], *b = a + 1;
        if (has_interval(d, a) && has_interval(d, b))
            text_add(d->to, "<path class=\"band\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fL%.1f %.1fZ\" fill=\"%s\" fill-opacity=\"0.22\"/>", svg_x(d, a->x),
                     bound(d, a->low), svg_x(d, b->x), bound(d, b->low), svg_x(d, b->x), bound(d, b->high), svg_x(d, a->x),
                     bound(d, a->high), svg_colour(d, s->colour).s);
    }
}

/* ---- points ---- */

static void dot(const struct drawing *d, double x, double y, double r, const char *fill, const char *stroke, double width)
{
    text_add(d->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%.1f\"/>", x, y, r, fill, stroke, width);
}

/* A choice, with room around it for a finger. */
static void special(const struct drawing *d, int series, int64_t at)
{
    const struct curve *s = &d->c->series[series];
    const struct spot *p = &s->spot[at];
    double x = svg_x(d, p->x), y = svg_y(d, p->y), edge = p->form & SPOT_SHOWN ? 2.5 : p->form & (SPOT_BEST | SPOT_HOLLOW) ? 1.8 : 1;
    struct ink fg = svg_ink(d, "fg"), card = svg_ink(d, "card"),
               own = p->form & SPOT_BAD ? svg_ink(d, "bad") : svg_colour(d, p->form & SPOT_BEST ? 1 : p->form & SPOT_TIE ? 4 : s->colour);
    const char *fill = p->form & (SPOT_HOLLOW | SPOT_PEAK) ? card.s : own.s;
    const char *stroke = p->form & (SPOT_SHOWN | SPOT_BEST | SPOT_PEAK) ? fg.s : p->form & SPOT_HOLLOW ? own.s : card.s;

    text_add(d->to, "<g class=\"%s\" data-at=\"%d.%ld\"><circle class=\"reach\" cx=\"%.1f\" cy=\"%.1f\" r=\"12\" fill=\"none\"/>", p->form & SPOT_PEAK ? "peak" : "point", series, (long)at, x, y);
    if (p->form & SPOT_BEST)
        text_add(d->to, "<path d=\"M%.1f %.1fl8.5 8.5l-8.5 8.5l-8.5 -8.5Z\" fill=\"%s\" stroke=\"%s\" stroke-width=\"%.1f\"/>", x, y - 8.5, fill,
                 stroke, edge);
    else
        dot(d, x, y, p->form & SPOT_SHOWN ? 6 : 5, fill, stroke, p->form & SPOT_PEAK ? 2 : edge);
    text_put(d->to, "</g>");
}

static void points(const struct drawing *d, int series)
{
    const struct curve *s = &d->c->series[series];
    bool plain = s->mark == MARK_POINTS || s->mark == MARK_BOTH;
    struct ink card = svg_ink(d, "card");

    for (int64_t i = 0; i < s->n; i++)
        if (svg_can(d, &s->spot[i]) && s->spot[i].form)
            special(d, series, i);
        else if (svg_can(d, &s->spot[i]) && plain)
            dot(d, svg_x(d, s->spot[i].x), svg_y(d, s->spot[i].y), s->mark == MARK_BOTH ? 3.5 : 4, svg_colour(d, s->colour).s, card.s, 0.7);
}

static void intervals(const struct drawing *d, const struct curve *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (has_interval(d, &s->spot[i]))
            svg_interval(d, svg_x(d, s->spot[i].x), s->spot[i].low, s->spot[i].high,
                          s->spot[i].form & SPOT_BEST ? svg_ink(d, "fg").s : svg_colour(d, s->colour).s,
                          s->spot[i].form & SPOT_BEST ? " stroke-width=\"2\"" : " stroke-width=\"1.5\" stroke-opacity=\"0.6\"");
}

/* ---- names of points ---- */

enum { MAX_TAKEN = 32 };
struct taken { double x[MAX_TAKEN], y[MAX_TAKEN], wide[MAX_TAKEN]; int n; };

static bool is_free(const struct drawing *d, const struct taken *t, double x, double y, double wide)
{
    if (x < d->left || x + wide > d->left + d->across || y < d->top + 8 || y > d->top + d->down - 8)
        return false;
    for (int i = 0; i < t->n; i++)
        if (x < t->x[i] + t->wide[i] && t->x[i] < x + wide && fabs(y - t->y[i]) < 14)
            return false;
    return true;
}

/* To the right or left of the point, above or below, wherever there is room first. */
static void spot_label(const struct drawing *d, struct taken *t, const struct spot *p)
{
    int most = p->form & SPOT_PEAK ? svg_columns(d->across) : 40;
    double wide = svg_width(p->label, most), x = svg_x(d, p->x), y = svg_y(d, p->y), down = y + 12;
    double at = fmax(2, fmin(x + 8, d->width - wide - 4));      /* where nothing is free */

    for (int i = 0; i < 8; i++) {
        double try_x = i % 2 ? x - 10 - wide : x + 10, try_y = y + (i / 2 % 2 ? 1 : -1) * (i < 4 ? 12 : 26);
        if (!is_free(d, t, try_x, try_y, wide))
            continue;
        at = try_x;
        down = try_y;
        break;
    }
    if (p->form & SPOT_PEAK)
        svg_plate(d, at, down, AT_START, p->label);
    else
        svg_words(d, at, down, AT_START, svg_ink(d, "fg").s, p->label, 40);
    if (t->n < MAX_TAKEN) {
        t->x[t->n] = at;
        t->y[t->n] = down;
        t->wide[t->n++] = wide;
    }
}

static void spot_labels(const struct drawing *d)
{
    struct taken t = { .n = 0 };

    for (int i = 0; i < d->c->nlevels; i++)         /* their words stand at the right end */
        if (d->c->level[i].axis == AXIS_Y && t.n < MAX_TAKEN) {
            double wide = svg_width(d->c->level[i].words, 60);
            t.x[t.n] = d->left + d->across - wide - 10;
            t.y[t.n] = svg_y(d, d->c->level[i].at) - 10;
            t.wide[t.n++] = wide;
        }
    for (int i = 0; i < d->c->nseries; i++)
        for (int64_t k = 0; k < d->c->series[i].n; k++)
            if (d->c->series[i].spot[k].label && svg_can(d, &d->c->series[i].spot[k]))
                spot_label(d, &t, &d->c->series[i].spot[k]);
}

/* y = x, and 10 % to either side: what lies between was predicted within that. */
static void diagonal(const struct drawing *d)
{
    static const double by[] = { 1, 1.1, 0.9 };

    for (int i = 0; i < 3; i++) {
        double from = d->x.from, to = fmin(d->x.to, d->y.to / by[i]);
        from = fmax(from, d->y.from / by[i]);
        svg_line(d, svg_x(d, from), svg_y(d, by[i] * from), svg_x(d, to), svg_y(d, by[i] * to), svg_ink(d, i ? "dim" : "fg").s,
                  i ? " stroke-dasharray=\"6 4\"" : "");
    }
}

void xy_draw(const struct drawing *d)
{
    areas(d);
    if (d->c->diagonal)
        diagonal(d);
    for (int i = 0; i < d->c->nseries; i++) {
        const struct curve *s = &d->c->series[i];
        if (s->mark == MARK_AREA)
            continue;
        if (d->c->band)
            band(d, s);
        if (s->mark != MARK_POINTS)
            line(d, i);
        intervals(d, s);
        points(d, i);
    }
    spot_labels(d);
}
