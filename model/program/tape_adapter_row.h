/* tape_adapter_row.h -- a row-parallel layer's adapters as DTensors (NeMo Automodel's RowwiseParallelLora): A and B are cut by columns.
 *
 * A's product is a part of a sum.  For B's it is scattered by columns, or B is gathered (plan/cut_adapter.h); the result is a part of a sum either way, as the layer's own.  Autograd knows of neither: what is kept is A's product.  Backward: B's gradient is a
 * part of a sum of the whole of B; the gradient of A's product comes by columns, and is gathered for A's gradient and again for the input's. */
#ifndef DPX_TAPE_ADAPTER_ROW_H
#define DPX_TAPE_ADAPTER_ROW_H

#include "model/program/tape.h"

struct adapter_row {
    int64_t n, k, rank, ranks;          /* n: the layer's outputs; k: this rank's inputs; rank: the whole adapter's */
    int     modules[2];                 /* A's, B's */
};

/* lora_B(lora_A(x) * scale) of x [rows, k], a [rank, k] and b [n, rank / ranks] -> [rows, n]. */
var  tape_adapter_row(struct tape *t, const struct adapter_row *of, var x, var a, var b);

/* Backward of it. */
void tape_run_adapter_row(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
