/* columns.h -- the launcher of columns.cu: kernels_columns.h on the device, but for the order of its fp64 sums.
 *
 * It queues on stream `s` and returns its cudaError_t (0: queued). */
#ifndef DPX_CUDA_COLUMNS_H
#define DPX_CUDA_COLUMNS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* a[rows][cols], cols <= rows */
int columns_cuda_orthonormal(int64_t rows, int64_t cols, float *a, struct CUstream_st *s);

#ifdef __cplusplus
}
#endif
#endif
