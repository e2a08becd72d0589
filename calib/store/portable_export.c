/* portable_export.c -- calibrations of a database into a file. */
#include "calib/store/portable.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/fail.h"
#include "base/output.h"
#include "calib/store/query.h"

/* The row that a query stands at, by its columns' names. */
static json_t *row_json(struct query *q)
{
    json_t *row = json_object();

    for (int i = 0; row && i < sqlite3_column_count(q->s); i++) {
        const char *name = sqlite3_column_name(q->s, i);
        switch (sqlite3_column_type(q->s, i)) {
        case SQLITE_INTEGER: json_object_set_new(row, name, json_integer(sqlite3_column_int64(q->s, i))); break;
        case SQLITE_FLOAT:   json_object_set_new(row, name, json_real(sqlite3_column_double(q->s, i))); break;
        case SQLITE_TEXT:
            json_object_set_new(row, name, json_string((const char *)sqlite3_column_text(q->s, i)));
            break;
        default:             json_object_set_new(row, name, json_null());
        }
    }
    if (!row)
        abort();
    return row;
}

/* Samples in the order of rank and number. */
static json_t *samples_json(struct db *db, int64_t series, int64_t *of_ranks)
{
    json_t *list = json_array();
    struct query q;

    query_open(&q, db, "SELECT seconds, rank FROM sample WHERE series = ? ORDER BY rank, i");
    query_put_int(&q, series);
    *of_ranks = 0;
    while (list && query_row(&q)) {
        json_array_append_new(list, json_real(query_get_real(&q)));
        *of_ranks = query_get_int(&q) + 1;            /* -1: the slowest's, 0 */
    }
    if (query_close(&q) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *series_json(struct db *db, int64_t calibration)
{
    json_t *list = json_array();
    struct query q;

    query_open(&q, db, "SELECT id, kind, name, fn, class, dtype, algorithm, ranks, per_node, threads, batch, m, n, k,"
                       " seq, dim, bytes, flops, dropout, beside, started, probe_before_s, probe_after_s FROM series"
                       " WHERE calibration = ? ORDER BY id");
    query_put_int(&q, calibration);
    while (list && query_row(&q)) {
        json_t *row = row_json(&q);
        int64_t of_ranks;
        json_t *samples = samples_json(db, json_integer_value(json_object_get(row, "id")), &of_ranks);
        json_object_del(row, "id");
        json_object_set_new(row, "of_ranks", json_integer(of_ranks));
        json_object_set_new(row, "seconds", samples ? samples : json_array());
        json_array_append_new(list, row);
        if (!samples)
            q.rc = SQLITE_ERROR;
    }
    if (query_close(&q) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *calibrations_json(struct db *db, int64_t id)
{
    json_t *list = json_array();
    struct query q;

    query_open(&q, db, "SELECT c.id, c.started, c.ended, m.host, m.device, m.cpu, m.cores, m.memory_bytes, c.source,"
                       " c.ranks, c.threads, c.options, c.dpx_version, c.comm_version, c.kernels_version, c.origin, c.crowd"
                       " FROM calibration c JOIN machine m ON m.id = c.machine WHERE ?1 IN (0, c.id) ORDER BY c.id");
    query_put_int(&q, id);
    while (list && query_row(&q)) {
        json_t *row = row_json(&q);
        json_t *series = series_json(db, json_integer_value(json_object_get(row, "id")));
        json_object_del(row, "id");
        json_object_set_new(row, "series", series ? series : json_array());
        json_array_append_new(list, row);
        if (!series)
            q.rc = SQLITE_ERROR;
    }
    if (query_close(&q) == 0)
        return list;
    json_decref(list);
    return NULL;
}

int portable_export(struct db *db, int64_t id, const char *path, bool *refused)
{
    json_t *list = calibrations_json(db, id), *doc;
    struct output o;
    int n, rc;

    *refused = list && json_array_size(list) == 0;
    if (!list)
        return db_fail(db, "reading calibrations");
    n = (int)json_array_size(list);
    if (n == 0) {
        json_decref(list);
        return id ? fail("%s: has no calibration %" PRId64, db_path(db), id)
                  : fail("%s: has no calibration", db_path(db));
    }
    doc = json_pack("{s:i, s:o}", "dpx_calibrations", PORTABLE_FORMAT, "calibrations", list);
    rc = doc ? output_open(&o, path) : fail("out of memory");
    *refused = doc && rc < 0;
    if (rc == 0) {
        json_dumpf(doc, o.f, JSON_COMPACT);
        fputc('\n', o.f);
        rc = output_close(&o);
    }
    json_decref(doc);
    return rc < 0 ? -1 : n;
}
