/* Sums of columns. */
#include "exec/cuda/rows_internal.cuh"

/* ---- partial sums of columns ---- */

/* sums[c] = (+=) parts[0][c] + parts[1][c] + ...: 32 columns a block, and 32 threads a column. */
__global__ void __launch_bounds__(1024) add_parts(int count, int64_t cols, const float *parts, void *sums,
                                                         enum dtype gt, bool add, bool narrows)
{
    SHARED float box[32 * 33];
    int x = (int)threadIdx.x % 32, y = (int)threadIdx.x / 32;
    int64_t c = (int64_t)blockIdx.x * 32 + x;
    float sum = 0;

    for (int p = y; p < count && c < cols; p += 32)
        sum += parts[p * cols + c];
    box[y * 33 + x] = sum;
    __syncthreads();
    if (y == 0 && c < cols) {
        for (int i = 1; i < 32; i++)
            sum += box[i * 33 + x];
        float x[1] = { 0 };
        if (add)
            load_as<1>(gt, sums, c, 1, x);
        x[0] += narrows ? fp16_to_float(float_to_fp16(sum)) : sum;
        store_as<1>(gt, sums, c, 1, x);
    }
}

int rows_add_parts(int count, int64_t cols, const float *parts, void *sums, enum dtype gt, bool add, bool narrows,
                   cudaStream_t s)
{
    LAUNCH(add_parts, (unsigned)((cols + 31) / 32), 1024, 0, s, count, cols, parts, sums, gt, add, narrows);
    return cuda_launched("sums of columns");
}

/* Blocks of 8 warps: a warp has 32 packs of a row, a block `span` rows of those columns. */
template <typename T, int W>
__global__ void __launch_bounds__(256) sum_columns(int64_t n, int64_t cols, const T *x, int64_t ld,
                                                   int64_t span, int tiles, float *parts)
{
    SHARED float box[8 * 32 * W];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t tile = blockIdx.x % tiles, part = blockIdx.x / tiles, c = (tile * 32 + lane) * W;
    int64_t from = part * span, to = from + span < n ? from + span : n;
    float sum[W] = { 0 };

    if (c < cols) {
#pragma unroll 4
        for (int64_t r = from + warp; r < to; r += 8) {
            float v[W];
            load<W>(x + r * ld + c, v);
#pragma unroll
            for (int j = 0; j < W; j++)
                sum[j] += v[j];
        }
    }
#pragma unroll
    for (int j = 0; j < W; j++)
        box[(warp * W + j) * 32 + lane] = sum[j];       /* lanes side by side: no bank twice */
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 32 * W; i += 256) {
        int64_t at = (tile * 32 + i % 32) * W + i / 32;
        float total = 0;
        for (int y = 0; y < 8; y++)
            total += box[y * W * 32 + i];
        if (at < cols)
            parts[part * cols + at] = total;
    }
}

/* Blocks that a kernel of `threads` a block may want, so that all are on the device at once. */
int64_t rows_at_once(int threads)
{
    int device = 0, processors = 0;

    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        processors = 108;
    return (int64_t)processors * (1024 / threads);
}

template <typename T, int W>
static int columns_launch(int64_t n, int64_t cols, const void *x, int64_t ld, void *sums, enum dtype gt,
                          bool add, bool narrows, float *parts, cudaStream_t s)
{
    int64_t tiles = (cols + 32 * W - 1) / (32 * W), most = rows_at_once(256) / tiles;
    int rc;

    most = most < 1 ? 1 : rows_least(most, ROWS_COLUMN_PARTS);
    int64_t span = ((n + most - 1) / most + 7) / 8 * 8, count = (n + span - 1) / span;
    if (tiles * count > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    LAUNCH((sum_columns<T, W>), (unsigned)(tiles * count), 256, 0, s, n, cols, (const T *)x, ld, span,
           (int)tiles, parts);
    if ((rc = cuda_launched("sums of columns")))
        return rc;
    return rows_add_parts((int)count, cols, parts, sums, gt, add, narrows, s);
}

/* Sums of no rows. */
int rows_no_sums(void *sums, int64_t h, enum dtype gt, bool add, cudaStream_t s)
{
    if (!sums || add || h <= 0)
        return 0;
    return (int)cudaMemsetAsync(sums, 0, (size_t)(h * (gt == DT_FP32 ? 4 : 2)), s);
}

extern "C" int rows_column_sums(int64_t n, int64_t cols, const void *x, int64_t ld, enum dtype at, void *sums,
                            enum dtype gt, bool add, bool narrows, void *workspace, struct CUstream_st *s)
{
    float *parts = (float *)workspace;
    int w = at == DT_FP32 ? 4 : 8;
    bool wide = rows_take(x, at, cols, w) && ld % w == 0;

    if (n <= 0 || cols <= 0)
        return rows_no_sums(sums, cols, gt, add, s);
    return BY_PACK(at, wide, columns_launch, n, cols, x, ld, sums, gt, add, narrows, parts, s);
}
