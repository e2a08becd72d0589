/* kineto_plan.c -- a plan's simulated entries as stretches of work, measured by the rules for traces. */
#include "reports/kineto/kineto_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/store/measured_for.h"
#include "model/plan/can_run.h"
#include "sim/clock/simulate.h"

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

static void add_entry(struct work_list *l, const struct op *o, const struct ran *ran)
{
    struct work w = { .start = ns(ran->start), .end = ns(ran->end), .launch = ns(ran->issued), .bytes = -1,
                      .name = -1, .phase = (uint8_t)phase_of(o), .coll = o->kind == OP_COLL,
                      .side = o->stream != STREAM_COMPUTE };

    if (o->kind == OP_COLL) {
        w.op = o->u.coll.op;
        w.bytes = o->u.coll.elems * dtype_bytes(o->u.coll.dtype);
    }
    kineto_work_add(l, &w);
}

/* Too many entries to keep one by one: what the schedule says without a clock. */
static void measure_counts(const struct evaluation *e, const struct timing *t, struct measures *m)
{
    for (int i = 0; i < NMEASURE; i++)
        m->v[i] = NAN;
    for (int op = 0; op < KINETO_COLLS; op++)
        m->v[m_coll(op, M_CALLS)] = m->v[m_coll(op, M_BYTES)] = 0;
    m->v[M_STEP] = t->line.step_s;
    for (int i = 0; i < e->comm.n; i++) {
        const struct comm_line *c = &e->comm.line[i];
        m->v[m_coll(c->op, M_CALLS)] += (double)c->count;
        m->v[m_coll(c->op, M_BYTES)] += (double)c->bytes;
    }
}

static void measure_run(const struct evaluation *e, const struct run *r, struct kineto_plan *out)
{
    struct window step = { 0, ns(r->total.step_s) };
    struct work_list l = { 0 };

    for (int64_t i = 0; i < r->n; i++) {
        const struct op *o = &e->schedules.ops[r->ran[i].op];
        if (is_kernel(o))
            add_entry(&l, o, &r->ran[i]);
    }
    kineto_measure(&l, &step, 1, true, &out->m);
    free(l.at);
}

static int simulate_it(const struct plan *p, const struct evaluation *e, struct kineto_plan *out)
{
    struct timing t;
    struct run r;

    if (simulate_plan(p, e, &t, &r) < 0)
        return -1;
    out->low_s = t.low_s;
    out->high_s = t.high_s;
    out->whole = r.n > 0;
    if (out->whole)
        measure_run(e, &r, out);
    else
        measure_counts(e, &t, &out->m);
    run_free(&r);
    return 0;
}

int kineto_plan_load(const char *path, const char *db, struct kineto_plan *out)
{
    struct measured_device device = { 0 };
    struct evaluation e;
    struct plan p;
    int rc = -1;

    if (plan_read(path, &p) < 0)
        return -1;
    if (can_run_parallel(&p, "dpxreport") < 0) {
        plan_free(&p);
        return -1;
    }
    if (measured_for(db, db != NULL, p.precision, p.kernels, &p.cluster, &device) < 0)
        goto out;
    if (evaluate(&p, &e) < 0)
        goto out;
    *out = (struct kineto_plan){ .strategy = strategy_name(p.strategy), .dialect = dialect_name(p.dialect),
                                 .world_size = p.cluster.world_size };
    rc = simulate_it(&p, &e, out);
    evaluation_free(&e);
out:
    measured_device_free(&device);
    plan_free(&p);
    return rc;
}
