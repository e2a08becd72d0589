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
    if (ends_in(path, ".svg"))
        return 0;
    return fail("-o %s: a figure is .svg%s", path, ends_in(path, ".png") ? "; rsvg-convert and Inkscape make a PNG of one" : "");
}

int figure_chart(const struct chart *c, const char *path)
{
    return figure_name(path) < 0 ? -1 : chart_file(c, path);
}
