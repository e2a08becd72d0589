/* ddp_buckets.h -- how DistributedDataParallel puts gradients into buckets, and
 * how ZeroRedundancyOptimizer gives parameters to ranks. */
#ifndef DPX_DDP_BUCKETS_H
#define DPX_DDP_BUCKETS_H

#include <stdint.h>

#include "model/plan/local_model.h"
#include "model/program/program.h"

struct buckets {
    int      n;
    int     *of;            /* bucket of each tensor of the model */
    int     *tensors;       /* number of tensors in each bucket */
    int64_t *numel;         /* elements in each bucket */
    int64_t *at;            /* elements of its bucket before each tensor of the model */
    uint8_t *dtype;         /* enum dtype of each bucket; buckets_assign() leaves it 0 */
};

/* compute_bucket_assignment_by_size (torch/csrc/distributed/c10d/reducer.cpp) on
 * tensors of one dtype: in the given order, a bucket is closed by the tensor that
 * brings it to its limit in bytes: limit[0] for the first, limit[1] for the rest.
 * Tensors are never split, so buckets overshoot.  `order` has n indices. */
void buckets_assign(const struct model *m, const int *order, int n, int64_t element, const int64_t limit[2],
                    struct buckets *out);
/* Bucket numbers reversed: buckets over registration order are reduced last first. */
/* Of tensors whose dtypes differ (dtype[t], of each of the model): a bucket has one, and each dtype limits of its own.  Buckets come in the order
 * in which they are closed; those that stay open behind them, the dtype that came last first (libstdc++'s unordered_map).  Not by_arrival:
 * in the order of their first tensors. */
void buckets_assign_mixed(const struct model *m, const int *order, int n, const uint8_t *dtype, const int64_t limit[2], bool by_arrival,
                          struct buckets *out);
void buckets_reverse(struct buckets *b, int ntensors);
void buckets_free(struct buckets *b);

/* Fills order[] with the tensors of blocks [from,to), and of the embedding and the head where a module has them, in the order in which
 * backward hands out their gradients, by the program's kernels: what DDP records in iteration 1. */
void buckets_ready_order(const struct local_model *local, const struct program *g, int from, int to, bool embeds, bool heads, int *order);

#endif
