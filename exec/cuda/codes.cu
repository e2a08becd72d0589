/* Quantisers: a block takes a group, first for its largest magnitude, then for its codes, which are read again from where they were
 * (a group is at most 32 KiB, which the caches hold). */
#include "exec/cuda/codes.h"
#include "exec/cuda/pack.cuh"

#include <math.h>

enum { THREADS = 256, MOST_BLOCKS = 1 << 20 };

/* ---- numbers of a group ---- */

/* As they are in memory. */
struct stored {
    const fp16 *x;
    __device__ float operator()(int64_t j) const { return get(x + j); }
};

/* Code j of `codes`, times the scale of its group: fp32. */
DEVICE float decoded(const uint8_t *codes, int64_t j, int bits, float scale)
{
    int code = bits == 8 ? (int8_t)codes[j] : (int8_t)(j % 2 ? codes[j / 2] << 4 : codes[j / 2] & 0xf0) >> 4;

    return __fmul_rn((float)code, scale);
}

DEVICE float rounded(float x) { return fp16_to_float(float_to_fp16(x)); }

/* The sum of q.ranks arrays of codes, fp16 after each. */
struct summed {
    struct cuda_quant q;
    const uint8_t *codes;
    const float   *scales;
    int64_t        first, group;
    __device__ float operator()(int64_t j) const
    {
        float at = 0;

        for (int r = 0; r < q.ranks; r++) {
            const uint8_t *from = codes + r * q.elems * q.bits / 8;
            at = rounded(at + rounded(decoded(from, first + j, q.bits, scales[r * q.groups + group])));
        }
        return at;
    }
};

/* ---- to codes ---- */

/* Round to nearest even; NaN: 0. */
DEVICE int code_of(float x, float scale, int bits)
{
    float v = __fmul_rn(x, scale), low = (float)-(1 << (bits - 1)), high = (float)((1 << (bits - 1)) - 1);

    return v != v ? 0 : (int)rintf(v < low ? low : v > high ? high : v);
}

/* The n numbers of a group, by all threads of a block. */
template <typename X> DEVICE void encode(const X &x, int64_t n, int bits, uint8_t *codes, float *kept)
{
    SHARED float buffer[32];
    float most = -INFINITY;

    for (int64_t j = threadIdx.x; j < n; j += THREADS)
        most = fmaxf(most, fabsf(x(j)));        /* of a number and a NaN the number */
    most = block_max(most, buffer);
    float scale = most == 0 ? 1 : (float)(1 << bits) / (2 * most);
    if (threadIdx.x == 0)
        *kept = 1 / scale;
    if (bits == 8)
        for (int64_t j = threadIdx.x; j < n; j += THREADS)
            codes[j] = (uint8_t)code_of(x(j), scale, 8);
    else
        for (int64_t j = 2 * (int64_t)threadIdx.x; j + 1 < n; j += 2 * THREADS)
            codes[j / 2] = (uint8_t)(code_of(x(j), scale, 4) << 4 | (code_of(x(j + 1), scale, 4) & 15));
}

/* Where group i goes: with its part (struct quant). */
DEVICE int64_t place_of(const struct cuda_quant &q, int64_t i)
{
    int64_t parts = (int64_t)q.ranks * q.nodes, each = q.groups / parts, part = i / each;

    return (part % q.ranks * q.nodes + part / q.ranks) * each + i % each;
}

__global__ void __launch_bounds__(THREADS) quantize_groups(struct cuda_quant q, const fp16 *x, uint8_t *codes, float *scales)
{
    int64_t n = q.elems / q.groups;

    for (int64_t i = blockIdx.x; i < q.groups; i += gridDim.x) {
        int64_t to = place_of(q, i);
        encode(stored{ x + i * n }, n, q.bits, codes + to * n * q.bits / 8, scales + to);
    }
}

__global__ void __launch_bounds__(THREADS) requantize_groups(struct cuda_quant q, const uint8_t *codes, const float *scales, uint8_t *sum,
                                                             float *sum_scales)
{
    int64_t n = q.elems / q.groups;

    for (int64_t i = blockIdx.x; i < q.groups; i += gridDim.x)
        encode(summed{ q, codes, scales, i * n, i }, n, q.bits, sum + i * n * q.bits / 8, sum_scales + i);
}

/* ---- from codes ---- */

__global__ void __launch_bounds__(THREADS) dequantize_groups(struct cuda_quant q, const uint8_t *codes, const float *scales, fp16 *x)
{
    int64_t n = q.elems / q.groups;

    for (int64_t i = blockIdx.x; i < q.groups; i += gridDim.x)
        for (int64_t j = threadIdx.x; j < n; j += THREADS)
            put(x + i * n + j, decoded(codes, i * n + j, q.bits, scales[i]));
}

__global__ void __launch_bounds__(THREADS) mean_of_nodes(struct cuda_quant q, float scale, const fp16 *x, fp16 *y)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < q.elems; i += (int64_t)gridDim.x * THREADS) {
        float sum = 0;
        for (int m = 0; m < q.nodes; m++)
            sum = rounded(sum + get(x + m * q.elems + i));
        put(y + i, __fmul_rn(sum, scale));
    }
}

/* ---- launchers ---- */

extern "C" int codes_cuda_quantize(struct cuda_quant q, const void *x, void *codes, float *scales, struct CUstream_st *s)
{
    LAUNCH(quantize_groups, blocks_for(q.groups, 1, MOST_BLOCKS), THREADS, 0, s, q, (const fp16 *)x, (uint8_t *)codes, scales);
    return cuda_launched("quantise");
}

extern "C" int codes_cuda_dequantize(struct cuda_quant q, const void *codes, const float *scales, void *x, struct CUstream_st *s)
{
    LAUNCH(dequantize_groups, blocks_for(q.groups, 1, MOST_BLOCKS), THREADS, 0, s, q, (const uint8_t *)codes, scales, (fp16 *)x);
    return cuda_launched("dequantise");
}

extern "C" int codes_cuda_requantize(struct cuda_quant q, const void *codes, const float *scales, void *sum, float *sum_scales,
                                     struct CUstream_st *s)
{
    LAUNCH(requantize_groups, blocks_for(q.groups, 1, MOST_BLOCKS), THREADS, 0, s, q, (const uint8_t *)codes, scales, (uint8_t *)sum,
           sum_scales);
    return cuda_launched("requantise");
}

extern "C" int codes_cuda_mean(struct cuda_quant q, float scale, const void *x, void *y, struct CUstream_st *s)
{
    LAUNCH(mean_of_nodes, blocks_for(q.elems, THREADS, MOST_BLOCKS), THREADS, 0, s, q, scale, (const fp16 *)x, (fp16 *)y);
    return cuda_launched("mean");
}
