/* tape_mamba.h -- mamba_ssm's fused Mamba-2 mixer, mamba_split_conv1d_scan_combined(), on the tape.
 *
 * One autograd Function: a causal convolution of x, B and C (causal_conv1d), the scan in chunks (SSD: "Transformers are SSMs", Dao and Gu 2024),
 * and where the caller hands their weights in, as transformers does, the gated norm and the product that follow it.  It keeps what it was given,
 * the scan's output and a number a row and group; backward convolves again and makes the chunks' states again. */
#ifndef DPX_TAPE_MAMBA_H
#define DPX_TAPE_MAMBA_H

#include "model/program/tape.h"

/* Gate, x, B, C and a time step a head (zxbcdt); what the function reads beside it, 0 where it does not; w_out: of [hidden, inner], under autocast cast
 * to bf16 within. */
struct mamba_inputs { var zxbcdt, conv, conv_bias, dt_bias, a, d, norm, out; };

/* The result: of `hidden` numbers a token, without `out` of the heads'. */
var tape_mamba(struct tape *t, const struct mamba_shape *s, const struct mamba_inputs *in);

void tape_run_mamba(struct tape *t, const struct node *n, int out[TAPE_EDGES], enum dtype got[TAPE_EDGES]);

#endif
