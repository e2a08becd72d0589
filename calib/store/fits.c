/* fits.c -- least squares of the laws, and their places beside the samples. */
#include "calib/store/fits.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/store/query.h"

/* A series that counts now, with the columns that a fit has in common with it. */
struct row {
    const char *kind, *name, *class, *dtype, *algorithm, *beside;
    int64_t ranks, per_node, threads, dropout, bytes, samples;
    double  flops, median, mean, spread, confidence;
    bool    is_new;                     /* of the calibration itself */
};

struct rows { struct row *r; int n; struct texts *texts; };

/* ---- one law ---- */

/* Of a + b x the one with the least sum of ((a + b x) / s - 1)^2; with one size, in proportion. */
static void least_squares(const double *x, const double *s, int n, double *a, double *b)
{
    double u = 0, v = 0, uu = 0, uv = 0, vv = 0;

    for (int i = 0; i < n; i++) {
        u += 1 / s[i];
        v += x[i] / s[i];
        uu += 1 / (s[i] * s[i]);
        uv += x[i] / (s[i] * s[i]);
        vv += x[i] * x[i] / (s[i] * s[i]);
    }
    double det = uu * vv - uv * uv;
    *a = *b = 0;
    if (x[n - 1] > x[0] && det > 1e-12 * uu * vv) {
        *a = (u * vv - v * uv) / det;
        *b = (uu * v - uv * u) / det;
    }
    if (*b <= 0 && x[0] < x[n - 1] && *a > 0) {     /* it falls: no size matters */
        *a = u / uu;
        *b = 0;
    } else if (*a < 0 || *b <= 0) {
        *a = vv > 0 ? 0 : u / uu;
        *b = vv > 0 ? v / vv : 0;
    }
}

/* Mean distance of points from the straight line between their neighbours, in logarithms of both. */
static double left_out(const double *x, const double *s, int n)
{
    double sum = 0;
    int count = 0, before = 0;

    for (int i = 1; i + 1 < n; i++) {
        int after = i + 1;
        if (!(x[i] > x[before]) || !(x[before] > 0))
            continue;
        while (after < n && !(x[after] > x[i]))
            after++;
        if (after == n)
            break;
        double f = log(x[i] / x[before]) / log(x[after] / x[before]);
        sum += fabs(s[before] * pow(s[after] / s[before], f) / s[i] - 1);
        count++;
        before = i;
    }
    return count ? sum / count : (double)NAN;
}

void fits_line(const double *x, const double *s, int n, struct table_fit_line *out)
{
    assert(n >= 1);
    *out = (struct table_fit_line){ .from = x[0], .to = x[n - 1], .points = n, .left_out = left_out(x, s, n) };
    least_squares(x, s, n, &out->fixed_s, &out->per_s);
    for (int i = 0; i < n; i++) {
        double off = (out->fixed_s + out->per_s * x[i]) / s[i] - 1;
        out->residual += off * off / n;
        out->worst = fmax(out->worst, fabs(off));
    }
    out->residual = sqrt(out->residual);
}

/* ---- what counts ---- */

/* Products and attention go by FLOPs, everything else by bytes. */
#define BY_FLOPS(row) "(" row "kind = 'kernel' AND " row "class IN ('gemm', 'attention'))"

static bool goes_by_flops(const struct row *r)
{
    return !strcmp(r->kind, "kernel") && (!strcmp(r->class, "gemm") || !strcmp(r->class, "attention"));
}

static double x_of(const struct row *r) { return goes_by_flops(r) ? r->flops : (double)r->bytes; }

static int read_rows(struct db *db, int64_t calibration, struct rows *out)
{
    struct query q;

    query_open(&q, db, "SELECT kind, CASE kind WHEN 'kernel' THEN fn ELSE name END AS what, class, dtype, algorithm,"
                       " beside, ranks, per_node, threads, dropout, bytes, samples, flops, median_s, mean_s,"
                       " (p95_s - p05_s) / 2 / median_s, confidence, calibration = ?1 FROM series"
                       " WHERE machine = (SELECT machine FROM calibration WHERE id = ?1) AND is_now = 1"
                       " ORDER BY kind, what, class, dtype, algorithm, beside, ranks, per_node, threads, dropout,"
                       " CASE WHEN " BY_FLOPS("") " THEN flops ELSE bytes END");
    query_put_int(&q, calibration);
    while (query_row(&q)) {
        out->r = query_array_grow(out->r, out->n, sizeof *out->r);
        struct row *r = &out->r[out->n++];
        const char **const words[] = { &r->kind, &r->name, &r->class, &r->dtype, &r->algorithm, &r->beside };
        int64_t *const counts[] = { &r->ranks, &r->per_node, &r->threads, &r->dropout, &r->bytes, &r->samples };
        double *const reals[] = { &r->flops, &r->median, &r->mean, &r->spread, &r->confidence };
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            *words[i] = query_get_text(&q, &out->texts);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            *counts[i] = query_get_int(&q);
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
            *reals[i] = query_get_real(&q);
        r->is_new = query_get_int(&q) != 0;
    }
    return query_close(&q);
}

static bool same_thing(const struct row *a, const struct row *b)
{
    return !strcmp(a->kind, b->kind) && !strcmp(a->name, b->name) && !strcmp(a->class, b->class)
        && !strcmp(a->dtype, b->dtype) && !strcmp(a->algorithm, b->algorithm) && !strcmp(a->beside, b->beside)
        && a->ranks == b->ranks && a->per_node == b->per_node && a->threads == b->threads && a->dropout == b->dropout;
}

/* ---- recording ---- */

static void put_fit(struct query *q, const struct row *r, const char *x, const struct table_fit_line *l, double factor,
                    int64_t samples, double spread)
{
    const char *const words[] = { r->kind, r->name, r->class, r->dtype, r->algorithm, r->beside, x };
    const int64_t counts[] = { r->ranks, r->per_node, r->threads, r->dropout, l->points, samples };
    const double reals[] = { l->fixed_s, l->per_s, factor, l->from, l->to, l->residual, l->worst, l->left_out, spread };

    q->at = 1;                          /* after the calibration's number */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        query_put_text(q, words[i]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        query_put_int(q, counts[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        query_put_real(q, reals[i]);
    query_done(q);
}

/* What has no time (below the clock's resolution) follows no law. */
static void put_law(struct query *q, const struct row *r, int n, double *x, double *s)
{
    struct table_fit_line line;
    int64_t samples = 0;
    double spread = 0;
    int k = 0;

    for (int i = 0; i < n; i++)
        if (r[i].median > 0) {
            x[k] = x_of(&r[i]);
            s[k++] = r[i].median;
            samples += r[i].samples;
            spread = fmax(spread, r[i].spread);
        }
    if (k == 0)
        return;
    fits_line(x, s, k, &line);
    if (goes_by_flops(r))               /* the clock goes by shapes there, not by this one size */
        line.left_out = NAN;
    put_fit(q, r, goes_by_flops(r) ? "flops" : "bytes", &line, NAN, samples, spread);
}

/* An overhead is a time without a size; its residual is the median's sampling error. */
static void put_time(struct query *q, const struct row *r)
{
    struct table_fit_line line = { .fixed_s = r->median, .residual = r->confidence, .worst = r->confidence, .points = 1,
                             .left_out = NAN };

    put_fit(q, r, "none", &line, NAN, r->samples, isnan(r->spread) ? 0 : r->spread);
}

/* How many times longer it takes in company: means are compared, as in fit.c. */
static void put_factor(struct query *q, const struct rows *rows, const struct row *r)
{
    static const char alone[] = "alone before ";
    struct table_fit_line line = { .from = (double)r->bytes, .to = (double)r->bytes, .points = 1, .left_out = NAN };

    for (int i = 0; i < rows->n; i++) {
        struct row a = rows->r[i];
        if (strncmp(a.beside, alone, sizeof alone - 1) || strcmp(a.beside + sizeof alone - 1, r->beside))
            continue;
        a.beside = r->beside;
        if (!same_thing(&a, r) || a.bytes != r->bytes || !(a.mean > 0))
            continue;
        line.residual = line.worst = hypot(a.confidence, r->confidence);
        put_fit(q, r, "none", &line, fmax(r->mean / a.mean, 1), a.samples + r->samples, r->spread);
        return;
    }
}

static void put_all(struct query *q, const struct rows *rows, bool all)
{
    double *room = malloc((size_t)(2 * rows->n + 1) * sizeof *room);

    if (!room)
        abort();
    for (int i = 0, n; i < rows->n; i += n) {
        const struct row *r = &rows->r[i];
        bool is_new = all;
        for (n = 0; i + n < rows->n && same_thing(r, &r[n]); n++)
            is_new |= r[n].is_new;
        if (!is_new)
            continue;
        if (!strcmp(r->kind, "own"))
            put_time(q, r);
        else if (strcmp(r->kind, "overlap"))
            put_law(q, r, n, room, room + rows->n);
        for (int k = 0; !strcmp(r->kind, "overlap") && k < n; k++)
            put_factor(q, rows, &r[k]);
    }
    free(room);
}

int fits_write(struct db *db, int64_t calibration, bool all)
{
    struct rows rows = { 0 };
    struct query away, q;
    int rc;

    query_open(&away, db, "DELETE FROM fit WHERE calibration = ?");
    query_put_int(&away, calibration);
    query_done(&away);
    rc = query_close(&away) < 0 || read_rows(db, calibration, &rows) < 0 ? -1 : 0;
    if (rc == 0) {
        query_open(&q, db, "INSERT INTO fit (calibration, machine, kind, name, class, dtype, algorithm, beside, x, ranks,"
                           " per_node, threads, dropout, points, samples, fixed_s, per_s, factor, from_x, to_x, residual,"
                           " worst, left_out, spread) VALUES (?1, (SELECT machine FROM calibration WHERE id = ?1), ?, ?, ?,"
                           " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        query_put_int(&q, calibration);
        put_all(&q, &rows, all);
        rc = query_close(&q);
    }
    free(rows.r);
    query_texts_free(rows.texts);
    return rc;
}

int fits_write_older(struct db *db)
{
    int64_t *id = NULL, n = 0;
    struct query q;
    int rc;

    query_open(&q, db, "SELECT max(id) FROM calibration WHERE ended IS NOT NULL GROUP BY machine");
    while (query_row(&q)) {
        id = query_array_grow(id, n, sizeof *id);
        id[n++] = query_get_int(&q);
    }
    rc = query_close(&q);
    for (int64_t i = 0; i < n && rc == 0; i++)
        rc = fits_write(db, id[i], true);
    free(id);
    return rc;
}
