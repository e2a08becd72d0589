/* overlap.h -- how much slower computation and communication run while they run together.
 *
 * Two coefficients, applied only while both are busy (rates 1/phi): a collective's kernels
 * hold SMs that a GEMM would use, and its traffic takes memory bandwidth from kernels that
 * live off it.  With computation C and communication M alone, and C*phi_comp the longer,
 *
 *     T = C + M * phi_comm * (1 - 1/phi_comp)
 *
 * so that even a hidden collective costs.  All are assumed or counted, none measured on the
 * machine at hand; both are at least 1, and exactly 1 in a group of one rank. */
#ifndef DPX_OVERLAP_H
#define DPX_OVERLAP_H

#include "model/cluster/cluster.h"
#include "model/program/program.h"
#include "model/schedule/schedule.h"

/* phi_comp: how much longer kernels of this class take beside that collective: products and attention of many
 * waves (op_held() counts those of each entry), or kernels that live off memory. */
double overlap_compute(const struct cluster *c, enum kernel_class kind, enum coll_op op);

/* phi_comm: how much longer that collective takes beside kernels of this class. */
double overlap_comm(const struct cluster *c, enum kernel_class kind, enum coll_op op);

/* SMs that the kernels of that collective hold, one per channel; 0: none (hosts). */
int overlap_sms(const struct cluster *c, enum coll_op op);
/* SMs that it leaves to others: half of them at least. */
int overlap_left(const struct cluster *c, enum coll_op op);

/* Where the two come from, in words. */
const char *overlap_source(const struct cluster *c);

#endif
