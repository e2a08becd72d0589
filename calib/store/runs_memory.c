/* runs_memory.c -- parts of a run's memory, and the most that was held while each entry was issued: in and out of the database. */
#include "calib/store/runs_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/store/query.h"

/* ---- writing ---- */

static const char part_predicted[] =
    "INSERT INTO part (run, rank, category, position, predicted_bytes) VALUES (?, ?, ?, ?, ?)";
static const char part_measured[] =
    "INSERT INTO part (run, rank, category, position, bytes) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (run, rank, category) DO UPDATE SET bytes = excluded.bytes";
static const char moment_predicted[] =
    "INSERT INTO moment (run, schedule, position, predicted_bytes) VALUES (?, ?, ?, ?)";
static const char moment_measured[] =
    "INSERT INTO moment (run, schedule, position, bytes) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (run, schedule, position) DO UPDATE SET bytes = excluded.bytes";

static int put_parts(struct db *db, const char *sql, int64_t run, const struct run_memory_side *m,
                     bool predicted)
{
    struct query q;

    query_open(&q, db, sql);
    for (int64_t i = 0; i < m->nparts; i++) {
        query_put_int(&q, run);
        query_put_int(&q, m->part[i].rank);
        query_put_text(&q, m->part[i].category);
        query_put_int(&q, i);
        query_put_bytes(&q, predicted ? m->part[i].predicted_bytes : m->part[i].bytes);
        query_done(&q);
    }
    return query_close(&q);
}

static int put_moments(struct db *db, const char *sql, int64_t run, const struct run_memory_side *m,
                       bool predicted)
{
    struct query q;

    query_open(&q, db, sql);
    for (int64_t i = 0; i < m->nmoments; i++) {
        query_put_int(&q, run);
        query_put_text(&q, m->moment[i].schedule);
        query_put_int(&q, m->moment[i].position);
        query_put_bytes(&q, predicted ? m->moment[i].predicted_bytes : m->moment[i].bytes);
        query_done(&q);
    }
    return query_close(&q);
}

static int put_available(struct db *db, int64_t run, int64_t bytes)
{
    struct query q;

    query_open(&q, db, "UPDATE run SET available_bytes = ? WHERE id = ?");
    query_put_bytes(&q, bytes);
    query_put_int(&q, run);
    query_done(&q);
    return query_close(&q);
}

int runs_memory_predicted(struct db *db, int64_t run, const struct run_memory_side *p)
{
    int rc = db_begin(db);

    if (rc == 0 &&
        (put_available(db, run, p->available) < 0 || put_parts(db, part_predicted, run, p, true) < 0 ||
         put_moments(db, moment_predicted, run, p, true) < 0))
        rc = -1;
    rc = db_end(db, rc);
    return rc < 0 ? db_fail(db, "recording the predicted memory of run %" PRId64, run) : 0;
}

int runs_memory_measured(struct db *db, int64_t run, const struct run_memory_side *m)
{
    int rc = db_begin(db);

    if (rc == 0 && (put_parts(db, part_measured, run, m, false) < 0 ||
                    put_moments(db, moment_measured, run, m, false) < 0))
        rc = -1;
    rc = db_end(db, rc);
    return rc < 0 ? db_fail(db, "recording the memory of run %" PRId64, run) : 0;
}

/* ---- reading ---- */

bool runs_part_elsewhere(const struct run_part *p)
{
    return !strcmp(p->category, RUNS_PINNED) || !strcmp(p->category, RUNS_HOST) || !strcmp(p->category, RUNS_DISK);
}

int runs_parts(struct db *db, int64_t run, struct run_parts *out)
{
    struct query q;

    memset(out, 0, sizeof *out);
    query_open(&q, db, "SELECT run, rank, category, predicted_bytes, bytes FROM part WHERE run = ?"
                       " ORDER BY rank, position, category");
    query_put_int(&q, run);
    while (query_row(&q)) {
        out->part = query_array_grow(out->part, out->n, sizeof *out->part);
        struct run_part *p = &out->part[out->n++];
        p->run = query_get_int(&q);
        p->rank = query_get_int(&q);
        p->category = query_get_text(&q, &out->texts);
        p->predicted_bytes = query_get_bytes(&q);
        p->bytes = query_get_bytes(&q);
    }
    if (query_close(&q) == 0)
        return 0;
    run_parts_free(out);
    return db_fail(db, "reading the memory of run %" PRId64, run);
}

void run_parts_free(struct run_parts *p)
{
    free(p->part);
    query_texts_free(p->texts);
    memset(p, 0, sizeof *p);
}

int runs_moments(struct db *db, int64_t run, struct run_moments *out)
{
    struct query q;

    memset(out, 0, sizeof *out);
    query_open(&q, db, "SELECT schedule, position, predicted_bytes, bytes FROM moment WHERE run = ?"
                       " ORDER BY schedule, position");
    query_put_int(&q, run);
    while (query_row(&q)) {
        out->moment = query_array_grow(out->moment, out->n, sizeof *out->moment);
        struct run_moment *m = &out->moment[out->n++];
        m->schedule = query_get_text(&q, &out->texts);
        m->position = query_get_int(&q);
        m->predicted_bytes = query_get_bytes(&q);
        m->bytes = query_get_bytes(&q);
    }
    if (query_close(&q) == 0)
        return 0;
    run_moments_free(out);
    return db_fail(db, "reading the memory of run %" PRId64 " over a step", run);
}

void run_moments_free(struct run_moments *m)
{
    free(m->moment);
    query_texts_free(m->texts);
    memset(m, 0, sizeof *m);
}

int runs_available(struct db *db, int64_t run, int64_t *bytes)
{
    struct query q;

    *bytes = -1;
    query_open(&q, db, "SELECT available_bytes FROM run WHERE id = ?");
    query_put_int(&q, run);
    if (query_row(&q))
        *bytes = query_get_bytes(&q);
    return query_close(&q) == 0 ? 0 : db_fail(db, "reading run %" PRId64, run);
}
