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
    s->started = get_real(q);
    s->host = get_text(q, t);
    s->device = get_text(q, t);
    s->cpu = get_text(q, t);
    s->cores = get_int(q);
    s->memory = get_int(q);
    s->dpx_version = get_text(q, t);
    s->comm_version = get_text(q, t);
    s->kernels_version = get_text(q, t);
    s->plan = get_text(q, t);
    s->options = get_text(q, t);
    s->world_size = get_int(q);
    s->seed = get_int(q);
}

static void get_end(struct query *q, struct texts **t, struct run_end *e)
{
    e->outcome = outcome_of(get_text(q, t));
    e->reason = get_text(q, t);
    e->ended = get_real(q);
    e->step_s = get_real(q);
    e->p10_s = get_real(q);
    e->p90_s = get_real(q);
    e->tokens_per_s = get_real(q);
}

static void get_predicted(struct query *q, struct texts **t, struct run_predicted *p)
{
    p->basis = get_text(q, t);
    p->step_s = get_real(q);
    p->low_s = get_real(q);
    p->high_s = get_real(q);
    p->rank = get_int(q);
    p->held_bytes = get_bytes(q);
    p->allocated_bytes = get_bytes(q);
    p->process_bytes = get_bytes(q);
}

static void get_row(struct query *q, struct texts **t, struct run_row *r)
{
    memset(r, 0, sizeof *r);
    r->id = get_int(q);
    get_start(q, t, &r->start);
    get_end(q, t, &r->end);
    r->model = get_text(q, t);
    r->strategy = get_text(q, t);
    r->dialect = get_text(q, t);
    r->steps = get_int(q);
    r->held_bytes = get_bytes(q);
    r->allocated_bytes = get_bytes(q);
    r->process_bytes = get_bytes(q);
    get_predicted(q, t, &r->predicted);
    r->has_prediction = r->predicted.basis != NULL;
}

int runs_list(struct db *db, struct run_list *out)
{
    struct query q;

    memset(out, 0, sizeof *out);
    query_open(&q, db, ROW_COLUMNS " ORDER BY r.id");
    while (query_row(&q)) {
        out->run = array_grow(out->run, out->n, sizeof *out->run);
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
    texts_free(l->texts);
    memset(l, 0, sizeof *l);
}

static void get_step(struct query *q, struct texts **t, struct run_step *s)
{
    s->step = get_int(q);
    s->schedule = get_text(q, t);
    s->loss = get_real(q);
    s->seconds = get_real(q);
    s->lr = get_real(q);
    s->grad_norm = get_real(q);
    s->tokens = get_int(q);
}

static int load_steps(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT step, schedule, loss, seconds, lr, grad_norm, tokens FROM step"
                       " WHERE run = ? ORDER BY step");
    put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->step = array_grow(r->step, r->nstep, sizeof *r->step);
        get_step(&q, &r->texts, &r->step[r->nstep++]);
    }
    return query_close(&q);
}

static int load_comm(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT op, process_group, dtype, count, bytes, predicted_count, predicted_bytes"
                       " FROM comm WHERE run = ? ORDER BY op, process_group, dtype");
    put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->comm = array_grow(r->comm, r->ncomm, sizeof *r->comm);
        struct run_comm_row *c = &r->comm[r->ncomm++];
        c->op = get_text(&q, &r->texts);
        c->group = get_text(&q, &r->texts);
        c->dtype = get_text(&q, &r->texts);
        c->count = get_bytes(&q);
        c->bytes = get_bytes(&q);
        c->predicted_count = get_bytes(&q);
        c->predicted_bytes = get_bytes(&q);
    }
    return query_close(&q);
}

static int load_phases(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT name, measured_s, predicted_s FROM phase WHERE run = ? ORDER BY position");
    put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->phase = array_grow(r->phase, r->nphase, sizeof *r->phase);
        struct run_phase_row *p = &r->phase[r->nphase++];
        p->name = get_text(&q, &r->texts);
        p->seconds = get_real(&q);
        p->predicted_s = get_real(&q);
    }
    return query_close(&q);
}

static int load_memory(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT rank, host, held_bytes, allocated_bytes, process_bytes FROM memory"
                       " WHERE run = ? ORDER BY rank");
    put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->memory = array_grow(r->memory, r->nmemory, sizeof *r->memory);
        struct run_memory *m = &r->memory[r->nmemory++];
        m->rank = get_int(&q);
        m->host = get_text(&q, &r->texts);
        m->held_bytes = get_bytes(&q);
        m->allocated_bytes = get_bytes(&q);
        m->process_bytes = get_bytes(&q);
    }
    return query_close(&q);
}

static void get_entry(struct query *q, struct texts **t, struct run_entry *e)
{
    e->step = get_int(q);
    e->rank = get_int(q);
    e->position = get_int(q);
    e->entry = get_int(q);
    e->iteration = get_int(q);
    e->schedule = get_text(q, t);
    e->stream = get_text(q, t);
    e->kind = get_text(q, t);
    e->what = get_text(q, t);
    e->unit = get_text(q, t);
    e->predicted_start_s = get_real(q);
    e->predicted_end_s = get_real(q);
    e->start_s = get_real(q);
    e->end_s = get_real(q);
}

static int load_entries(struct db *db, struct run_record *r)
{
    struct query q;

    query_open(&q, db, "SELECT step, rank, position, entry, iteration, schedule, stream, kind, what, unit,"
                       " predicted_start_s, predicted_end_s, start_s, end_s FROM entry WHERE run = ?"
                       " ORDER BY step, rank, position");
    put_int(&q, r->row.id);
    while (query_row(&q)) {
        r->entry = array_grow(r->entry, r->nentry, sizeof *r->entry);
        get_entry(&q, &r->texts, &r->entry[r->nentry++]);
    }
    return query_close(&q);
}

static int load_row(struct db *db, int64_t id, struct run_record *r)
{
    struct query q;

    query_open(&q, db, ROW_COLUMNS " WHERE r.id = ?");
    put_int(&q, id);
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
    texts_free(r->texts);
    memset(r, 0, sizeof *r);
}
