/* show_json.c -- what a database knows of each machine, as documents for programs: the columns of the tables in show.c, by name. */
#include "calib/store/show.h"

#include <math.h>
#include <time.h>

#include "calib/store/fit.h"
#include "calib/store/query.h"
#include "calib/store/series.h"
#include "model/program/program.h"

/* The row's columns under the names that the statement gives them. */
static json_t *row_json(struct query *q)
{
    json_t *row = json_object();
    struct texts *t = NULL;

    for (int i = 0; i < sqlite3_column_count(q->s); i++) {
        int type = sqlite3_column_type(q->s, i);
        q->at = i;
        json_object_set_new(row, sqlite3_column_name(q->s, i),
                            type == SQLITE_INTEGER ? json_integer(query_get_int(q)) : type == SQLITE_FLOAT ? json_real(query_get_real(q)) :
                            type == SQLITE_TEXT ? json_string(query_get_shown(q, &t)) : json_null());
    }
    query_texts_free(t);
    return row;
}

/* Rows of a statement whose question mark, if it has one, is `machine`; NULL reported. */
static json_t *rows_json(struct db *db, const char *sql, int64_t machine)
{
    json_t *rows = json_array();
    struct query q;

    query_open(&q, db, sql);
    if (machine > 0)
        query_put_int(&q, machine);
    while (query_row(&q))
        json_array_append_new(rows, row_json(&q));
    if (query_close(&q) == 0)
        return rows;
    db_fail(db, "reading calibrations");
    json_decref(rows);
    return NULL;
}

/* What hangs on one machine: its series, how long the probe took meanwhile, how busy it was.  0, or -1 reported. */
static int add_series(struct db *db, int64_t machine, json_t *to)
{
    json_t *series = rows_json(db, "SELECT kind, CASE kind WHEN 'kernel' THEN class ELSE name END AS what, CASE kind WHEN 'collective' THEN algorithm END AS"
                               " algorithm, dtype, ranks, per_node, threads, count(*) AS series, sum(samples) AS samples,"
                               " avg((p95_s - p05_s) / 2 / median_s) AS spread, max(started) AS started, min(bytes) AS least_bytes, max(bytes) AS most_bytes"
                               " FROM series WHERE machine = ? AND is_now = 1 GROUP BY kind, what, algorithm, dtype, ranks, per_node, threads"
                               " ORDER BY kind = 'collective', kind, what, dtype, ranks", machine);
    json_t *probe = rows_json(db, "SELECT avg(probe_before_s) AS mean_s, min(probe_before_s) AS least_s, max(probe_before_s) AS most_s FROM series"
                              " WHERE machine = ? AND is_now = 1", machine);
    double late = series_lateness(db, machine, 0, 0);
    json_t *row;
    size_t i;

    json_array_foreach(series, i, row)
        json_object_set_new(row, "age_s", json_real((double)time(NULL) - json_number_value(json_object_get(row, "started"))));
    json_object_set_new(to, "series", series);
    json_object_set(to, "probe", json_array_get(probe, 0));
    json_object_set_new(to, "busy", isnan(late) ? json_null() : json_real(late));
    json_decref(probe);
    return series && probe && !isnan(late) ? 0 : -1;
}

json_t *show_machines_json(struct db *db)
{
    json_t *machines = rows_json(db, "SELECT m.id AS id, m.host AS host, m.device AS device, m.cpu AS cpu, m.cores AS cores, count(*) AS calibrations,"
                                 " sum(c.ended IS NULL) AS not_ended, max(c.comm_version) AS comm, max(c.kernels_version) AS kernels FROM machine m"
                                 " JOIN calibration c ON c.machine = m.id GROUP BY m.id ORDER BY max(c.started) DESC", 0);
    json_t *of;
    size_t i;
    int rc = machines ? 0 : -1;

    json_array_foreach(machines, i, of) {
        int64_t id = json_integer_value(json_object_get(of, "id"));
        json_object_del(of, "id");
        if (rc == 0)
            rc = add_series(db, id, of);
    }
    if (rc == 0)
        return json_pack("{s:i, s:s, s:o}", "dpx", 1, "database", db_path(db), "machines", machines);
    json_decref(machines);
    return NULL;
}

json_t *show_fits_json(struct db *db)
{
    json_t *fits = rows_json(db, "SELECT host, device, kind, name, nullif(beside, '') AS beside, nullif(algorithm, '') AS algorithm, dropout, dtype, ranks,"
                             " threads, x, fixed_us, gbs AS gb_per_s, gflops AS gflop_per_s, factor, from_x, to_x, residual, worst, left_out, points FROM fits"
                             " ORDER BY host, device, kind, name, algorithm, beside, dropout, dtype, ranks, threads", 0);

    return fits ? json_pack("{s:i, s:s, s:o}", "dpx", 1, "database", db_path(db), "fits", fits) : NULL;
}

json_t *show_kernel_json(const struct kernel *k)
{
    return k->m > 0 ? json_pack("{s:s, s:I, s:I, s:I}", "name", k->name, "m", (json_int_t)k->m, "n", (json_int_t)k->n, "k", (json_int_t)k->k)
                    : json_pack("{s:s, s:I}", "name", k->name, "bytes", (json_int_t)k->bytes);
}
