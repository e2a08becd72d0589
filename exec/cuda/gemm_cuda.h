/* gemm_cuda.h -- matrix products of row-major arrays by cuBLASLt, queued on one stream.
 *
 *     struct gemm_cuda *g = gemm_cuda_open(stream, workspace, GEMM_CUDA_WORKSPACE);
 *     gemm_cuda(g, &(struct gemm_cuda_product){ .m = ..., ... });
 *     gemm_cuda_close(g);                  (after what was queued is done)
 *
 * fp32 operands are multiplied as fp32 (not TF32: the host's results are the standard), bf16 and
 * fp16 operands as they are; sums are fp32.  A product is cuBLASLt's D = A B + C + bias in one call,
 * some of whose kernels round A B to the result's dtype before they add; what is beyond fp16 becomes infinite.  What cuBLASLt does not multiply is refused: a
 * and b of two dtypes, and results of 16 bits of operands of another dtype.
 *
 * The algorithm is the first that cuBLASLt's heuristic names for the shape, and kept with it:
 * the first step of a run asks, later ones look it up.  Reductions that depend on the order
 * in which blocks finish are not allowed, so equal calls give equal bits. */
#ifndef DPX_GEMM_CUDA_H
#define DPX_GEMM_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

struct CUstream_st;
struct gemm_cuda;               /* handle, stream, the algorithms of the shapes seen */

/* c[m, n] = a[m, k] b[k, n] + bias[n] + residual[m, n]. */
struct gemm_cuda_product {
    int64_t m, n, k;
    const void *a, *b;
    void   *c;
    enum dtype in, out;         /* of a and b; of c, bias and residual */
    bool    a_turned, b_turned; /* stored as [k, m]; as [n, k] */
    int64_t lda, ldb, ldc;      /* elements between rows as they are stored; residual's is ldc */
    const void *bias;           /* or NULL */
    const void *residual;       /* or NULL; may be c */
};

/* What NVIDIA recommends on Hopper, for reductions in several parts. */
enum { GEMM_CUDA_WORKSPACE = 32 << 20 };

/* The workspace stays the caller's.  NULL with the reason reported. */
struct gemm_cuda *gemm_cuda_open(struct CUstream_st *stream, void *workspace, int64_t bytes);
void gemm_cuda_close(struct gemm_cuda *g);          /* accepts NULL */
void gemm_cuda_name(char *into, size_t size);       /* "cuBLASLt 13.1" */

/* 0 when it is queued, or -1 with the reason reported. */
int gemm_cuda(struct gemm_cuda *g, const struct gemm_cuda_product *p);

/* From now on a shape that is new is timed with each of the heuristic's first 8 algorithms,
 * and the fastest kept.  Waits for the stream, and takes memory for a moment; for calibration
 * and warm-up.  Another run may choose otherwise, and then differs in the last bits. */
void gemm_cuda_tune(struct gemm_cuda *g, bool on);

#endif
