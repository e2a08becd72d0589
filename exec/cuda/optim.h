/* optim.h -- launchers of optimizers that need more than one element at a time (adafactor.cu, blockwise.cu), and of frozen weights
 * in codes.
 *
 * As elements.h: each queues on stream `s` and returns its cudaError_t; results are equal on every run. */
#ifndef DPX_OPTIM_CUDA_H
#define DPX_OPTIM_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* struct factored of kernels.h, and what a step makes of its rates: w = t^-0.8, lr = min(lr, 1/sqrt(t)), decay = 1 - lr wd. */
struct cuda_factored {
    int64_t rows, cols;
    float *p, *row, *col;
    const void *g;
    void *out;
    float weight, scale, decay;
    double lr;
};
/* workspace: ELEMENTS_WORKSPACE bytes. */
int adafactor_cuda_update(const struct cuda_factored *f, enum dtype gt, enum dtype ot, void *workspace, struct CUstream_st *s);

/* struct adamw8 of kernels.h; map1, map2: tables of 256 values, of the host. */
struct cuda_adamw8 {
    int64_t n;
    float *p, *max1, *max2;
    uint8_t *code1, *code2;
    const void *g;
    void *out;
    float b1, keep1, b2, keep2, step_size, eps, decay, scale;
};
int blockwise_cuda_adamw8(const struct cuda_adamw8 *a, const float *map1, const float *map2, enum dtype gt, enum dtype ot, struct CUstream_st *s);

/* struct packed_weight of kernels.h: its numbers into x[n]. */
struct cuda_packed { int64_t n; const uint8_t *codes, *coded; const float *maxima, *map, *mean, *values; };
int blockwise_cuda_unpack(const struct cuda_packed *w, void *x, enum dtype at, struct CUstream_st *s);

#ifdef __cplusplus
}
#endif
#endif
