/* tape_float8.h -- torchao's Float8Linear (0.18, float8/float8_linear.py): matmul_with_hp_or_float8_args.
 *
 * Each operand of its three products is cast from 16 bits, in forward and again in backward: what autograd keeps is the input and the
 * weight as they came.  Operands in memory have to be row-major and column-major (_scaled_mm): backward copies the other kind.
 *
 *     recipe               output                 input's gradient             weight's gradient
 *     tensorwise           x, W a scale each      dy, W a scale each           dy, x a scale each
 *     rowwise              rows of x, of W        rows of dy, columns of W     columns of dy, of x
 *     rowwise_with_gw_hp   rows of x, of W        rows of dy, W one scale      in 16 bits
 *
 * Rowwise products without fast accumulation, backward's, are cuBLAS's with one scale and a pass over the result behind it
 * (float8_ops.py, addmm_float8_unwrapped()).  Bytes of a cast by single operations are what Python makes: |x| and its largest value, x in
 * fp32, times the scale, clamped, in 8 bits.  What inductor's kernels move is torchao's own count (testing/training/roofline_utils.py): a
 * pass for the largest value of a tensor, one that reads again and writes a byte for each order that products need; rowwise the orders
 * by columns go by way of a transposed copy in 16 bits. */
#ifndef DPX_TAPE_FLOAT8_H
#define DPX_TAPE_FLOAT8_H

#include "model/program/tape.h"

/* x[rows, k] W: n columns; w the weight's parameter. */
var  tape_float8_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, var w, const struct float8_layer *how);

/* With tensor parallelism (float8_tensor_parallel.py): x in float8, to be gathered so; x as it is, its gradient cast on the way back. */
var  tape_float8_cast(struct tape *t, var x, const struct float8_layer *how);
var  tape_float8_gradient(struct tape *t, var x, const struct float8_layer *how);

/* The collective made last: what it gathers on the way back is in float8. */
void tape_float8_scattered(struct tape *t, const struct float8_layer *how);

/* Backward of these nodes. */
void tape_run_float8(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
