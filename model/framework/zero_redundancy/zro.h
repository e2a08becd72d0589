/* zro.h -- torch.distributed.optim.ZeroRedundancyOptimizer, beside DistributedDataParallel (zero1).
 *
 * Source: torch/distributed/optim/zero_redundancy_optimizer.py (PyTorch 2.15).  A parameter belongs to one rank, whole: that rank has its
 * states and steps it; then each rank broadcasts what is its own. */
#ifndef DPX_ZRO_H
#define DPX_ZRO_H

#include "model/lower/common/lower_internal.h"

struct zro {
    bool     on;                /* else one rank's optimizer has all */
    bool     packed;            /* parameters_as_bucket_view: those of a rank share a storage */
    const struct model *m;
    int64_t  ranks, rank;       /* those that have any; this one */
    int64_t *owner;             /* rank of each tensor */
    int     *sorted;            /* the tensors in the order in which they were given to ranks */
};

void zro_open(struct zro *z, const struct local_model *local);
void zro_close(struct zro *z);

static inline bool zro_owns(const struct zro *z, int tensor) { return !z->on || z->owner[tensor] == z->rank; }

/* ZeroRedundancyOptimizer._partition_parameters: largest first, each to the rank
 * with the least so far.  owner[i] is the rank of tensor i; sorted[] the tensors
 * in the order of assignment. */
void zro_partition(const struct model *m, int64_t nranks, int64_t *owner, int *sorted);

/* The parameters: their buffer, in which dtype they are kept, and what appends a tensor's slice where it lies. */
struct zro_params { int buf; enum dtype kept; void (*slice)(void *of, int tensor); void *of; };

/* Construction where `packed`; behind the optimizer. */
void zro_pack(const struct zro *z, struct schedules *s, enum dtype kept);
void zro_broadcast(const struct zro *z, struct schedules *s, const struct plan *p, const struct zro_params *of);

#endif
