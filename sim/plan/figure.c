/* figure.c -- see figure.h. */
#include "sim/plan/figure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/gnuplot.h"
#include "base/output.h"

static const char *suffix_of(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && (!strcmp(dot, ".svg") || !strcmp(dot, ".png")) ? dot + 1 : NULL;
}

int figure_name(const char *path)
{
    return suffix_of(path) ? 0 : fail("-o %s: a figure is .svg or .png", path);
}

void figure_quoted(const char *s, FILE *to)
{
    fputc('\'', to);
    for (; *s; s++) {
        if (*s == '\'')
            fputc('\'', to);
        fputc((unsigned char)*s < ' ' ? '?' : *s, to);
    }
    fputc('\'', to);
}

static int copy_to(const char *from, const char *path)
{
    FILE *in = fopen(from, "rb");
    struct output o;
    char block[8192];
    size_t n;

    if (!in)
        return fail("gnuplot wrote no figure");
    if (output_open(&o, path) < 0) {
        fclose(in);
        return -1;
    }
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, n, o.f);
    fclose(in);
    return output_close(&o);
}

static int write_file(const struct figure *f, const char *name)
{
    FILE *to = fopen(name, "w");
    int rc;

    if (!to)
        return fail("%s: %s", name, strerror(errno));
    rc = f->data(f->of, to);
    if (fclose(to) != 0)
        rc = fail("%s: %s", name, strerror(errno));
    return rc;
}

/* 0; 1: there is no gnuplot; -1 reported. */
static int run_script(const struct figure *f, const char *folder, const char *suffix)
{
    char *script = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&script, &size);
    int rc;

    if (!to)
        abort();
    fprintf(to, "set encoding utf8\nset terminal %s size %d,%d noenhanced background rgb 'white'\nset output 'figure.%s'\n",
            !strcmp(suffix, "svg") ? "svg" : "pngcairo", f->width, f->height, suffix);
    f->script(f->of, to);
    fputs("unset output\n", to);
    fclose(to);
    rc = gnuplot_run(folder, script);
    free(script);
    return rc;
}

/* In a folder of its own. */
static int draw_in(const char *folder, const struct figure *f, const char *path, const char *else_words)
{
    const char *suffix = suffix_of(path);
    char data[128], drawn[128];
    int rc;

    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(drawn, sizeof drawn, "%s/figure.%s", folder, suffix);
    rc = write_file(f, data);
    if (rc == 0 && (rc = run_script(f, folder, suffix)) == 1)
        rc = fail("-o %s: gnuplot draws the figures and is not installed; %s", path, else_words);
    if (rc == 0)
        rc = copy_to(drawn, path);
    unlink(drawn);
    unlink(data);
    return rc;
}

/* Where gnuplot is not there: by ourselves. */
static int write_svg(const struct chart *c, const char *path)
{
    enum { WIDE = 1000 };
    struct text t = { 0 };
    struct output o;
    int rc = output_open(&o, path);

    if (rc == 0) {
        chart_svg(c, WIDE, "alone", true, &t);
        fwrite(t.s, 1, t.n, o.f);
        rc = output_close(&o);
    }
    text_free(&t);
    return rc;
}

static int chart_in(const char *folder, const struct chart *c, const char *path, const char *else_words)
{
    static const char *const suffixes[] = { "svg", "png" };
    struct text script = { 0 };
    char drawn[256];
    int rc;

    chart_gnuplot(c, &script);
    rc = gnuplot_run(folder, script.s);
    text_free(&script);
    if (rc == 1)
        rc = !strcmp(suffix_of(path), "svg") ? write_svg(c, path)
             : fail("-o %s: gnuplot draws .png and is not installed; take .svg, or %s", path, else_words);
    else if (rc == 0) {
        snprintf(drawn, sizeof drawn, "%s/%s.%s", folder, c->id, suffix_of(path));
        rc = copy_to(drawn, path);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(drawn, sizeof drawn, "%s/%s.%s", folder, c->id, suffixes[i]);
        unlink(drawn);
    }
    return rc;
}

/* What is drawn: a chart, or a script's figure. */
struct drawing { const struct chart *chart; const struct figure *figure; const char *path, *else_words; };

static int draw(const struct drawing *d)
{
    char folder[] = "/tmp/dpx-figure-XXXXXX";
    int rc;

    if (figure_name(d->path) < 0)
        return -1;
    if (!mkdtemp(folder))
        return fail("%s: %s", folder, strerror(errno));
    rc = d->chart ? chart_in(folder, d->chart, d->path, d->else_words) : draw_in(folder, d->figure, d->path, d->else_words);
    rmdir(folder);
    return rc;
}

int figure_chart(const struct chart *c, const char *path, const char *else_words)
{
    return draw(&(struct drawing){ .chart = c, .path = path, .else_words = else_words });
}

int figure_draw(const struct figure *f, const char *path, const char *else_words)
{
    return draw(&(struct drawing){ .figure = f, .path = path, .else_words = else_words });
}
