/* tape_liger.h -- Liger-Kernel's autograd Functions of blocks on the tape (liger_kernel/ops of 0.8.5): one Triton kernel each way. */
#ifndef DPX_TAPE_LIGER_H
#define DPX_TAPE_LIGER_H

#include "model/program/tape_internal.h"

/* LigerRMSNormFunction of `rows` rows: keeps x, the weight and 1/rms (fp32) of each row; the result has x's dtype.  Backward adds up the
 * weight's gradient in a row of fp32 for each of `sms` processors; `in_place`: it writes x's over the gradient that it reads. */
var  op_liger_norm(struct tape *t, const char *name, var x, int64_t rows, var w, int64_t sms, bool in_place);
/* LigerSiLUMulFunction, LigerGELUMulFunction: keeps gate and up alone (`copies`: they lie in one tensor, and contiguous copies of both are
 * kept), over which backward writes their gradients. */
var  op_liger_glu(struct tape *t, const char *name, var gate, var up, bool copies);
/* LigerRopeFunction: x[0], x[1] are rotated where they lie (`copies`: in contiguous copies); their gradients likewise (`copies_back`). */
void op_liger_rope(struct tape *t, const char *name, var *const x[2], var cos, var sin, bool copies, bool copies_back);

void tape_run_liger(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
