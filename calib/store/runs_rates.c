/* runs_rates.c -- the newest rates of collectives and matrix products of each machine, for reports. */
#include "calib/store/runs_rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/store/query.h"
#include "calib/store/series.h"

static int read_coll(struct db *db, struct rates *r)
{
    struct query q;

    query_open(&q, db,
               "SELECT series, host, device, op, algorithm, dtype, ranks, per_node, bytes, samples, us / 1e6,"
               " algbw_gbs, busbw_gbs, spread FROM collectives"
               " ORDER BY host, device, op, algorithm, dtype, ranks, per_node, bytes");
    while (query_row(&q)) {
        r->coll = query_array_grow(r->coll, r->ncoll, sizeof *r->coll);
        struct coll_rate *c = &r->coll[r->ncoll++];
        c->series = query_get_int(&q);
        c->host = query_get_text(&q, &r->texts);
        c->device = query_get_text(&q, &r->texts);
        c->op = query_get_text(&q, &r->texts);
        c->algorithm = query_get_text(&q, &r->texts);
        c->dtype = query_get_text(&q, &r->texts);
        c->ranks = query_get_int(&q);
        c->per_node = query_get_int(&q);
        c->bytes = query_get_int(&q);
        c->samples = query_get_int(&q);
        c->seconds = query_get_real(&q);
        c->algorithm_gbs = query_get_real(&q);
        c->bus_gbs = query_get_real(&q);
        c->spread = query_get_real(&q);
    }
    return query_close(&q);
}

static int read_gemm(struct db *db, struct rates *r)
{
    struct query q;

    query_open(&q, db,
               "SELECT series, host, device, name, fn, dtype, ranks, threads, batch, m, n, k, samples,"
               " median_s, gflops, spread FROM measured WHERE kind = 'kernel' AND m > 0 AND n > 0 AND k > 0"
               " ORDER BY host, device, dtype, ranks, 1.0 * batch * m * n * k, name, series");
    while (query_row(&q)) {
        r->gemm = query_array_grow(r->gemm, r->ngemm, sizeof *r->gemm);
        struct gemm_rate *g = &r->gemm[r->ngemm++];
        g->series = query_get_int(&q);
        g->host = query_get_text(&q, &r->texts);
        g->device = query_get_text(&q, &r->texts);
        g->name = query_get_text(&q, &r->texts);
        g->fn = query_get_text(&q, &r->texts);
        g->dtype = query_get_text(&q, &r->texts);
        g->ranks = query_get_int(&q);
        g->threads = query_get_int(&q);
        g->batch = query_get_int(&q);
        g->m = query_get_int(&q);
        g->n = query_get_int(&q);
        g->k = query_get_int(&q);
        g->samples = query_get_int(&q);
        g->seconds = query_get_real(&q);
        g->gflops = query_get_real(&q);
        g->spread = query_get_real(&q);
    }
    return query_close(&q);
}

int rates_read(struct db *db, struct rates *out)
{
    memset(out, 0, sizeof *out);
    if (read_coll(db, out) == 0 && read_gemm(db, out) == 0)
        return 0;
    rates_free(out);
    return db_fail(db, "reading the calibrations");
}

int rates_late(struct db *db, const char *host, double *late)
{
    struct query q;

    *late = 1;
    query_open(&q, db, "SELECT id FROM machine WHERE host = ? AND device = 'cpu'");
    query_put_text(&q, host);
    while (query_row(&q)) {
        double one = series_lateness(db, query_get_int(&q), 0, 0);
        if (isnan(one)) {
            query_close(&q);
            return -1;
        }
        *late = one >= SERIES_LATE && one > *late ? one : *late;
    }
    return query_close(&q) < 0 ? db_fail(db, "reading how busy the machine was") : 0;
}

void rates_free(struct rates *r)
{
    free(r->coll);
    free(r->gemm);
    query_texts_free(r->texts);
    memset(r, 0, sizeof *r);
}
