/* kernels_float8.h -- matrices as 8-bit floats (fp8.h): the host's kernels, plain enough to be the reference's too.
 *
 * As torchao 0.18 has it (hp_tensor_to_float8_dynamic()): the largest magnitude of the matrix, or of each row or column, of which a NaN is the
 * largest; the scale that takes it to the format's largest number; x times the scale in fp32, clamped and rounded. */
#ifndef DPX_KERNELS_FLOAT8_H
#define DPX_KERNELS_FLOAT8_H

#include "exec/kernels/kernels_internal.h"

int float8_amax(struct kernels *k, const struct strided *s, enum float8_by by, const void *x, enum dtype dt, float *amax);
int float8_to_scales(struct kernels *k, enum float8_format f, int64_t n, float *amax, bool powers_of_two);
int float8_cast(struct kernels *k, enum float8_format f, const struct strided *s, enum float8_by by, const void *x, enum dtype dt,
                const float *scale, void *y, enum dtype yt);
int float8_codes(struct kernels *k, int64_t n, const void *x, enum dtype dt, float scale, uint8_t *codes);
int float8_numbers(struct kernels *k, int64_t n, const uint8_t *codes, void *x, enum dtype dt);
int float8_largest(struct kernels *k, int64_t n, const void *x, enum dtype dt, float *most);

#endif
