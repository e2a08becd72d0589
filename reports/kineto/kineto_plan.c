/* kineto_plan.c -- a plan's simulated entries as stretches of work, measured by the rules for traces. */
#include "reports/kineto/kineto_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calib/store/measured_for.h"
#include "base/fail.h"
#include "base/room.h"
#include "model/lower/lower.h"
#include "model/plan/plan_groups.h"
#include "sim/clock/simulate.h"
#include "sim/plan/plan_words.h"

static enum work_phase phase_of(const struct op *o)
{
    switch ((enum phase)o->phase) {
    case PHASE_OPTIMIZER: return WORK_OPTIMIZER;
    case PHASE_BACKWARD:
    case PHASE_REDUCE:    return WORK_BACKWARD;
    default:              return WORK_FORWARD;
    }
}

/* What the profiler would see as a kernel: copies over the bus it lists apart, and waiting, memory and what the
 * host does are none. */
static bool is_kernel(const struct op *o)
{
    if (o->stream == STREAM_ISSUE || o->stream == STREAM_H2D || o->stream == STREAM_D2H || stream_is_host(o->stream))
        return false;
    return o->kind == OP_COMPUTE || o->kind == OP_COLL || o->kind == OP_COPY || o->kind == OP_OPTIMIZER;
}

static int64_t ns(double s)
{
    return (int64_t)llround(1e9 * s);
}

/* Traces do not tell sends from receives: both are one kernel, SendRecv. */
static uint8_t op_of(enum coll_op op) { return coll_is_message(op) ? COLL_OTHER : (uint8_t)op; }

static void add_entry(struct work_list *l, const struct op *o, const struct ran *ran)
{
    struct work w = { .start = ns(ran->start), .end = ns(ran->end), .launch = ns(ran->issued), .bytes = -1,
                      .name = -1, .phase = (uint8_t)phase_of(o), .coll = o->kind == OP_COLL,
                      .side = o->stream != STREAM_COMPUTE };

    if (o->kind == OP_COLL) {
        w.op = op_of((enum coll_op)o->u.coll.op);
        w.bytes = o->u.coll.elems * dtype_bytes(o->u.coll.dtype);
    }
    kineto_work_add(l, &w);
}

/* Too many entries to keep one by one: what the schedule says without a clock. */
static void measure_counts(const struct schedules *s, const struct timing *t, struct measures *m)
{
    struct comm_table comm;

    evaluation_comm_count(s, SCHED_STEADY, &comm);
    for (int i = 0; i < NMEASURE; i++)
        m->v[i] = NAN;
    for (int op = 0; op < KINETO_COLLS; op++)
        m->v[m_coll(op, M_CALLS)] = m->v[m_coll(op, M_BYTES)] = 0;
    m->v[M_STEP] = t->line.step_s;
    for (int i = 0; i < comm.n; i++) {
        const struct comm_line *c = &comm.line[i];
        m->v[m_coll(op_of(c->op), M_CALLS)] += (double)c->count;
        m->v[m_coll(op_of(c->op), M_BYTES)] += (double)c->bytes;
    }
}

static void measure_run(const struct schedules *s, const struct run *r, struct kineto_plan *out)
{
    struct window step = { 0, ns(r->total.step_s) };
    struct work_list l = { 0 };

    for (int64_t i = 0; i < r->n; i++) {
        const struct op *o = &s->ops[r->ran[i].op];
        if (is_kernel(o))
            add_entry(&l, o, &r->ran[i]);
    }
    kineto_measure(&l, &step, 1, true, &out->m);
    free(l.at);
}

static void measure(const struct schedules *s, const struct timing *t, const struct run *r, struct kineto_plan *out)
{
    out->low_s = t->low_s;
    out->high_s = t->high_s;
    out->whole = r->n > 0;
    if (out->whole)
        measure_run(s, r, out);
    else
        measure_counts(s, t, &out->m);
}

/* Of the fullest rank of the stage. */
static int simulate_its_stage(const struct plan *p, const struct evaluation *e, int64_t rank, struct kineto_plan *out)
{
    struct run *r = room_new((size_t)e->nstages, sizeof *r);
    struct mesh m = plan_mesh(p);
    int stage = (int)mesh_digit(&m, rank, AXIS_PIPE), rc;
    struct timing t;

    if ((rc = simulate_stages(p, e, &t, r)) == 0) {
        measure(&e->stage[stage].schedules, &t, &r[stage], out);
        snprintf(out->rank, sizeof out->rank, "rank %" PRId64 ", stage %d of %d", rank, stage, e->nstages);
        for (int i = 0; i < e->nstages; i++)
            run_free(&r[i]);
    }
    free(r);
    return rc;
}

static int simulate_rank(const struct plan *p, const struct evaluation *e, int64_t rank, struct kineto_plan *out)
{
    struct evaluation own = *e;         /* borrows all but the schedules */
    struct schedules s = { 0 };
    struct timing t;
    struct run r;
    int rc;

    if (lower(p, rank, &s) < 0)
        return -1;
    own.schedules = s;
    if ((rc = simulate_plan(p, &own, &t, &r)) == 0) {
        measure(&s, &t, &r, out);
        run_free(&r);
    }
    snprintf(out->rank, sizeof out->rank, "rank %" PRId64, rank);
    schedules_free(&s);
    return rc;
}

static int simulate_it(const struct plan *p, const struct evaluation *e, int64_t rank, struct kineto_plan *out)
{
    struct timing t;
    struct run r;

    if (e->nstages > 0)
        return simulate_its_stage(p, e, rank, out);
    if (!plan_is_data_parallel(p))
        return simulate_rank(p, e, rank, out);
    if (simulate_plan(p, e, &t, &r) < 0)
        return -1;
    measure(&e->schedules, &t, &r, out);
    run_free(&r);
    return 0;
}

static int same_ranks(const struct plan *p, const struct trace_info *trace)
{
    int64_t world = p->cluster.world_size;

    if (trace->world_size >= 0 && trace->world_size != world)
        return fail("the trace is of %" PRId64 " rank%s and the plan of %" PRId64 ": give the plan that was traced", trace->world_size,
                    trace->world_size == 1 ? "" : "s", world);
    if (trace->rank >= world)
        return fail("the trace is of rank %" PRId64 ", and the plan has %" PRId64 " ranks", trace->rank, world);
    if (trace->rank < 0 && !plan_is_data_parallel(p))
        return fail("the trace does not say of which rank it is (distributedInfo), and ranks of this plan differ");
    return 0;
}

int kineto_plan_load(const char *path, const char *db, const struct trace_info *trace, struct kineto_plan *out)
{
    struct measured_device device = { 0 };
    struct evaluation e;
    struct plan p;
    int rc = -1;

    if (plan_read(path, &p) < 0)
        return -1;
    if (same_ranks(&p, trace) < 0) {
        plan_free(&p);
        return -1;
    }
    if (measured_for(db, db != NULL, p.precision, p.kernels, &p.cluster, &device) < 0)
        goto out;
    if (evaluate(&p, &e) < 0)
        goto out;
    *out = (struct kineto_plan){ .strategy = strategy_name(p.strategy), .dialect = dialect_name(p.dialect), .words = plan_words_name(p.strategy, p.dialect),
                                 .world_size = p.cluster.world_size, .host = p.cluster.is_host };
    rc = simulate_it(&p, &e, trace->rank, out);
    evaluation_free(&e);
out:
    measured_device_free(&device);
    plan_free(&p);
    return rc;
}
