/* kineto_step.h -- one training step as stretches of work of either origin: the profiler on a
 * real rank, or the simulator of a plan.  Both are measured by the same rules:
 *
 *     struct work_list l = { 0 };
 *     kineto_work_add(&l, &(struct work){ ... });
 *     kineto_measure(&l, windows, nwindows, out);     one struct measures for each window
 *
 * A collective is hidden as long as any compute runs beside it on the same rank; the rest of it
 * is exposed.  Its time includes waiting for the slowest rank. */
#ifndef DPX_KINETO_STEP_H
#define DPX_KINETO_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "model/schedule/schedule.h"

enum { COLL_OTHER = NCOLL, KINETO_COLLS = NCOLL + 1 };      /* send, receive */
enum work_phase { WORK_FORWARD, WORK_BACKWARD, WORK_OPTIMIZER, WORK_PHASES };

struct work {
    int64_t  start, end;            /* ns */
    int64_t  launch;                /* when the host issued it */
    int64_t  bytes;                 /* of a collective's full buffer; -1: not known */
    uint64_t hash;                  /* of its name: to recognize repetition */
    int32_t  window;                /* the step it was issued in; -1: none */
    int32_t  product;               /* of a product on a GPU: 1 + which of the loader's; 0: its dimensions are not known */
    int16_t  name, group_size;      /* of a collective: the loader's (kineto_load.h) */
    uint8_t  phase;
    uint8_t  op;                    /* enum coll_op or COLL_OTHER */
    bool     coll;                  /* else compute */
    bool     side;                  /* compute on another stream than the main one */
    uint8_t  what;                  /* enum kineto_class: of compute on a GPU */
};

struct work_list { struct work *at; int64_t n, cap; };

struct window { int64_t start, end; };

/* Of one step, in seconds, bytes and calls; NAN where it is not known. */
enum measure {
    M_STEP,
    M_FORWARD, M_BACKWARD, M_OPTIMIZER,     /* compute runs, by the phase that issued it */
    M_COMPUTE,                              /* compute of any phase runs */
    M_COMM, M_EXPOSED,                      /* a collective runs; and no compute beside it */
    M_SHARDING,                             /* share of the step with an all-gather or reduce-scatter */
    M_GATHERS,                              /* all-gathers of backward that could be prefetched */
    M_ISSUED_AHEAD,                         /* of those: issued before the reduction of the unit before */
    M_STARTED_AHEAD,                        /* of those: started before the unit before was done */
    M_COLL,                                 /* then, for each kind of collective: */
    M_CALLS = 0, M_BYTES, M_TIME, M_ALONE, M_PER_COLL,
    NMEASURE = M_COLL + M_PER_COLL * KINETO_COLLS
};
struct measures { double v[NMEASURE]; };

/* Index of a figure of one kind of collective. */
static inline int m_coll(int op, int which)
{
    return M_COLL + M_PER_COLL * op + which;
}

/* Aborts where there is no memory. */
void kineto_work_add(struct work_list *l, const struct work *s);

/* They are put in order of start.  With `phases` false it is not known what belongs to backward. */
void kineto_measure(struct work_list *l, const struct window *w, int n, bool phases, struct measures *out);

/* Each figure's median over n steps. */
struct measures kineto_measures_median(const struct measures *m, int n);

#endif
