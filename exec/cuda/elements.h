/* elements.h -- launchers of the kernels that go through arrays element by element (elements.cu), and of
 * sums over arrays (sums.cu).
 *
 * Each queues on stream `s` and returns its cudaError_t (0: queued).  Dtypes are DT_FP32, DT_BF16 or DT_FP16,
 * all arithmetic is fp32, and results are rounded once.  Arrays may start at any element: where all
 * of a call's start on a multiple of 16 bytes, threads move 16 bytes at a time.  Nothing is a sum in
 * the order of arrival, so results are equal on every run.
 *
 * Products and sums of elements_copy(), elements_adamw() and dropout are not fused: they are, to the
 * bit, what kernels_simd_body.h computes on the host. */
#ifndef DPX_ELEMENTS_H
#define DPX_ELEMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* struct dropout_rule of kernels_internal.h: element i is dropped where the upper 32 bits of
 * drop_hash(seed, i) are below the limit, the others are multiplied with keep.  limit 0: no dropout. */
struct cuda_drop { uint64_t seed; uint32_t limit; float keep; };

/* struct adamw_rates of kernels_simd.h. */
struct cuda_rates { float decay, keep1, b2, keep2, step_size, root, eps, scale; };

/* struct moment_rates of kernels_simd.h. */
struct cuda_moment { float lr, decay, b1, keep1, b2, keep2, scale; };

/* An array that a sum goes through. */
struct cuda_run { const void *x; int64_t n; };

/* Parameters that AdamW steps; out NULL: only p. */
struct cuda_step { float *p, *m, *v; const void *g; void *out; int64_t n; };

/* Bytes of workspace for the sums below, whatever the sizes. */
enum { ELEMENTS_WORKSPACE = 16384 };

/* product = act(gate) * up; gate NULL: act(up).  act: enum activation.  product may be gate or up. */
int elements_activation(int act, int64_t n, const void *gate, const void *up, void *product, enum dtype at,
                        struct CUstream_st *s);
/* du: gradient of the product on entry, of up on return; dgate: of gate (NULL without). */
int elements_activation_back(int act, int64_t n, const void *gate, const void *up, void *du, void *dgate,
                             enum dtype at, struct CUstream_st *s);

/* dst = scale * src, or dst += scale * src; DT_UINT8 and DT_FP8: dst = src.  They may be the same array if they are of one dtype. */
int elements_copy(int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st, float scale, bool add,
                  struct CUstream_st *s);

/* struct runs of kernels.h: dst = src, or dst += src, run by run. */
struct cuda_runs { int64_t n[2], run, to[2], from[2]; };
int elements_copy_runs(const struct cuda_runs *r, void *dst, enum dtype dt, const void *src, enum dtype st, bool add,
                       struct CUstream_st *s);

/* dx = dropout(dx) */
int elements_dropout(int64_t n, void *dx, enum dtype at, struct cuda_drop d, struct CUstream_st *s);

/* y = residual + dropout(x + bias), what follows a matrix product: [rows, cols], rows of x, residual and
 * y ldx, ldr and ldy apart, the dropout's index row*cols + col.  bias [cols] of dtype wt, or NULL;
 * residual NULL: 0.  y may be x or residual. */
int elements_residual(int64_t rows, int64_t cols, const void *x, int64_t ldx, const void *bias, enum dtype wt,
                      const void *residual, int64_t ldr, void *y, int64_t ldy, enum dtype at,
                      struct cuda_drop d, struct CUstream_st *s);

/* AdamW (kernels.h) of `count` parameters, 48 a launch: g of dtype gt, out of dtype ot. */
int elements_adamw(int count, const struct cuda_step *steps, enum dtype gt, enum dtype ot,
                   struct cuda_rates rates, struct CUstream_st *s);

/* sgd, or Lion (kernels.h), of one array: a->m is its moment, a->v is not read. */
int elements_moment(bool lion, const struct cuda_step *a, enum dtype gt, enum dtype ot, struct cuda_moment rates,
                    struct CUstream_st *s);

/* *sum += over all arrays, in fp64; *sum is device memory.  128 arrays a launch, and a second launch where
 * the first has several blocks.  squares: sum of x^2; sum: of x; not_finite: how many are NaN or Inf. */
int elements_sum_squares(int count, const struct cuda_run *runs, enum dtype t, double *sum, void *workspace,
                         struct CUstream_st *s);
int elements_sum(int count, const struct cuda_run *runs, enum dtype t, double *sum, void *workspace,
                 struct CUstream_st *s);
int elements_not_finite(int count, const struct cuda_run *runs, enum dtype t, double *sum, void *workspace,
                        struct CUstream_st *s);

/* Adds every x^2, of fp32 or bf16, to the limbs of a struct exact_sum (exact_sum.h) in device memory.  Each 128 arrays
 * add less than 2^43 to a limb: 2^20 times that before exact_carry() on the host. */
int elements_exact_squares(int count, const struct cuda_run *runs, enum dtype t, int64_t *limbs,
                           struct CUstream_st *s);

#ifdef __cplusplus
}
#endif
#endif
