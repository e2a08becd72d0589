/* runs_read.c -- runs as they were recorded, for reports.
 *
 * A list comes from one statement.  A record comes from several, in one read transaction: a
 * run that is being written meanwhile is seen as it was at one moment. */
#include "calib/store/runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/store/query.h"

/* Columns of a run_row, in the order in which get_row() takes them. */
#define ROW_COLUMNS \
    "SELECT r.id, r.started, m.host, m.device, m.cpu, m.cores, m.memory_bytes, r.dpx_version," \
    " r.comm_version, r.kernels_version, p.document, r.options, r.world_size, r.seed," \
    " r.outcome, r.reason, r.ended, v.step_s, r.step_p10_s, r.step_p90_s, r.tokens_per_s," \
    " p.model, p.strategy, p.dialect, v.steps, v.held_bytes, v.allocated_bytes, v.process_bytes," \
    " d.basis, d.step_s, d.low_s, d.high_s, d.rank, d.held_bytes, d.allocated_bytes, d.process_bytes" \
    " FROM run r JOIN runs v ON v.run = r.id JOIN machine m ON m.id = r.machine" \
    " JOIN plan p ON p.id = r.plan LEFT JOIN prediction d ON d.run = r.id"

static enum run_outcome outcome_of(const char *name)
{
    for (int o = RUN_FINISHED; name && o <= RUN_INTERRUPTED; o++)
        if (!strcmp(name, run_outcome_name((enum run_outcome)o)))
            return (enum run_outcome)o;
    return RUN_OPEN;
}

static void get_start(struct query *q, struct texts **t, struct run_start *s)
{
    s->started = query_get_real(q);
    s->host = query_get_text(q, t);
    s->device = query_get_text(q, t);
    s->cpu = query_get_text(q, t);
    s->cores = query_get_int(q);
    s->memory = query_get_int(q);
    s->dpx_version = query_get_text(q, t);
    s->comm_version = query_get_text(q, t);
    s->kernels_version = query_get_text(q, t);
    s->plan = query_get_text(q, t);
    s->options = query_get_text(q, t);
    s->world_size = query_get_int(q);
    s->seed = query_get_int(q);
}

static void get_end(struct query *q, struct texts **t, struct run_end *e)
{
    e->outcome = outcome_of(query_get_text(q, t));
    e->reason = query_get_text(q, t);
    e->ended = query_get_real(q);
    e->step_s = query_get_real(q);
    e->p10_s = query_get_real(q);
    e->p90_s = query_get_real(q);
    e->tokens_per_s = query_get_real(q);
}

static void get_predicted(struct query *q, struct texts **t, struct run_predicted *p)
{
    p->basis = query_get_text(q, t);
    p->step_s = query_get_real(q);
    p->low_s = query_get_real(q);
    p->high_s = query_get_real(q);
    p->rank = query_get_int(q);
    p->held_bytes = query_get_bytes(q);
    p->allocated_bytes = query_get_bytes(q);
    p->process_bytes = query_get_bytes(q);
}

static void get_row(struct query *q, struct texts **t, struct run_row *r)
{
    memset(r, 0, sizeof *r);
    r->id = query_get_int(q);
    get_start(q, t, &r->start);
    get_end(q, t, &r->end);
    r->model = query_get_text(q, t);
    r->strategy = query_get_text(q, t);
    r->dialect = query_get_text(q, t);
    r->steps = query_get_int(q);
    r->held_bytes = query_get_bytes(q);
    r->allocated_bytes = query_get_bytes(q);
    r->process_bytes = query_get_bytes(q);
    get_predicted(q, t, &r->predicted);
    r->has_prediction = r->predicted.basis != NULL;
}

int runs_list(struct db *db, struct run_list *out)
{
    struct query q;

    memset(out, 0, sizeof *out);
    query_open(&q, db, ROW_COLUMNS " ORDER BY r.id");
    while (query_row(&q)) {
        out->run = query_array_grow(out->run, out->n, sizeof *out->run);
        get_row(&q, &out->texts, &out->run[out->n++]);
    }
    if (query_close(&q) == 0)
        return 0;
    run_list_free(out);
    return db_fail(db, "listing the runs");
}

void run_list_free(struct run_list *l)
{
    free(l->run);
    query_texts_free(l->texts);
    memset(l, 0, sizeof *l);
}

static void get_step(struct query *q, struct texts **t, struct run_step *s)
{
    s->step = query_get_int(q);
    s->schedule = query_get_text(q, t);
    s->loss = query_get_real(q);
    s->seconds = query_get_real(q);
    s->lr = query_get_real(q);
    s->grad_norm = query_get_real(q);
    s->tokens = query_get_int(q);
}

static int load_steps(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT step, schedule, loss, seconds, lr, grad_norm, tokens FROM step"
                       " WHERE run = ? ORDER BY step");
    query_put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->step = query_array_grow(r->step, r->nstep, sizeof *r->step);
        get_step(&q, &r->texts, &r->step[r->nstep++]);
    }
    return query_close(&q);
}

static int load_comm(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT op, process_group, dtype, count, bytes, predicted_count, predicted_bytes"
                       " FROM comm WHERE run = ? ORDER BY op, process_group, dtype");
    query_put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->comm = query_array_grow(r->comm, r->ncomm, sizeof *r->comm);
        struct run_comm_row *c = &r->comm[r->ncomm++];
        c->op = query_get_text(&q, &r->texts);
        c->group = query_get_text(&q, &r->texts);
        c->dtype = query_get_text(&q, &r->texts);
        c->count = query_get_bytes(&q);
        c->bytes = query_get_bytes(&q);
        c->predicted_count = query_get_bytes(&q);
        c->predicted_bytes = query_get_bytes(&q);
    }
    return query_close(&q);
}

static int load_phases(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT name, measured_s, predicted_s FROM phase WHERE run = ? ORDER BY position");
    query_put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->phase = query_array_grow(r->phase, r->nphase, sizeof *r->phase);
        struct run_phase_row *p = &r->phase[r->nphase++];
        p->name = query_get_text(&q, &r->texts);
        p->seconds = query_get_real(&q);
        p->predicted_s = query_get_real(&q);
    }
    return query_close(&q);
}

static int load_memory(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT rank, host, held_bytes, allocated_bytes, process_bytes FROM memory"
                       " WHERE run = ? ORDER BY rank");
    query_put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->memory = query_array_grow(r->memory, r->nmemory, sizeof *r->memory);
        struct run_memory *m = &r->memory[r->nmemory++];
        m->rank = query_get_int(&q);
        m->host = query_get_text(&q, &r->texts);
        m->held_bytes = query_get_bytes(&q);
        m->allocated_bytes = query_get_bytes(&q);
        m->process_bytes = query_get_bytes(&q);
    }
    return query_close(&q);
}

static void get_entry(struct query *q, struct texts **t, struct run_entry *e)
{
    e->step = query_get_int(q);
    e->rank = query_get_int(q);
    e->position = query_get_int(q);
    e->entry = query_get_int(q);
    e->iteration = query_get_int(q);
    e->schedule = query_get_text(q, t);
    e->stream = query_get_text(q, t);
    e->kind = query_get_text(q, t);
    e->what = query_get_text(q, t);
    e->unit = query_get_text(q, t);
    e->pass = query_get_text(q, t);
    e->micro_step = query_get_bytes(q);
    e->predicted_start_s = query_get_real(q);
    e->predicted_end_s = query_get_real(q);
    e->start_s = query_get_real(q);
    e->end_s = query_get_real(q);
    e->met_s = query_get_real(q);
}

static int load_entries(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT step, rank, position, entry, iteration, schedule, stream, kind, what, unit, pass, micro_step,"
                       " predicted_start_s, predicted_end_s, start_s, end_s, met_s FROM entry WHERE run = ?"
                       " ORDER BY step, rank, position");
    query_put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->entry = query_array_grow(r->entry, r->nentry, sizeof *r->entry);
        get_entry(&q, &r->texts, &r->entry[r->nentry++]);
    }
    return query_close(&q);
}

static int load_row(struct db *db, int64_t id, struct run_record *r)
{
    struct query q;

    query_open(&q, db, ROW_COLUMNS " WHERE r.id = ?");
    query_put_int(&q, id);
    if (query_row(&q))
        get_row(&q, &r->texts, &r->row);
    return query_close(&q);
}

static int load(struct db *db, int64_t id, struct run_record *out)
{
    if (load_row(db, id, out) < 0)
        return -1;
    if (!out->row.id)
        return 0;
    return load_steps(db, out) < 0 || load_comm(db, out) < 0 || load_phases(db, out) < 0
        || load_memory(db, out) < 0 || load_entries(db, out) < 0 ? -1 : 0;
}

int runs_load(struct db *db, int64_t id, struct run_record *out)
{
    int rc = db_exec(db, "BEGIN");

    memset(out, 0, sizeof *out);
    if (rc == 0)
        rc = db_end(db, load(db, id, out));
    if (rc < 0)
        db_fail(db, "reading run %" PRId64, id);
    else if (!out->row.id)
        rc = fail("%s: there is no run %" PRId64, db->path, id);
    if (rc < 0)
        run_record_free(out);
    return rc;
}

void run_record_free(struct run_record *r)
{
    free(r->step);
    free(r->comm);
    free(r->phase);
    free(r->memory);
    free(r->entry);
    query_texts_free(r->texts);
    memset(r, 0, sizeof *r);
}
