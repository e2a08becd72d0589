/* blockwise_code.h -- a number's code in a table (blockwise.h), for the host and for kernels of a device. */
#ifndef DPX_BLOCKWISE_CODE_H
#define DPX_BLOCKWISE_CODE_H

#include <stdint.h>

#ifdef __CUDACC__
#define BLOCKWISE_BOTH static __host__ __device__ inline
#else
#define BLOCKWISE_BOTH static inline
#endif

/* quantize_2D() and dQuantize<0>(): which of 256 values is nearest to x, by seven steps from the middle; halfway it is the one that the
 * search ended at.  NaN: 0.  A sum that is halved cannot be fused: the same bits everywhere. */
BLOCKWISE_BOTH uint8_t blockwise_code(const float *map, float x)
{
    int pivot = 127, upper = 255, lower = 0;

    for (int i = 64; i > 0; i >>= 1) {
        if (x > map[pivot])
            lower = pivot, pivot += i;
        else
            upper = pivot, pivot -= i;
    }
    if (x > map[pivot])
        return (uint8_t)(x > (map[upper] + map[pivot]) * 0.5f ? upper : pivot);
    return (uint8_t)(x < (map[lower] + map[pivot]) * 0.5f ? lower : pivot);
}

#endif
