/* chart_page.h -- charts drawn: by gnuplot, as files and as elements of a page.
 *
 *     struct text svg[N] = { 0 };
 *     if (chart_page(charts, N, svg) == 0)
 *         ... svg[i].s holds two <svg> elements, class "wide" and class "narrow" ...
 *
 * What gnuplot draws becomes part of the page: of its elements and attributes only known ones stay, colours become the page's
 * variables (--c0 to --c12 of the palette, --dim, --line; black is the text's colour), the values of bars say where they
 * are in the tables (data-q), and spans have their names as titles. */
#ifndef DPX_CHART_PAGE_H
#define DPX_CHART_PAGE_H

#include "base/chart/chart.h"

/* ID.svg and ID.png of each, into a folder that is there, and figures.gp, the script that drew them.  0; 1: there is no gnuplot;
 * -1 reported. */
int chart_files(struct chart *const *c, int n, const char *folder);

/* One of both, into `path`, which is replaced only by a whole file. */
int chart_file(const struct chart *c, enum chart_look look, const char *path);

/* Each as elements of a page.  0; 1: there is no gnuplot, and svg[] stays as it is; -1 reported. */
int chart_page(struct chart *const *c, int n, struct text *svg);

/* CSS: the variables, light and dark. */
void chart_page_colours(struct text *to);

#endif
