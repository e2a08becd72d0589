/* report_curves.c -- predicted against measured steps as points, and throughput by number of ranks. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chart/meaning.h"
#include "base/sort.h"
#include "reports/page/report.h"

/* Most points of one figure on the page; the CSV has them all. */
enum { MOST_POINTS = 1000, MOST_STEPS = 400 };

/* ---- predicted against measured ---- */

static bool both_times(const struct run_row *r)
{
    return r->has_prediction && r->predicted.step_s > 0 && r->end.step_s > 0;
}

static int strategy_series(struct chart *k, const struct run_row *r)
{
    char name[80];
    int i = 0;

    snprintf(name, sizeof name, "%s (%s)", r->strategy ? r->strategy : "?", r->dialect ? r->dialect : "?");
    while (i < k->nseries && strcmp(k->series[i].name, name))
        i++;
    return i < k->nseries ? i : chart_series(k, name, figure_colour_of_strategy(r->strategy), MARK_POINTS);
}

static bool wide(double from, double to) { return from > 0 && to > 8 * from; }

static void scatter_figure(struct report *r)
{
    const struct run_list *l = &r->c->all;
    double least = INFINITY, most = 0;
    int64_t first = l->n, n = 0, all = 0;
    char caption[320];

    for (int64_t i = l->n - 1; i >= 0; i--) {
        if (!both_times(&l->run[i]))
            continue;
        all++;
        if (n == MOST_POINTS)
            continue;
        n++;
        first = i;
        least = fmin(least, fmin(l->run[i].predicted.step_s, l->run[i].end.step_s));
        most = fmax(most, fmax(l->run[i].predicted.step_s, l->run[i].end.step_s));
    }
    if (n == 0) {
        report_missing(r, "Predicted against measured",
                       "no run has both a predicted and a measured step time");
        return;
    }
    snprintf(caption, sizeof caption,
             "Each point is a run; whiskers are its 10th to 90th percentile. On the line both are "
             "equal; in the band they differ by 10 %% at most.%s",
             all > n ? " Only the newest runs are drawn." : "");
    struct chart *k = report_chart(r, CHART_XY, "scatter", "Step time: predicted against measured", caption);
    chart_axis(k, AXIS_X, "predicted", UNIT_SECONDS, wide(least, most));
    chart_axis(k, AXIS_Y, "measured", UNIT_SECONDS, wide(least, most));
    k->diagonal = true;
    for (int64_t i = first; i < l->n; i++) {
        const struct run_row *x = &l->run[i];
        if (!both_times(x))
            continue;
        struct spot *p = chart_spot(k, strategy_series(k, x), x->predicted.step_s, x->end.step_s);
        p->low = x->end.p10_s;
        p->high = x->end.p90_s;
    }
}

/* ---- scaling ---- */

/* Runs that do the same on each rank, told apart by how many ranks there are. */
struct scaled { const struct run_row *row; struct work work; };

static int order_text(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : ""); }

static int same_curve(const struct scaled *x, const struct scaled *y)
{
    int d = order_text(x->row->model, y->row->model);

    if (!d) d = order_text(x->row->strategy, y->row->strategy);
    if (!d) d = order_text(x->row->dialect, y->row->dialect);
    if (!d) d = order_text(x->row->start.device, y->row->start.device);
    if (!d) d = order_text(x->row->start.cpu, y->row->start.cpu);
    if (!d) d = strcmp(x->work.precision, y->work.precision);
    if (!d) d = strcmp(x->work.recompute, y->work.recompute);
    if (!d) d = (x->work.seq > y->work.seq) - (x->work.seq < y->work.seq);
    if (!d) d = (x->work.micro_batch > y->work.micro_batch) - (x->work.micro_batch < y->work.micro_batch);
    return d;
}

static int by_curve(const void *a, const void *b)
{
    const struct scaled *x = a, *y = b;
    int d = same_curve(x, y);

    if (!d)
        d = (x->row->start.world_size > y->row->start.world_size) -
            (x->row->start.world_size < y->row->start.world_size);
    return d ? d : (x->row->id > y->row->id) - (x->row->id < y->row->id);
}

/* Of each number of ranks the newest run; sorted.  Returns how many. */
static int64_t scaled_runs(const struct run_list *l, struct scaled *s)
{
    int64_t n = 0, kept = 0;

    for (int64_t i = 0; i < l->n; i++) {
        if (l->run[i].end.outcome != RUN_FINISHED || !(l->run[i].end.tokens_per_s > 0))
            continue;
        s[n].row = &l->run[i];
        compare_work_of(l->run[i].start.plan, &s[n++].work);
    }
    sort_stable(s, (size_t)n, sizeof *s, by_curve);
    for (int64_t i = 0; i < n; i++) {
        bool newer = i + 1 < n && !same_curve(&s[i], &s[i + 1])
                  && s[i].row->start.world_size == s[i + 1].row->start.world_size;
        if (!newer)
            s[kept++] = s[i];
    }
    return kept;
}

static void scaling_row(struct table *t, int curve, const struct scaled *s, const struct scaled *one)
{
    const struct run_row *r = s->row;
    bool alone = one->row->start.world_size == 1;
    double ideal = (double)r->start.world_size * one->row->end.tokens_per_s;

    table_row(t, "%" PRId64, r->id);
    table_number(t, curve);
    table_number(t, (double)r->id);
    table_text(t, r->model);
    table_text(t, r->strategy);
    table_text(t, r->dialect);
    table_text(t, s->work.recompute);
    table_number(t, (double)s->work.micro_batch);
    table_number(t, (double)r->start.world_size);
    table_number(t, r->end.tokens_per_s);
    table_number(t, alone ? r->end.tokens_per_s / ideal : NAN);
    table_bytes(t, r->allocated_bytes);
}

void report_scaling_table(struct report *r)
{
    struct table *t = table_new("scaling", "Scaling: the newest run of each number of ranks");
    struct scaled *s = calloc((size_t)r->c->all.n + 1, sizeof *s);
    int curve = 0;

    if (!s)
        abort();
    table_column(t, "curve", "Curve", UNIT_ID, CSV_ONLY);
    table_column(t, "run", "Run", UNIT_ID, SHOWN);
    table_column(t, "model", "Model", UNIT_TEXT, SHOWN);
    table_column(t, "strategy", "Strategy", UNIT_TEXT, SHOWN);
    table_column(t, "dialect", "Dialect", UNIT_TEXT, SHOWN);
    table_column(t, "recompute", "Recompute", UNIT_TEXT, SHOWN);
    table_column(t, "micro_batch", "Micro-batch", UNIT_COUNT, SHOWN);
    table_column(t, "world_size", "Ranks", UNIT_COUNT, SHOWN);
    table_column(t, "tokens_per_s", "Throughput", UNIT_TOKENS_S, SHOWN);
    table_column(t, "efficiency", "Efficiency", UNIT_SHARE, SHOWN);
    table_column(t, "allocated_bytes", "Peak", UNIT_BYTES, SHOWN);
    int64_t n = scaled_runs(&r->c->all, s);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !same_curve(&s[i], &s[end]); end++)
            ;
        if (end - i < 2)
            continue;
        for (int64_t k = i; k < end; k++)
            scaling_row(t, curve, &s[k], &s[i]);
        curve++;
    }
    free(s);
    r->table[TABLE_SCALING] = t;
}

enum scaling_y { SCALING_THROUGHPUT, SCALING_EFFICIENCY, SCALING_MEMORY };

/* Tokens/s as measured or as predicted; NaN: not known. */
static double throughput(const struct run_row *r, bool predicted)
{
    double tokens = r->end.tokens_per_s * r->end.step_s;

    return !predicted ? r->end.tokens_per_s : r->has_prediction ? tokens / r->predicted.step_s : NAN;
}

/* What is drawn of a run whose curve begins with `one`. */
static double scaling_at(const struct run_row *r, const struct run_row *one, enum scaling_y y, bool predicted)
{
    int64_t bytes = predicted && !r->has_prediction ? -1 : predicted ? r->predicted.allocated_bytes : r->allocated_bytes;

    switch (y) {
    case SCALING_THROUGHPUT: return throughput(r, predicted);
    case SCALING_MEMORY:     return bytes < 0 ? NAN : (double)bytes;
    case SCALING_EFFICIENCY:
        return one->start.world_size == 1 ? throughput(r, predicted)
                                            / ((double)r->start.world_size * throughput(one, predicted)) : NAN;
    }
    return NAN;
}

static void scaling_curve(struct chart *k, const struct scaled *s, int64_t n, int curve, enum scaling_y y)
{
    const struct run_row *one = s->row;
    char name[160];

    snprintf(name, sizeof name, "%s (%s)%s", one->strategy ? one->strategy : "?",
             one->dialect ? one->dialect : "?",
             s->work.recompute[0] && strcmp(s->work.recompute, "none") ? ", recompute" : "");
    for (int predicted = 0; predicted < 2; predicted++) {
        int series = chart_series(k, predicted ? NULL : name, curve, predicted ? MARK_LINE : MARK_BOTH);
        k->series[series].dashed = predicted;
        for (int64_t i = 0; i < n; i++)
            chart_spot(k, series, (double)s[i].row->start.world_size, scaling_at(s[i].row, one, y, predicted));
    }
}

static void scaling_figure(struct report *r, enum scaling_y y, const char *id, const char *title,
                           const char *caption, const char *axis, enum measure unit)
{
    struct scaled *s = calloc((size_t)r->c->all.n + 1, sizeof *s);
    int curve = 0;

    if (!s)
        abort();
    struct chart *k = report_chart(r, CHART_XY, id, title, caption);
    chart_axis(k, AXIS_X, "ranks", UNIT_COUNT, false);
    chart_axis(k, AXIS_Y, axis, unit, false);
    int64_t n = scaled_runs(&r->c->all, s);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !same_curve(&s[i], &s[end]); end++)
            ;
        if (end - i >= 2 && (y != SCALING_EFFICIENCY || s[i].row->start.world_size == 1))
            scaling_curve(k, &s[i], end - i, curve++, y);
    }
    free(s);
    if (k->nseries == 0) {
        r->ncharts--;
        chart_free(k);
        report_missing(r, title, "no plan ran on one rank and on more");
    }
}

static void scaling_figures(struct report *r)
{
    if (table_rows(r->table[TABLE_SCALING]) == 0) {
        report_missing(r, "Scaling curves", "no plan ran with more than one number of ranks");
        return;
    }
    scaling_figure(
        r, SCALING_THROUGHPUT, "scaling-throughput", "Throughput against ranks",
        "The newest run of each plan and number of ranks; the micro-batch of a rank stays the same. "
        "Dashed: predicted.",
        "tokens/s", UNIT_TOKENS_S);
    scaling_figure(r, SCALING_EFFICIENCY, "scaling-efficiency", "Scaling efficiency",
                   "Throughput on N ranks divided by N times that on one rank. Dashed: predicted.", "efficiency", UNIT_SHARE);
    scaling_figure(r, SCALING_MEMORY, "scaling-memory", "Memory against ranks",
                   "The fullest rank's peak, as allocated. Dashed: predicted.", "bytes allocated at the peak", UNIT_BYTES);
}

/* ---- memory against throughput ---- */

static bool on_plane(const struct chosen *x)
{
    return x->rec.row.allocated_bytes >= 0 && x->rec.row.end.tokens_per_s > 0;
}

/* Is there none that is at least as fast with less, or faster with no more? */
static bool on_front(const struct comparison *c, int i)
{
    const struct run_row *r = &c->run[i].rec.row;

    for (int k = 0; k < c->n; k++) {
        const struct run_row *o = &c->run[k].rec.row;
        if (k == i || !on_plane(&c->run[k]))
            continue;
        bool no_worse = o->allocated_bytes <= r->allocated_bytes &&
                        o->end.tokens_per_s >= r->end.tokens_per_s;
        bool better = o->allocated_bytes < r->allocated_bytes || o->end.tokens_per_s > r->end.tokens_per_s;
        if (no_worse && better)
            return false;
    }
    return true;
}

static int by_x(const void *a, const void *b)
{
    double x = ((const struct spot *)a)->x, y = ((const struct spot *)b)->x;

    return x < y ? -1 : x > y;
}

static void pareto_figure(struct report *r)
{
    const struct comparison *c = r->c;
    int n = 0;

    for (int i = 0; i < c->n; i++)
        n += on_plane(&c->run[i]);
    if (n == 0 || !c->together) {
        report_missing(r, "Memory against throughput",
                       n == 0 ? "no run has both" : "the runs do not do the same work on the same machine");
        return;
    }
    struct chart *k = report_chart(
        r, CHART_XY, "pareto", "Memory against throughput",
        "Left and up is better. On the line: no other run is faster with less memory.");
    chart_axis(k, AXIS_X, "bytes allocated at the peak, measured", UNIT_BYTES, false);
    chart_axis(k, AXIS_Y, "tokens/s, measured", UNIT_TOKENS_S, false);
    int front = chart_series(k, "on the front", 2, MARK_BOTH),
        others = chart_series(k, "others", 9, MARK_POINTS);
    for (int i = 0; i < c->n; i++) {
        const struct run_row *row = &c->run[i].rec.row;
        if (!on_plane(&c->run[i]))
            continue;
        struct spot *p = chart_spot(k, on_front(c, i) ? front : others, (double)row->allocated_bytes,
                                    row->end.tokens_per_s);
        p->label = text_keep(&k->kept, c->run[i].label);
    }
    sort_stable(k->series[front].spot, (size_t)k->series[front].n, sizeof(struct spot), by_x);
}

/* ---- losses ---- */

static void loss_figure(struct report *r)
{
    const struct comparison *c = r->c;
    struct chart *k = NULL;

    for (int i = 0; i < c->n; i++) {
        const struct run_record *x = &c->run[i].rec;
        int64_t every = x->nstep / MOST_STEPS + 1;
        if (x->nstep == 0)
            continue;
        if (!k)
            k = report_chart(
                r, CHART_XY, "loss", "Loss",
                "Mean over the global batch. Curves that lie on each other are "
                "what strategies should give. Of long runs some steps are drawn, the last among them.");
        int s = chart_series(k, c->run[i].label, i, MARK_LINE);
        for (int64_t n = 0; n < x->nstep; n++)
            if (n % every == 0 || n == x->nstep - 1)
                chart_spot(k, s, (double)x->step[n].step, x->step[n].loss);
    }
    if (!k) {
        report_missing(r, "Loss curves", "no run recorded a step");
        return;
    }
    k->nested = true;
    chart_axis(k, AXIS_X, "optimizer step", UNIT_COUNT, false);
    chart_axis(k, AXIS_Y, "loss, nats a token", UNIT_LOSS, false);
}

/* ---- calibrations ---- */

/* The chosen runs' host, or the first that was calibrated. */
static const char *calibrated_host(const struct comparison *c, const char *otherwise)
{
    return c->n > 0 ? c->run[0].rec.row.start.host : otherwise;
}

static void draw_sweep(struct chart *k, const struct coll_rate *c, int64_t n)
{
    struct line_fit f = table_fit_line(c, n);
    char name[120];

    snprintf(name, sizeof name, "%s, %s, %" PRId64 " ranks", c->op, c->dtype, c->ranks);
    int points = chart_series(k, name, meaning_colour(MEANING_OP, c->op), MARK_POINTS);
    for (int64_t i = 0; i < n; i++)
        chart_spot(k, points, (double)c[i].bytes, c[i].bus_gbs);
    if (isnan(f.alpha_s))
        return;
    int line = chart_series(k, NULL, meaning_colour(MEANING_OP, c->op), MARK_LINE);
    k->series[line].dashed = true;
    for (double b = (double)c[0].bytes; b <= (double)c[n - 1].bytes * 1.01; b *= 1.25) {
        double s = f.alpha_s + f.beta_s * b, bus = c[0].bus_gbs * c[0].seconds / (double)c[0].bytes;
        if (s > 0)
            chart_spot(k, line, b, bus * b / s);
    }
}

/* The sweep of an operation that says most: most ranks, then most sizes.  -1: none of two sizes. */
static int64_t best_sweep(const struct rates *x, const char *host, const char *op)
{
    int64_t best = -1, ranks = 0, sizes = 0;

    for (int64_t i = 0, end; i < x->ncoll; i = end) {
        const struct coll_rate *c = &x->coll[i];
        end = table_sweep_end(x, i);
        if (strcmp(c->host, host) || strcmp(c->op, op) || end - i < 2)
            continue;
        if (c->ranks > ranks || (c->ranks == ranks && end - i > sizes)) {
            best = i;
            ranks = c->ranks;
            sizes = end - i;
        }
    }
    return best;
}

static void bandwidth_figure(struct report *r)
{
    static const char *const ops[] = { "all_gather", "reduce_scatter", "all_reduce", "broadcast" };
    const struct rates *x = &r->c->rates;
    const char *host = x->ncoll ? calibrated_host(r->c, x->coll[0].host) : "";
    struct chart *k = NULL;

    for (int i = 0; i < 4; i++) {
        int64_t from = best_sweep(x, host, ops[i]);
        if (from < 0)
            continue;
        if (!k)
            k = report_chart(
                r, CHART_XY, "bandwidth", "Collectives: bandwidth against size",
                "Points: as calibrated on this machine, of each collective the sweep with most ranks (the "
                "table has the others). Dashed: start + bytes / rate, fitted to it.");
        draw_sweep(k, &x->coll[from], table_sweep_end(x, from) - from);
    }
    if (!k) {
        report_missing(r, "Collective bandwidth against size",
                       "this machine's collectives were not calibrated (dpxcal run)");
        return;
    }
    chart_axis(k, AXIS_X, "full buffer", UNIT_BYTES, true);
    chart_axis(k, AXIS_Y, "bus bandwidth", UNIT_GBS, false);
}

static void gemm_figure(struct report *r)
{
    const struct rates *x = &r->c->rates;
    const char *host = x->ngemm ? calibrated_host(r->c, x->gemm[0].host) : "";
    struct chart *k = NULL;

    for (int64_t i = 0; i < x->ngemm; i++) {
        const struct gemm_rate *g = &x->gemm[i];
        char name[80];
        int s = 0;
        if (strcmp(g->host, host))
            continue;
        if (!k)
            k = report_chart(
                r, CHART_XY, "gemm", "Matrix products: rate against shape",
                "Each point is a product m x n x k of a block as calibrated, by its work 2 m n k; shapes are "
                "in the table.");
        snprintf(name, sizeof name, "%s, %" PRId64 " ranks busy", g->dtype, g->ranks);
        while (s < k->nseries && strcmp(k->series[s].name, name))
            s++;
        if (s == k->nseries)
            chart_series(k, name, s, MARK_POINTS);
        chart_spot(k, s,
                   2.0 * (double)(g->batch > 0 ? g->batch : 1) * (double)g->m * (double)g->n * (double)g->k,
                   g->gflops);
    }
    if (!k) {
        report_missing(r, "GEMM rate against shape",
                       "this machine's kernels were not calibrated (dpxcal run)");
        return;
    }
    chart_axis(k, AXIS_X, "work of one product", UNIT_FLOP, true);
    chart_axis(k, AXIS_Y, "GFLOP/s", UNIT_GFLOPS, false);
}

void report_curves(struct report *r)
{
    scatter_figure(r);
    scaling_figures(r);
    pareto_figure(r);
    loss_figure(r);
    bandwidth_figure(r);
    gemm_figure(r);
}
