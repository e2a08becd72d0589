/* crowd.h -- ranks that share a machine's cores.
 *
 * What was timed on the machine itself was timed on all its ranks at once: `timed` threads had to share a core (1: each had its
 * own).  A rank that waits sleeps (exec/comm), and leaves its core to the others.  So while those that compute ask for
 * `asked` times the cores that there are, what takes t by that calibration takes
 *
 *     t max(1, asked) / timed
 *
 * since the operating system deals out cores evenly.  Ranks that all do the same compute at once, and nothing changes for them;
 * stages of a pipeline wait for each other.  Not in it: caches and memory bandwidth, which fewer ranks share as well, and
 * the little that threads which communicate take. */
#ifndef DPX_CROWD_H
#define DPX_CROWD_H

#include "model/plan/plan.h"

struct crowd {
    double timed;       /* threads to a core in the calibration, at least 1 */
    double asks;        /* share of the cores that the ranks behind a role ask for while they compute */
};

/* Of one of a step's n roles, which stand for equally many ranks each.  False where cores are not shared: on GPUs, without a calibration of
 * this machine, where it gave each thread a core, on several nodes. */
bool crowd_of(const struct plan *p, int n, struct crowd *out);

static inline double crowd_pace(const struct crowd *c, double asked)
{
    return (asked > 1 ? asked : 1) / c->timed;
}

#endif
