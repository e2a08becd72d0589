/* chart_spans.c -- spans of time on rows: streams, and stages of a pipeline. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/chart_draw.h"
#include "base/room.h"

/* Pixels: pitch of a row and height of its spans. */
enum { ROW = 18, SPAN = 14, MAIN_ROW = 54, MAIN_SPAN = 34, FOOT = 10 };

static double row_pitch(const struct chart_row *r) { return r->main ? MAIN_ROW : ROW; }
static double row_high(const struct chart_row *r) { return r->main ? MAIN_SPAN : SPAN; }

double spans_height(const struct chart *c)
{
    double h = 4;

    for (int i = 0; i < c->nrows; i++)
        h += row_pitch(&c->row[i]);
    return c->nrows ? h : ROW;
}

static double row_top(const struct drawing *d, int row)
{
    double y = d->top + 2;

    for (int i = 0; i < row; i++)
        y += row_pitch(&d->c->row[i]);
    return y;
}

void spans_places(const struct drawing *d)
{
    for (int i = 0; i < d->c->nrows; i++)
        text_add(d->to, "%s%.0f %.0f", i ? " " : " data-rows=\"", row_top(d, i), row_high(&d->c->row[i]));
    text_put(d->to, d->c->nrows ? "\"" : "");
}

static bool is_head(const struct chart_row *r) { return r->name[0] == '#'; }

double spans_left(const struct drawing *d)
{
    double most = d->left - 12;

    for (int i = 0; i < d->c->nrows; i++)
        if (!is_head(&d->c->row[i]))
            most = fmax(most, svg_width(d->c->row[i].name, 40));
    return fmin(most, d->width / 3) + 12;
}

/* What of a span lies in the plot; false: nothing. */
static bool clip(const struct drawing *d, const struct stripe *s, double *from, double *to)
{
    *from = fmax(svg_x(d, s->from), d->left);
    *to = fmin(svg_x(d, s->to), d->left + d->across);
    return *to >= *from && s->to >= d->x.from && s->from <= d->x.to;
}

/* ---- spans with a name each ---- */

/* A hair's width at least; where they stand apart, four fifths of a pixel stay free behind a span that is wider than two. */
static void named(const struct drawing *d, const struct stripe *s)
{
    double from, to;

    if (!clip(d, s, &from, &to))
        return;
    double wide = fmax(0.4, to - from - (d->c->apart && to - from > 2 ? 0.8 : 0));
    text_add(d->to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\"><title>", from, row_top(d, s->row), wide,
             row_high(&d->c->row[s->row]), svg_colour(d, s->colour).s);
    text_html(d->to, s->what);
    text_put(d->to, "</title></rect>");
}

/* ---- the others: a path for each colour ---- */

/* Time of each colour in each column of a pixel, of what is narrower than that: the colour that has most of a column has it. */
static double *narrow_times(const struct drawing *d, int row, int pixels)
{
    double *time = room_new((size_t)pixels * NCOLOURS + 1, sizeof *time), from, to;

    for (int64_t k = 0; k < d->c->nspans; k++) {
        const struct stripe *s = &d->c->span[k];
        if (s->row == row && s->colour >= 0 && !s->what && clip(d, s, &from, &to) && to - from < 1) {
            int column = (int)fmin(pixels - 1, floor(from - d->left));
            time[column * NCOLOURS + s->colour % NCOLOURS] += to - from + 1e-9;
        }
    }
    return time;
}

static int most_of(const double *time)
{
    int best = 0;

    for (int c = 1; c < NCOLOURS; c++)
        if (time[c] > time[best])
            best = c;
    return time[best] > 0 ? best : -1;
}

static void coloured(const struct drawing *d, int row, int colour, const double *time, int pixels)
{
    double y = row_top(d, row), high = row_high(&d->c->row[row]), from, to;
    size_t begin = d->to->n;

    for (int p = 0, q; p < pixels; p = q) {
        bool own = most_of(&time[p * NCOLOURS]) == colour;
        for (q = p + 1; q < pixels && (most_of(&time[q * NCOLOURS]) == colour) == own; q++)
            ;
        if (own)
            text_add(d->to, "M%.1f %.1fh%dv%.0fh-%dZ", d->left + p, y, q - p, high, q - p);
    }
    for (int64_t k = 0; k < d->c->nspans; k++) {
        const struct stripe *s = &d->c->span[k];
        if (s->row == row && s->colour == colour && !s->what && clip(d, s, &from, &to) && to - from >= 1)
            text_add(d->to, "M%.1f %.1fH%.1fv%.0fH%.1fZ", from, y, to, high, from);
    }
    if (d->to->n == begin)
        text_put(d->to, "M0 0");
}

static void unnamed(const struct drawing *d, int row, unsigned used)
{
    int pixels = (int)d->across;
    double *time = narrow_times(d, row, pixels);

    for (int colour = 0; colour < NCOLOURS; colour++)
        if (used >> colour & 1) {
            text_put(d->to, "<path d=\"");
            coloured(d, row, colour, time, pixels);
            text_add(d->to, "\" fill=\"%s\"/>", svg_colour(d, colour).s);
        }
    free(time);
}

/* ---- bare: stripes over a row, and below it how much of every two pixels is bare ---- */

static void bare_foot(const struct drawing *d, int row, const double *share, int bins)
{
    double y = row_top(d, row) + row_high(&d->c->row[row]) + 1;

    text_put(d->to, "<path class=\"bare\" d=\"M0 0");
    for (int i = 0; i < bins; i++)
        if (share[i] > 0.01)
            text_add(d->to, "M%.1f %.1fh2v%.1fh-2Z", d->left + 2 * i, y, FOOT * fmin(1, share[i]));
    text_add(d->to, "\" fill=\"%s\"/>", svg_ink(d, "bad").s);
}

static void bare(const struct drawing *d, int row)
{
    int bins = (int)(d->across / 2) + 1;
    double *share = room_new((size_t)bins, sizeof *share), from, to;
    bool any = false;

    for (int64_t k = 0; k < d->c->nspans; k++) {
        const struct stripe *s = &d->c->span[k];
        if (s->row != row || s->colour != COLOUR_BARE || !clip(d, s, &from, &to))
            continue;
        any = true;
        if (to - from >= 2)
            svg_hatched(d, from, row_top(d, row), to - from, row_high(&d->c->row[row]));
        for (int i = (int)((from - d->left) / 2); i < bins && d->left + 2 * i < to; i++)
            share[i] += (fmin(to, d->left + 2 * i + 2) - fmax(from, d->left + 2 * i)) / 2;
    }
    if (any && d->c->row[row].main)
        bare_foot(d, row, share, bins);
    free(share);
}

/* Rows of what they hold: colours of unnamed spans as bits. */
static unsigned *colours_of_rows(const struct chart *c)
{
    unsigned *used = room_new((size_t)c->nrows + 1, sizeof *used);

    for (int64_t k = 0; k < c->nspans; k++)
        if (!c->span[k].what && c->span[k].colour >= 0)
            used[c->span[k].row] |= 1U << c->span[k].colour % NCOLOURS;
    return used;
}

void spans_draw(const struct drawing *d)
{
    unsigned *used = colours_of_rows(d->c);

    for (int i = 0; i < d->c->nrows; i++) {
        const struct chart_row *r = &d->c->row[i];
        double y = row_top(d, i), middle = y + row_high(r) / 2;
        if (is_head(r)) {
            svg_words(d, 2, middle, AT_START, svg_ink(d, "fg").s, r->name + 1, svg_columns(d->width - 4));
            continue;
        }
        (r->main ? svg_strong : svg_words)(d, d->left - 7, middle, AT_END, svg_ink(d, r->main ? "fg" : "dim").s, r->name, svg_columns(d->left - 8));
        svg_rect(d, d->left, y, d->across, row_high(r), svg_ink(d, "soft").s, "");
        unnamed(d, i, used[i]);
    }
    for (int64_t k = 0; k < d->c->nspans; k++)
        if (d->c->span[k].what)
            named(d, &d->c->span[k]);
    for (int i = 0; i < d->c->nrows; i++)
        if (d->c->row[i].main)
            bare(d, i);
    free(used);
}
