/* figure.c -- see figure.h. */
#include "sim/plan/figure.h"

#include <string.h>

#include "base/chart/chart_page.h"
#include "base/fail.h"

static bool ends_in(const char *path, const char *suffix)
{
    const char *dot = strrchr(path, '.');

    return dot && !strcmp(dot, suffix);
}

int figure_name(const char *path)
{
    return ends_in(path, ".svg") || ends_in(path, ".png") ? 0 : fail("-o %s: a figure is .svg or .png", path);
}

int figure_chart(const struct chart *c, const char *path, const char *else_words)
{
    int rc = figure_name(path) < 0 ? -1 : chart_file(c, ends_in(path, ".png") ? CHART_PNG : CHART_SVG, path);

    return rc == 1 ? fail("-o %s: gnuplot draws the figures and is not installed; %s", path, else_words) : rc;
}
