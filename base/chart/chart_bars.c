/* chart_bars.c -- stacked horizontal bars: in groups of a prediction and a measurement, or each with its name beside it. */
#include <math.h>
#include <stdio.h>

#include "base/chart/chart_draw.h"

/* Pixels.  Names stand beside their bars in drawings of BESIDE and wider. */
enum { BAR = 18, STEP = 22, HEAD = 23, TALL = 24, TALL_STEP = 31, BESIDE = 480 };

static bool is_single(const struct chart *c)
{
    for (int i = 0; i < c->nbars; i++)
        if (c->bar[i].side)
            return false;
    return true;
}

static bool is_beside(const struct drawing *d) { return is_single(d->c) && d->width >= BESIDE; }

static double bar_high(const struct drawing *d) { return is_beside(d) ? TALL : is_single(d->c) ? BAR - 3 : BAR; }

/* The top of a bar; a group's name has its place above the first of its bars. */
static double bar_top(const struct drawing *d, int bar)
{
    double y = 2;

    if (is_beside(d))
        return y + TALL_STEP * bar;
    for (int i = 0; i <= bar; i++)
        y += (i ? STEP : 0) + (d->c->bar[i].label ? HEAD - (is_single(d->c) ? 5 : 0) : 0);
    return y;
}

double bars_height(const struct drawing *d)
{
    return d->c->nbars ? bar_top(d, d->c->nbars - 1) + bar_high(d) + 4 : 20;
}

static const char *value_of(const struct drawing *d, const struct bar *b, struct shown *room)
{
    if (b->words)
        return b->words;
    *room = chart_bar_value(d->c, b);
    return room->s;
}

static bool has_words(const struct bar *b) { return b->key || b->words; }

void bars_room(const struct drawing *d, double *left, double *right)
{
    struct shown value;
    double most = 0, name = 0;

    for (int i = 0; i < d->c->nbars; i++) {
        const struct bar *b = &d->c->bar[i];
        most = fmax(most, has_words(b) ? svg_width(value_of(d, b, &value), 48) : 0);
        name = fmax(name, b->label ? svg_width(b->label, 36) : 0);
    }
    *left = is_beside(d) ? fmin(name + 10, 0.42 * d->width) : is_single(d->c) ? 2 : 80;
    *right = fmin(most + 14, (is_beside(d) ? 0.42 : 0.6) * d->width);
}

static void bar(const struct drawing *d, int i)
{
    const struct bar *b = &d->c->bar[i];
    double y = d->top + bar_top(d, i), high = bar_high(d), at = 0, middle = y + high / 2;
    struct ink fg = svg_ink(d, "fg");

    for (int k = 0; k < d->c->nparts; at += b->part[k++])
        if (b->part[k] > 0)
            svg_rect(d, svg_x(d, at), y, fmax(1, svg_x(d, at + b->part[k]) - svg_x(d, at)), high, svg_colour(d, d->c->part_colour[k]).s,
                      b->hatched ? " fill-opacity=\"0.5\"" : "");
    if (isfinite(b->low) && isfinite(b->high))
        text_add(d->to, "<path d=\"M%.1f %.1fv8m0 -4H%.1fm0 -4v8\" stroke=\"%s\" stroke-width=\"1.5\" fill=\"none\"/>", svg_x(d, b->low), middle - 4,
                 svg_x(d, b->high), fg.s);
    if (isfinite(b->limit))
        svg_line(d, svg_x(d, b->limit), y - 3, svg_x(d, b->limit), y + high + 3, svg_ink(d, "bad").s, " stroke-width=\"2\" stroke-dasharray=\"4 3\"");
    if (isfinite(b->middle))
        text_add(d->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>", svg_x(d, b->middle), middle, fg.s);
}

static void value(const struct drawing *d, int i)
{
    const struct bar *b = &d->c->bar[i];
    double end = chart_bar_sum(d->c, b), y = d->top + bar_top(d, i) + bar_high(d) / 2;
    struct shown room;
    const char *s = value_of(d, b, &room);

    if (!has_words(b))
        return;
    end = fmax(end, isfinite(b->high) ? b->high : end);
    end = fmax(end, isfinite(b->middle) ? b->middle : end);
    text_add(d->to, "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\" class=\"tip\"", svg_x(d, end) + 8, y + 4, svg_ink(d, "fg").s);
    if (b->key) {
        text_put(d->to, " data-q=\"");
        text_html(d->to, b->key);
        text_put(d->to, "\"");
    }
    text_put(d->to, ">");
    text_html(d->to, s);
    text_put(d->to, "</text>");
}

void bars_draw(const struct drawing *d)
{
    for (int i = 0; i < d->c->nbars; i++) {
        const struct bar *b = &d->c->bar[i];
        double y = d->top + bar_top(d, i);
        if (b->label && is_beside(d))
            svg_words(d, d->left - 8, y + bar_high(d) / 2, AT_END, svg_ink(d, "dim").s, b->label, svg_columns(d->left - 8));
        else if (b->label)
            svg_words(d, 2, y - (is_single(d->c) ? 8 : 11), AT_START, svg_ink(d, "fg").s, b->label, svg_columns(d->width - 4));
        if (b->side)
            svg_words(d, d->left - 6, y + bar_high(d) / 2, AT_END, svg_ink(d, "dim").s, b->side, 11);
        bar(d, i);
    }
    for (int i = 0; i < d->c->nbars; i++)
        value(d, i);
}
