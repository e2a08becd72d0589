/* chart_svg.h -- a chart drawn as SVG: for a file of its own, and as an element of a page.
 *
 *     struct text t = { 0 };
 *     chart_svg(c, CHART_FILE, CHART_FILE_WIDTH, &t);
 *
 * Where things lie is decided in pixels, so that letters have their size and nothing is cut off on a telephone too.  Texts come from
 * models and plans: all go through text_html().  The same chart gives the same bytes. */
#ifndef DPX_CHART_SVG_H
#define DPX_CHART_SVG_H

#include "base/chart/chart.h"

/* A file has its title, is white and has its colours in it.  A page has its own title, and variables: --c0 to --c12 of the palette and
 * chart_surface()'s. */
enum chart_look { CHART_FILE, CHART_PAGE };
enum { CHART_FILE_WIDTH = 900, CHART_WIDE_WIDTH = 1000, CHART_NARROW_WIDTH = 350 };     /* pixels */

/* Adds one <svg>.  Its data-plot has x, y, width and height of the plot inside it, data-x and data-y what its axes begin and end with,
 * data-rows the tops and heights of rows;
 * a point that is a choice (its form is not 0) is a <g class="point" data-at="SERIES.SPOT">; values of bars with a key
 * have it as data-q. */
void chart_svg(const struct chart *c, enum chart_look look, double width, struct text *to);

#endif
