/* sweep_figure.c -- charts of a sweep. */
#include "sim/plan/sweep_figure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/chart/chart_sweep.h"
#include "base/page.h"
#include "base/percent.h"
#include "base/size.h"
#include "base/terminal.h"
#include "sim/plan/figure.h"

static bool read_row(FILE *rows, int64_t i, struct sweep_row *r)
{
    return fseeko(rows, (off_t)i * (off_t)sizeof *r, SEEK_SET) == 0 && fread(r, sizeof *r, 1, rows) == 1;
}

static struct chart_sweep axes_of(const struct sweep *s, int64_t done)
{
    struct chart_sweep of = { .naxes = s->naxes, .points = done };

    for (int a = 0; a < s->naxes; a++) {
        of.key[a] = s->axis[a].key;
        of.value[a] = (const char *const *)s->axis[a].value;
        of.n[a] = s->axis[a].n;
    }
    return of;
}

/* ---- in a terminal ---- */

enum { BARS = 48 };

static struct shown value_text(int metric, double v)
{
    struct shown out;

    switch (sweep_metric_unit(metric)) {
    case UNIT_BYTES:   snprintf(out.s, sizeof out.s, "%s", size_text((int64_t)v).s); break;
    case UNIT_SECONDS: snprintf(out.s, sizeof out.s, "%.4g s", v); break;
    case UNIT_SHARE:   snprintf(out.s, sizeof out.s, "%s", percent_share(v).s); break;
    default:
        if (v < 10000)
            snprintf(out.s, sizeof out.s, "%.4g", v);
        else
            snprintf(out.s, sizeof out.s, "%s", count_text(llround(v)).s);
    }
    return out;
}

void sweep_bars(const struct sweep *s, FILE *rows, int64_t done, int metric, FILE *to)
{
    int64_t n = done < BARS ? done : BARS;
    double value[BARS], most = 0;
    int names = 0, width = page_width(to);
    bool blocks = terminal_utf8();
    struct chart_sweep of = axes_of(s, done);
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
        chart_sweep_place(&of, done * b / n, 0, s->naxes, name, sizeof name);
        names = (int)strlen(name) > names ? (int)strlen(name) : names;
    }
    if (!(most > 0))
        return;
    names = names < width / 2 ? names : width / 2;
    int room = width - names - 14 > 10 ? width - names - 14 : 10;
    fprintf(to, "\n%s%s\n", sweep_metric_words(s, metric), n < done ? ", the largest of several points a bar" : "");
    for (int64_t b = 0; b < n; b++) {
        chart_sweep_place(&of, done * b / n, 0, s->naxes, name, sizeof name);
        fprintf(to, "%-*.*s ", names, names, name);
        if (!isfinite(value[b])) {
            fputs("-\n", to);
            continue;
        }
        fputs(terminal_ink(to, TERMINAL_GREEN), to);
        for (int k = 0, bar = (int)lround(room * value[b] / most); k < bar; k++)
            fputs(blocks ? "█" : "#", to);
        fputs(terminal_ink(to, TERMINAL_PLAIN), to);
        fprintf(to, " %s\n", value_text(metric, value[b]).s);
    }
}

/* ---- as a figure ---- */

struct drawn { FILE *rows; int metric; };

/* An interval is known of the step alone. */
static struct spot look(void *of, int64_t i)
{
    const struct drawn *d = of;
    struct sweep_row r;
    struct spot p = { NAN, NAN, NAN, NAN, NULL, 0 };

    if (!read_row(d->rows, i, &r))
        return p;
    p.y = sweep_metric(&r, d->metric);
    if (d->metric == SWEEP_STEP && isfinite(p.y)) {
        p.low = r.low_s;
        p.high = r.high_s;
    }
    return p;
}

int sweep_figure(const struct sweep *s, FILE *rows, int64_t done, int metric, const char *path)
{
    struct chart_sweep of = axes_of(s, done);
    struct drawn d = { rows, metric };
    char title[160];

    snprintf(title, sizeof title, "%s over %s", sweep_metric_words(s, metric), s->axis[s->naxes - 1].key);
    of.at = look;
    of.of = &d;
    struct chart *c = chart_sweep(&of, "figure", title, "", sweep_metric_words(s, metric), sweep_metric_unit(metric));
    int rc = figure_chart(c, path);
    chart_free(c);
    return rc;
}
