/* contention.h -- the same schedule when work on different streams slows each other
 * down.
 *
 * While compute and a collective overlap, both run slower: the collective takes
 * SMs and memory bandwidth from the kernels, and the kernels from it.  Groups whose
 * collectives share a link share its bandwidth.  Each entry then has a rate that
 * changes whenever another begins or ends: a fluid simulation, from event to event.
 * With every slow-down equal to 1 it gives timeline_run()'s times. */
#ifndef DPX_CONTENTION_H
#define DPX_CONTENTION_H

#include "sim/clock/timeline.h"

/* How many times longer compute and a collective take while both run: beside products, and beside
 * kernels that live off memory. */
struct beside { double compute[2], comm[2]; };

struct contention {
    /* How many times longer an entry takes while the other kind runs; >= 1. */
    double compute_slow[NCOLL];     /* compute, while this collective runs */
    double comm_slow[NCOLL];        /* this collective, while compute runs */
    double copy_slow;               /* memory-bound copies on side streams and compute, both ways */
    /* Of each collective by itself, indexed like ops[], in place of the first two; NULL: those count.
     * `streams`: the share of a compute entry's time in which memory sets the pace. */
    const struct beside *beside;
    const double *streams;
    bool   adds;                    /* streams are threads that share cores: each that runs adds its part,
                                     * and copies slow down whatever runs beside them */
    bool   shares_link[PLAN_GROUPS][PLAN_GROUPS];     /* collectives of the two groups halve each other's rate */
};

/* Runs the schedule; `kept` (may be NULL) receives every entry as it ran.  False when it
 * has more than a million entries that never settle into a pattern (or are to be
 * kept): then `out` is timeline_run()'s, without contention, and nothing is kept. */
bool contention_run(const struct schedules *s, enum sched_id id, const struct durations *d,
                    const struct contention *c, struct timeline *out, struct run *kept);

#endif
