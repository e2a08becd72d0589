/* coll_cost.h -- how long a collective of a schedule takes.
 *
 *     coll_group_shape(plan, &schedules.groups, op->u.coll.group, &ranks, &per_node);
 *     if (coll_cost(&plan->cluster, COLL_ALL_GATHER, ranks, per_node, bytes, &cost) < 0)
 *         ...
 *
 * The best basis there is: points measured on the machine (coll_cost_measured); NCCL's model
 * corrected by published measurements of the same type of machine; NCCL's model on the
 * datasheet's links; for processes on one host the algorithms of coll_algo.h.
 *
 * A function of its arguments alone, in well under a microsecond for the model: callers may
 * keep results by (op, ranks, per_node, bytes).  Launching the kernel is not in it: that is
 * the issuing stream's. */
#ifndef DPX_COLL_COST_H
#define DPX_COLL_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cluster/cluster.h"
#include "model/plan/plan.h"
#include "model/schedule/schedule.h"
#include "sim/price/cost.h"

/* `bytes` is the full buffer; `per_node` the ranks of the group in one node.  The group's
 * share of a node's adapters is per_node / gpus_per_node: every GPU of a node is in such a
 * group, and they communicate at the same time (hybrid sharding's replica groups).
 * A send or receive is between two ranks, in one node or (ranks > per_node) not.
 * 0, or -1 for a group that the cluster cannot hold or negative bytes, reported. */
int coll_cost(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node,
              int64_t bytes, struct cost *out);

/* Of high_s, what is for ranks that enter at different times, where nothing was measured. */
double coll_skew_s(const struct cluster *c);

/* The full buffer of an all-to-all of equal parts that takes as long as one of unequal parts: in
 * which the busier wire carries as much.  `within` and `across` are the larger of what a rank
 * sends and receives in its node, and to and from other nodes, in bytes (nccl-tests alltoall.cu counts
 * (n-1)/n of the buffer; a peer that sends or receives more than the others is what all wait for). */
int64_t coll_equal_bytes(int64_t ranks, int64_t per_node, int64_t within, int64_t across);

/* The same where every transfer goes through rank 0's own link, to or from one rank after
 * the other (struct schedules, `star`). */
int coll_star_cost(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node,
                   int64_t bytes, struct cost *out);

/* Ranks of groups->group[g], and the most of them that share a node in its slowest instance
 * (model/plan/plan_groups.h). */
void coll_group_shape(const struct plan *p, const struct plan_groups *groups, int g, int64_t *ranks, int64_t *per_node);

/* ---- measured points ---- */

#define COLL_POINTS_MAX 64

/* One sweep over sizes, as dpxcal measured it: fill op .. seconds, sizes rising, then
 * coll_points_prepare(). */
struct coll_points {
    enum coll_op op;
    int64_t ranks, per_node;
    int     n;
    double  bytes[COLL_POINTS_MAX], seconds[COLL_POINTS_MAX];
    double  spread[COLL_POINTS_MAX];    /* half of a 90 % interval, as a share of seconds; 0: not known */
    double  x[COLL_POINTS_MAX], y[COLL_POINTS_MAX], slope[COLL_POINTS_MAX];     /* prepared */
};

/* Times that fall with the size are levelled first (a protocol switch, or noise).  0, or -1
 * where there is no point, or one is not positive, or sizes do not rise; reported. */
int coll_points_prepare(struct coll_points *p);

/* As coll_cost(), by the measured sweeps of this cluster where one is near: of the same group
 * by monotone log-log interpolation; of groups of other sizes on the same tier by the ratio of
 * the models; else coll_cost(). */
int coll_cost_measured(const struct cluster *c, const struct coll_points *points, int npoints,
                       enum coll_op op, int64_t ranks, int64_t per_node, int64_t bytes,
                       struct cost *out);

#endif
