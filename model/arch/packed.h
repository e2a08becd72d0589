/* packed.h -- frozen weights in 4 or 8 bits: what a layer keeps of them.
 *
 *     int64_t bytes[PACKED_PARTS];
 *     int n = packed_parts(&tensor, bytes);       ... the allocations, none where the tensor is as it is
 *
 * bitsandbytes 0.50.2 (functional.py: quantize_4bit(), quantize_blockwise(); nn/modules.py: Linear4bit, Linear8bitLt):
 *
 *     NF4             two codes a byte, blocks of 64 with an fp32 maximum each, a table of 16 codes of its own
 *     NF4, double     the maxima less their mean in 8 bits, in blocks of 256 with an fp32 maximum each; the mean; a table of
 *                     256 codes more
 *     int8            a code a byte, an fp32 maximum a row
 *
 * torchao 0.18 (quantization/quantize_/workflows/int8/int8_tensor.py: Int8Tensor.from_hp() of Int8WeightOnlyConfig):
 *
 *     int8-torchao    a code a byte, an fp32 scale and a zero point of a byte a row
 *
 * and of Int4WeightOnlyConfig (workflows/int4), groups of 128 along a row; a weight whose rows do not divide so stays as it is:
 *
 *     int4-torchao    packing "plain", the default: two codes a byte, a scale and a zero point of 16 bits a group
 *     int4-torchao-tiled    "tile_packed_to_4d": the same of rows made 1024 k long, of 8 k rows
 *
 * torchao's NF4 (workflows/nf4/nf4_tensor.py: to_nf4()), of a weight in 16 bits, as torchtune's QLoRA has it:
 *
 *     nf4-torchao     two codes a byte; blocks of 64 with the maximum less their mean in 8 bits; a factor of 16 bits for 256 of these; the mean and a
 *                     table of 16 codes in 16 bits.  FSDP2 cuts all but the last two (_INNER_TENSOR_NAMES_FOR_SHARDING)
 *
 * In bitsandbytes' layers biases are cast at the first forward, and stay so: Linear4bit's to the compute dtype, Linear8bitLt's to its input's
 * (lower_kept_parts()). */
#ifndef DPX_PACKED_H
#define DPX_PACKED_H

#include "model/arch/transformer.h"

/* Most allocations of one tensor. */
enum { PACKED_PARTS = 6 };

/* Bytes of each allocation that keeps the tensor, 2 bytes an element of a bias; returns how many there are, 0: the tensor
 * is not packed. */
int packed_parts(const struct tensor *t, int64_t bytes[PACKED_PARTS]);

/* Bytes of the codes alone: what a module's parameter is to those who move parameters. */
int64_t packed_codes(const struct tensor *t);

/* Bytes that FSDP cuts and gathers: the codes, and of torchao's NF4 what its blocks have beside them; the first of packed_parts() that is whole on
 * every rank. */
int64_t packed_sharded(const struct tensor *t);
int     packed_whole_from(enum base_dtype base);

/* NF4 of either library. */
bool packed_nf4(enum base_dtype base);

/* Bytes of the maxima in fp32, which a layer with double quantisation makes each time; 0 where they are kept. */
int64_t packed_maxima(const struct tensor *t);

/* Bytes of all weights that the model packs, if they were kept so; 16 bits an element of those that such a base leaves as they are. */
int64_t packed_weights(const struct model *m, enum base_dtype base);

#endif
