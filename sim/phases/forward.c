/* forward.c -- see forward.h. */
#include "sim/phases/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"

enum { POINTS = 1 << 18 };

static bool is_of_training(enum category c)
{
    return c == CAT_GRADS || c == CAT_OPTIMIZER || c == CAT_UNSHARDED_GRADS || c == CAT_REDUCE_SCATTER || c == CAT_BUCKET;
}

/* The most at an entry of the forward.  `kept`: what earlier entries left for backward. */
static int64_t peak_of(const struct schedules *s, const struct point *at, int64_t (*by)[NCAT], int64_t n)
{
    int64_t most = 0, kept = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct op *o = &s->ops[at[i].op];
        int64_t net[NMEM] = { 0 }, bytes = at[i].peak;
        if (o->kind == OP_COMPUTE && o->phase == PHASE_BACKWARD)
            break;
        for (int c = 0; c < NCAT; c++)
            bytes -= is_of_training((enum category)c) ? by[i][c] : 0;
        bytes -= kept > s->program.boundary ? kept - s->program.boundary : 0;
        if (o->phase == PHASE_FORWARD && bytes > most)
            most = bytes;
        if (o->kind == OP_COMPUTE)
            sched_inner(s, o, net);
        kept += net[MEM_ACTIVATIONS];
    }
    return most;
}

int64_t forward_keeps(const struct schedules *s)
{
    struct point *at = room_new(POINTS, sizeof *at);
    int64_t n = ledger_curve(s, SCHED_STEADY, at, POINTS), held = 0;

    for (int64_t i = 0; i < n; i++) {
        const struct op *o = &s->ops[at[i].op];
        if (o->kind == OP_COMPUTE && o->phase == PHASE_BACKWARD)
            break;
        held = at[i].bytes;
    }
    free(at);
    return held;
}

static int memory_of(const struct evaluation *e, struct forward *out)
{
    const struct schedules *s = &e->schedules;
    struct point *at = room_new(POINTS, sizeof *at);
    int64_t (*by)[NCAT] = room_new(POINTS, sizeof *by);
    int64_t n = ledger_curve_by(s, SCHED_STEADY, at, by, POINTS);

    out->params = e->m.ledger.persistent[CAT_PARAMS];
    out->peak = peak_of(s, at, by, n) + e->m.overhead.by[OVERHEAD_ALLOCATED];
    out->outside = e->m.overhead.by[OVERHEAD_OUTSIDE];
    for (int m = SPACE_PINNED; m <= SPACE_HOST && e->m.elsewhere; m++)
        out->host += e->m.spaces.of[m].used ? e->m.spaces.of[m].peak : 0;
    free(at);
    free(by);
    return n < POINTS ? 0 : fail("forward: the step has too many entries to look at each of them");
}

static int time_of(const struct plan *p, const struct evaluation *e, struct forward *out)
{
    struct timing t;
    struct run run;
    double end = 0;

    if (simulate_plan(p, e, &t, &run) < 0)
        return -1;
    bool seen = run.n > 0;
    for (int64_t i = 0; i < run.n; i++) {
        const struct op *o = &e->schedules.ops[run.ran[i].op];
        if (o->phase == PHASE_FORWARD && o->kind == OP_COMPUTE && run.ran[i].end > end)
            end = run.ran[i].end;
    }
    run_free(&run);
    out->time = (struct cost){ .s = end, .low_s = end * t.low_s / t.line.step_s, .high_s = end * t.high_s / t.line.step_s, .basis = t.basis };
    return seen ? 0 : fail("forward: the step has too many entries to look at each of them");
}

int forward_of(const struct plan *p, struct forward *out)
{
    struct evaluation e;

    memset(out, 0, sizeof *out);
    if (p->parallel.pipeline > 1)
        return fail("forward: an inference-only forward through a pipeline is not planned");
    if (evaluate_allocated(p, &e) < 0)
        return -1;
    int rc = memory_of(&e, out) < 0 || time_of(p, &e, out) < 0 ? -1 : 0;
    evaluation_free(&e);
    return rc;
}
