/* tape_adapter.h -- litgpt's adapters of parts of a layer that is q, k and v in one (litgpt/lora.py, LoRAQKVLinear): a convolution over positions of
 * width 1 for each part, and zeros for columns that have none. */
#ifndef DPX_TAPE_ADAPTER_H
#define DPX_TAPE_ADAPTER_H

#include "model/program/tape.h"

struct adapter_parts {
    const struct gemm_names *names;
    int64_t rank, columns[3];
    int     n;                          /* parts */
    bool    grouped;                    /* of equal parts: one convolution of n groups; else one each, of the chunks of what comes in */
};

/* x [rows, n rank] by w [columns, rank] -> [rows, columns]. */
var  tape_adapter_parts(struct tape *t, const struct adapter_parts *of, var x, var w);
/* Zeros of `numel` elements, and x in some of their columns (index_copy_). */
var  tape_spread(struct tape *t, const char *name, var x, int64_t numel, int64_t columns);

/* m x n numbers of a product without a history. */
var  tape_adapter_matrix(struct tape *t, const struct gemm_names *names, int64_t m, int64_t n, int64_t k, enum dtype dt);

/* Backward of the first two. */
void tape_run_adapter(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
