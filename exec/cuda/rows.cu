/* Sums of columns, and the loss. */
#include "exec/cuda/rows_internal.cuh"

/* ---- partial sums of columns ---- */

/* sums[c] = (+=) parts[0][c] + parts[1][c] + ...: 32 columns a block, and 32 threads a column. */
__global__ void __launch_bounds__(1024) add_parts(int count, int64_t cols, const float *parts, void *sums,
                                                         enum dtype gt, bool add)
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
        if (gt == DT_FP32)
            put((float *)sums + c, sum + (add ? ((const float *)sums)[c] : 0));
        else
            put((bf16 *)sums + c, sum + (add ? get((const bf16 *)sums + c) : 0));
    }
}

int rows_add_parts(int count, int64_t cols, const float *parts, void *sums, enum dtype gt, bool add,
                            cudaStream_t s)
{
    LAUNCH(add_parts, (unsigned)((cols + 31) / 32), 1024, 0, s, count, cols, parts, sums, gt, add);
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
                          bool add, float *parts, cudaStream_t s)
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
    return rows_add_parts((int)count, cols, parts, sums, gt, add, s);
}

/* Sums of no rows. */
int rows_no_sums(void *sums, int64_t h, enum dtype gt, bool add, cudaStream_t s)
{
    if (!sums || add || h <= 0)
        return 0;
    return (int)cudaMemsetAsync(sums, 0, (size_t)(h * (gt == DT_FP32 ? 4 : 2)), s);
}

extern "C" int rows_column_sums(int64_t n, int64_t cols, const void *x, int64_t ld, enum dtype at, void *sums,
                            enum dtype gt, bool add, void *workspace, struct CUstream_st *s)
{
    float *parts = (float *)workspace;
    int w = at == DT_FP32 ? 4 : 8;
    bool wide = rows_take(x, at, cols, w) && ld % w == 0;

    if (n <= 0 || cols <= 0)
        return rows_no_sums(sums, cols, gt, add, s);
    if (at == DT_FP32)
        return wide ? columns_launch<float, 4>(n, cols, x, ld, sums, gt, add, parts, s)
                    : columns_launch<float, 1>(n, cols, x, ld, sums, gt, add, parts, s);
    return wide ? columns_launch<bf16, 8>(n, cols, x, ld, sums, gt, add, parts, s)
                : columns_launch<bf16, 1>(n, cols, x, ld, sums, gt, add, parts, s);
}

/* ---- loss ---- */

enum { LOSS_THREADS = 1024 };

/* The largest seen and the sum of e^(x - most).  most starts at a finite number: then an infinite one gives
 * NaN only where the host's does. */
struct log_sum { float most, sum; };

#define LOWEST (-3.402823466e38f)

/* bf16 rounds by 2^-9 what __expf() is 2^-19 off. */
template <typename T> DEVICE float power(float x)
{
    return sizeof(T) == 2 ? __expf(x) : expf(x);
}

template <typename T, int W> DEVICE void see(struct log_sum &l, const float (&x)[W])
{
    float most = l.most;

#pragma unroll
    for (int j = 0; j < W; j++)
        most = fmaxf(most, x[j]);
    float sum = l.sum * power<T>(l.most - most);
#pragma unroll
    for (int j = 0; j < W; j++)
        sum += power<T>(x[j] - most);
    l.most = most, l.sum = sum;
}

DEVICE struct log_sum both(struct log_sum a, float most, float sum)
{
    float m = fmaxf(a.most, most);

    return { m, a.sum * expf(a.most - m) + sum * expf(most - m) };
}

/* The same to the bit in every lane: what both() adds is added in one order or the other. */
DEVICE struct log_sum warp_log_sum(struct log_sum l)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        float most = __shfl_xor_sync(0xffffffffu, l.most, o), sum = __shfl_xor_sync(0xffffffffu, l.sum, o);
        l = both(l, most, sum);
    }
    return l;
}

DEVICE struct log_sum block_log_sum(struct log_sum l, float *mosts, float *sums)
{
    unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;

    l = warp_log_sum(l);
    if (lane == 0)
        mosts[threadIdx.x / 32] = l.most, sums[threadIdx.x / 32] = l.sum;
    __syncthreads();
    l = { lane < warps ? mosts[lane] : LOWEST, lane < warps ? sums[lane] : 0 };
    return warp_log_sum(l);
}

/* A row as elements up to the first multiple of 16 bytes, packs, and the rest. */
struct row_cut { int64_t head, body; };

template <typename T> DEVICE struct row_cut cut_row(const T *row, int64_t vocab)
{
    int64_t head = (int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));

    head = head < vocab ? head : vocab;
    return { head, (vocab - head) / full<T>::W * full<T>::W };
}

/* scale * (softmax - 1 at the label) */
template <typename T, int W> DEVICE void slope(float (&x)[W], struct log_sum l, float by, int64_t at,
                                               int64_t label, float scale)
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        x[j] = __fmul_rn(by, power<T>(x[j] - l.most));
        if (at + j == label)
            x[j] -= scale;
    }
}

/* The row is read twice: a second time from the cache, which two rows a multiprocessor fit into. */
template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) cross_entropy(int64_t vocab, T *logits, const int32_t *labels,
                                                              float *losses, float scale)
{
    constexpr int W = full<T>::W;
    SHARED float mosts[32], sums[32];
    T *row = logits + blockIdx.x * vocab;
    int64_t label = labels[blockIdx.x];
    bool known = label >= 0 && label < vocab;
    float at_label = known && threadIdx.x == 0 ? get(row + label) : 0, one[1], x[W];
    struct row_cut c = cut_row(row, vocab);
    int64_t tail = c.head + c.body;
    struct log_sum l = { LOWEST, 0 };

    for (int64_t i = threadIdx.x; i < c.head + vocab - tail; i += blockDim.x) {
        load<1>(row + (i < c.head ? i : c.body + i), one);
        see<T, 1>(l, one);
    }
#pragma unroll 2
    for (int64_t i = c.head + (int64_t)threadIdx.x * W; i < tail; i += (int64_t)blockDim.x * W) {
        load<W>(row + i, x);
        see<T, W>(l, x);
    }
    l = block_log_sum(l, mosts, sums);
    float by = known ? scale / l.sum : NOT_A_NUMBER;
    if (threadIdx.x == 0)
        losses[blockIdx.x] = known ? (float)((double)l.most - (double)at_label + log((double)l.sum))
                                   : NOT_A_NUMBER;
    for (int64_t i = threadIdx.x; i < c.head + vocab - tail; i += blockDim.x) {
        int64_t at = i < c.head ? i : c.body + i;
        load<1>(row + at, one);
        slope<T, 1>(one, l, by, at, label, scale);
        store<1>(row + at, one);
    }
#pragma unroll 2
    for (int64_t i = c.head + (int64_t)threadIdx.x * W; i < tail; i += (int64_t)blockDim.x * W) {
        load<W>(row + i, x);
        slope<T, W>(x, l, by, i, label, scale);
        store<W>(row + i, x);
    }
}

template <typename T>
static int loss_launch(int64_t n, int64_t vocab, void *logits, const int32_t *labels, float *losses,
                       float scale, cudaStream_t s)
{
    int64_t packs = (vocab + full<T>::W - 1) / full<T>::W;
    unsigned threads = packs < LOSS_THREADS ? (unsigned)(packs + 31) / 32 * 32 : (unsigned)LOSS_THREADS;

    LAUNCH((cross_entropy<T>), (unsigned)n, threads, 0, s, vocab, (T *)logits, labels, losses, scale);
    return cuda_launched("cross-entropy");
}

extern "C" int rows_cross_entropy(int64_t n, int64_t vocab, void *logits, enum dtype at,
                                  const int32_t *labels, float *losses, float scale, struct CUstream_st *s)
{
    if (n <= 0 || vocab <= 0)
        return 0;
    if (n > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    return at == DT_FP32 ? loss_launch<float>(n, vocab, logits, labels, losses, scale, s)
                         : loss_launch<bf16>(n, vocab, logits, labels, losses, scale, s);
}
