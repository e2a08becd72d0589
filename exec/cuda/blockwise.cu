/* Numbers as codes of a table (exec/kernels/blockwise.h): AdamW with moments in 8 bits, a block of 256 a block of threads; and
 * frozen weights in NF4.  Products and sums are not fused: to the bit what the host computes. */
#include <math.h>

#include "exec/cuda/optim.h"
#include "exec/cuda/pack.cuh"
#include "exec/kernels/blockwise_code.h"

enum { BLOCK = 256, BLOCK_4 = 64, GRID = 65535 };

struct maps { float of[2][256]; };

static unsigned grid_for(int64_t blocks) { return (unsigned)(blocks < GRID ? blocks : (int64_t)GRID); }

/* A moment before the step. */
DEVICE float old_moment(const uint8_t *code, const float *max, const float *map, int64_t i, bool there)
{
    if (!there)
        return 0;
    return code ? __fmul_rn(map[code[i]], max[i / BLOCK]) : max[i];
}

__global__ void __launch_bounds__(BLOCK) adamw8(const GRID_CONSTANT struct cuda_adamw8 a, const GRID_CONSTANT struct maps m, enum dtype gt,
                                               enum dtype ot)
{
    SHARED float box[32], map1[256], map2[256];

    map1[threadIdx.x] = m.of[0][threadIdx.x];
    map2[threadIdx.x] = m.of[1][threadIdx.x];
    __syncthreads();
    for (int64_t b = blockIdx.x; b * BLOCK < a.n; b += gridDim.x) {
        int64_t i = b * BLOCK + threadIdx.x;
        bool there = i < a.n;
        float g[1] = { 0 }, p[1];
        if (there)
            load_as<1>(gt, a.g, i, 1, g);
        g[0] = __fmul_rn(g[0], a.scale);
        float m1 = __fadd_rn(__fmul_rn(old_moment(a.code1, a.max1, map1, i, there), a.b1), __fmul_rn(a.keep1, g[0]));
        float m2 = __fadd_rn(__fmul_rn(old_moment(a.code2, a.max2, map2, i, there), a.b2), __fmul_rn(__fmul_rn(a.keep2, g[0]), g[0]));
        float max1 = block_max(fabsf(m1), box), max2 = block_max(fabsf(m2), box);
        if (there) {
            p[0] = __fadd_rn(a.p[i], __fmul_rn(a.step_size, m1 / (__fadd_rn(__fsqrt_rn(m2), a.eps))));
            a.p[i] = p[0] = __fmul_rn(p[0], a.decay);
            if (a.out)
                store_as<1>(ot, a.out, i, 1, p);
        }
        if (there && a.code1) {
            uint8_t c = blockwise_code(map1, m1 / max1);
            if (signbit(map1[c]) != signbit(m1))
                c = (uint8_t)(m1 > 0 ? c + 1 : c - 1);
            a.code1[i] = c;
            a.code2[i] = blockwise_code(map2, m2 / max2);
            if (threadIdx.x == 0) {
                a.max1[b] = max1;
                a.max2[b] = max2;
            }
        } else if (there) {
            a.max1[i] = m1;
            a.max2[i] = m2;
        }
        __syncthreads();
    }
}

extern "C" int blockwise_cuda_adamw8(const struct cuda_adamw8 *a, const float *map1, const float *map2, enum dtype gt, enum dtype ot,
                            struct CUstream_st *s)
{
    struct maps m;

    if (a->n == 0)
        return 0;
    memcpy(m.of[0], map1, sizeof m.of[0]);
    memcpy(m.of[1], map2, sizeof m.of[1]);
    LAUNCH(adamw8, grid_for((a->n + BLOCK - 1) / BLOCK), BLOCK, 0, s, *a, m, gt, ot);
    return cuda_launched("adamw in 8 bits");
}

__global__ void __launch_bounds__(BLOCK) unpack(const GRID_CONSTANT struct cuda_packed w, void *x, enum dtype at)
{
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < w.n; i += (int64_t)gridDim.x * BLOCK) {
        int64_t b = i / BLOCK_4;
        float most = w.maxima[w.coded ? b / BLOCK : b];
        if (w.coded)
            most = __fadd_rn(__fmul_rn(w.map[w.coded[b]], most), *w.mean);
        float value[1] = { __fmul_rn(w.values[i % 2 ? w.codes[i / 2] & 15 : w.codes[i / 2] >> 4], most) };
        store_as<1>(at, x, i, 1, value);
    }
}

extern "C" int blockwise_cuda_unpack(const struct cuda_packed *w, void *x, enum dtype at, struct CUstream_st *s)
{
    if (w->n == 0)
        return 0;
    LAUNCH(unpack, grid_for((w->n + BLOCK - 1) / BLOCK), BLOCK, 0, s, *w, x, at);
    return cuda_launched("weights of codes");
}
