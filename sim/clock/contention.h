/* contention.h -- how much work on different streams slows each other down.
 *
 * While compute and a collective overlap, both run slower: the collective takes SMs and memory
 * bandwidth from the kernels, and the kernels from it.  Groups whose collectives share a link share its
 * bandwidth, and so do copies between device and host, the host's threads and files.  The clock (clock.h) asks for each set of entries that run at once. */
#ifndef DPX_CONTENTION_H
#define DPX_CONTENTION_H

#include "model/schedule/schedule.h"
#include "sim/price/kernel_cost.h"
#include "sim/price/space_cost.h"

/* How many times longer compute and a collective take while both run: beside products, and beside
 * kernels that live off memory. */
struct beside { double compute[2], comm[2]; };

struct contention {
    /* How many times longer an entry takes while the other kind runs; >= 1. */
    double compute_slow[NCOLL];     /* compute, while this collective runs */
    double comm_slow[NCOLL];        /* this collective, while compute runs */
    double copy_slow;               /* copies by kernels on side streams and compute, both ways */
    /* Of each collective by itself, indexed like ops[], in place of the first two; NULL: those count.
     * `streams`: the share of a compute entry's time in which memory sets the pace. */
    const struct beside *beside;
    const double *streams;
    /* Of each compute entry, indexed like ops[]: what it becomes on the multiprocessors that an all-reduce leaves, [0], or
     * any other collective, [1] (kernel_cost.h).  compute_slow then is that of kernels which live off memory.  NULL:
     * compute_slow is that of all. */
    const struct op_held *held;
    const struct shares *shares;    /* of each entry, indexed like ops[]; NULL: nothing is shared.  Where the shares
                                     * of those that run add up to more than 1, each that has some takes so many
                                     * times longer */
    bool   adds;                    /* streams are threads that share cores: each that runs adds its part,
                                     * and copies slow down whatever runs beside them */
    bool   shares_link[PLAN_GROUPS][PLAN_GROUPS];     /* collectives of the two groups halve each other's rate */
};

/* How many times longer the entry running[me] takes while all n of `running` (indices into ops[], each
 * on a stream of its own) run; >= 1. */
double contention_slow(const struct contention *c, const struct schedules *s, const int *running, int n, int me);

#endif
