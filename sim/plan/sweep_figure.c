/* sweep_figure.c -- charts of a sweep. */
#include "sim/plan/sweep_figure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/fail.h"
#include "base/size.h"
#include "base/terminal.h"
#include "sim/plan/figure.h"

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

enum { SERIES = 10 };

/* A sweep of `all` series of `each` points, of which the first are shown. */
struct drawn { const struct sweep *s; FILE *rows; int64_t done, each, all, series; int metric; };

/* The rows of the shown series, a block each: x, value. */
static int write_data(void *of, FILE *to)
{
    const struct drawn *d = of;
    const struct sweep *s = d->s;
    const struct sweep_axis *x = &s->axis[s->naxes - 1];
    struct sweep_row r;

    for (int64_t k = 0; k < d->series; k++) {
        for (int64_t i = k * d->each; i < (k + 1) * d->each && i < d->done; i++) {
            double v = read_row(d->rows, i, &r) ? sweep_metric(&r, d->metric) : NAN;
            const char *text = sweep_value(s, i, s->naxes - 1);
            double at = x->numeric ? strtod(text, NULL) * (strpbrk(text, "kK") ? 1024 : 1) : (double)(i - k * d->each);
            if (isfinite(v))
                fprintf(to, "%.12g %.12g\n", at, v);
            else
                fputs("\n", to);            /* a gap in the curve */
        }
        fputs("\n\n", to);
    }
    return ferror(to) ? fail("the figure's data cannot be written: %s", strerror(errno)) : 0;
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

/* A key with its unit, where it has one. */
static const char *axis_words(const char *key)
{
    return !strcmp(key, "network") ? "network, Gbit/s of a node" : !strcmp(key, "seq") ? "seq, tokens" : key;
}

static void write_script(void *of, FILE *to)
{
    const struct drawn *d = of;
    const struct sweep *s = d->s;
    const struct sweep_axis *x = &s->axis[s->naxes - 1];
    char name[200];

    fputs("set grid lt 1 lw 1 lc rgb '#dddddd'\nset key below noenhanced\nset tics nomirror\nset xlabel ", to);
    figure_quoted(axis_words(x->key), to);
    fputs(" offset 0,0.4 noenhanced\nset ylabel ", to);
    figure_quoted(sweep_metric_words(d->metric), to);
    fputs(is_wide(x) && d->metric == 0 ? "\nset logscale x 2\nset logscale y 10\n"
          : is_wide(x) ? "\nset yrange [0:*]\nset logscale x 2\n"
          : "\nset yrange [0:*]\n", to);     /* tokens/s over nodes: a straight line where it scales */
    fputs(d->metric <= 1 ? "set format y '%.0s%c'\n" : "", to);       /* 100k tokens/s */
    if (!x->numeric) {
        fputs("set xrange [-0.5:*]\nset xtics (", to);
        for (int i = 0; i < x->n; i++) {
            fputs(i ? ", " : "", to);
            figure_quoted(x->value[i], to);
            fprintf(to, " %d", i);
        }
        fputs(")\n", to);
    }
    if (d->series < d->all)
        fprintf(to, "set title 'the first %lld of %lld series'\n", (long long)d->series, (long long)d->all);
    for (int64_t k = 0; k < d->series; k++) {
        place(s, k * d->each, 0, s->naxes - 1, name, sizeof name);
        fprintf(to, "%s'data' index %lld using 1:2 with linespoints lw 2 pt 7 ps 0.7 title ", k ? ", " : "plot ", (long long)k);
        figure_quoted(name, to);
    }
    fputc('\n', to);
}

int sweep_figure(const struct sweep *s, FILE *rows, int64_t done, int metric, const char *path)
{
    int64_t each = s->axis[s->naxes - 1].n, all = (done + each - 1) / each;
    struct drawn d = { s, rows, done, each, all, all < SERIES ? all : SERIES, metric };

    return figure_draw(&(struct figure){ write_data, write_script, &d, 760, 480 }, path, "--csv writes the numbers");
}
