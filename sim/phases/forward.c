/* forward.c -- see forward.h. */
#include "sim/phases/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/memory/evaluate.h"
#include "sim/clock/simulate.h"

enum { POINTS = 1 << 18 };

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
            bytes -= category_is_of_training((enum category)c) ? by[i][c] : 0;
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

/* One rank's. */
static int64_t stage_peak(const struct schedules *s, const struct memory_verdict *m)
{
    struct point *at = room_new(POINTS, sizeof *at);
    int64_t (*by)[NCAT] = room_new(POINTS, sizeof *by);
    int64_t n = ledger_curve_by(s, SCHED_STEADY, at, by, POINTS);
    int64_t peak = peak_of(s, at, by, n) + m->overhead.by[OVERHEAD_ALLOCATED];

    free(at);
    free(by);
    return n < POINTS ? peak : fail("forward: the step has too many entries to look at each of them");
}

/* Of a pipeline its fullest stage's. */
static int memory_of(const struct evaluation *e, struct forward *out)
{
    const struct schedules *of[EVALUATION_STAGES];
    int n = evaluation_roles(e, of);

    for (int i = 0; i < n; i++) {
        const struct memory_verdict *m = e->nstages ? &e->stage[i].m : &e->m;
        int64_t peak = stage_peak(of[i], m);
        if (peak < 0)
            return -1;
        if (peak < out->peak)
            continue;
        out->peak = peak;
        out->params = m->ledger.persistent[CAT_PARAMS];
        out->outside = m->overhead.by[OVERHEAD_OUTSIDE];
    }
    for (int m = SPACE_PINNED; m <= SPACE_HOST && e->m.elsewhere; m++)
        out->host += e->m.spaces.of[m].used ? e->m.spaces.of[m].peak : 0;
    return 0;
}

/* When a stage's forward is done, and how long it is in it from its first block on, collectives among its ranks included.  What comes before that
 * of a message that is yet to come is next to nothing. */
static void take_run(const struct run *run, const struct schedules *s, double *end, double *longest)
{
    double from = -1, to = 0;

    for (int64_t i = 0; i < run->n; i++) {
        const struct op *o = &s->ops[run->ran[i].op];
        if (o->phase != PHASE_FORWARD || o->kind != OP_COMPUTE)
            continue;
        bool before = o->u.compute.piece == PIECE_EMBED || o->u.compute.piece == PIECE_RECEIVED;
        from = from < 0 && !before ? run->ran[i].start : from;
        to = run->ran[i].end > to ? run->ran[i].end : to;
    }
    *end = to > *end ? to : *end;
    *longest = to - from > *longest ? to - from : *longest;
}

/* Seconds as the step's, whose interval is known. */
static struct cost as_of(double s, const struct timing *t)
{
    return (struct cost){ .s = s, .low_s = s * t->low_s / t->line.step_s, .high_s = s * t->high_s / t->line.step_s, .basis = t->basis };
}

static int time_of(const struct plan *p, const struct evaluation *e, struct forward *out)
{
    const struct schedules *of[EVALUATION_STAGES];
    int n = evaluation_roles(e, of);
    struct run *runs = room_new((size_t)n, sizeof *runs);
    struct timing t;
    double end = 0, longest = 0;
    bool seen = true;

    if (simulate_stages(p, e, &t, runs) < 0) {
        free(runs);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        seen &= runs[i].n > 0;
        take_run(&runs[i], of[i], &end, &longest);
        run_free(&runs[i]);
    }
    free(runs);
    out->time = as_of(end, &t);
    out->next = e->nstages ? as_of(longest, &t) : out->time;
    return seen ? 0 : fail("forward: the step has too many entries to look at each of them");
}

int forward_of(const struct plan *p, const struct evaluation *e, struct forward *out)
{
    memset(out, 0, sizeof *out);
    return memory_of(e, out) < 0 || time_of(p, e, out) < 0 ? -1 : 0;
}
