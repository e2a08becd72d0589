/* crowd.h -- ranks that share a machine's cores, and what the cores share.
 *
 * What was timed on the machine itself was timed on all its ranks at once: `timed` threads had to share a core (1: each had its
 * own).  A rank that waits yields its core or sleeps (exec/comm), and leaves it to those that share it.  So while these ask for `asked` times that
 * core, what takes t by the calibration takes
 *
 *     t max(1, asked) / timed
 *
 * since the operating system deals out a core evenly.  Which ranks share one is known: they divide the cores by their numbers
 * (cluster_first_core(), by which dpxrun binds them), so neighbours share.
 *
 * Cores share, too: two of a virtual machine may be two threads of one, and clocks fall where all work.  dpxcal times a product on one
 * rank while the others sleep, and while all compute (calib/bench/bench_alone.c); the quotient, times `timed` for the core that it then
 * had to itself, is `alone`, at most 1.  While a share `beside` of the ranks on other cores computes, what t is left of takes
 *
 *     t (alone + (1 - alone) beside)
 *
 * which is exact where none or all of them do, and a line between.
 *
 * More ranks than cores share them also where the calibration's ranks each had a core, and where there is no calibration: timed is 1 then.
 *
 * Ranks of one stage compute at once, and nothing changes among them; stages of a pipeline wait for each other.  Not in it: kernels that
 * share more or less than a product does, and the little that threads which communicate take. */
#ifndef DPX_CROWD_H
#define DPX_CROWD_H

#include "model/memory/evaluate.h"
#include "model/plan/plan.h"

struct crowd {
    double timed;                       /* threads to a core in the calibration, at least 1 */
    double alone;                       /* how long a product takes while no other core computes, of what it takes while all do */
    double by[EVALUATION_STAGES];       /* what the ranks of each role ask for, while they compute, of the cores of this role's rank */
    double beside[EVALUATION_STAGES];   /* of the ranks on other cores the share that each role has; in all 1 */
};

/* Threads to a core in a calibration of so many nodes: 1 where each had its own. */
double crowd_timed(const struct measured_device *m, int64_t nodes);

/* For `rank`, which one of a step's roles stands for.  False where a rank that waits changes nothing for the others: on GPUs, and where each
 * thread has a core, as it had in the calibration, and cores share nothing. */
bool crowd_of(const struct plan *p, int64_t rank, struct crowd *out);

/* What t becomes, as a share of it.  asked: of its own cores; beside: the share of the ranks on other cores that compute. */
static inline double crowd_pace(const struct crowd *c, double asked, double beside)
{
    return (asked > 1 ? asked : 1) / c->timed * (c->alone + (1 - c->alone) * beside);
}

#endif
