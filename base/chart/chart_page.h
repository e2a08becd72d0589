/* chart_page.h -- charts as files, and as elements of a page that is made once.
 *
 *     struct text svg = { 0 };
 *     chart_page(c, &svg);                     two <svg>, in <div class="wide"> and <div class="narrow"> */
#ifndef DPX_CHART_PAGE_H
#define DPX_CHART_PAGE_H

#include "base/chart/chart_svg.h"

/* Into `path`, which is replaced only by a whole file.  0, or -1 reported. */
int chart_file(const struct chart *c, const char *path);

void chart_page(const struct chart *c, struct text *to);

/* CSS: the variables, light and dark. */
void chart_page_colours(struct text *to);

#endif
