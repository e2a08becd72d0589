/* runs.c -- recording runs.  Every function here is one transaction; tables and columns are
 * explained in schema.c. */
#include "calib/store/runs.h"

#include <assert.h>
#include <inttypes.h>

#include "base/fail.h"
#include "calib/store/query.h"

const char *run_outcome_name(enum run_outcome o)
{
    switch (o) {
    case RUN_OPEN:        return "open";
    case RUN_FINISHED:    return "finished";
    case RUN_FAILED:      return "failed";
    case RUN_INTERRUPTED: return "interrupted";
    }
    assert(!"unknown outcome");
    return "?";
}

/* The number of the row with the values that `put` puts, which is inserted if there is none. */
static int intern(struct db *db, const char *insert, const char *select,
                  void (*put)(struct query *q, const struct run_start *r), const struct run_start *r,
                  int64_t *id)
{
    struct query q;

    query_open(&q, db, insert);
    put(&q, r);
    query_done(&q);
    if (query_close(&q) < 0)
        return -1;
    query_open(&q, db, select);
    put(&q, r);
    *id = query_row(&q) ? query_get_int(&q) : 0;
    return query_close(&q);
}

static void put_machine(struct query *q, const struct run_start *r)
{
    query_put_text(q, r->host);
    query_put_text(q, r->device);
    query_put_text(q, r->cpu);
    query_put_int(q, r->cores);
    query_put_int(q, r->memory);
}

static void put_plan(struct query *q, const struct run_start *r)
{
    query_put_text(q, r->plan);
}

static int insert_run(struct db *db, const struct run_start *r, int64_t machine, int64_t plan, int64_t *id)
{
    struct query q;

    query_open(&q, db, "INSERT INTO run (started, machine, plan, world_size, seed, options, dpx_version,"
                       " comm_version, kernels_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    query_put_real(&q, r->started);
    query_put_int(&q, machine);
    query_put_int(&q, plan);
    query_put_int(&q, r->world_size);
    query_put_int(&q, r->seed);
    query_put_text(&q, r->options ? r->options : "{}");
    query_put_text(&q, r->dpx_version);
    query_put_text(&q, r->comm_version);
    query_put_text(&q, r->kernels_version);
    query_done(&q);
    *id = sqlite3_last_insert_rowid(db->sql);
    return query_close(&q);
}

static int insert_prediction(struct db *db, int64_t run, const struct run_predicted *p)
{
    struct query q;

    query_open(&q, db, "INSERT INTO prediction (run, basis, step_s, low_s, high_s, rank, held_bytes,"
                       " allocated_bytes, process_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
    query_put_int(&q, run);
    query_put_text(&q, p->basis);
    query_put_real(&q, p->step_s);
    query_put_real(&q, p->low_s);
    query_put_real(&q, p->high_s);
    query_put_int(&q, p->rank);
    query_put_bytes(&q, p->held_bytes);
    query_put_bytes(&q, p->allocated_bytes);
    query_put_bytes(&q, p->process_bytes);
    query_done(&q);
    return query_close(&q);
}

static int put_comms(struct db *db, const char *sql, int64_t run, const struct run_comm *c, int n)
{
    struct query q;

    query_open(&q, db, sql);
    for (int i = 0; i < n; i++) {
        query_put_int(&q, run);
        query_put_text(&q, c[i].op);
        query_put_text(&q, c[i].group);
        query_put_text(&q, c[i].dtype);
        query_put_int(&q, c[i].count);
        query_put_int(&q, c[i].bytes);
        query_done(&q);
    }
    return query_close(&q);
}

static int put_phases(struct db *db, const char *sql, int64_t run, const struct run_phase *p, int n)
{
    struct query q;

    query_open(&q, db, sql);
    for (int i = 0; i < n; i++) {
        query_put_int(&q, run);
        query_put_text(&q, p[i].name);
        query_put_real(&q, p[i].seconds);
        query_done(&q);
    }
    return query_close(&q);
}

static int begin(struct db *db, const struct run_start *r, const struct run_predicted *p, int64_t *id)
{
    int64_t machine, plan;

    if (intern(db, "INSERT OR IGNORE INTO machine (host, device, cpu, cores, memory_bytes)"
                   " VALUES (?, ?, ?, ?, ?)",
               "SELECT id FROM machine WHERE host = ? AND device = ? AND cpu = ? AND cores = ?"
               " AND memory_bytes = ?", put_machine, r, &machine) < 0
        || intern(db, "INSERT INTO plan (document) VALUES (?) ON CONFLICT (document) DO NOTHING",
                  "SELECT id FROM plan WHERE document = ?", put_plan, r, &plan) < 0
        || insert_run(db, r, machine, plan, id) < 0)
        return -1;
    if (!p)
        return 0;
    if (insert_prediction(db, *id, p) < 0
        || put_comms(db, "INSERT INTO comm (run, op, process_group, dtype, predicted_count,"
                         " predicted_bytes) VALUES (?, ?, ?, ?, ?, ?)", *id, p->comm, p->ncomm) < 0)
        return -1;
    return put_phases(db, "INSERT INTO phase (run, name, predicted_s, position) VALUES (?1, ?2, ?3,"
                          " (SELECT count(*) FROM phase WHERE run = ?1))", *id, p->phase, p->nphase);
}

int64_t runs_begin(struct db *db, const struct run_start *r, const struct run_predicted *p)
{
    int64_t id = -1;
    int rc = db_begin(db);

    if (rc == 0)
        rc = db_end(db, begin(db, r, p, &id));
    return rc < 0 ? db_fail(db, "recording a run and its prediction") : id;
}

int runs_steps(struct db *db, int64_t run, const struct run_step *s, int n)
{
    struct query q;

    if (db_begin(db) < 0)
        return db_fail(db, "recording steps of run %" PRId64, run);
    query_open(&q, db, "INSERT INTO step (run, step, schedule, loss, seconds, lr, grad_norm, tokens)"
                       " VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    for (int i = 0; i < n; i++) {
        query_put_int(&q, run);
        query_put_int(&q, s[i].step);
        query_put_text(&q, s[i].schedule);
        query_put_real(&q, s[i].loss);
        query_put_real(&q, s[i].seconds);
        query_put_real(&q, s[i].lr);
        query_put_real(&q, s[i].grad_norm);
        query_put_int(&q, s[i].tokens);
        query_done(&q);
    }
    if (db_end(db, query_close(&q)) < 0)
        return db_fail(db, "recording steps of run %" PRId64, run);
    /* SQLite keeps pages until they are 2 MB: a long run would grow by what it has recorded. */
    sqlite3_db_release_memory(db->sql);
    return 0;
}

static void put_entry(struct query *q, int64_t run, const struct run_entry *e)
{
    query_put_int(q, run);
    query_put_int(q, e->step);
    query_put_int(q, e->rank);
    query_put_int(q, e->position);
    query_put_int(q, e->entry);
    query_put_int(q, e->iteration);
    query_put_text(q, e->schedule);
    query_put_text(q, e->stream);
    query_put_text(q, e->kind);
    query_put_text(q, e->what);
    query_put_text(q, e->unit);
    query_put_text(q, e->pass);
    query_put_bytes(q, e->micro_step);
    query_put_real(q, e->predicted_start_s);
    query_put_real(q, e->predicted_end_s);
    query_put_real(q, e->start_s);
    query_put_real(q, e->end_s);
    query_put_real(q, e->met_s);
}

int runs_entries(struct db *db, int64_t run, const struct run_entry *e, int64_t n)
{
    struct query q;

    if (db_begin(db) < 0)
        return db_fail(db, "recording entries of run %" PRId64, run);
    query_open(&q, db, "INSERT INTO entry (run, step, rank, position, entry, iteration, schedule, stream,"
                       " kind, what, unit, pass, micro_step, predicted_start_s, predicted_end_s, start_s, end_s, met_s)"
                       " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    for (int64_t i = 0; i < n; i++) {
        put_entry(&q, run, &e[i]);
        query_done(&q);
    }
    return db_end(db, query_close(&q)) < 0 ? db_fail(db, "recording entries of run %" PRId64, run) : 0;
}

int runs_memory(struct db *db, int64_t run, const struct run_memory *m, int n)
{
    struct query q;

    if (db_begin(db) < 0)
        return db_fail(db, "recording memory of run %" PRId64, run);
    query_open(&q, db, "INSERT OR REPLACE INTO memory (run, rank, host, held_bytes, allocated_bytes,"
                       " process_bytes) VALUES (?, ?, ?, ?, ?, ?)");
    for (int i = 0; i < n; i++) {
        query_put_int(&q, run);
        query_put_int(&q, m[i].rank);
        query_put_text(&q, m[i].host);
        query_put_bytes(&q, m[i].held_bytes);
        query_put_bytes(&q, m[i].allocated_bytes);
        query_put_bytes(&q, m[i].process_bytes);
        query_done(&q);
    }
    return db_end(db, query_close(&q)) < 0 ? db_fail(db, "recording memory of run %" PRId64, run) : 0;
}

int runs_comm(struct db *db, int64_t run, const struct run_comm *c, int n)
{
    int rc = db_begin(db);

    if (rc == 0)
        rc = db_end(db, put_comms(db, "INSERT INTO comm (run, op, process_group, dtype, count, bytes)"
                                      " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                                      " SET count = excluded.count, bytes = excluded.bytes", run, c, n));
    return rc < 0 ? db_fail(db, "recording collectives of run %" PRId64, run) : 0;
}

int runs_phases(struct db *db, int64_t run, const struct run_phase *p, int n)
{
    int rc = db_begin(db);

    if (rc == 0)
        rc = db_end(db, put_phases(db, "INSERT INTO phase (run, name, measured_s, position) VALUES"
                                       " (?1, ?2, ?3, (SELECT count(*) FROM phase WHERE run = ?1))"
                                       " ON CONFLICT DO UPDATE SET measured_s = excluded.measured_s",
                                   run, p, n));
    return rc < 0 ? db_fail(db, "recording phases of run %" PRId64, run) : 0;
}

static int update_run(struct db *db, int64_t run, const struct run_end *e)
{
    struct query q;

    query_open(&q, db, "UPDATE run SET outcome = ?, reason = ?, ended = ?, step_s = ?, step_p10_s = ?,"
                       " step_p90_s = ?, tokens_per_s = ? WHERE id = ? AND outcome IS NULL");
    query_put_text(&q, run_outcome_name(e->outcome));
    query_put_text(&q, e->reason);
    query_put_real(&q, e->ended);
    query_put_real(&q, e->step_s);
    query_put_real(&q, e->p10_s);
    query_put_real(&q, e->p90_s);
    query_put_real(&q, e->tokens_per_s);
    query_put_int(&q, run);
    query_done(&q);
    return query_close(&q);
}

int runs_end(struct db *db, int64_t run, const struct run_end *e)
{
    assert(e->outcome != RUN_OPEN);
    /* One statement is a transaction. */
    if (update_run(db, run, e) < 0)
        return db_fail(db, "recording the end of run %" PRId64, run);
    if (sqlite3_changes(db->sql) == 1)
        return 0;
    return fail("%s: run %" PRId64 " is not there, or has ended already", db->path, run);
}
