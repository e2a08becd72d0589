/* figure.h -- a chart that a command draws into an SVG file. */
#ifndef DPX_FIGURE_H
#define DPX_FIGURE_H

#include "base/chart/chart.h"

/* 0; -1 reported: another suffix than .svg. */
int figure_name(const char *path);

/* Draws into `path`, which is replaced only by a whole file.  0, or -1 with the reason reported. */
int figure_chart(const struct chart *c, const char *path);

#endif
