/* blockwise.h -- numbers as codes of a table, block by block, as bitsandbytes 0.50.2 has them.
 *
 *     8 bits      create_dynamic_map() of functional.py: 256 values in [-1, 1], or (not signed) in [0, 1]; a block of 256 is its
 *                 largest magnitude and the nearest value's index for each number divided by it
 *     NF4         16 values, blocks of 64, two codes a byte, the first in its upper half
 *
 * Codes are those of bitsandbytes' CUDA kernels (csrc/kernels.cu: quantize_2D(), dQuantize(), dQuantizeNF4()), which search the
 * table from its middle and compare with the middle of two values; their approximate division is an exact one here.  On the
 * CPU bitsandbytes rounds to one of 65,536 numbers first, and so has other codes now and then (csrc/cpu_ops.cpp). */
#ifndef DPX_BLOCKWISE_H
#define DPX_BLOCKWISE_H

#include "exec/kernels/kernels_internal.h"

extern const float blockwise_nf4[16];

/* The 256 values, ascending. */
const float *blockwise_map(bool is_signed);

/* The code of x in that table: blockwise_code()'s (blockwise_code.h), by a table of thresholds. */
uint8_t blockwise_code_of(bool is_signed, float x);

/* What a step makes of AdamW's rates. */
struct adamw8_rates { float b1, keep1, b2, keep2, step_size, eps, decay, scale; };
struct adamw8_rates blockwise_rates(const struct adamw *a);

/* kernel_ops' adamw8, pack and unpack, of the host and of the reference: codes are what fp32 in this order makes them. */
int blockwise_adamw8(struct kernels *k, const struct adamw *a, const struct adamw8 *s, const void *g, enum dtype gt, void *out,
                     enum dtype ot);
int blockwise_pack(struct kernels *k, const struct packed_weight *w, const float *x);
int blockwise_unpack(struct kernels *k, const struct packed_weight *w, void *x, enum dtype at);

#endif
