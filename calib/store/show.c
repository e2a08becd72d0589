/* show.c -- what a database knows of each machine, as tables for people: series, laws, what a model still misses. */
#include "calib/store/show.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/columns.h"
#include "base/fail.h"
#include "base/page.h"
#include "base/percent.h"
#include "calib/store/fit.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "model/program/program.h"

/* ---- what is known ---- */

static const char *age_text(double seconds, char *to, size_t size)
{
    if (seconds < 90 * 60)
        snprintf(to, size, "%.0f min", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(to, size, "%.0f h", seconds / 3600);
    else
        snprintf(to, size, "%.0f days", seconds / 86400);
    return to;
}

static const char *bytes_text(double bytes, char *to, size_t size)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB" };
    int u = 0;

    for (; bytes >= 1024 && u < 3; u++)
        bytes /= 1024;
    snprintf(to, size, "%.4g %s", bytes, unit[u]);
    return to;
}

/* A line for each kind, class or name, dtype, algorithm and number of ranks. */
static int show_series(struct db *db, int64_t machine, FILE *to)
{
    static const struct column columns[] = {
        { "", false, 0 }, { "dtype", false, 0 }, { "ranks", true, 0 }, { "threads", true, 2 }, { "series", true, 4 }, { "samples", true, 3 },
        { "spread", true, 0 }, { "age", true, 1 }, { "bytes", false, 0 },
    };
    struct columns *table = columns_new(columns, sizeof columns / sizeof *columns);
    struct query q;
    struct texts *t = NULL;

    query_open(&q, db, "SELECT CASE kind WHEN 'kernel' THEN class WHEN 'collective' THEN name || ', ' || algorithm"
                       " WHEN 'pass' THEN 'passes over memory' WHEN 'own' THEN 'executor''s own' ELSE kind END AS what,"
                       " dtype, ranks, per_node, threads, count(*), sum(samples), avg((p95_s - p05_s) / 2 / median_s),"
                       " max(started), min(bytes), max(bytes), kind = 'collective' FROM series"
                       " WHERE machine = ? AND is_now = 1 GROUP BY kind, what, dtype, ranks, per_node, threads"
                       " ORDER BY kind = 'collective', kind, what, dtype, ranks");
    query_put_int(&q, machine);
    while (query_row(&q)) {
        char age[32], low[32], high[32];
        const char *what = query_get_shown(&q, &t), *dtype = query_get_shown(&q, &t);
        int64_t ranks = query_get_int(&q), per_node = query_get_int(&q), threads = query_get_int(&q), series = query_get_int(&q);
        int64_t samples = query_get_int(&q);
        double spread = query_get_real(&q), started = query_get_real(&q), least = query_get_real(&q), most = query_get_real(&q);
        bool coll = query_get_int(&q) != 0;
        columns_cell(table, "%s", what);
        columns_cell(table, "%s", dtype);
        columns_cell(table, coll && per_node < ranks ? "%" PRId64 "/%" PRId64 : "%" PRId64, ranks, per_node);
        columns_cell(table, "%" PRId64, threads);
        columns_cell(table, "%" PRId64, series);
        columns_cell(table, "%" PRId64, samples);
        columns_cell(table, "%s", percent_share(spread).s);
        columns_cell(table, "%s", age_text((double)time(NULL) - started, age, sizeof age));
        if (most > 0)
            columns_cell(table, "%s to %s", bytes_text(least, low, sizeof low), bytes_text(most, high, sizeof high));
        else
            columns_cell(table, "%s", "");
    }
    columns_print(table, to, page_width(to));
    query_texts_free(t);
    return query_close(&q) < 0 ? db_fail(db, "reading calibrations") : 0;
}

static int show_probe(struct db *db, int64_t machine, FILE *to)
{
    struct query q;
    double low = NAN, high = NAN, mean = NAN;

    query_open(&q, db, "SELECT avg(probe_before_s), min(probe_before_s), max(probe_before_s) FROM series"
                       " WHERE machine = ? AND is_now = 1");
    query_put_int(&q, machine);
    if (query_row(&q)) {
        mean = query_get_real(&q);
        low = query_get_real(&q);
        high = query_get_real(&q);
    }
    if (mean > 0)
        fprintf(to, "  the probe product took %.2f ms, from %.2f to %.2f while these were timed\n", 1e3 * mean, 1e3 * low,
               1e3 * high);
    return query_close(&q) < 0 ? db_fail(db, "reading calibrations") : 0;
}

static int show_lateness(struct db *db, int64_t machine, FILE *to)
{
    double late = series_lateness(db, machine, 0, 0);

    if (late >= SERIES_LATE)
        fprintf(to, "  the machine was busy while these were timed: up to %.1f times as long as when it is quiet, and intervals of "
               "predictions are wider for it\n", late);
    return isnan(late) ? -1 : 0;
}

static int show_to(struct db *db, FILE *to)
{
    struct query q;
    struct texts *t = NULL;
    int rc = 0, n = 0;

    query_open(&q, db, "SELECT m.id, m.host, m.device, m.cpu, m.cores, count(*), sum(c.ended IS NULL),"
                       " max(c.comm_version), max(c.kernels_version) FROM machine m JOIN calibration c ON c.machine = m.id"
                       " GROUP BY m.id ORDER BY max(c.started) DESC");
    while (rc == 0 && query_row(&q)) {
        int64_t machine = query_get_int(&q);
        const char *host = query_get_shown(&q, &t), *device = query_get_shown(&q, &t), *cpu = query_get_shown(&q, &t);
        int64_t cores = query_get_int(&q), times = query_get_int(&q), open = query_get_int(&q);
        const char *comm = query_get_shown(&q, &t), *kernels = query_get_shown(&q, &t);
        fprintf(to, "%s%s: %s", n++ ? "\n" : "", host, strcmp(device, "cpu") ? device : cpu);
        if (cores > 0)
            fprintf(to, ", %" PRId64 " cores", cores);
        fprintf(to, "; %s%s%s; calibrated %" PRId64 " time%s", comm ? comm : "", kernels ? ", " : "", kernels ? kernels : "",
               times, times == 1 ? "" : "s");
        fprintf(to, open ? ", %" PRId64 " of them not ended\n" : "\n", open);
        rc = show_series(db, machine, to) < 0 || show_probe(db, machine, to) < 0 || show_lateness(db, machine, to) < 0 ? -1 : 0;
    }
    if (n == 0)
        fprintf(to, "%s: no calibration yet; `dpxcal run` makes one\n", db_path(db));
    query_texts_free(t);
    return query_close(&q) < 0 ? db_fail(db, "reading calibrations") : rc;
}

int show_machines(struct db *db)
{
    FILE *page = page_open(stdout);
    int rc = page ? show_to(db, page) : -1;

    if (page)
        page_close(page);
    return rc;
}

/* ---- laws ---- */

/* "10.2 us + 4.31 GB/s", "1.42 times", "35 us". */
static const char *law_text(const char *kind, double fixed_us, double gbs, double gflops, double factor, char *to,
                            size_t size)
{
    double rate = gbs > 0 ? gbs : gflops;
    int n = 0;

    if (!strcmp(kind, "overlap")) {
        snprintf(to, size, "%.2f times as long", factor);
        return to;
    }
    if (fixed_us > 0 || !(rate > 0))
        n = snprintf(to, size, "%.3g us", fixed_us);
    if (rate > 0)
        snprintf(to + n, size - (size_t)n, "%s%.3g %s", n ? " + " : "", rate, gbs > 0 ? "GB/s" : "GFLOP/s");
    return to;
}

static const char *range_text(const char *x, double from, double to, char *text, size_t size)
{
    char low[32], high[32];

    if (!strcmp(x, "bytes"))
        snprintf(text, size, "%s to %s", bytes_text(from, low, sizeof low), bytes_text(to, high, sizeof high));
    else
        snprintf(text, size, "%.3g to %.3g MFLOP", from / 1e6, to / 1e6);
    if (!strcmp(x, "none"))
        text[0] = '\0';
    return text;
}

static int fits_to(struct db *db, FILE *to)
{
    static const struct column columns[] = {
        { "", false, 0 }, { "dtype", false, 0 }, { "ranks", true, 0 }, { "threads", true, 2 }, { "law", false, 0 }, { "off by", true, 0 },
        { "worst", true, 1 }, { "left out", true, 4 }, { "points", true, 3 }, { "range (host, device)", false, 0 },
    };
    struct columns *table = columns_new(columns, sizeof columns / sizeof *columns);
    struct query q;
    struct texts *t = NULL;
    int n = 0;

    query_open(&q, db, "SELECT host || ', ' || device, kind, name || CASE WHEN beside <> '' THEN ' beside ' || beside"
                       " WHEN algorithm <> '' THEN ', ' || algorithm WHEN dropout THEN ' (dropout)' ELSE '' END, dtype, ranks, threads, x, fixed_us, gbs,"
                       " gflops, factor, from_x, to_x, residual, worst, left_out, points FROM fits"
                       " ORDER BY host, device, kind, name, algorithm, beside, dropout, dtype, ranks, threads");
    while (query_row(&q)) {
        char law[64], range[80], left[24] = "";
        const char *host = query_get_shown(&q, &t), *kind = query_get_shown(&q, &t), *name = query_get_shown(&q, &t);
        const char *dtype = query_get_shown(&q, &t);
        int64_t ranks = query_get_int(&q), threads = query_get_int(&q);
        const char *x = query_get_shown(&q, &t);
        double v[9];
        for (int i = 0; i < 9; i++)
            v[i] = query_get_real(&q);
        n++;
        if (!isnan(v[8]))
            snprintf(left, sizeof left, "%s", percent_share(v[8]).s);
        columns_cell(table, "%s", name);
        columns_cell(table, "%s", dtype);
        columns_cell(table, "%" PRId64, ranks);
        columns_cell(table, "%" PRId64, threads);
        columns_cell(table, "%s", law_text(kind, v[0], v[1], v[2], v[3], law, sizeof law));
        columns_cell(table, "%s", percent_share(v[6]).s);
        columns_cell(table, "%s", percent_share(v[7]).s);
        columns_cell(table, "%s", left);
        columns_cell(table, "%" PRId64, query_get_int(&q));
        columns_cell(table, "%s  (%s)", range_text(x, v[4], v[5], range, sizeof range), host);
    }
    columns_print(table, to, page_width(to));
    if (n == 0)
        fprintf(to, "%s: no fits yet: they are made when a calibration ends\n", db_path(db));
    query_texts_free(t);
    return query_close(&q) < 0 ? db_fail(db, "reading fits") : 0;
}

int show_fits(struct db *db)
{
    FILE *page = page_open(stdout);
    int rc = page ? fits_to(db, page) : -1;

    if (page)
        page_close(page);
    return rc;
}

/* ---- what a model misses ---- */

static bool is_measured(const struct measured_device *m, const struct plan *p, const struct kernel *k)
{
    for (int i = 0; i < m->nkernel; i++) {
        const struct measured_kernel *of = &m->kernel[i];
        if (of->fn == k->fn && of->batch == k->batch && of->m == k->m && of->n == k->n && of->k == k->k
            && of->bytes == k->bytes && of->dropout == (p->dropout > 0)
            && (k->kind != KC_ATTENTION || (of->seq == p->seq && of->dim == p->model.head_dim)))
            return true;
    }
    return false;
}

static void show_kernel(const struct kernel *k)
{
    char bytes[32];

    if (k->m > 0)
        printf("    %-28s %" PRId64 " x %" PRId64 " x %" PRId64 "\n", k->name, k->m, k->n, k->k);
    else
        printf("    %-28s %s\n", k->name, bytes_text((double)k->bytes, bytes, sizeof bytes));
}

/* Counts the kernels that are not measured; prints them, or appends them to `into`. */
static int missing(const struct measured_device *m, const struct plan *p, const struct program *g, bool print, json_t *into, int *all)
{
    static const enum piece_id pieces[] = { PIECE_EMBED, PIECE_BLOCK, PIECE_HEAD };
    int n = 0;

    *all = 0;
    for (int i = 0; i < 3; i++)
        for (int pass = 0; pass < NPASS; pass++)
            for (int k = 0; k < g->piece[pieces[i]].nkernels[pass]; k++) {
                const struct kernel *of = &g->piece[pieces[i]].kernels[pass][k];
                if (of->fn == FN_NONE || (of->bytes <= 0 && of->flops <= 0))
                    continue;
                ++*all;
                if (is_measured(m, p, of))
                    continue;
                n++;
                if (print)
                    show_kernel(of);
                if (into)
                    json_array_append_new(into, show_kernel_json(of));
            }
    return n;
}

static void say_missing(const struct measured_device *m, const struct plan *p, const struct program *g, int n, int all)
{
    printf("%s, %" PRId64 " x %" PRId64 " tokens, %s: ", p->model.name, p->micro_batch, p->seq, dtype_name(p->precision));
    printf(n ? "%d of %d kernels are not measured\n" : "%.0d%d kernels, all measured\n", n, all);
    missing(m, p, g, true, NULL, &all);
}

int show_missing(struct db *db, const struct plan *p, int64_t ranks, json_t *into)
{
    struct measured_device m;
    struct program g;
    int all, n;

    memset(&g, 0, sizeof g);
    if (fit_read(db, &(struct fit_want){ .precision = p->precision, .ranks = ranks }, &m) < 0)
        return -1;
    if (program_build(p, &g) < 0) {
        measured_device_free(&m);
        return -1;
    }
    json_t *kernels = into ? json_array() : NULL;
    n = missing(&m, p, &g, false, kernels, &all);
    if (into)
        json_array_append_new(into, json_pack("{s:s, s:I, s:I, s:s, s:i, s:o}", "model", p->model.name, "micro_batch", (json_int_t)p->micro_batch, "seq",
                                              (json_int_t)p->seq, "precision", dtype_name(p->precision), "kernels", all, "missing", kernels));
    else
        say_missing(&m, p, &g, n, all);
    program_free(&g);
    measured_device_free(&m);
    return n;
}
