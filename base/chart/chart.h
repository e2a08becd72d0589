/* chart.h -- a figure as data.  chart_svg.h draws it: for files, reports and the planner's page.
 *
 *     struct chart *c = chart_new(CHART_XY, "loss", "Loss", "Every run on its own line.");
 *     chart_axis(c, AXIS_X, "step", UNIT_COUNT, false);
 *     int s = chart_series(c, name, 0, MARK_LINE);
 *     chart_spot(c, s, x, y);
 *
 * Three kinds: points and lines over two axes, stacked horizontal bars, spans of time on rows.
 * Texts are copied.  Colours are numbers of the page's palette: the same thing has the same
 * colour in every figure. */
#ifndef DPX_CHART_H
#define DPX_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/chart/text.h"
#include "base/chart/unit.h"

enum chart_kind { CHART_XY, CHART_BARS, CHART_SPANS };
enum mark { MARK_POINTS, MARK_LINE, MARK_BOTH, MARK_STEPS, MARK_AREA };    /* an area is filled from each spot's `low` to its y */
enum axis { AXIS_X, AXIS_Y };
enum { NCOLOURS = 13, CHART_PALE = 12 };         /* the last one recedes: of what is not there */

/* What is special about a point. */
enum spot_form { SPOT_BEST = 1, SPOT_TIE = 2, SPOT_HOLLOW = 4, SPOT_SHOWN = 8, SPOT_BAD = 16, SPOT_PEAK = 32, SPOT_CHOICE = 64 };

/* low..high: an interval around y; NaN: none. */
struct spot { double x, y, low, high; const char *label; unsigned form; };
/* name NULL: it belongs to the series before it, and has no name of its own. */
struct curve {
    const char *name;
    int colour;
    enum mark mark;
    bool dashed;
    struct spot *spot;
    int64_t n, room;
};

enum { MAX_PARTS = 16 };
struct bar {
    const char *label;              /* above the first bar of a group; NULL: the same group */
    const char *side;               /* "predicted"; NULL in all bars: labels stand beside bars where there is room */
    bool   hatched;                 /* predicted */
    double part[MAX_PARTS];
    double low, high, middle, limit;    /* NaN: none; middle: a dot; limit: a line across the bar */
    double value;                   /* written beside it; NaN: the sum of its parts */
    const char *words;              /* in its place, where not NULL */
    const char *key;                /* where the value is in the tables, "phases/7.compute/measured_s" */
};

struct chart_row { const char *name; bool main; };      /* a main row is taller */
enum { COLOUR_BARE = -1 };          /* of a stripe: hatched, with a bar below its row */
struct stripe { int row, colour; double from, to; const char *what; };
/* below: words at the foot of the plot, such as "no room"; now: in bold. */
struct chart_tick { double at; const char *name, *below; bool now; };
/* A line across the plot, with its words. */
enum level_look { LEVEL_LIMIT, LEVEL_DOTTED, LEVEL_THIN };
struct chart_level { enum axis axis; double at; const char *words; enum level_look look; };

struct chart {
    enum chart_kind kind;
    const char *id, *title, *caption;
    struct { const char *label; enum measure unit; bool log; } axis[2];
    bool diagonal;                  /* and the band of 10 % beside it */
    bool apart;                     /* spans have an edge: neighbours of one colour are told apart */
    bool nested;                    /* lines that lie on each other: the first ones are wider */
    bool close;                     /* axes begin near what is drawn, not at 0 */
    bool band;                      /* intervals of a line as a band too */
    double range[2];                /* of the x axis, where range[1] > range[0] */
    struct curve *series; int nseries;
    struct chart_tick *tick; int nticks;    /* of the x axis, where they are not round numbers */
    const char *part[MAX_PARTS];
    int part_colour[MAX_PARTS];
    int nparts; /* bars, spans: what colours mean */
    struct bar *bar; int nbars;
    struct chart_row *row; int nrows;   /* spans; a name that begins with '#' heads those below it */
    struct chart_level *level; int nlevels;
    struct stripe *span; int64_t nspans, room_spans;
    struct kept *kept;
};

struct chart *chart_new(enum chart_kind k, const char *id, const char *title, const char *caption);
void          chart_free(struct chart *c);

void chart_axis(struct chart *c, enum axis a, const char *label, enum measure u, bool logarithmic);
/* Of the x axis: in place of round numbers, in ascending order. */
struct chart_tick *chart_tick(struct chart *c, double at, const char *name);
int  chart_series(struct chart *c, const char *name, int colour, enum mark m);
struct spot *chart_spot(struct chart *c, int series, double x, double y);
int  chart_part(struct chart *c, const char *name, int colour);
struct bar *chart_bar(struct chart *c, const char *label, const char *side, bool hatched);
int  chart_row(struct chart *c, const char *name);
void chart_level(struct chart *c, enum axis a, double at, const char *words, enum level_look look);
void chart_span(struct chart *c, int row, int colour, double from, double to, const char *what);

double chart_bar_sum(const struct chart *c, const struct bar *b);
/* What is written beside it: its value, or the sum of its parts. */
struct shown chart_bar_value(const struct chart *c, const struct bar *b);

/* Least and greatest of what is drawn along an axis, widened to round numbers; *step between
 * ticks (of a logarithmic axis: a factor). */
struct scale_of { double from, to, step; };
struct scale_of chart_scale(const struct chart *c, enum axis a);

/* The sRGB colour of the light page, "#0072b2". */
const char *chart_colour(int colour, bool dark);

/* The i-th colour of a page around its figures: its name, "card"; NULL: there are no more.  page/make.sh reads both tables. */
const char *chart_surface(int i, bool dark, const char **colour);

#endif
