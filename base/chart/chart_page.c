/* chart_page.c -- see chart_page.h. */
#include "base/chart/chart_page.h"

#include <stdio.h>

#include "base/output.h"

int chart_file(const struct chart *c, const char *path)
{
    struct text t = { 0 };
    struct output o;
    int rc = -1;

    chart_svg(c, CHART_FILE, CHART_FILE_WIDTH, &t);
    if (output_open(&o, path) == 0) {
        fwrite(t.s, 1, t.n, o.f);
        rc = output_close(&o);
    }
    text_free(&t);
    return rc;
}

void chart_page(const struct chart *c, struct text *to)
{
    text_put(to, "<div class=\"wide\">");
    chart_svg(c, CHART_PAGE, CHART_WIDE_WIDTH, to);
    text_put(to, "</div><div class=\"narrow\">");
    chart_svg(c, CHART_PAGE, CHART_NARROW_WIDTH, to);
    text_put(to, "</div>\n");
}

void chart_page_colours(struct text *to)
{
    for (int dark = 0; dark < 2; dark++) {
        text_put(to, dark ? "@media screen and (prefers-color-scheme:dark){:root{" : ":root{");
        const char *name, *colour;
        for (int i = 0; (name = chart_surface(i, dark, &colour)); i++)
            text_add(to, "--%s:%s;", name, colour);
        for (int i = 0; i < NCOLOURS; i++)
            text_add(to, "--c%d:%s;", i, chart_colour(i, dark));
        text_put(to, dark ? "}}\n" : "}\n");
    }
}
