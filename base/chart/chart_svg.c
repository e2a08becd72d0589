/* chart_svg.c -- what all charts have: letters, axes, what colours mean. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/chart/chart_draw.h"

/* Pixels. */
enum { LINE = 17, PLOT = 264, BELOW = 46, STRIPE = 6, MOST_TICKS = 64 };    /* ticks: of an axis whose numbers are too near each other for a double */
#define COLUMN_WIDTH 6.7        /* of a letter, at 12 px, rather too wide */
#define FAR 1e5

/* ---- places ---- */

static double along(const struct scale_of *s, bool logarithmic, double v)
{
    return logarithmic ? log(v / s->from) / log(s->to / s->from) : (v - s->from) / (s->to - s->from);
}

static double near(double v) { return isnan(v) ? 0 : fmin(FAR, fmax(-FAR, v)); }

double svg_x(const struct drawing *d, double x) { return near(d->left + d->across * along(&d->x, d->c->axis[AXIS_X].log, x)); }

double svg_y(const struct drawing *d, double y) { return near(d->top + d->down * (1 - along(&d->y, d->c->axis[AXIS_Y].log, y))); }

bool svg_can(const struct drawing *d, const struct spot *p)
{
    return isfinite(p->x) && isfinite(p->y) && !(d->c->axis[AXIS_X].log && p->x <= 0) && !(d->c->axis[AXIS_Y].log && p->y <= 0);
}

int svg_columns(double pixels) { return (int)fmax(1, floor(pixels / COLUMN_WIDTH)); }

double svg_width(const char *s, int columns)
{
    int n = text_columns(s);

    return COLUMN_WIDTH * (n < columns ? n : columns);
}

/* ---- colours ---- */

struct ink svg_colour(const struct drawing *d, int colour)
{
    struct ink ink;

    if (d->look == CHART_PAGE)
        snprintf(ink.s, sizeof ink.s, "var(--c%d)", colour % NCOLOURS);
    else
        snprintf(ink.s, sizeof ink.s, "%s", chart_colour(colour, false));
    return ink;
}

struct ink svg_ink(const struct drawing *d, const char *name)
{
    struct ink ink;
    const char *at, *colour;

    snprintf(ink.s, sizeof ink.s, "var(--%.12s)", name);
    for (int i = 0; d->look == CHART_FILE && (at = chart_surface(i, false, &colour)); i++)
        if (!strcmp(at, name))
            snprintf(ink.s, sizeof ink.s, "%s", colour);
    return ink;
}

/* ---- letters and lines ---- */

static void letters(const struct drawing *d, double x, double y, enum anchor anchor, const char *ink, const char *s, int columns, const char *more)
{
    static const char *const anchors[] = { "start", "middle", "end" };
    struct text cut = { 0 };

    text_cut(&cut, s, columns > 1 ? columns : 1);
    if (cut.n > 0) {
        text_add(d->to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"%s>", x, y + 4, anchors[anchor], ink, more);
        text_html(d->to, cut.s);
        text_put(d->to, "</text>");
    }
    text_free(&cut);
}

void svg_words(const struct drawing *d, double x, double y, enum anchor anchor, const char *ink, const char *s, int columns)
{
    letters(d, x, y, anchor, ink, s, columns, " class=\"tick\"");
}

void svg_strong(const struct drawing *d, double x, double y, enum anchor anchor, const char *ink, const char *s, int columns)
{
    letters(d, x, y, anchor, ink, s, columns, " class=\"tick\" font-weight=\"bold\"");
}

void svg_rect(const struct drawing *d, double x, double y, double wide, double high, const char *fill, const char *more)
{
    text_add(d->to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s/>", x, y, wide, high, fill, more);
}

void svg_line(const struct drawing *d, double x1, double y1, double x2, double y2, const char *ink, const char *more)
{
    text_add(d->to, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\"%s/>", x1, y1, x2, y2, ink, more);
}

void svg_hatched(const struct drawing *d, double x, double y, double wide, double high)
{
    text_put(d->to, "<path d=\"");
    for (double k = STRIPE * ceil((x - high) / STRIPE); k < x + wide; k += STRIPE) {       /* from the foot at k to the top at k + high */
        double from = fmax(0, x - k), to = fmin(high, x + wide - k);
        if (to > from)
            text_add(d->to, "M%.1f %.1fL%.1f %.1f", k + from, y + high - from, k + to, y + high - to);
    }
    text_add(d->to, "\" stroke=\"%s\" stroke-width=\"1.8\"/>", svg_ink(d, "bad").s);
}

void svg_interval(const struct drawing *d, double x, double low, double high, const char *ink, const char *more)
{
    double a = fmin(d->top + d->down, fmax(d->top, svg_y(d, low))), b = fmin(d->top + d->down, fmax(d->top, svg_y(d, high)));

    text_add(d->to, "<path class=\"interval\" d=\"M%.1f %.1fh6m-3 0V%.1fm-3 0h6\" stroke=\"%s\" fill=\"none\"%s/>", x - 3, a, b, ink, more);
}

void svg_plate(const struct drawing *d, double x, double y, enum anchor anchor, const char *s)
{
    double wide = svg_width(s, svg_columns(d->width - 8)), from = anchor == AT_END ? x - wide : anchor == AT_START ? x : x - wide / 2;

    from = fmax(4, fmin(from, d->width - wide - 4));
    svg_rect(d, from - 3, y - 8, wide + 6, 16, svg_ink(d, "card").s, " rx=\"3\" fill-opacity=\"0.88\"");
    letters(d, anchor == AT_END ? from + wide : anchor == AT_START ? from : from + wide / 2, y, anchor, svg_ink(d, "fg").s, s,
            svg_columns(d->width - 8), " class=\"tick\"");
}

/* ---- axes ---- */

/* The k-th tick of an axis; false: there are no more. */
static bool tick_at(const struct drawing *d, enum axis a, int k, double *at, struct shown *name)
{
    const struct chart *c = d->c;
    const struct scale_of *s = a == AXIS_X ? &d->x : &d->y;
    double first = s->step * ceil(s->from / s->step - 1e-9), v = c->axis[a].log ? s->from * pow(s->step, k) : first + k * s->step;

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

static void ticks_y(const struct drawing *d)
{
    struct shown name;
    double at;

    for (int k = 0; tick_at(d, AXIS_Y, k, &at, &name); k++) {
        svg_line(d, d->left, svg_y(d, at), d->left + d->across, svg_y(d, at), svg_ink(d, "line").s, "");
        svg_words(d, d->left - 6, svg_y(d, at), AT_END, svg_ink(d, "dim").s, name.s, 14);
    }
}

/* A tick has no name where that would touch the one before it; of names that were given every second one stands lower. */
static void ticks_x(const struct drawing *d)
{
    double last[2] = { -1e9, -1e9 }, at, foot = d->top + d->down;
    bool given = d->c->nticks > 0, stagger = false;
    struct shown name;

    for (int k = 0; given && tick_at(d, AXIS_X, k, &at, &name); k++) {
        stagger |= svg_x(d, at) - svg_width(name.s, 40) / 2 < last[0] + 6;
        last[0] = svg_x(d, at) + svg_width(name.s, 40) / 2;
    }
    last[0] = -1e9;
    for (int k = 0; tick_at(d, AXIS_X, k, &at, &name); k++) {
        int row = stagger && k % 2;
        double x = svg_x(d, at), half = svg_width(name.s, 40) / 2;
        bool now = given && d->c->tick[k].now;
        svg_line(d, x, d->top, x, foot, svg_ink(d, "line").s, "");
        if (x - half < last[row] + 6 || x + half > d->width + 2)
            continue;
        (now ? svg_strong : svg_words)(d, x, foot + 12 + 13 * row, AT_MIDDLE, svg_ink(d, now ? "fg" : "dim").s, name.s, 40);
        last[row] = x + half;
    }
}

/* Words at the feet of ticks, in two rows where they would touch. */
static void feet(const struct drawing *d)
{
    double last[2] = { -1e9, -1e9 };

    for (int k = 0; k < d->c->nticks; k++) {
        const struct chart_tick *t = &d->c->tick[k];
        double half = t->below ? svg_width(t->below, 16) / 2 : 0, x = svg_x(d, t->at);
        if (!t->below)
            continue;
        int row = x - half < last[0] + 10;
        if (x - half < last[row] + 10)
            continue;
        svg_words(d, x, d->top + d->down - 9 - 14 * row, AT_MIDDLE, svg_ink(d, "bad").s, t->below, 16);
        last[row] = x + half;
    }
}

/* ---- levels ---- */

static const char *level_stroke(enum level_look look)
{
    return look == LEVEL_LIMIT ? " stroke-width=\"2\" stroke-dasharray=\"8 4\"" : look == LEVEL_DOTTED ? " stroke-width=\"1.5\" stroke-dasharray=\"2 3\""
                                                                                                 : " stroke-width=\"1.2\"";
}

/* The highest of those not yet drawn; -1: all are. */
static int next_level(const struct drawing *d, double below)
{
    int best = -1;

    for (int i = 0; i < d->c->nlevels; i++) {
        const struct chart_level *l = &d->c->level[i];
        if (l->axis == AXIS_Y && l->at < below && (best < 0 || l->at > d->c->level[best].at))
            best = i;
    }
    return best;
}

/* Lines with their words, in front of what is drawn; words of two levels never touch. */
static void svg_levels(const struct drawing *d)
{
    double last = -1e9;

    for (int i = next_level(d, INFINITY); i >= 0; i = next_level(d, d->c->level[i].at)) {
        const struct chart_level *l = &d->c->level[i];
        double y = svg_y(d, l->at), words = y - 10 < last + 16 || y < d->top + 18 ? y + 11 : y - 10;
        svg_line(d, d->left, y, d->left + d->across, y, svg_ink(d, l->look == LEVEL_DOTTED ? "fg" : "bad").s, level_stroke(l->look));
        svg_plate(d, d->left + d->across - 5, fmax(words, last + 16), AT_END, l->words);
        last = fmax(words, last + 16);
    }
    for (int i = 0; i < d->c->nlevels; i++)
        if (d->c->level[i].axis == AXIS_X) {
            const struct chart_level *l = &d->c->level[i];
            double x = svg_x(d, l->at);
            svg_line(d, x, d->top, x, d->top + d->down, svg_ink(d, "bad").s, level_stroke(l->look));
            svg_plate(d, x - 7, d->top + 9, AT_END, l->words);
        }
}

/* ---- what colours mean ---- */

struct legend { double x, y; };

static void legend_item(const struct drawing *d, struct legend *at, const char *name, int colour, bool draw)
{
    double wide = 32 + svg_width(name, 60);

    if (at->x + wide > d->width + 12 && at->x > 2) {
        at->x = 2;
        at->y += LINE;
    }
    if (draw) {
        if (colour == COLOUR_BARE)
            svg_hatched(d, at->x, at->y - 5, 11, 11);
        else
            svg_rect(d, at->x, at->y - 5, 11, 11, svg_colour(d, colour).s, " rx=\"2\"");
        svg_words(d, at->x + 16, at->y, AT_START, svg_ink(d, "dim").s, name, 60);
    }
    at->x += wide;
}

/* From `top` on, or only measured; returns its height. */
static double legend(const struct drawing *d, double top, bool draw)
{
    struct legend at = { 2, top + 8 };
    const struct chart *c = d->c;

    for (int i = 0; i < c->nparts; i++)
        if (c->part[i])
            legend_item(d, &at, c->part[i], c->part_colour[i], draw);
    for (int i = 0; c->kind == CHART_XY && i < c->nseries; i++)
        if (c->series[i].name && *c->series[i].name)
            legend_item(d, &at, c->series[i].name, c->series[i].colour, draw);
    return at.x > 2 ? at.y - top + 14 : 0;
}

/* ---- together ---- */

static struct drawing layout_of(const struct chart *c, enum chart_look look, double width, struct text *to)
{
    struct drawing d = { .to = to, .c = c, .look = look, .width = width, .height = 1, .x = chart_scale(c, AXIS_X) };
    double right = 24, title = look == CHART_FILE ? 28 : 0;

    d.left = width < 480 ? 62 : 92;
    if (c->kind == CHART_XY)
        d.y = chart_scale(c, AXIS_Y);
    else if (c->kind == CHART_BARS)
        bars_room(&d, &d.left, &right);
    else
        d.left = spans_left(&d);
    d.across = width - d.left - right;
    d.top = title + 4 + legend(&d, 0, false) + (c->kind == CHART_XY && *c->axis[AXIS_Y].label ? 24 : 0);
    d.down = c->kind == CHART_BARS ? bars_height(&d) : c->kind == CHART_SPANS ? spans_height(c) : PLOT;
    d.height = ceil(d.top + d.down + (c->axis[AXIS_X].unit == UNIT_TEXT ? 4 : *c->axis[AXIS_X].label || c->nticks ? BELOW : 24));
    return d;
}

static void put_head(const struct drawing *d)
{
    const char *file = " xmlns=\"http://www.w3.org/2000/svg\" font-family=\"Arial,Helvetica,'DejaVu Sans',sans-serif\"";

    text_add(d->to, "<svg class=\"figure\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" font-size=\"12\"%s role=\"img\"",
             d->width, d->height, d->width, d->height, d->look == CHART_FILE ? file : "");
    text_add(d->to, " data-plot=\"%.1f %.1f %.1f %.1f\" data-x=\"%.9g %.9g\" data-y=\"%.9g %.9g\"", d->left, d->top, d->across,
             d->down, d->x.from, d->x.to, d->y.from, d->y.to);
    if (d->c->kind == CHART_SPANS)
        spans_places(d);
    text_put(d->to, " aria-label=\"");
    text_html(d->to, d->c->title);
    text_put(d->to, *d->c->caption ? ". " : "");
    text_html(d->to, d->c->caption);
    text_put(d->to, "\">");
    if (d->look == CHART_FILE) {
        svg_rect(d, 0, 0, d->width, d->height, "#ffffff", "");
        svg_strong(d, 2, 13, AT_START, svg_ink(d, "fg").s, d->c->title, svg_columns(d->width - 4));
    }
}

void chart_svg(const struct chart *c, enum chart_look look, double width, struct text *to)
{
    struct drawing d = layout_of(c, look, width, to);
    double title = look == CHART_FILE ? 28 : 0;

    put_head(&d);
    legend(&d, title, true);
    if (c->kind == CHART_XY) {
        svg_words(&d, d.left < 80 ? 2 : d.left - 40, d.top - 15, AT_START, svg_ink(&d, "dim").s, c->axis[AXIS_Y].label, 60);
        ticks_y(&d);
    }
    if (c->axis[AXIS_X].unit != UNIT_TEXT) {
        ticks_x(&d);
        svg_words(&d, d.left + d.across, d.top + d.down + 34, AT_END, svg_ink(&d, "dim").s, c->axis[AXIS_X].label, svg_columns(d.left + d.across));
    }
    switch (c->kind) {
    case CHART_XY:    xy_draw(&d); break;
    case CHART_BARS:  bars_draw(&d); break;
    case CHART_SPANS: spans_draw(&d); break;
    }
    feet(&d);
    svg_levels(&d);
    text_put(to, "</svg>\n");
}
