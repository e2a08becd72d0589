/* chart_draw.h -- what the three kinds of chart have in common while they are drawn; chart_svg.c's own. */
#ifndef DPX_CHART_DRAW_H
#define DPX_CHART_DRAW_H

#include "base/chart/chart_svg.h"

/* A plot inside its axes, in pixels from the drawing's left and top. */
struct drawing {
    struct text *to;
    const struct chart *c;
    enum chart_look look;
    double width, height;
    double left, top, across, down;
    struct scale_of x, y;
};

enum anchor { AT_START, AT_MIDDLE, AT_END };

/* Of a value, kept near the plot. */
double svg_x(const struct drawing *d, double x);
double svg_y(const struct drawing *d, double y);
bool   svg_can(const struct drawing *d, const struct spot *p);

/* Room that words take, of at most `columns`. */
double svg_width(const char *s, int columns);
int    svg_columns(double pixels);

/* A colour of the palette, or of what lies around figures by its name ("fg"), as the look writes it. */
struct ink { char s[24]; };
struct ink svg_colour(const struct drawing *d, int colour);
struct ink svg_ink(const struct drawing *d, const char *name);

/* y: the middle of the letters. */
void svg_words(const struct drawing *d, double x, double y, enum anchor anchor, const char *ink, const char *s, int columns);
void svg_strong(const struct drawing *d, double x, double y, enum anchor anchor, const char *ink, const char *s, int columns);
/* On a plate that keeps them readable over a picture; moved inside the drawing. */
void svg_plate(const struct drawing *d, double x, double y, enum anchor anchor, const char *s);
/* more: attributes, or "". */
void svg_line(const struct drawing *d, double x1, double y1, double x2, double y2, const char *ink, const char *more);
void svg_rect(const struct drawing *d, double x, double y, double wide, double high, const char *fill, const char *more);
/* Diagonal stripes. */
void svg_hatched(const struct drawing *d, double x, double y, double wide, double high);
/* The interval from low to high, at x, with a short line at either end. */
void svg_interval(const struct drawing *d, double x, double low, double high, const char *ink, const char *more);

/* The kinds: how high and wide they are, and what is inside the axes. */
void   xy_draw(const struct drawing *d);
double bars_height(const struct drawing *d);
void   bars_room(const struct drawing *d, double *left, double *right);
void   bars_draw(const struct drawing *d);
double spans_height(const struct chart *c);
double spans_left(const struct drawing *d);
/* data-rows: the top and the height of each. */
void   spans_places(const struct drawing *d);
void   spans_draw(const struct drawing *d);

#endif
