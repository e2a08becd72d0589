/* tape_te_grouped.h -- Transformer Engine's GroupedLinear in 8 bits: one product an expert, and the rows that these ask for.
 *
 * Read at Transformer Engine d0067d0d, pytorch/module/{grouped_linear,fp8_padding}.py: all experts' rows are cast in one kernel, along rows for this
 * product and along columns for the weights' gradients, which alone are kept (or `original`: the rows as they came, which backward casts again); weights are codes already (is_first_microbatch).  Backward casts
 * the rows' gradient both ways, computes the rows' gradient first, and adds weights' gradients to main_grad. */
#ifndef DPX_TAPE_TE_GROUPED_H
#define DPX_TAPE_TE_GROUPED_H

#include "model/program/tape.h"

/* y[rows, n] of x[rows, k], as tape_grouped_fused(), whose products are of f's format.  x's name is the caller's. */
var te_grouped(struct tape *t, const struct gemm_names *names, const struct te_scaled *f, var x, int64_t n, int64_t k, int64_t experts, var w, var b,
               bool original);

/* Fp8Padding, Fp8Unpadding: the same rows among more, or among fewer: a tensor of `numel` elements; back, a copy of x's size. */
var te_pad_rows(struct tape *t, const char *name, var x, int64_t numel);

/* Backward of the nodes that these make. */
void tape_run_te_grouped(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
