/* schedule_clock.h -- the step of a schedule by made-up rates, and that a cut one takes as long. */
#ifndef DPX_SCHEDULE_CLOCK_H
#define DPX_SCHEDULE_CLOCK_H

#include <stdlib.h>

#include "sim/clock/clock.h"
#include "tests/check.h"

static inline double flops_of(const struct schedules *of, int i)
{
    return of->spans[of->ops[i].u.compute.span].flops;
}

static inline double copy_s(const struct op *o) { return 1e-12 * (double)(o->u.copy.reads + o->u.copy.writes); }

/* Seconds: a step without issuing, in which what is inside blocks costs nothing. */
static inline double clock_of(const struct schedules *of, bool contended)
{
    double *t = calloc(2 * (size_t)of->nops + 2, sizeof *t);
    struct durations d = { t, t + of->nops + 1 };
    struct contention c = { .copy_slow = 1.25 };
    struct timeline line;

    for (int i = 0; i < NCOLL; i++) {
        c.compute_slow[i] = 1.1;
        c.comm_slow[i] = 1.2;
    }
    for (int i = 0; i < of->nops; i++) {
        const struct op *o = &of->ops[i];
        if (o->kind == OP_COMPUTE)
            t[i] = 1e-14 * flops_of(of, i);
        else if (o->kind == OP_COLL && o->u.coll.of != OF_PLACES)
            t[i] = 1e-5 + 1e-11 * (double)o->u.coll.elems;
        else if (o->kind == OP_COPY)
            t[i] = copy_s(o);
        else if (o->kind == OP_OPTIMIZER)
            t[i] = 1e-11 * (double)o->u.optimizer.elems;
    }
    if (contended)
        clock_one(of, SCHED_STEADY, &d, &c, &line, NULL);
    else
        clock_one(of, SCHED_STEADY, &d, NULL, &line, NULL);
    free(t);
    return line.step_s;
}

static inline int add_copy(const struct schedules *of, const struct op *o, int64_t iteration, void *arg)
{
    (void)of, (void)iteration;
    *(double *)arg += o->kind == OP_COPY ? copy_s(o) : 0;
    return 0;
}

/* A copy to or from the host, of activations, gradients or states, begins behind an entry, and of a cut one behind its first part: the step may be shorter, by no more than its copies take. */
static inline void clocks_agree(const struct plan *p, const struct schedules *cut, const struct schedules *whole)
{
    double sooner = clock_of(whole, false) - clock_of(cut, false), copies = 0;

    if (p->activation_offload == OFFLOAD_NOTHING && !whole->spaces) {
        assert_close(clock_of(cut, false), clock_of(whole, false), 1e-12);
        return;
    }
    sched_walk(whole, SCHED_STEADY, add_copy, &copies);
    assert_true(sooner >= -1e-12 && sooner <= copies + 1e-12);
}

#endif
