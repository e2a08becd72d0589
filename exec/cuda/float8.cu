/* Casts to 8-bit floats.  A block takes a part of a row at a time, whatever the matrix: rows need not lie side by side.
 *
 * The largest magnitude is found among integers: without their signs, floats are in the order of their bits, infinity and NaN above all
 * numbers.  Whichever block comes last, the result is the same. */
#include "exec/cuda/float8.h"
#include "exec/cuda/pack.cuh"
#include "exec/kernels/fp8.h"

enum { THREADS = 256, SPAN = 4 * 8 * THREADS, ROWS = 64, MOST_BLOCKS = 1 << 16 };

/* Parts of SPAN columns in a row. */
static __host__ __device__ int64_t parts_of(int64_t cols) { return (cols + SPAN - 1) / SPAN; }

/* Whether all rows begin where packs of w may. */
static bool rows_take(const struct cuda_strided *m, const void *x, enum dtype dt, int w)
{
    return takes(x, dt, w) && (m->rows == 1 || m->ld % w == 0);
}

/* ---- largest magnitudes ---- */

DEVICE int larger(int a, int b) { return a > b ? a : b; }
DEVICE int magnitude(float x) { return (int)(fp8_bits(x) & 0x7fffffff); }

/* Of all threads of a block; `box` has a place for each warp. */
DEVICE int block_most(int x, int *box)
{
#pragma unroll
    for (int apart = WARP / 2; apart; apart /= 2)
        x = larger(x, __shfl_xor_sync((unsigned)FULL_WARP, x, apart));
    if (lane_of() == 0)
        box[warp_of()] = x;
    __syncthreads();
    for (int i = 0; i < THREADS / WARP; i++)
        x = larger(x, box[i]);
    __syncthreads();
    return x;
}

template <int W, typename T> DEVICE int thread_most(const T *x, int64_t n)
{
    int most = 0;

    for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += THREADS * W) {
        float v[W];
        load<W>(x + i, n - i, v);
#pragma unroll
        for (int j = 0; j < W; j++)
            most = larger(most, magnitude(v[j]));
    }
    return most;
}

/* EACH: one for each row. */
template <typename T, int W, bool EACH>
__global__ void __launch_bounds__(THREADS) most_of_rows(struct cuda_strided m, const T *x, int *amax)
{
    SHARED int box[THREADS / WARP];
    int64_t parts = parts_of(m.cols);
    int most = 0;

    for (int64_t u = blockIdx.x; u < m.rows * parts; u += gridDim.x) {
        int64_t r = u / parts, c = u % parts * SPAN;
        int here = thread_most<W>(x + r * m.ld + c, m.cols - c < SPAN ? m.cols - c : SPAN);
        if constexpr (EACH) {
            here = block_most(here, box);
            if (threadIdx.x == 0)
                atomicMax(amax + r, here);
        } else {
            most = larger(most, here);
        }
    }
    if constexpr (!EACH) {
        most = block_most(most, box);
        if (threadIdx.x == 0)
            atomicMax(amax, most);
    }
}

/* A thread goes down a column, ROWS rows at a time. */
template <typename T> __global__ void __launch_bounds__(THREADS) most_of_columns(struct cuda_strided m, const T *x, int *amax)
{
    int64_t strips = (m.cols + THREADS - 1) / THREADS;

    for (int64_t u = blockIdx.x; u < strips * ((m.rows + ROWS - 1) / ROWS); u += gridDim.x) {
        int64_t c = u % strips * THREADS + threadIdx.x, r = u / strips * ROWS;
        int most = 0;
        for (int64_t i = r; c < m.cols && i < m.rows && i < r + ROWS; i++)
            most = larger(most, magnitude(get(x + i * m.ld + c)));
        if (c < m.cols)
            atomicMax(amax + c, most);
    }
}

template <typename T, int W> static int amax_by(const struct cuda_strided &m, enum float8_by by, const void *x, int *amax, cudaStream_t s)
{
    unsigned blocks = blocks_for(m.rows * parts_of(m.cols), 1, MOST_BLOCKS);
    unsigned strips = blocks_for((m.cols + THREADS - 1) / THREADS * ((m.rows + ROWS - 1) / ROWS), 1, MOST_BLOCKS);

    if (by == FLOAT8_BY_ROWS)
        LAUNCH((most_of_rows<T, W, true>), blocks, THREADS, 0, s, m, (const T *)x, amax);
    else if (by == FLOAT8_BY_COLUMNS)
        LAUNCH((most_of_columns<T>), strips, THREADS, 0, s, m, (const T *)x, amax);
    else
        LAUNCH((most_of_rows<T, W, false>), blocks, THREADS, 0, s, m, (const T *)x, amax);
    return cuda_launched("largest magnitudes");
}

extern "C" int float8_cuda_amax(const struct cuda_strided *m, enum float8_by by, const void *x, enum dtype dt, float *amax, bool add,
                                struct CUstream_st *s)
{
    size_t n = (size_t)float8_scales(by, m->rows, m->cols);
    int rc = add ? 0 : (int)cudaMemsetAsync(amax, 0, n * sizeof *amax, s);

    if (rc || m->rows <= 0 || m->cols <= 0)
        return rc;
    return BY_PACK(dt, rows_take(m, x, dt, dt == DT_FP32 ? 4 : 8), amax_by, *m, by, x, (int *)amax, s);
}

__global__ void __launch_bounds__(THREADS) to_scales(struct fp8_kind t, int64_t n, float *amax, bool powers_of_two)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        amax[i] = fp8_scale(&t, amax[i], powers_of_two);
}

extern "C" int float8_cuda_scales(bool e5m2, int64_t n, float *amax, bool powers_of_two, struct CUstream_st *s)
{
    if (n <= 0)
        return 0;
    LAUNCH(to_scales, blocks_for(n, THREADS, MOST_BLOCKS), THREADS, 0, s, e5m2 ? fp8_e5m2 : fp8_e4m3, n, amax, powers_of_two);
    return cuda_launched("scales");
}

/* ---- casts ---- */

struct cast {
    struct cuda_strided m;
    struct fp8_kind t;
    enum float8_by by;
    const float *scale;
    float one;
    void *y;
    enum dtype yt;
};

DEVICE float scale_of(const struct cast &c, int64_t row, int64_t col)
{
    return !c.scale ? c.one : c.scale[c.by == FLOAT8_BY_ROWS ? row : c.by == FLOAT8_BY_COLUMNS ? col : 0];
}

/* W codes side by side; W > 1: from a multiple of W bytes on. */
template <int W> DEVICE void store_codes(uint8_t *to, const uint8_t (&code)[W])
{
    if constexpr (W == 1) {
        *to = code[0];
    } else {
        uint32_t word[W / 4];
        memcpy(word, code, sizeof word);
#pragma unroll
        for (int i = 0; i < W / 4; i++)
            ((uint32_t *)to)[i] = word[i];
    }
}

/* W > 1: a multiple of W columns. */
template <int W> DEVICE void cast_pack(const struct cast &c, int64_t row, int64_t col, float (&v)[W])
{
    uint8_t code[W];
    int64_t to = row * c.m.cols + col;

#pragma unroll
    for (int j = 0; j < W; j++)
        code[j] = fp8_saturated(&c.t, __fmul_rn(v[j], scale_of(c, row, col + j)));
    if (c.yt == DT_FP8) {
        store_codes<W>((uint8_t *)c.y + to, code);
        return;
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        v[j] = fp8_decode(&c.t, code[j]);
    store_as<W>(c.yt, c.y, to, W, v);
}

template <typename T, int W> __global__ void __launch_bounds__(THREADS) cast_rows(const GRID_CONSTANT struct cast c, const T *x)
{
    int64_t parts = parts_of(c.m.cols);

    for (int64_t u = blockIdx.x; u < c.m.rows * parts; u += gridDim.x) {
        int64_t r = u / parts, from = u % parts * SPAN, end = c.m.cols - from < SPAN ? c.m.cols : from + SPAN;
        for (int64_t i = from + (int64_t)threadIdx.x * W; i < end; i += THREADS * W) {
            float v[W];
            load<W>(x + r * c.m.ld + i, v);
            cast_pack<W>(c, r, i, v);
        }
    }
}

template <typename T, int W> static int cast_by(const struct cast &c, const void *x, cudaStream_t s)
{
    LAUNCH((cast_rows<T, W>), blocks_for(c.m.rows * parts_of(c.m.cols), 1, MOST_BLOCKS), THREADS, 0, s, c, (const T *)x);
    return cuda_launched("cast to 8-bit floats");
}

extern "C" int float8_cuda_cast(bool e5m2, const struct cuda_strided *m, enum float8_by by, const void *x, enum dtype dt, const float *scale,
                                float one, void *y, enum dtype yt, struct CUstream_st *s)
{
    struct cast c = { *m, e5m2 ? fp8_e5m2 : fp8_e4m3, by, scale, one, y, yt };
    int w = dt == DT_FP32 ? 4 : 8;
    bool wide = m->cols % w == 0 && rows_take(m, x, dt, w) && (yt == DT_FP8 ? (uintptr_t)y % (uintptr_t)w == 0 : takes(y, yt, w));

    return m->rows <= 0 || m->cols <= 0 ? 0 : BY_PACK(dt, wide, cast_by, c, x, s);
}

__global__ void __launch_bounds__(THREADS) numbers_of(struct fp8_kind t, int64_t n, const uint8_t *codes, void *x, enum dtype dt)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        float v[1] = { fp8_decode(&t, codes[i]) };
        store_as<1>(dt, x, i, 1, v);
    }
}

extern "C" int float8_cuda_numbers(int64_t n, const uint8_t *codes, void *x, enum dtype dt, struct CUstream_st *s)
{
    if (n <= 0)
        return 0;
    LAUNCH(numbers_of, blocks_for(n, THREADS, MOST_BLOCKS), THREADS, 0, s, fp8_e4m3, n, codes, x, dt);
    return cuda_launched("numbers of 8-bit floats");
}

/* ---- what follows a product ---- */

/* A block has a row.  Reciprocals first, as scales_apply() of kernels_internal.h. */
__global__ void __launch_bounds__(THREADS) scale_rows(const GRID_CONSTANT struct cuda_scaled p, int64_t first, int64_t rows, const float *sums)
{
    for (int64_t i = blockIdx.x; i < rows; i += gridDim.x) {
        int64_t r = first + i;
        float a = 1 / p.a[p.each_a ? r : 0];
        for (int64_t c = threadIdx.x; c < p.cols; c += THREADS) {
            float x[1] = { __fmul_rn(sums[i * p.cols + c], __fmul_rn(a, 1 / p.b[p.each_b ? c : 0])) }, more[1];
            if (p.bias) {
                load_as<1>(p.wt, p.bias, c, 1, more);
                x[0] += more[0];
            }
            if (p.drop.limit)
                x[0] = dropped(p.drop, r * p.cols + c, x[0]);
            if (p.residual) {
                load_as<1>(p.yt, p.residual, r * p.ldy + c, 1, more);
                x[0] += more[0];
            }
            store_as<1>(p.yt, p.y, r * p.ldy + c, 1, x);
        }
    }
}

extern "C" int float8_cuda_scaled(const struct cuda_scaled *p, int64_t first, int64_t rows, const float *sums, struct CUstream_st *s)
{
    if (rows <= 0 || p->cols <= 0)
        return 0;
    LAUNCH(scale_rows, blocks_for(rows, 1, MOST_BLOCKS), THREADS, 0, s, *p, first, rows, sums);
    return cuda_launched("scales of a product");
}
