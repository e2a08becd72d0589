/* The loss: of whole rows of logits, and of rows whose columns are dealt out to ranks. */
#include "exec/cuda/rows_internal.cuh"

enum { LOSS_THREADS = 1024 };

/* The largest seen and the sum of e^(x - most).  most starts at a finite number: then an infinite one gives
 * NaN only where the host's does. */
struct log_sum { float most, sum; };

#define LOWEST (-3.402823466e38f)

/* 16 bits round by 2^-9 or 2^-12 what __expf() is 2^-19 off. */
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

/* f(x, at) for packs of a row, x[0] being element `at`; change_row() stores what f made of them. */
template <typename T, typename F> DEVICE void over_row(const T *row, int64_t vocab, F f)
{
    constexpr int W = full<T>::W;
    struct row_cut c = cut_row(row, vocab);
    int64_t tail = c.head + c.body;
    float one[1], x[W];

    for (int64_t i = threadIdx.x; i < c.head + vocab - tail; i += blockDim.x) {
        int64_t at = i < c.head ? i : c.body + i;
        load<1>(row + at, one);
        f(one, at);
    }
#pragma unroll 2
    for (int64_t i = c.head + (int64_t)threadIdx.x * W; i < tail; i += (int64_t)blockDim.x * W) {
        load<W>(row + i, x);
        f(x, i);
    }
}

template <typename T, typename F> DEVICE void change_row(T *row, int64_t vocab, F f)
{
    over_row(row, vocab, [&](auto &x, int64_t at) {
        f(x, at);
        store<sizeof x / sizeof *x>(row + at, x);
    });
}

/* Adds a row's elements to l. */
template <typename T> DEVICE void see_row(struct log_sum &l, const T *row, int64_t vocab)
{
    over_row(row, vocab, [&](auto &x, int64_t) { see<T, sizeof x / sizeof *x>(l, x); });
}

/* A row becomes scale * (softmax - 1 at the label, which may lie outside of it). */
template <typename T> DEVICE void slope(T *row, int64_t vocab, struct log_sum l, int64_t label, bool known, float scale)
{
    float by = known ? scale / l.sum : NOT_A_NUMBER;

    change_row(row, vocab, [&](auto &x, int64_t at) {
#pragma unroll
        for (int j = 0; j < (int)(sizeof x / sizeof *x); j++) {
            x[j] = __fmul_rn(by, power<T>(x[j] - l.most));
            if (at + j == label)
                x[j] -= scale;
        }
    });
}

DEVICE float loss_of(struct log_sum l, float at_label, bool known)
{
    return known ? (float)((double)l.most - (double)at_label + log((double)l.sum)) : NOT_A_NUMBER;
}

/* The row is read twice: a second time from the cache, which two rows a multiprocessor fit into. */
template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) cross_entropy(int64_t vocab, T *logits, const int32_t *labels,
                                                              float *losses, float scale)
{
    SHARED float mosts[32], sums[32];
    T *row = logits + blockIdx.x * vocab;
    int64_t label = labels[blockIdx.x];
    bool known = label >= 0 && label < vocab;
    float at_label = known && threadIdx.x == 0 ? get(row + label) : 0;
    struct log_sum l = { LOWEST, 0 };

    see_row(l, row, vocab);
    l = block_log_sum(l, mosts, sums);
    if (threadIdx.x == 0)
        losses[blockIdx.x] = loss_of(l, at_label, known);
    slope(row, vocab, l, label, known, scale);
}

/* Threads for rows of so many elements. */
template <typename T> static unsigned loss_threads(int64_t vocab)
{
    int64_t packs = (vocab + full<T>::W - 1) / full<T>::W;

    return packs < LOSS_THREADS ? (unsigned)(packs + 31) / 32 * 32 : (unsigned)LOSS_THREADS;
}

template <typename T>
static int cross_entropy_launch(int64_t n, int64_t vocab, void *logits, const int32_t *labels, float *losses, float scale,
                                cudaStream_t s)
{
    LAUNCH((cross_entropy<T>), (unsigned)n, loss_threads<T>(vocab), 0, s, vocab, (T *)logits, labels, losses, scale);
    return cuda_launched("cross-entropy");
}

extern "C" int rows_cross_entropy(int64_t n, int64_t vocab, void *logits, enum dtype at,
                                  const int32_t *labels, float *losses, float scale, struct CUstream_st *s)
{
    if (n <= 0 || vocab <= 0)
        return 0;
    if (n > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    return BY_DTYPE(at, cross_entropy_launch, n, vocab, logits, labels, losses, scale, s);
}

/* ---- columns dealt out ---- */

DEVICE int64_t columns(const struct rows_logits &l, int64_t rank)
{
    int64_t left = l.vocab - rank * l.part;

    return left < l.part ? left : l.part;
}

DEVICE int64_t own_label(const struct rows_logits &l, int64_t label) { return label - l.rank * l.part; }
DEVICE bool    is_known(const struct rows_logits &l, int64_t label) { return label >= 0 && label < l.vocab; }

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) logits_most(const struct rows_logits l, const T *logits, float *most)
{
    SHARED float mosts[32], sums[32];
    int64_t cols = columns(l, l.rank);
    struct log_sum of = { LOWEST, 0 };

    over_row(logits + blockIdx.x * cols, cols, [&](auto &x, int64_t) {
#pragma unroll
        for (int j = 0; j < (int)(sizeof x / sizeof *x); j++)
            of.most = fmaxf(of.most, x[j]);
    });
    of = block_log_sum(of, mosts, sums);
    if (threadIdx.x == 0)
        most[blockIdx.x] = of.most;
}

template <typename T>
__global__ void __launch_bounds__(256) logits_label(const struct rows_logits l, const T *logits, const int32_t *labels,
                                                    float *at_label)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, cols = columns(l, l.rank);

    if (i >= l.n)
        return;
    int64_t label = own_label(l, labels[i]);
    at_label[i] = label >= 0 && label < cols ? get(logits + i * cols + label) : 0;
}

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) logits_sum(const struct rows_logits l, const T *logits, const float *most,
                                                           float *sum)
{
    SHARED float mosts[32], sums[32];
    int64_t cols = columns(l, l.rank);
    struct log_sum of = { most[blockIdx.x], 0 };

    over_row(logits + blockIdx.x * cols, cols, [&](auto &x, int64_t) {
#pragma unroll
        for (int j = 0; j < (int)(sizeof x / sizeof *x); j++)
            of.sum += power<T>(x[j] - of.most);
    });
    of = block_log_sum(of, mosts, sums);
    if (threadIdx.x == 0)
        sum[blockIdx.x] = of.sum;
}

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) logits_loss(const struct rows_logits l, T *logits, const int32_t *labels,
                                                            const float *most, const float *at_label, const float *sum,
                                                            float *losses, float scale)
{
    int64_t i = blockIdx.x, cols = columns(l, l.rank);
    struct log_sum of = { most[i], sum[i] };
    bool known = is_known(l, labels[i]);

    if (threadIdx.x == 0)
        losses[i] = loss_of(of, at_label[i], known);
    slope(logits + i * cols, cols, of, own_label(l, labels[i]), known, scale);
}

/* Row i of rank r, where all ranks' logits are. */
template <typename T> DEVICE const T *row_of(const struct rows_logits &l, const T *all, int64_t r, int64_t i)
{
    return all + r * l.n * l.part + i * columns(l, r);
}

template <typename T>
__global__ void __launch_bounds__(LOSS_THREADS) logits_whole(const struct rows_logits l, const T *all, T *logits,
                                                             const int32_t *labels, float *losses, float scale)
{
    SHARED float mosts[32], sums[32];
    int64_t i = blockIdx.x;
    struct log_sum of = { LOWEST, 0 };

    for (int64_t r = 0; r * l.part < l.vocab; r++)
        see_row(of, row_of(l, all, r, i), columns(l, r));
    of = block_log_sum(of, mosts, sums);
    int64_t label = labels[i], cols = columns(l, l.rank);
    bool known = is_known(l, label);
    if (threadIdx.x == 0)
        losses[i] = loss_of(of, known ? get(row_of(l, all, label / l.part, i) + label % l.part) : 0, known);
    slope(logits + i * cols, cols, of, own_label(l, label), known, scale);
}

static int check(const struct rows_logits *l)
{
    return l->n > INT32_MAX || l->part < 1 ? (int)cudaErrorInvalidValue : 0;
}

/* A block of a row each, in any dtype; T is the dtype in what follows the kernel's name. */
#define LAUNCH_ROWS_IN(dtype, kernel, l, s, ...) \
    do { \
        typedef dtype T; \
        LAUNCH((kernel<T>), (unsigned)(l)->n, loss_threads<T>((l)->part), 0, s, *(l), __VA_ARGS__); \
    } while (0)
#define LAUNCH_ROWS(kernel, l, s, ...) \
    do { \
        if ((l)->at == DT_FP32) \
            LAUNCH_ROWS_IN(float, kernel, l, s, __VA_ARGS__); \
        else if ((l)->at == DT_FP16) \
            LAUNCH_ROWS_IN(fp16, kernel, l, s, __VA_ARGS__); \
        else \
            LAUNCH_ROWS_IN(bf16, kernel, l, s, __VA_ARGS__); \
    } while (0)

extern "C" int rows_logits_most(const struct rows_logits *l, const void *logits, float *most, struct CUstream_st *s)
{
    if (l->n <= 0 || check(l))
        return check(l);
    LAUNCH_ROWS(logits_most, l, s, (const T *)logits, most);
    return cuda_launched("the largest logit");
}

template <typename T>
static int label_launch(const struct rows_logits *l, const void *logits, const int32_t *labels, float *at_label, cudaStream_t s)
{
    LAUNCH((logits_label<T>), (unsigned)((l->n + 255) / 256), 256, 0, s, *l, (const T *)logits, labels, at_label);
    return cuda_launched("the label's logit");
}

extern "C" int rows_logits_label(const struct rows_logits *l, const void *logits, const int32_t *labels, float *at_label,
                                 struct CUstream_st *s)
{
    return l->n <= 0 || check(l) ? check(l) : BY_DTYPE(l->at, label_launch, l, logits, labels, at_label, s);
}

extern "C" int rows_logits_sum(const struct rows_logits *l, const void *logits, const float *most, float *sum,
                               struct CUstream_st *s)
{
    if (l->n <= 0 || check(l))
        return check(l);
    LAUNCH_ROWS(logits_sum, l, s, (const T *)logits, most, sum);
    return cuda_launched("sums of exp");
}

extern "C" int rows_logits_loss(const struct rows_logits *l, void *logits, const int32_t *labels, const float *most,
                                const float *at_label, const float *sum, float *losses, float scale, struct CUstream_st *s)
{
    if (l->n <= 0 || check(l))
        return check(l);
    LAUNCH_ROWS(logits_loss, l, s, (T *)logits, labels, most, at_label, sum, losses, scale);
    return cuda_launched("cross-entropy of cut logits");
}

extern "C" int rows_logits_whole(const struct rows_logits *l, const void *all, void *logits, const int32_t *labels,
                                 float *losses, float scale, struct CUstream_st *s)
{
    if (l->n <= 0 || check(l))
        return check(l);
    LAUNCH_ROWS(logits_whole, l, s, (const T *)all, (T *)logits, labels, losses, scale);
    return cuda_launched("cross-entropy of gathered logits");
}
