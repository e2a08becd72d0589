/* tape_collective.h -- what tensor-parallel ranks exchange while PyTorch runs a piece: DTensor's collectives.
 *
 * torch/distributed/tensor/_redistribute.py and _ops/, PyTorch 2.15, recorded by tests/golden/grid/.  Each is a
 * functional collective: it allocates its result, and the next operation waits for it.  A reduce-scatter of positions
 * is of a copy that has each rank's part in one piece; what is gathered is copied likewise, unless a micro-batch of
 * one sequence lies as it is.  The gradient of a DTensor is added to another out of place (the engine adds in place
 * into plain tensors alone: can_accumulate_inplace() of torch/csrc/autograd/input_buffer.cpp). */
#ifndef DPX_TAPE_COLLECTIVE_H
#define DPX_TAPE_COLLECTIVE_H

#include "model/program/tape.h"

/* What becomes of a tensor, and of its gradient on the way back. */
enum tape_moved {
    MOVED_GATHER,           /* positions of all ranks; back: their parts, added up */
    MOVED_SCATTER,          /* parts of a sum, added up, a share of the positions; back: gathered */
    MOVED_SUM,              /* parts of a sum, added up; back: as it is */
    MOVED_SUM_BACK,         /* as it is; back: parts of a sum, added up */
    MOVED_GATHER_LAST,      /* columns of all ranks; back: a rank's own, copied */
};

/* x moved among `ranks` ranks.  `apart`: what a rank has is not one piece of what all have.  `parts`: what is gathered, in
 * forward or on the way back, is read by products part by part (tape_parts.h). */
var  tape_collective(struct tape *t, enum tape_moved how, var x, int64_t ranks, bool apart, bool parts);

/* Rows of a table that the ranks have shares of (`rows` of them together), by ids that are masked where another rank has
 * the row.  What is handed out as w's gradient is of w's size; it is computed in `whole` elements and cut where that is more.
 * The result is a part of a sum. */
var  tape_masked_embedding(struct tape *t, const char *name, var ids, int64_t width, var w, int64_t whole);

/* Cross-entropy of logits that lie cut by columns (torch/distributed/tensor/parallel/loss.py): three all-reduces of a number
 * a row, and none on the way back. */
var  tape_parallel_loss(struct tape *t, var logits, var labels);

/* A kernel that is a collective over `elems` elements in all: its number for tape_needs(), from 1. */
int  tape_issue(struct tape *t, const char *name, enum coll_op op, enum red_op red, enum dtype dt, int64_t elems);

/* Backward of the nodes that these make. */
void tape_run_collective(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
