/* runs_ranks.c -- see runs_ranks.h. */
#include "calib/store/runs_ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "calib/store/query.h"

static int put_predicted(struct db *db, int64_t run, const struct run_rank_phase *p, int64_t n)
{
    struct query q;

    query_open(&q, db, "INSERT INTO rank_phase (run, rank, phase, position, predicted_allocated_bytes) VALUES (?1, ?2, ?3,"
                       " (SELECT count(*) FROM rank_phase WHERE run = ?1 AND rank = ?2), ?4)");
    for (int64_t i = 0; i < n; i++) {
        query_put_int(&q, run);
        query_put_int(&q, p[i].rank);
        query_put_text(&q, p[i].phase);
        query_put_bytes(&q, p[i].predicted_allocated);
        query_done(&q);
    }
    return query_close(&q);
}

int runs_ranks_predicted(struct db *db, int64_t run, const struct run_rank_phase *p, int64_t n)
{
    int rc = db_begin(db);

    if (rc == 0)
        rc = db_end(db, put_predicted(db, run, p, n));
    return rc < 0 ? db_fail(db, "recording what is predicted of the ranks of run %" PRId64, run) : 0;
}

static int put_phases(struct db *db, int64_t run, const struct run_ranks *m)
{
    struct query q;

    query_open(&q, db, "INSERT INTO rank_phase (run, rank, phase, position, allocated_bytes, active_bytes, reserved_bytes, retries)"
                       " VALUES (?1, ?2, ?3, (SELECT count(*) FROM rank_phase WHERE run = ?1 AND rank = ?2), ?4, ?5, ?6, ?7)"
                       " ON CONFLICT (run, rank, phase) DO UPDATE SET allocated_bytes = excluded.allocated_bytes,"
                       " active_bytes = excluded.active_bytes, reserved_bytes = excluded.reserved_bytes, retries = excluded.retries");
    for (int64_t i = 0; i < m->nphases; i++) {
        const struct run_rank_phase *p = &m->phase[i];
        query_put_int(&q, run);
        query_put_int(&q, p->rank);
        query_put_text(&q, p->phase);
        query_put_bytes(&q, p->allocated);
        query_put_bytes(&q, p->active);
        query_put_bytes(&q, p->reserved);
        query_put_bytes(&q, p->retries);
        query_done(&q);
    }
    return query_close(&q);
}

static int put_steps(struct db *db, int64_t run, const struct run_ranks *m)
{
    struct query q;

    query_open(&q, db, "INSERT INTO rank_step (run, rank, step, loss, seconds) VALUES (?, ?, ?, ?, ?)");
    for (int64_t i = 0; i < m->nsteps; i++) {
        query_put_int(&q, run);
        query_put_int(&q, m->step[i].rank);
        query_put_int(&q, m->step[i].step);
        query_put_real(&q, m->step[i].loss);
        query_put_real(&q, m->step[i].seconds);
        query_done(&q);
    }
    return query_close(&q);
}

static int put_parts(struct db *db, int64_t run, const struct run_ranks *m)
{
    struct query q;

    query_open(&q, db, "INSERT INTO rank_part (run, rank, step_s, compute_s, exposed_s, optimizer_s, idle_s) VALUES (?, ?, ?, ?, ?, ?, ?)");
    for (int64_t i = 0; i < m->nparts; i++) {
        const struct run_rank_part *p = &m->part[i];
        query_put_int(&q, run);
        query_put_int(&q, p->rank);
        query_put_real(&q, p->compute + p->exposed + p->optimizer + p->idle);
        query_put_real(&q, p->compute);
        query_put_real(&q, p->exposed);
        query_put_real(&q, p->optimizer);
        query_put_real(&q, p->idle);
        query_done(&q);
    }
    return query_close(&q);
}

static int put_clocks(struct db *db, int64_t run, const struct run_ranks *m)
{
    struct query q;

    query_open(&q, db, "INSERT INTO rank_clock (run, rank, sm_mhz, sm_most_mhz, memory_mhz, memory_most_mhz) VALUES (?, ?, ?, ?, ?, ?)");
    for (int64_t i = 0; i < m->nclocks; i++) {
        const struct run_rank_clock *c = &m->clock[i];
        query_put_int(&q, run);
        query_put_int(&q, c->rank);
        query_put_bytes(&q, c->sm);
        query_put_bytes(&q, c->sm_most);
        query_put_bytes(&q, c->memory);
        query_put_bytes(&q, c->memory_most);
        query_done(&q);
    }
    return query_close(&q);
}

int runs_ranks_measured(struct db *db, int64_t run, const struct run_ranks *m)
{
    int rc = db_begin(db);

    if (rc == 0)
        rc = db_end(db, put_phases(db, run, m) < 0 || put_steps(db, run, m) < 0 || put_parts(db, run, m) < 0 || put_clocks(db, run, m) < 0 ? -1 : 0);
    return rc < 0 ? db_fail(db, "recording the ranks of run %" PRId64, run) : 0;
}

/* ---- reading ---- */

static int load_phases(struct db *db, int64_t run, struct run_ranks *r)
{
    struct query q;

    query_open(&q, db, "SELECT rank, phase, predicted_allocated_bytes, allocated_bytes, active_bytes, reserved_bytes, retries"
                       " FROM rank_phase WHERE run = ? ORDER BY rank, position");
    query_put_int(&q, run);
    while (query_row(&q)) {
        r->phase = query_array_grow(r->phase, r->nphases, sizeof *r->phase);
        struct run_rank_phase *p = &r->phase[r->nphases++];
        p->rank = query_get_int(&q);
        p->phase = query_get_text(&q, &r->texts);
        int64_t *const of[] = { &p->predicted_allocated, &p->allocated, &p->active, &p->reserved, &p->retries };
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            *of[i] = query_get_bytes(&q);
    }
    return query_close(&q);
}

static int load_steps(struct db *db, int64_t run, struct run_ranks *r)
{
    struct query q;

    query_open(&q, db, "SELECT rank, step, loss, seconds FROM rank_step WHERE run = ? ORDER BY rank, step");
    query_put_int(&q, run);
    while (query_row(&q)) {
        r->step = query_array_grow(r->step, r->nsteps, sizeof *r->step);
        struct run_rank_step *s = &r->step[r->nsteps++];
        s->rank = query_get_int(&q);
        s->step = query_get_int(&q);
        s->loss = query_get_real(&q);
        s->seconds = query_get_real(&q);
    }
    return query_close(&q);
}

static int load_parts(struct db *db, int64_t run, struct run_ranks *r)
{
    struct query q;

    query_open(&q, db, "SELECT rank, compute_s, exposed_s, optimizer_s, idle_s FROM rank_part WHERE run = ? ORDER BY rank");
    query_put_int(&q, run);
    while (query_row(&q)) {
        r->part = query_array_grow(r->part, r->nparts, sizeof *r->part);
        struct run_rank_part *p = &r->part[r->nparts++];
        p->rank = query_get_int(&q);
        double *const of[] = { &p->compute, &p->exposed, &p->optimizer, &p->idle };
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            *of[i] = query_get_real(&q);
    }
    return query_close(&q);
}

static int load_clocks(struct db *db, int64_t run, struct run_ranks *r)
{
    struct query q;

    query_open(&q, db, "SELECT rank, sm_mhz, sm_most_mhz, memory_mhz, memory_most_mhz FROM rank_clock WHERE run = ? ORDER BY rank");
    query_put_int(&q, run);
    while (query_row(&q)) {
        r->clock = query_array_grow(r->clock, r->nclocks, sizeof *r->clock);
        struct run_rank_clock *c = &r->clock[r->nclocks++];
        c->rank = query_get_int(&q);
        int64_t *const of[] = { &c->sm, &c->sm_most, &c->memory, &c->memory_most };
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            *of[i] = query_get_bytes(&q);
    }
    return query_close(&q);
}

int runs_ranks(struct db *db, int64_t run, struct run_ranks *out)
{
    memset(out, 0, sizeof *out);
    if (load_phases(db, run, out) == 0 && load_steps(db, run, out) == 0 && load_parts(db, run, out) == 0 && load_clocks(db, run, out) == 0)
        return 0;
    run_ranks_free(out);
    return db_fail(db, "reading the ranks of run %" PRId64, run);
}

void run_ranks_free(struct run_ranks *r)
{
    free(r->phase);
    free(r->step);
    free(r->part);
    free(r->clock);
    query_texts_free(r->texts);
    memset(r, 0, sizeof *r);
}
