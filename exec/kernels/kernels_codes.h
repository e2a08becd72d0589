/* kernels_codes.h -- blocks of fp16 numbers as symmetric codes, and back: the host's, plain enough to be the reference's too.
 *
 * As DeepSpeed's csrc/quantization has it (tests/golden/collectives/ds_quantizer.py says it in Python): a group whose largest magnitude is
 * m > 0 has codes rint(x * s) of s = 2^bits / 2m, to the nearest even, cut to [-2^(bits-1), 2^(bits-1) - 1], and keeps 1/s; m = 0: s = 1.
 * What is NaN does not count for m and has code 0; an infinite m makes NaN of the whole group.  Two codes of 4 bits are a byte, the
 * first one its upper half. */
#ifndef DPX_KERNELS_CODES_H
#define DPX_KERNELS_CODES_H

#include "exec/kernels/kernels_internal.h"

int codes_quantize(struct kernels *k, const struct quant *q, const void *x, void *codes, float *scales);
int codes_dequantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *x);
int codes_requantize(struct kernels *k, const struct quant *q, const void *codes, const float *scales, void *sum, float *sum_scales);
int codes_mean(struct kernels *k, const struct quant *q, double scale, const void *x, void *y);

#endif
