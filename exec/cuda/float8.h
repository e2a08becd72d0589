/* float8.h -- launchers of the casts to 8-bit floats (float8.cu): kernels_float8.h on the device, bit for bit, except that NaNs may differ in theirs.
 *
 * Each queues on stream `s` and returns its cudaError_t (0: queued).  Numbers are fp32, bf16 or fp16; formats are fp8.h's. */
#ifndef DPX_CUDA_FLOAT8_H
#define DPX_CUDA_FLOAT8_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/cuda/elements.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* struct strided of kernels.h. */
struct cuda_strided { int64_t rows, cols, ld; };

/* Largest magnitudes by `by`; add: of those that are there, too. */
int float8_cuda_amax(const struct cuda_strided *m, enum float8_by by, const void *x, enum dtype dt, float *amax, bool add,
                     struct CUstream_st *s);
/* n largest magnitudes become scales. */
int float8_cuda_scales(bool e5m2, int64_t n, float *amax, bool powers_of_two, struct CUstream_st *s);
/* Codes (yt DT_FP8) or numbers; scale: by `by`, in device memory; NULL: `one`. */
int float8_cuda_cast(bool e5m2, const struct cuda_strided *m, enum float8_by by, const void *x, enum dtype dt, const float *scale, float one,
                     void *y, enum dtype yt, struct CUstream_st *s);
/* What e4m3 codes stand for. */
int float8_cuda_numbers(int64_t n, const uint8_t *codes, void *x, enum dtype dt, struct CUstream_st *s);

/* What becomes of a product's sums where its operands were rounded (struct scales of kernels.h): y = dropout(sum / scales + bias) + residual,
 * rounded once.  Rows of y and of the residual, of dtype yt, are ldy apart; bias, of dtype wt, and residual may be NULL; residual may be y. */
struct cuda_scaled {
    int64_t cols, ldy;
    const float *a, *b;
    bool each_a, each_b;
    const void *bias, *residual;
    void *y;
    enum dtype wt, yt;
    struct cuda_drop drop;
};
/* Of rows [first, first + rows), whose sums these are. */
int float8_cuda_scaled(const struct cuda_scaled *p, int64_t first, int64_t rows, const float *sums, struct CUstream_st *s);

#ifdef __cplusplus
}
#endif
#endif
