/* figure.h -- a chart that a command draws into an SVG or PNG file. */
#ifndef DPX_FIGURE_H
#define DPX_FIGURE_H

#include "base/chart/chart.h"

/* 0; -1 reported: another suffix than .svg or .png. */
int figure_name(const char *path);

/* Draws into `path`, which is replaced only by a whole file.  0, or -1 with the reason reported; `else_words`: what writes the
 * numbers where there is no gnuplot. */
int figure_chart(const struct chart *c, const char *path, const char *else_words);

#endif
