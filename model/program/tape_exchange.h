/* tape_exchange.h -- collectives that Python calls inside a model: among the context-parallel ranks Ulysses' of DeepSpeed and of verl and
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

/* The same between two lists of tensors, a tensor for each rank, which are joined (verl/utils/ulysses.py, all_to_all_tensor()).  `copies`:
 * parts of x do not lie together and are copied first; `copies_back`: parts of the gradient. */
var  tape_exchange_lists(struct tape *t, var x, bool copies, bool copies_back);

/* What each of `ranks` ranks has of x, in a list of tensors: gathered into a flat one, out of which the parts are copied
 * (ProcessGroupNCCL).  Parts of the gradient are added up by a reduce-scatter. */
var  tape_gather_list(struct tape *t, const char *name, var x, int64_t ranks);
/* The same of whole numbers of all ranks, which have no gradient. */
var  tape_gather_numbers(struct tape *t, const char *name, int64_t numel);

/* x of `ranks` ranks in one tensor, then joined (verl's Gather); of the gradient a rank copies its own part. */
var  tape_gather_joined(struct tape *t, const char *name, var x, int64_t ranks);

/* x, a part of a sum over the tensor-parallel ranks, becomes the sum; back it is as it is.  `back`: the other way round. */
var  tape_sum_in_place(struct tape *t, var x, bool back);

/* Backward of the nodes that these make. */
void tape_run_exchange(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
