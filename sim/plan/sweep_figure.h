/* sweep_figure.h -- a sweep as a chart: bars in a terminal, or curves in a figure.  Rows are read back from `rows`, a
 * file of `done` struct sweep_row, so that memory does not grow with the number of points. */
#ifndef DPX_SWEEP_FIGURE_H
#define DPX_SWEEP_FIGURE_H

#include <stdio.h>

#include "sim/plan/sweep.h"

/* One bar a point; of many points one bar for several, their largest value. */
void sweep_bars(const struct sweep *s, FILE *rows, int64_t done, int metric, FILE *to);

/* Curves over the last axis, one for each combination of the others (the first ten), to a .svg.  0, or -1 with the
 * reason reported: another suffix, a file that cannot be written. */
int  sweep_figure(const struct sweep *s, FILE *rows, int64_t done, int metric, const char *path);

#endif
