/* chart_page.c -- see chart_page.h. */
#include "base/chart/chart_page.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/gnuplot.h"
#include "base/output.h"

/* ---- drawing ---- */

static int write_whole(const char *path, const struct text *t)
{
    struct output o;

    if (output_open(&o, path) < 0)
        return -1;
    fwrite(t->s, 1, t->n, o.f);
    return output_close(&o);
}

int chart_files(struct chart *const *c, int n, const char *folder)
{
    struct text script = { 0 };
    char path[4200];
    int rc = 0;

    for (int i = 0; i < n; i++) {
        chart_gnuplot(c[i], CHART_SVG, &script);
        chart_gnuplot(c[i], CHART_PNG, &script);
    }
    snprintf(path, sizeof path, "%.4096s/figures.gp", folder);
    if (n > 0)
        rc = write_whole(path, &script) < 0 ? -1 : gnuplot_run(folder, script.s);
    text_free(&script);
    return rc;
}

static int read_text(const char *path, struct text *to)
{
    FILE *in = fopen(path, "rb");
    char block[8192];
    size_t n;

    if (!in)
        return fail("gnuplot wrote no figure");
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        text_bytes(to, block, n);
    fclose(in);
    return to->n > 0 ? 0 : fail("gnuplot wrote no figure");
}

static const char *const suffixes[NLOOKS] = { ".svg", ".png", "-wide.svg", "-narrow.svg" };

static void name_in(char *path, size_t size, const char *folder, const struct chart *c, enum chart_look look)
{
    snprintf(path, size, "%s/%.60s%s", folder, c->id, suffixes[look]);
}

/* Calls `take` for each chart and look as it was drawn, in a folder that is gone afterwards. */
typedef int taker(const struct chart *c, enum chart_look look, const struct text *drawn, void *to);

static int draw(struct chart *const *c, int n, const bool looks[NLOOKS], taker *take, void *to)
{
    char folder[] = "/tmp/dpx-figure-XXXXXX", path[128];
    struct text script = { 0 };
    int rc;

    if (!mkdtemp(folder))
        return fail("%s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < NLOOKS; k++)
            if (looks[k])
                chart_gnuplot(c[i], (enum chart_look)k, &script);
    rc = gnuplot_run(folder, script.s ? script.s : "");
    text_free(&script);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < NLOOKS; k++) {
            struct text drawn = { 0 };
            if (!looks[k])
                continue;
            name_in(path, sizeof path, folder, c[i], (enum chart_look)k);
            if (rc == 0 && (rc = read_text(path, &drawn)) == 0)
                rc = take(c[i], (enum chart_look)k, &drawn, to);
            unlink(path);
            text_free(&drawn);
        }
    rmdir(folder);
    return rc;
}

static int take_file(const struct chart *c, enum chart_look look, const struct text *drawn, void *to)
{
    (void)c;
    (void)look;
    return write_whole(to, drawn);
}

int chart_file(const struct chart *c, enum chart_look look, const char *path)
{
    struct chart *one = (struct chart *)(uintptr_t)c;
    bool looks[NLOOKS] = { false };

    looks[look] = true;
    return draw(&one, 1, looks, take_file, (char *)(uintptr_t)path);
}

/* ---- gnuplot's SVG as part of a page ---- */

struct tag { const char *name; size_t n; bool closes, alone; };     /* </g>, <g>, <path/> */

/* Where the reading is. */
struct inlined {
    const struct chart *c;
    struct text *to;
    int64_t texts, text;            /* how many there are; this one */
    int     part;                   /* of spans: whose boxes these are; -1: none */
    int64_t span;
    bool    ids;                    /* of definitions they stay */
};

static bool is(const struct tag *t, const char *name) { return t->n == strlen(name) && !strncmp(t->name, name, t->n); }

static bool is_one_of(const char *s, size_t n, const char *const *of)
{
    for (; *of; of++)
        if (strlen(*of) == n && !strncmp(*of, s, n))
            return true;
    return false;
}

static const char *const tags[] = { "g", "path", "text", "tspan", "polygon", "polyline", "use", "rect", "circle", "ellipse", "line", NULL };
static const char *const attributes[] = { "fill", "stroke", "color", "stroke-width", "stroke-linecap", "stroke-linejoin", "stroke-dasharray",
                                          "fill-opacity", "stroke-opacity", "transform", "d", "points", "x", "y", "x1", "x2", "y1",
                                          "y2", "width", "height", "cx", "cy", "r", "rx", "ry", "text-anchor", "font-size", NULL };

/* A colour as the page has it; others as they are. */
static void put_colour(struct text *to, const char *s, size_t n)
{
    int r, g, b;
    char value[64], hex[8];

    snprintf(value, sizeof value, "%.*s", (int)(n < 63 ? n : 63), s);
    if (!strcmp(value, "black")) {
        text_put(to, "currentColor");
        return;
    }
    if (sscanf(value, "rgb( %d, %d, %d)", &r, &g, &b) != 3) {
        text_html(to, value);
        return;
    }
    snprintf(hex, sizeof hex, "#%02x%02x%02x", r & 255, g & 255, b & 255);
    for (int i = 0; i < NCOLOURS; i++)
        if (!strcmp(hex, chart_colour(i, false))) {
            text_add(to, "var(--c%d)", i);
            return;
        }
    text_put(to, !strcmp(hex, "#111111") ? "currentColor" : !strcmp(hex, "#555555") ? "var(--dim)" : !strcmp(hex, "#dddddd") ? "var(--line)" : hex);
}

static bool is_colour(const char *s, size_t n) { return (n == 4 && !strncmp(s, "fill", 4)) || (n == 6 && !strncmp(s, "stroke", 6)) || (n == 5 && !strncmp(s, "color", 5)); }

static void put_value(struct inlined *in, const char *name, size_t nname, const char *s, size_t n)
{
    char value[256];
    bool href = nname >= 4 && !strncmp(name + nname - 4, "href", 4), id = nname == 2 && !strncmp(name, "id", 2);

    if (href || id) {
        if ((href && (n < 3 || strncmp(s, "#gp", 3))) || (id && !in->ids))
            return;
        snprintf(value, sizeof value, "%.*s", (int)(n < 40 ? n : 40), s);
        text_add(in->to, " %s=\"", href ? "href" : "id");
        text_html(in->to, value);
        text_put(in->to, "\"");
        return;
    }
    if (!is_one_of(name, nname, attributes))
        return;
    text_put(in->to, " ");
    text_bytes(in->to, name, nname);
    text_put(in->to, "=\"");
    if (is_colour(name, nname))
        put_colour(in->to, s, n);
    else
        for (size_t i = 0; i < n; i++)          /* numbers and words: nothing that ends an attribute or a tag */
            text_bytes(in->to, isalnum((unsigned char)s[i]) || strchr(".,-+()", s[i]) ? &s[i] : " ", 1);
    text_put(in->to, "\"");
}

/* NAME="VALUE" or NAME = 'VALUE', one after the other. */
static void put_attributes(struct inlined *in, const char *s, const char *end)
{
    while (s < end) {
        const char *name = s += strspn(s, " \t\r\n/");
        size_t n = strcspn(s, " \t\r\n=>/");
        s += n;
        s += strspn(s, " \t\r\n");
        if (n == 0 || s >= end || *s != '=')
            return;
        s += 1 + strspn(s + 1, " \t\r\n");
        const char *close = s < end ? strchr(s + 1, *s) : NULL;
        if ((*s != '"' && *s != '\'') || !close || close > end)
            return;
        put_value(in, name, n, s + 1, (size_t)(close - s - 1));
        s = close + 1;
    }
}

/* The k-th drawn part of a chart of spans: those that have any. */
static int drawn_part(const struct chart *c, int k)
{
    for (int i = 0; i < c->nparts; i++)
        for (int64_t s = 0; s < c->nspans; s++)
            if (c->span[s].colour == c->part_colour[i]) {
                if (k-- == 0)
                    return i;
                break;
            }
    return -1;
}

/* The next span of the part whose boxes are read, in the order in which they were given to gnuplot. */
static const char *next_span(struct inlined *in)
{
    const struct chart *c = in->c;

    if (in->part < 0)
        return NULL;
    while (++in->span < c->nspans)
        if (c->span[in->span].colour == c->part_colour[in->part])
            return c->span[in->span].what;
    return NULL;
}

static int64_t count(const char *s, const char *what)
{
    int64_t n = 0;

    for (; (s = strstr(s, what)); s++)
        n++;
    return n;
}

/* The values of bars are the last words of the drawing, in their order. */
static const struct bar *bar_of(const struct inlined *in)
{
    int64_t values = 0, which;

    for (int i = 0; i < in->c->nbars; i++)
        values += in->c->bar[i].key != NULL;
    which = in->text - (in->texts - values);
    for (int i = 0; i < in->c->nbars; i++)
        if (in->c->bar[i].key && which-- == 0)
            return &in->c->bar[i];
    return NULL;
}

static void put_text_tag(struct inlined *in, const char *content)
{
    const struct bar *b = bar_of(in);
    struct shown value = { "" };

    in->text++;
    if (b)
        value = chart_bar_value(in->c, b);
    if (b && !strncmp(content, value.s, strlen(value.s)) && content[strlen(value.s)] == '<') {
        text_put(in->to, " class=\"tip\" data-q=\"");
        text_html(in->to, b->key);
        text_put(in->to, "\"");
    } else {
        text_put(in->to, " class=\"tick\"");
    }
}

/* One element's tag, from '<' to '>'. */
static void put_tag(struct inlined *in, const char *s, const char *end)
{
    struct tag t = { .closes = s[1] == '/', .alone = end[-1] == '/' };
    const char *id, *what;
    int plot;

    t.name = s + 1 + t.closes;
    t.n = strcspn(t.name, " \t\r\n>/");
    if (!is_one_of(t.name, t.n, tags))
        return;
    if (t.closes) {
        text_put(in->to, "</");
        text_bytes(in->to, t.name, t.n);
        text_put(in->to, ">");
        return;
    }
    if (is(&t, "g") && (id = strstr(s, "gnuplot_plot_")) && id < end) {
        plot = atoi(id + strlen("gnuplot_plot_"));      /* the first one is NaN */
        in->part = in->c->kind == CHART_SPANS && plot > 1 ? drawn_part(in->c, plot - 2) : -1;
        in->span = -1;
    }
    text_put(in->to, "<");
    text_bytes(in->to, t.name, t.n);
    if (is(&t, "text"))
        put_text_tag(in, end + 1);
    put_attributes(in, s + 1 + t.n, end);
    what = is(&t, "polygon") && t.alone ? next_span(in) : NULL;
    if (!what) {
        text_put(in->to, t.alone ? "/>" : ">");
        return;
    }
    text_put(in->to, "><title>");
    text_html(in->to, what);
    text_put(in->to, "</title></polygon>");
}

/* Between tags: gnuplot has escaped '<' and '&'; what else a page must not hold goes. */
static void put_words(struct text *to, const char *s, const char *end)
{
    while (s < end) {
        unsigned c = *s == '&' ? 0 : text_next(&s);
        if (c == 0 && *s == '&') {
            size_t n = strcspn(s, "; <");
            bool entity = s + n < end && s[n] == ';' && n < 10;
            text_put(to, entity ? "" : "&amp;");
            if (entity)
                text_bytes(to, s, n + 1);
            s += entity ? n + 1 : 1;
        } else if (c == '>') {
            text_put(to, "&gt;");
        } else if (c != '\t' && c != '\n') {
            text_char(to, c);
        }
    }
}

static void put_elements(struct inlined *in, const char *s, const char *end)
{
    while (s < end) {
        const char *tag = strchr(s, '<'), *close = tag ? strchr(tag, '>') : NULL;
        if (!close || close >= end)
            return;
        if (!strncmp(tag, "<title>", 7) && (close = strstr(tag, "</title>")))       /* "gnuplot_plot_1" */
            close += strlen("</title");
        else if (close) {
            put_words(in->to, s, tag);
            put_tag(in, tag, close);
        }
        if (!close)
            return;
        s = close + 1;
    }
}

/* The shapes of points, once a page. */
static void put_shapes(const struct chart *c, const char *from, const char *until, struct text *to)
{
    struct inlined in = { .c = c, .to = to, .part = -1, .ids = true };

    text_put(to, "<svg class=\"shapes\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>");
    put_elements(&in, from, until);
    text_put(to, "</defs></svg>\n");
}

struct into { struct text *first, *next; };

static int take_inline(const struct chart *c, enum chart_look look, const struct text *drawn, void *svg)
{
    struct into *to = svg;
    const char *size = strstr(drawn->s, "viewBox=\"0 0 "), *defs = strstr(drawn->s, "<defs>");
    const char *body = defs ? strstr(defs, "</defs>") : NULL, *end = body ? strstr(body, "</svg>") : NULL;
    struct inlined in = { .c = c, .to = to->next, .part = -1 };
    double width, height;

    if (!size || !end || sscanf(size, "viewBox=\"0 0 %lf %lf", &width, &height) != 2)
        return fail("gnuplot's figure %s is not in the form that this dpx reads", c->id);
    in.texts = count(body, "<text");
    if (to->next == to->first && look == CHART_WIDE)
        put_shapes(c, defs + strlen("<defs>"), body, in.to);
    text_add(in.to, "<svg class=\"%s\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" aria-label=\"",
             look == CHART_WIDE ? "wide" : "narrow", width, height, width, height);
    text_html(in.to, c->title);
    text_put(in.to, ". ");
    text_html(in.to, c->caption);
    text_put(in.to, "\"><g>");              /* gnuplot's own group of everything was opened before the definitions */
    put_elements(&in, body + strlen("</defs>"), end);
    text_put(in.to, "</svg>\n");
    to->next += look == CHART_NARROW;
    return 0;
}

int chart_page(struct chart *const *c, int n, struct text *svg)
{
    bool looks[NLOOKS] = { false };
    struct into to = { svg, svg };

    looks[CHART_WIDE] = looks[CHART_NARROW] = true;
    return n > 0 ? draw(c, n, looks, take_inline, &to) : 0;
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
