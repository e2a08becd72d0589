/* tape_exchange.h -- collectives that DeepSpeed's Python calls inside a model: among the context-parallel ranks Ulysses' and
 * those of the loss around it, among the tensor-parallel ones AutoTP's.
 *
 * The next operation waits for each.  Ulysses' allocate their result: deepspeed/sequence/layer.py of 0.19.6 (_DimZeroAllToAll),
 * torch/distributed/nn/functional.py of PyTorch 2.15 (all_gather).  AutoTP's all-reduces are in place:
 * deepspeed/module_inject/layers.py (ColumnParallel, RowParallel). */
#ifndef DPX_TAPE_EXCHANGE_H
#define DPX_TAPE_EXCHANGE_H

#include "model/program/tape.h"

/* x, made of a part for each rank, becomes what the ranks have of this one's; back the same.  `strided`: the gradient that comes back
 * does not lie as x does: it is copied, and so is the tensor of its strides that was made for the result. */
var  tape_exchange(struct tape *t, var x, bool strided);

/* What each of `ranks` ranks has of x, in a list of tensors: gathered into a flat one, out of which the parts are copied
 * (ProcessGroupNCCL).  Parts of the gradient are added up by a reduce-scatter. */
var  tape_gather_list(struct tape *t, const char *name, var x, int64_t ranks);
/* The same of whole numbers of all ranks, which have no gradient. */
var  tape_gather_numbers(struct tape *t, const char *name, int64_t numel);

/* x, a part of a sum over the tensor-parallel ranks, becomes the sum; back it is as it is.  `back`: the other way round. */
var  tape_sum_in_place(struct tape *t, var x, bool back);

/* Backward of the nodes that these make. */
void tape_run_exchange(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
