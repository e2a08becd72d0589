/* attention_mma.cuh -- products of tiles of bf16 or fp16 (H) on tensor cores, as attention in both
 * directions has them.
 *
 * A warp owns 16 or 32 rows.  What a product of tiles leaves in its registers is, rounded to H,
 * what mma.sync takes on the left of the next: scores never go to memory. */
#ifndef DPX_CUDA_ATTENTION_MMA_CUH
#define DPX_CUDA_ATTENTION_MMA_CUH

#include "exec/cuda/attention_internal.cuh"

/* ---- fragments of mma.sync.m16n8k16 ----
 *
 * Of a 16 x 8 result a lane holds rows lane/4 (elements 0, 1) and lane/4 + 8 (2, 3), columns
 * lane%4 * 2 and the next. */

struct lane {
    int id, row, col;

    __device__ __forceinline__ lane() : id(lane_of()), row(id / 4), col(id % 4 * 2) { }
};

/* Where a lane points ldmatrix for 16 x 16: as the left operand, or (transposed while loading)
 * as a right one whose rows are the sum's index; and as a right one whose rows are columns of the
 * result. */
template <int DIM> DEVICE int left_at(const lane &l)
{
    return (l.id & 15) * tile<uint16_t, DIM>::PITCH + (l.id >> 4) * 8;
}

template <int DIM> DEVICE int right_at(const lane &l)
{
    return ((l.id & 7) + (l.id >> 4) * 8) * tile<uint16_t, DIM>::PITCH + (l.id >> 3 & 1) * 8;
}

template <int ROWS, int COLS> DEVICE void clear(float (&x)[ROWS][COLS][4])
{
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int n = 0; n < COLS; n++)
            x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = 0;
}

/* s[16 ROWS][8 COLS] = x y^T, over DIM: x, y tiles from the first row wanted. */
template <int DIM, int ROWS, int COLS, class H>
DEVICE void dots(const lane &l, float (&s)[ROWS][COLS][4], const H *x, const H *y)
{
    constexpr int PITCH = tile<H, DIM>::PITCH;

    x += left_at<DIM>(l);
    y += right_at<DIM>(l);
    clear(s);
#pragma unroll
    for (int k = 0; k < DIM; k += 16) {
        uint32_t left[ROWS][4];
#pragma unroll
        for (int m = 0; m < ROWS; m++)
            ldmatrix_x4(left[m], x + m * 16 * PITCH + k);
#pragma unroll
        for (int n = 0; n < COLS; n += 2) {
            uint32_t right[4];
            ldmatrix_x4(right, y + n * 8 * PITCH + k);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                mma_16816<H>(s[m][n], left[m], right);
                mma_16816<H>(s[m][n + 1], left[m], right + 2);
            }
        }
    }
}

/* out[16 ROWS][OUT] += s y: s's columns are y's rows; OUT columns of y from where it points. */
template <int DIM, int OUT, int ROWS, int COLS, class H>
DEVICE void add_product(const lane &l, float (&out)[ROWS][OUT / 8][4], const float (&s)[ROWS][COLS][4],
                        const H *y)
{
    constexpr int PITCH = tile<H, DIM>::PITCH;
    uint32_t left[ROWS][COLS / 2][4];

    y += left_at<DIM>(l);
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int n = 0; n < COLS / 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = s[m][2 * n + i / 2] + i % 2 * 2;
                left[m][n][i] = floats_to_pair<H>(pair[0], pair[1]);
            }
#pragma unroll
    for (int n = 0; n < COLS / 2; n++)
#pragma unroll
        for (int d = 0; d < OUT / 8; d += 2) {
            uint32_t right[4];
            ldmatrix_x4_trans(right, y + n * 16 * PITCH + d * 8);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                mma_16816<H>(out[m][d], left[m][n], right);
                mma_16816<H>(out[m][d + 1], left[m][n], right + 2);
            }
        }
}

/* Row i * 8 + lane/4 of m's 16, times one factor for all or one a row. */
DEVICE float factor_of(float factor, int, int) { return factor; }

template <int ROWS> DEVICE float factor_of(const float (&factor)[ROWS][2], int m, int i)
{
    return factor[m][i];
}

/* factor * out, OUT columns of it, into `rows` rows at `to`, `pitch` apart, of which `width`
 * elements are wanted: through `room`, rows of a tile that only this warp uses. */
template <int DIM, int OUT, int ROWS, class F, class H>
DEVICE void store_rows(const attn &a, const lane &l, const float (&out)[ROWS][OUT / 8][4], const F &factor,
                       H *room, H *to, int pitch, int rows, int width)
{
    constexpr int PITCH = tile<H, DIM>::PITCH, PIECES = OUT / 8;

    __syncwarp();                       /* none of its lanes still reads there */
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
        for (int d = 0; d < OUT / 8; d++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float f = factor_of(factor, m, i);
                *(uint32_t *)(room + (m * 16 + l.row + i * 8) * PITCH + d * 8 + l.col) =
                    floats_to_pair<H>(f * out[m][d][2 * i], f * out[m][d][2 * i + 1]);
            }
    __syncwarp();
    for (int i = l.id; i < 16 * ROWS * PIECES; i += WARP) {
        int r = i / PIECES, c = i % PIECES * 8;
        if (r >= rows || c >= width)
            continue;
        if (a.wide)
            store_raw16(to + r * pitch + c, load_raw16(room + r * PITCH + c));
        else
            for (int j = 0; j < 8 && c + j < width; j++)
                to[r * pitch + c + j] = room[r * PITCH + c + j];
    }
}

#endif
