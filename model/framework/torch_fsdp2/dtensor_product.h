/* dtensor_product.h -- how DTensor places the inputs of a product of matrices whose parts lie on several ranks.
 *
 * Source: PyTorch 2.15, torch/distributed/tensor: _ops/_matrix_ops.py (the ways in which a product may be taken),
 * _collective_utils.py (what it thinks that a collective costs), _sharding_prop.py (the cheapest way, the first of equals).
 * Of meshes of one dimension. */
#ifndef DPX_DTENSOR_PRODUCT_H
#define DPX_DTENSOR_PRODUCT_H

#include "model/program/program.h"

/* Replicate, Shard(0), Shard(1), Partial("sum"). */
enum placed { PLACED_WHOLE, PLACED_ROWS, PLACED_COLUMNS, PLACED_SUM };

/* A matrix of bf16; whether its elements lie in the order of its transpose. */
struct dtensor { int64_t rows, columns; enum placed at; bool view; };

/* The mesh; whether torch.cuda.device_count() is less than its ranks. */
struct dtensor_mesh { int64_t ranks, rank; bool leaves_node; };

/* x[0] + x[1] x[2]; with `added` false, x[1] x[2].  Where the inputs have to be (want[0] without an addend: not set); returns
 * where the result is. */
enum placed dtensor_product(const struct dtensor_mesh *mesh, const struct dtensor x[3], bool added, enum placed want[3]);

static inline struct dtensor dtensor_transposed(struct dtensor x)
{
    enum placed at = x.at == PLACED_ROWS ? PLACED_COLUMNS : x.at == PLACED_COLUMNS ? PLACED_ROWS : x.at;

    return (struct dtensor){ x.columns, x.rows, at, !x.view };
}

/* Elements that this rank has of it. */
int64_t dtensor_local(const struct dtensor_mesh *mesh, const struct dtensor *x);

/* The collective that takes x to another placement, the elements of its full buffer, what is allocated beside its result while it
 * runs (elements), and how many elements the copies before and behind it read.  NCOLL: there is none. */
struct dtensor_move { enum coll_op op; int64_t elems, result, beside, copied; };
struct dtensor_move dtensor_move(const struct dtensor_mesh *mesh, const struct dtensor *x, enum placed to);

#endif
