/* sweep_figure.c -- charts of a sweep. */
#include "sim/plan/sweep_figure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/gnuplot.h"
#include "base/output.h"
#include "base/size.h"
#include "base/terminal.h"

static bool read_row(FILE *rows, int64_t i, struct sweep_row *r)
{
    return fseeko(rows, (off_t)i * (off_t)sizeof *r, SEEK_SET) == 0 && fread(r, sizeof *r, 1, rows) == 1;
}

/* "nodes 4, seq 8192" of the axes from..to. */
static void place(const struct sweep *s, int64_t i, int from, int to, char *out, size_t size)
{
    size_t n = 0;

    out[0] = '\0';
    for (int a = from; a < to && n < size; a++)
        n += (size_t)snprintf(out + n, size - n, "%s%s %.40s", a > from ? ", " : "", s->axis[a].key, sweep_value(s, i, a));
}

/* ---- in a terminal ---- */

enum { BARS = 48 };

void sweep_bars(const struct sweep *s, FILE *rows, int64_t done, int metric, FILE *to)
{
    int64_t n = done < BARS ? done : BARS;
    double value[BARS], most = 0;
    int names = 0, width = terminal_width(to, 100);
    bool blocks = terminal_utf8();
    struct sweep_row r;
    char name[200];

    for (int64_t b = 0; b < n; b++) {
        value[b] = NAN;
        for (int64_t i = done * b / n; i < done * (b + 1) / n; i++) {
            double v = read_row(rows, i, &r) ? sweep_metric(&r, metric) : NAN;
            if (isfinite(v) && !(v <= value[b]))
                value[b] = v;
        }
        most = isfinite(value[b]) && value[b] > most ? value[b] : most;
        place(s, done * b / n, 0, s->naxes, name, sizeof name);
        names = (int)strlen(name) > names ? (int)strlen(name) : names;
    }
    if (!(most > 0))
        return;
    names = names < width / 2 ? names : width / 2;
    int room = width - names - 14 > 10 ? width - names - 14 : 10;
    fprintf(to, "\n%s%s\n", sweep_metric_words(metric), n < done ? ", the largest of several points a bar" : "");
    for (int64_t b = 0; b < n; b++) {
        place(s, done * b / n, 0, s->naxes, name, sizeof name);
        fprintf(to, "%-*.*s ", names, names, name);
        if (!isfinite(value[b])) {
            fputs("-\n", to);
            continue;
        }
        fputs(terminal_ink(to, TERMINAL_GREEN), to);
        for (int k = 0, bar = (int)lround(room * value[b] / most); k < bar; k++)
            fputs(blocks ? "█" : "#", to);
        fputs(terminal_ink(to, TERMINAL_PLAIN), to);
        if (value[b] < 10000)
            fprintf(to, " %.4g\n", value[b]);
        else
            fprintf(to, " %s\n", count_text((int64_t)value[b]).s);
    }
}

/* ---- by gnuplot ---- */

static const char *suffix_of(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && (!strcmp(dot, ".svg") || !strcmp(dot, ".png")) ? dot + 1 : NULL;
}

int sweep_figure_name(const char *path)
{
    return suffix_of(path) ? 0 : fail("-o %s: a figure is .svg or .png", path);
}

enum { SERIES = 10 };

/* The rows of the shown series, a block each: x, value. */
static int write_data(const struct sweep *s, FILE *rows, int64_t done, int metric, int64_t each, int64_t series, FILE *to)
{
    const struct sweep_axis *x = &s->axis[s->naxes - 1];
    struct sweep_row r;

    for (int64_t k = 0; k < series; k++) {
        for (int64_t i = k * each; i < (k + 1) * each && i < done; i++) {
            double v = read_row(rows, i, &r) ? sweep_metric(&r, metric) : NAN;
            const char *text = sweep_value(s, i, s->naxes - 1);
            double at = x->numeric ? strtod(text, NULL) * (strpbrk(text, "kK") ? 1024 : 1) : (double)(i - k * each);
            if (isfinite(v))
                fprintf(to, "%.12g %.12g\n", at, v);
            else
                fputs("\n", to);            /* a gap in the curve */
        }
        fputs("\n\n", to);
    }
    return ferror(to) ? fail("the figure's data cannot be written: %s", strerror(errno)) : 0;
}

/* In single quotes, doubled inside. */
static void quoted(const char *s, FILE *to)
{
    fputc('\'', to);
    for (; *s; s++) {
        if (*s == '\'')
            fputc('\'', to);
        fputc((unsigned char)*s < ' ' ? '?' : *s, to);
    }
    fputc('\'', to);
}

static bool is_wide(const struct sweep_axis *x)
{
    double low = INFINITY, high = 0;

    for (int i = 0; i < x->n; i++) {
        double v = strtod(x->value[i], NULL) * (strpbrk(x->value[i], "kK") ? 1024 : 1);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    return x->numeric && low > 0 && high >= 16 * low;
}

static void write_script(const struct sweep *s, int metric, int64_t each, int64_t series, int64_t all, const char *suffix,
                         FILE *to)
{
    const struct sweep_axis *x = &s->axis[s->naxes - 1];
    char name[200];

    fprintf(to, "set encoding utf8\nset terminal %s size 760,480 noenhanced background rgb 'white'\nset output 'sweep.%s'\n",
            !strcmp(suffix, "svg") ? "svg" : "pngcairo", suffix);
    fputs("set grid lt 1 lw 1 lc rgb '#dddddd'\nset key below noenhanced\nset tics nomirror\nset xlabel ", to);
    quoted(x->key, to);
    fputs(" noenhanced\nset ylabel ", to);
    quoted(sweep_metric_words(metric), to);
    fputs(is_wide(x) && metric == 0 ? "\nset logscale x 2\nset logscale y 10\n"
          : is_wide(x) ? "\nset yrange [0:*]\nset logscale x 2\n"
          : "\nset yrange [0:*]\n", to);     /* tokens/s over nodes: a straight line where it scales */
    fputs(metric <= 1 ? "set format y '%.0s%c'\n" : "", to);       /* 100k tokens/s */
    if (!x->numeric) {
        fputs("set xrange [-0.5:*]\nset xtics (", to);
        for (int i = 0; i < x->n; i++) {
            fputs(i ? ", " : "", to);
            quoted(x->value[i], to);
            fprintf(to, " %d", i);
        }
        fputs(")\n", to);
    }
    if (series < all)
        fprintf(to, "set title 'the first %lld of %lld series'\n", (long long)series, (long long)all);
    for (int64_t k = 0; k < series; k++) {
        place(s, k * each, 0, s->naxes - 1, name, sizeof name);
        fprintf(to, "%s'data' index %lld using 1:2 with linespoints lw 2 pt 7 ps 0.7 title ", k ? ", " : "plot ", (long long)k);
        quoted(name, to);
    }
    fputs("\nunset output\n", to);
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

/* In a folder of its own. */
static int draw_in(const char *folder, const struct sweep *s, FILE *rows, int64_t done, int metric, const char *path)
{
    int64_t each = s->axis[s->naxes - 1].n, all = (done + each - 1) / each, series = all < SERIES ? all : SERIES;
    const char *suffix = suffix_of(path);
    char name[128], *script = NULL;
    size_t size = 0;
    int rc = -1;

    if (!suffix)
        return sweep_figure_name(path);
    snprintf(name, sizeof name, "%s/data", folder);
    FILE *data = fopen(name, "w");
    if (!data)
        return fail("%s: %s", name, strerror(errno));
    rc = write_data(s, rows, done, metric, each, series, data);
    if (fclose(data) != 0)
        rc = fail("%s: %s", name, strerror(errno));
    FILE *text = rc == 0 ? open_memstream(&script, &size) : NULL;
    if (text) {
        write_script(s, metric, each, series, all, suffix, text);
        fclose(text);
        rc = gnuplot_run(folder, script);
        if (rc == 1)
            rc = fail("-o %s: gnuplot draws the figures and is not installed; --csv writes the numbers", path);
        free(script);
    }
    snprintf(name, sizeof name, "%s/sweep.%s", folder, suffix);
    if (rc == 0)
        rc = copy_to(name, path);
    unlink(name);
    snprintf(name, sizeof name, "%s/data", folder);
    unlink(name);
    return rc;
}

int sweep_figure(const struct sweep *s, FILE *rows, int64_t done, int metric, const char *path)
{
    char folder[] = "/tmp/dpx-sweep-XXXXXX";
    int rc;

    if (!mkdtemp(folder))
        return fail("%s: %s", folder, strerror(errno));
    rc = draw_in(folder, s, rows, done, metric, path);
    rmdir(folder);
    return rc;
}
