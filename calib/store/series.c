/* series.c -- recording what was timed.  Tables and columns are explained in schema.c. */
#include "calib/store/series.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/sort.h"
#include "calib/store/fits.h"
#include "calib/store/query.h"
#include "calib/store/words.h"

const char *const series_words[] = { "kernel", "pass", "collective", "overlap", "own", NULL };

const char *const calibration_sources[] = { "dpxcal", "nccl-tests", "kineto", NULL };

/* ---- summaries ---- */

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The quantile q of sorted samples, between neighbours in proportion. */
static double quantile(const double *x, int n, double q)
{
    double at = q * (n - 1);
    int i = (int)at;

    return i + 1 < n ? x[i] + (at - i) * (x[i + 1] - x[i]) : x[n - 1];
}

void series_summarize(const double *seconds, int n, struct summary *out)
{
    double *x = malloc((size_t)n * sizeof *x), sum = 0, half = 0.98 / sqrt((double)n);

    assert(n >= 1);
    if (!x)
        abort();
    memcpy(x, seconds, (size_t)n * sizeof *x);
    sort_stable(x, (size_t)n, sizeof *x, rising);
    for (int i = 0; i < n; i++)
        sum += x[i];
    *out = (struct summary){ .median = quantile(x, n, 0.5), .mean = sum / n, .min = x[0],
                             .p05 = quantile(x, n, 0.05), .p95 = quantile(x, n, 0.95) };
    /* What is below the clock's resolution takes 0 seconds, and is sure of it. */
    out->confidence = (quantile(x, n, fmin(0.5 + half, 1)) - quantile(x, n, fmax(0.5 - half, 0))) / 2
                      / (out->median > 0 ? out->median : 1);
    free(x);
}

/* ---- calibrations ---- */

static int machine_of(struct db *db, const struct calibration *c, int64_t *id)
{
    static const char *const sql[] = {
        "INSERT OR IGNORE INTO machine (host, device, cpu, cores, memory_bytes) VALUES (?, ?, ?, ?, ?)",
        "SELECT id FROM machine WHERE host = ? AND device = ? AND cpu = ? AND cores = ? AND memory_bytes = ?",
    };

    *id = 0;
    for (int i = 0; i < 2; i++) {
        struct query q;
        query_open(&q, db, sql[i]);
        query_put_text(&q, c->host);
        query_put_text(&q, c->device);
        query_put_text(&q, c->cpu);
        query_put_int(&q, c->cores);
        query_put_int(&q, c->memory);
        if (query_row(&q))
            *id = query_get_int(&q);
        if (query_close(&q) < 0)
            return -1;
    }
    return 0;
}

int64_t calibration_add(struct db *db, const struct calibration *c, double ended)
{
    int64_t machine, id;
    struct query q;

    if (machine_of(db, c, &machine) < 0)
        return -1;
    query_open(&q, db, "INSERT INTO calibration (started, machine, source, ranks, threads, options, dpx_version,"
                       " comm_version, kernels_version, origin, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    query_put_real(&q, c->started);
    query_put_int(&q, machine);
    query_put_text(&q, c->source);
    query_put_int(&q, c->ranks);
    query_put_int(&q, c->threads);
    query_put_text(&q, c->options);
    query_put_text(&q, c->dpx_version);
    query_put_text(&q, c->comm_version);
    query_put_text(&q, c->kernels_version);
    query_put_text(&q, c->origin);
    query_put_real(&q, ended);
    query_done(&q);
    id = sqlite3_last_insert_rowid(db->sql);
    return query_close(&q) < 0 ? -1 : id;
}

int64_t calibration_begin(struct db *db, const struct calibration *c)
{
    int64_t id = db_begin(db) < 0 ? -1 : calibration_add(db, c, NAN);

    if (id < 0 || db_end(db, 0) < 0) {
        db_fail(db, "recording the calibration");
        db_end(db, -1);
        return -1;
    }
    return id;
}

/* Of `machine m` and `calibration`: what tells one calibration from another. */
#define SAME "m.host = ? AND m.device = ? AND m.cpu = ? AND source = ? AND started = ?"
static void put_same(struct query *q, const struct calibration *c)
{
    query_put_text(q, c->host);
    query_put_text(q, c->device);
    query_put_text(q, c->cpu);
    query_put_text(q, c->source);
    query_put_real(q, c->started);
}

int calibration_known(struct db *db, const struct calibration *c)
{
    struct query q;
    int known;

    query_open(&q, db, "SELECT 1 FROM calibration c JOIN machine m ON m.id = c.machine WHERE " SAME
                       " AND (c.source = 'dpxcal' OR c.origin IS ?)");
    put_same(&q, c);
    query_put_text(&q, c->origin);
    known = query_row(&q);
    return query_close(&q) < 0 ? db_fail(db, "looking for a calibration") : known;
}

int calibration_outgrown(struct db *db, const struct calibration *c, double ended, int nseries)
{
    struct query q;

    query_open(&q, db, "DELETE FROM calibration WHERE id IN (SELECT c.id FROM calibration c JOIN machine m ON m.id = c.machine"
                       " WHERE " SAME " AND ended IS NULL"
                       " AND (? IS NOT NULL OR ? > (SELECT count(*) FROM series s WHERE s.calibration = c.id)))");
    put_same(&q, c);
    query_put_real(&q, ended);
    query_put_int(&q, nseries);
    query_done(&q);
    return query_close(&q) < 0 ? db_fail(db, "replacing an interrupted calibration") : 0;
}

int64_t calibration_open_since(struct db *db, const struct calibration *c, double seconds)
{
    struct query q;
    int64_t id = 0;

    query_open(&q, db, "SELECT c.id FROM calibration c JOIN machine m ON m.id = c.machine WHERE c.ended IS NULL"
                       " AND c.started >= ? AND m.host = ? AND m.device = ? AND m.cpu = ? AND m.cores = ?"
                       " AND c.source = ? AND c.ranks = ? AND c.threads = ? AND c.options = ?"
                       " AND c.dpx_version IS ? AND c.comm_version IS ? AND c.kernels_version IS ?"
                       " ORDER BY c.id DESC LIMIT 1");
    query_put_real(&q, c->started - seconds);
    query_put_text(&q, c->host);
    query_put_text(&q, c->device);
    query_put_text(&q, c->cpu);
    query_put_int(&q, c->cores);
    query_put_text(&q, c->source);
    query_put_int(&q, c->ranks);
    query_put_int(&q, c->threads);
    query_put_text(&q, c->options);
    query_put_text(&q, c->dpx_version);
    query_put_text(&q, c->comm_version);
    query_put_text(&q, c->kernels_version);
    if (query_row(&q))
        id = query_get_int(&q);
    return query_close(&q) < 0 ? db_fail(db, "looking for an interrupted calibration") : id;
}

int calibration_crowd(struct db *db, int64_t id, double crowd)
{
    struct query q;

    query_open(&q, db, "UPDATE calibration SET crowd = ? WHERE id = ?");
    query_put_real(&q, crowd);
    query_put_int(&q, id);
    query_done(&q);
    return query_close(&q) < 0 ? db_fail(db, "recording how busy the machine was") : 0;
}

int calibration_end(struct db *db, int64_t id, double ended)
{
    struct query q;
    int rc;

    if (db_begin(db) < 0)
        return db_fail(db, "ending calibration %" PRId64, id);
    query_open(&q, db, "UPDATE calibration SET ended = ? WHERE id = ?");
    query_put_real(&q, ended);
    query_put_int(&q, id);
    query_done(&q);
    rc = query_close(&q) < 0 || fits_write(db, id, false) < 0 ? -1 : 0;
    return db_end(db, rc) < 0 ? db_fail(db, "ending calibration %" PRId64, id) : 0;
}

/* ---- series ---- */

static const char *or_none(const char *text) { return text ? text : ""; }

/* In the order of the columns of the key. */
static void put_key(struct query *q, const struct series *s)
{
    query_put_text(q, series_words[s->kind]);
    query_put_text(q, s->name);
    query_put_text(q, s->kind == SERIES_KERNEL ? fn_words[s->fn] : "");
    query_put_text(q, dtype_name(s->dtype));
    query_put_text(q, or_none(s->algorithm));
    query_put_int(q, s->ranks);
    query_put_int(q, s->per_node);
    query_put_int(q, s->threads);
    query_put_int(q, s->batch);
    query_put_int(q, s->m);
    query_put_int(q, s->n);
    query_put_int(q, s->k);
    query_put_int(q, s->seq);
    query_put_int(q, s->dim);
    query_put_int(q, s->bytes);
    query_put_int(q, s->dropout);
    query_put_text(q, or_none(s->beside));
}

int series_known(struct db *db, int64_t calibration, const struct series *s)
{
    struct query q;
    int known;

    query_open(&q, db, "SELECT 1 FROM series WHERE calibration = ? AND kind = ? AND name = ? AND fn = ? AND dtype = ?"
                       " AND algorithm = ? AND ranks = ? AND per_node = ? AND threads = ? AND batch = ? AND m = ?"
                       " AND n = ? AND k = ? AND seq = ? AND dim = ? AND bytes = ? AND dropout = ? AND beside = ?");
    query_put_int(&q, calibration);
    put_key(&q, s);
    known = query_row(&q);
    return query_close(&q) < 0 ? db_fail(db, "looking for \"%s\"", s->name) : known;
}

int64_t series_last(struct db *db)
{
    struct query q;
    int64_t id = 0;

    query_open(&q, db, "SELECT ifnull(max(id), 0) FROM series");
    if (query_row(&q))
        id = query_get_int(&q);
    return query_close(&q) < 0 ? db_fail(db, "looking for the last series") : id;
}

int series_forget(struct db *db, int64_t calibration, int64_t after)
{
    struct query q;

    query_open(&q, db, "DELETE FROM series WHERE calibration = ? AND id > ?");
    query_put_int(&q, calibration);
    query_put_int(&q, after);
    query_done(&q);
    return query_close(&q) < 0 ? db_fail(db, "removing series") : 0;
}

double series_lateness(struct db *db, int64_t machine, int64_t ranks, int64_t threads)
{
    struct query q;
    double late = 1;

    query_open(&q, db, "WITH late AS (SELECT CASE WHEN s.median_s >= 5e-5 THEN s.median_s / s.min_s END AS x,"
                       " 1 / (1 - min(ifnull(c.crowd, 0), .95)) AS crowded"
                       " FROM series s JOIN calibration c ON c.id = s.calibration JOIN machine m ON m.id = s.machine"
                       " WHERE s.machine = ?1 AND is_now = 1 AND c.source = 'dpxcal' AND m.device = 'cpu'"
                       " AND kind IN ('kernel', 'pass') AND samples >= 7 AND min_s > 0"
                       " AND (?2 = 0 OR s.ranks = ?2) AND (?3 = 0 OR s.threads = ?3))"
                       " SELECT max(ifnull((SELECT x FROM late WHERE x IS NOT NULL ORDER BY x LIMIT 1"
                       " OFFSET (SELECT count(x) FROM late) / 2), 1), (SELECT max(crowded) FROM late)) FROM late LIMIT 1");
    query_put_int(&q, machine);
    query_put_int(&q, ranks);
    query_put_int(&q, threads);
    if (query_row(&q))
        late = query_get_real(&q);
    return query_close(&q) < 0 ? db_fail(db, "reading how busy the machine was"), (double)NAN : late;
}

static void put_series(struct query *q, int64_t calibration, const struct series *s)
{
    struct summary of;

    series_summarize(s->seconds, s->nsamples, &of);
    query_put_int(q, calibration);
    put_key(q, s);
    query_put_text(q, s->kind == SERIES_KERNEL ? class_words[s->class] : "");
    query_put_real(q, s->flops);
    query_put_real(q, s->started);
    query_put_real(q, s->probe_before_s);
    query_put_real(q, s->probe_after_s);
    query_put_int(q, s->nsamples);
    query_put_real(q, of.median);
    query_put_real(q, of.mean);
    query_put_real(q, of.min);
    query_put_real(q, of.p05);
    query_put_real(q, of.p95);
    query_put_real(q, of.confidence);
    query_done(q);
}

static void put_samples(struct query *q, int64_t id, const struct series *s)
{
    int per = s->of_ranks > 0 ? s->nsamples / s->of_ranks : s->nsamples;

    assert(s->of_ranks == 0 || s->nsamples % s->of_ranks == 0);
    for (int i = 0; i < s->nsamples; i++) {
        query_put_int(q, id);
        query_put_int(q, s->of_ranks > 0 ? i / per : -1);
        query_put_int(q, i % per);
        query_put_real(q, s->seconds[i]);
        query_done(q);
    }
}

int series_add(struct db *db, int64_t calibration, const struct series *s, int n)
{
    struct query one, each;

    query_open(&one, db, "INSERT OR REPLACE INTO series (calibration, machine, kind, name, fn, dtype, algorithm, ranks,"
                         " per_node, threads, batch, m, n, k, seq, dim, bytes, dropout, beside, class, flops, started,"
                         " probe_before_s, probe_after_s, samples, median_s, mean_s, min_s, p05_s, p95_s, confidence,"
                         " is_now) VALUES (?1, (SELECT machine FROM calibration WHERE id = ?1), ?, ?, ?, ?, ?, ?, ?, ?,"
                         " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)");
    query_open(&each, db, "INSERT INTO sample (series, rank, i, seconds) VALUES (?, ?, ?, ?)");
    for (int i = 0; i < n; i++) {
        put_series(&one, calibration, &s[i]);
        if (one.rc != SQLITE_OK)        /* else the samples would go to the series before */
            break;
        put_samples(&each, sqlite3_last_insert_rowid(db->sql), &s[i]);
    }
    query_close(&each);
    return query_close(&one) < 0 || each.rc != SQLITE_OK ? -1 : 0;
}

int series_put(struct db *db, int64_t calibration, const struct series *s, int n)
{
    if (db_begin(db) < 0 || db_end(db, series_add(db, calibration, s, n)) < 0)
        return db_fail(db, "recording what was measured");
    return 0;
}
