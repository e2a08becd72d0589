/* crowd.h -- ranks that share a machine's cores.
 *
 * What was timed on the machine itself was timed on all its ranks at once: `timed` threads had to share a core (1: each had its
 * own).  A rank that waits sleeps (exec/comm), and leaves its core to those that share it.  So while these ask for `asked` times that
 * core, what takes t by the calibration takes
 *
 *     t max(1, asked) / timed
 *
 * since the operating system deals out a core evenly.  Which ranks share one is known: they divide the cores by their numbers
 * (cluster_first_core(), by which dpxrun binds them), so neighbours share.  Ranks of one stage compute at once, and nothing changes
 * among them; stages of a pipeline wait for each other.  Not in it: caches and memory bandwidth, which fewer ranks share as
 * well, and the little that threads which communicate take. */
#ifndef DPX_CROWD_H
#define DPX_CROWD_H

#include "model/memory/evaluate.h"
#include "model/plan/plan.h"

struct crowd {
    double timed;                       /* threads to a core in the calibration, at least 1 */
    double by[EVALUATION_STAGES];       /* what the ranks of each role ask for, while they compute, of the cores of this role's rank */
};

/* For `rank`, which one of a step's roles stands for.  False where cores are not shared: on GPUs, without a calibration of this machine,
 * where it gave each thread a core, on several nodes. */
bool crowd_of(const struct plan *p, int64_t rank, struct crowd *out);

static inline double crowd_pace(const struct crowd *c, double asked)
{
    return (asked > 1 ? asked : 1) / c->timed;
}

#endif
