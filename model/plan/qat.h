/* qat.h -- quantisation-aware training by torchao's fake quantisation: which linear layers round what they multiply, what they keep, and what
 * that refuses.
 *
 * 8da4w is Int8DynActInt4WeightQATQuantizer (torchao 0.18, quantization/qat/linear.py): each layer rounds its input as if to 8 bits with a
 * scale a token, and its weight as if to 4 with a scale for each group of a row, in every forward.  It takes the place of nn.Linear whose rows
 * are whole groups; torchtune's QATLoRALinear that of layers with adapters alone. */
#ifndef DPX_QAT_H
#define DPX_QAT_H

#include "model/plan/plan.h"

/* Is a tensor the weight of such a layer? */
bool qat_converts(const struct plan *p, const struct tensor *t);

/* Is it a head that a loss in parts calls for each (chunked, linear-chunks)?  Each call's scales stay with its graph then. */
bool qat_in_parts(const struct plan *p, const struct tensor *t);

/* 8da4w-mslk is what axolotl asks for by int8 and int4: the same of inputs, and weights as MSLK's kernels have them (Int4WeightFakeQuantizer), which keep no
 * scales.
 *
 * Scales and zero points, in fp32, which each layer keeps as attributes until its next forward (IntxFakeQuantizer.scale, .zero_point): their
 * number, of the layer's weight and of the tokens that it reads; two tensors of each. */
int64_t qat_weight_scales(const struct plan *p, const struct tensor *t);
int64_t qat_token_scales(const struct plan *p, const struct tensor *t);

/* 0, or -1 with the key named. */
int qat_check(const struct plan *p, const char *where);

#endif
