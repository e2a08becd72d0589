/* tape_packed.h -- linear layers whose frozen weight is kept in 4 or 8 bits, by bitsandbytes 0.50.2 (autograd/_functions.py) and torchao 0.18.
 *
 * NF4 (MatMul4Bit): the whole weight is made in the compute dtype for each product, forward's and that of the input's gradient,
 * and gone after it; with double quantisation its blocks' maxima in fp32 before that, in forward twice (_dequant_linear_fallback:
 * their sum with the mean is another tensor, and both have names until it returns).  Nothing is saved.  bitsandbytes' own kernel
 * for few rows, which computes with codes in forward, is not followed: backward makes the weight all the same.
 *
 * torchao's NF4 (LinearNF4): the same, but PyTorch's own operators make the weight: two int64 indices of half the weights each, two look-ups and two
 * products with repeated scales are live beside the result, 14 bytes a weight; 33 are read and written.
 *
 * int8 (MatMul8bitLt, threshold 6): the input becomes fp16 and codes with an fp32 maximum a row, large values a mask of
 * bytes; the product is of int32, then of fp16, then of the input's dtype.  The input is kept, by the function's own
 * attribute; backward makes the weight in its dtype, of codes times maxima. */
#ifndef DPX_TAPE_PACKED_H
#define DPX_TAPE_PACKED_H

#include "model/arch/transformer.h"
#include "model/program/tape.h"

/* torchao's Int8Tensor as nn.Linear's weight (workflows/int8/int8_tensor.py, linear of whole rows): codes become a tensor of x's dtype, which
 * the product keeps whole for its input's gradient (autograd saves mm's second operand); then one scale a row, in that dtype, times it. */
var  tape_ao_int8_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, bool bias);

/* x[rows, k] W: n columns; x is in the compute dtype, `weight` the tensor of W. */
var  tape_packed_linear(struct tape *t, const struct gemm_names *names, var x, int64_t n, int64_t k, const struct tensor *weight);

/* A weight that torchao's NF4 gives, without history. */
var  tape_nf4_torchao_weight(struct tape *t, int64_t numel, enum dtype dt);

/* Backward of such a node. */
void tape_run_packed(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
