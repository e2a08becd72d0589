/* codes.h -- launchers of the quantisers (codes.cu): kernels_codes.h on the device, to the bit but for which NaN a NaN is.
 *
 * Each queues on stream `s` and returns its cudaError_t (0: queued).  Numbers are fp16, their arrays aligned to 4 bytes. */
#ifndef DPX_CUDA_CODES_H
#define DPX_CUDA_CODES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* struct quant of the model's schedule.h. */
struct cuda_quant { int64_t elems, groups; int bits, ranks, nodes; };

int codes_cuda_quantize(struct cuda_quant q, const void *x, void *codes, float *scales, struct CUstream_st *s);
int codes_cuda_dequantize(struct cuda_quant q, const void *codes, const float *scales, void *x, struct CUstream_st *s);
int codes_cuda_requantize(struct cuda_quant q, const void *codes, const float *scales, void *sum, float *sum_scales,
                          struct CUstream_st *s);
int codes_cuda_mean(struct cuda_quant q, float scale, const void *x, void *y, struct CUstream_st *s);

#ifdef __cplusplus
}
#endif
#endif
