/* attention_fp32.cuh -- products of tiles of fp32 without tensor cores, as attention_fp32.cu and attention_part.cu have them: a block of
 * 16 x 16 threads, of which thread (y, x) has R rows and the columns x, x + 16, ... of scores. */
#ifndef DPX_CUDA_ATTENTION_FP32_CUH
#define DPX_CUDA_ATTENTION_FP32_CUH

#include "exec/cuda/attention_internal.cuh"

enum { THREADS = 256 };

/* Rows and columns that a thread has. */
template <int DIM, int TILE> struct part {
    static constexpr int R = TILE / 16, C = DIM / 64, PITCH = tile<float, DIM>::PITCH, SCORES = TILE + 4;
};

/* s = x y^T: rows of tiles x and y. */
template <int DIM, int R>
DEVICE void dots(const attn &a, float (&s)[R][R], const float *x, const float *y)
{
    constexpr int PITCH = tile<float, DIM>::PITCH;
    int row = (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;

#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++)
            s[i][j] = 0;
#pragma unroll 2
    for (int d = 0; d < a.dim; d += 4) {
        float4 u[R], v[R];
#pragma unroll
        for (int i = 0; i < R; i++) {
            u[i] = *(const float4 *)(x + (row + i) * PITCH + d);
            v[i] = *(const float4 *)(y + (col + 16 * i) * PITCH + d);
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++)
                s[i][j] = fmaf(u[i].w, v[j].w, fmaf(u[i].z, v[j].z,
                          fmaf(u[i].y, v[j].y, fmaf(u[i].x, v[j].x, s[i][j]))));
    }
}

/* out += s y, s first written to `room` [TILE][TILE + 4]. */
template <int DIM, int R, int C>
DEVICE void add_product(float (&out)[R][C][4], const float (&s)[R][R], const float *y, float *room)
{
    constexpr int PITCH = tile<float, DIM>::PITCH, TILE = 16 * R, SCORES = part<DIM, TILE>::SCORES;
    int row = (int)threadIdx.x / 16 * R, col = (int)threadIdx.x % 16;

    __syncwarp();                       /* what was there is no longer read */
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++)
            room[(row + i) * SCORES + col + 16 * j] = s[i][j];
    __syncwarp();
#pragma unroll 4
    for (int u = 0; u < TILE; u++) {
        float w[R];
#pragma unroll
        for (int i = 0; i < R; i++)
            w[i] = room[(row + i) * SCORES + u];
#pragma unroll
        for (int c = 0; c < C; c++) {
            float4 v = *(const float4 *)(y + u * PITCH + c * 64 + col * 4);
#pragma unroll
            for (int i = 0; i < R; i++) {
                out[i][c][0] = fmaf(w[i], v.x, out[i][c][0]);
                out[i][c][1] = fmaf(w[i], v.y, out[i][c][1]);
                out[i][c][2] = fmaf(w[i], v.z, out[i][c][2]);
                out[i][c][3] = fmaf(w[i], v.w, out[i][c][3]);
            }
        }
    }
}

template <int R, int C> DEVICE void clear(float (&x)[R][C][4])
{
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int c = 0; c < C; c++)
            x[i][c][0] = x[i][c][1] = x[i][c][2] = x[i][c][3] = 0;
}

/* Over the 16 threads of a row. */
DEVICE float row_most(float x)
{
#pragma unroll
    for (int apart = 8; apart; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, apart));
    return x;
}

DEVICE float row_sum(float x)
{
#pragma unroll
    for (int apart = 8; apart; apart /= 2)
        x += __shfl_xor_sync(0xffffffff, x, apart);
    return x;
}

#endif
