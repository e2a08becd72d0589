/* Sums over arrays, of which a launch takes many: a norm of all gradients is a few launches. */
#include <math.h>

#include "exec/cuda/pack.cuh"

enum { THREADS = 256 };

enum sum_of { SUM_SQUARES, SUM_VALUES, SUM_NOT_FINITE };

enum { RUNS = 128, RUN_SPAN = 8192, RUN_BLOCKS = 1024 };
static_assert((RUN_BLOCKS + RUNS) * sizeof(double) <= ELEMENTS_WORKSPACE, "a double a block");

/* Blocks take `span` elements each, the last of an array what is left. */
template <int K> struct run_list {
    int count, blocks;
    int64_t span;
    int first[K];
    struct cuda_run of[K];
};

/* A block's part of its array. */
template <typename T> struct part { const T *x; int64_t n; bool wide; };

template <typename T, int K> DEVICE part<T> part_of(const run_list<K> &l)
{
    int which = array_of(l.first, l.count, (int)blockIdx.x);
    int64_t from = ((int64_t)blockIdx.x - l.first[which]) * l.span, n = l.of[which].n - from;
    const T *x = (const T *)l.of[which].x + from;

    return { x, n < l.span ? n : l.span, (uintptr_t)x % 16 == 0 };
}

/* Up to K arrays, of which whole blocks are made: no more than RUN_BLOCKS, and one an array. */
template <int K> static run_list<K> list_runs(int count, const struct cuda_run *runs)
{
    run_list<K> l = {};
    int64_t all = 0;

    static_assert(sizeof l <= 4096, "kernel parameters of every CUDA");
    for (int i = 0; i < count; i++)
        all += runs[i].n;
    int64_t least = (int64_t)RUN_SPAN * RUN_BLOCKS;
    l.count = count;
    l.span = RUN_SPAN * ((all + least - 1) / least);
    for (int i = 0; i < count; i++) {
        l.first[i] = l.blocks;
        l.of[i] = runs[i];
        if (runs[i].n > 0)
            l.blocks += (int)((runs[i].n + l.span - 1) / l.span);
    }
    return l;
}

DEVICE bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }

template <enum sum_of OF> DEVICE double addend(float x)
{
    if constexpr (OF == SUM_SQUARES)
        return (double)x * (double)x;
    else if constexpr (OF == SUM_VALUES)
        return (double)x;
    else
        return is_finite(x) ? 0.0 : 1.0;
}

template <enum sum_of OF, int W, typename T> DEVICE double thread_sum(const T *from, int64_t n)
{
    double sum = 0;

#pragma unroll 4
    for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += THREADS * W) {
        float x[W];
        load<W>(from + i, n - i, x);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum += addend<OF>(x[j]);
    }
    return sum;
}

/* One block adds to *sum by itself; several leave their sums for add_sums(). */
template <enum sum_of OF, typename T, int K>
__global__ void __launch_bounds__(THREADS) sum_runs(const GRID_CONSTANT run_list<K> l, double *sum,
                                                    double *sums)
{
    SHARED double box[THREADS / 32];
    part<T> p = part_of<T, K>(l);
    double mine = p.wide ? thread_sum<OF, full<T>::W>(p.x, p.n) : thread_sum<OF, 1>(p.x, p.n);
    double total = block_sum(mine, box);

    if (threadIdx.x == 0) {
        if (gridDim.x == 1)
            *sum += total;
        else
            sums[blockIdx.x] = total;
    }
}

__global__ void __launch_bounds__(THREADS) add_sums(int n, const double *sums, double *sum)
{
    SHARED double box[THREADS / 32];
    double mine = 0;

    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        mine += sums[i];
    double total = block_sum(mine, box);
    if (threadIdx.x == 0)
        *sum += total;
}

template <enum sum_of OF, typename T, int K>
static int sum_list(int count, const struct cuda_run *runs, double *sum, void *workspace, cudaStream_t s)
{
    run_list<K> l = list_runs<K>(count, runs);
    int rc;

    if (!l.blocks)
        return 0;
    LAUNCH((sum_runs<OF, T, K>), (unsigned)l.blocks, THREADS, 0, s, l, sum, (double *)workspace);
    if ((rc = cuda_launched("sum")) || l.blocks == 1)
        return rc;
    LAUNCH(add_sums, 1, THREADS, 0, s, l.blocks, (const double *)workspace, sum);
    return cuda_launched("sum");
}

template <enum sum_of OF, typename T>
static int sum_arrays(int count, const struct cuda_run *runs, double *sum, void *workspace, cudaStream_t s)
{
    int rc = 0;

    if (count == 1)
        return sum_list<OF, T, 1>(count, runs, sum, workspace, s);
    for (int i = 0; i < count && !rc; i += RUNS)
        rc = sum_list<OF, T, RUNS>(count - i < RUNS ? count - i : RUNS, runs + i, sum, workspace, s);
    return rc;
}

template <enum sum_of OF>
static int sum_any(int count, const struct cuda_run *runs, enum dtype t, double *sum, void *workspace, cudaStream_t s)
{
    return t == DT_FP32 ? sum_arrays<OF, float>(count, runs, sum, workspace, s)
         : t == DT_FP16 ? sum_arrays<OF, fp16>(count, runs, sum, workspace, s)
                        : sum_arrays<OF, bf16>(count, runs, sum, workspace, s);
}

extern "C" int elements_sum_squares(int count, const struct cuda_run *runs, enum dtype t, double *sum,
                                    void *workspace, struct CUstream_st *s)
{
    return sum_any<SUM_SQUARES>(count, runs, t, sum, workspace, s);
}

extern "C" int elements_sum(int count, const struct cuda_run *runs, enum dtype t, double *sum,
                            void *workspace, struct CUstream_st *s)
{
    return sum_any<SUM_VALUES>(count, runs, t, sum, workspace, s);
}

extern "C" int elements_not_finite(int count, const struct cuda_run *runs, enum dtype t, double *sum,
                                   void *workspace, struct CUstream_st *s)
{
    return sum_any<SUM_NOT_FINITE>(count, runs, t, sum, workspace, s);
}

/* ---- exact sums of squares ---- */

/* As exact_sum.h: limb i counts 2^(32 i - 320), the last how many were not finite. */
enum { LIMBS = 21, EXACT_THREADS = 256 };

/* Adds x^2 to limbs of this thread's own, which lie EXACT_THREADS apart: no two threads of a warp meet in a
 * bank, whatever the exponents, and nothing is atomic. */
DEVICE void add_square(unsigned long long *limb, float x)
{
    uint32_t bits = __float_as_uint(x), exponent = bits >> 23 & 0xff, mantissa = bits & 0x7fffff;

    if (exponent == 0xff) {
        limb[(LIMBS - 1) * EXACT_THREADS]++;
        return;
    }
    if (exponent)
        mantissa |= 0x800000;
    else
        exponent = 1;                   /* subnormal */
    /* mantissa * 2^(exponent - 150), squared */
    unsigned long long square = (unsigned long long)mantissa * mantissa;
    unsigned at = 2 * exponent + 20, shift = at % 32;
    unsigned long long low = (square & 0xffffffffu) << shift, high = (square >> 32) << shift;
    unsigned long long *to = limb + at / 32 * EXACT_THREADS;
    to[0] += low & 0xffffffffu;
    to[EXACT_THREADS] += (low >> 32) + (high & 0xffffffffu);
    to[2 * EXACT_THREADS] += high >> 32;
}

template <int W, typename T> DEVICE void add_squares(unsigned long long *limb, const T *from, int64_t n)
{
    for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += EXACT_THREADS * W) {
        float x[W];
        load<W>(from + i, n - i, x);    /* zeros behind the end: they add nothing */
#pragma unroll
        for (int j = 0; j < W; j++)
            add_square(limb, x[j]);
    }
}

/* The block's limbs carry before they meet those of other blocks: then each adds less than 2^32. */
template <typename T, int K>
__global__ void __launch_bounds__(EXACT_THREADS) exact_squares(const GRID_CONSTANT run_list<K> l,
                                                               unsigned long long *limbs)
{
    SHARED unsigned long long own[LIMBS * EXACT_THREADS];       /* 42 KiB */
    unsigned lane = threadIdx.x % 32;
    part<T> p = part_of<T, K>(l);

    for (int i = 0; i < LIMBS; i++)
        own[i * EXACT_THREADS + threadIdx.x] = 0;
    if (p.wide)
        add_squares<full<T>::W>(own + threadIdx.x, p.x, p.n);
    else
        add_squares<1>(own + threadIdx.x, p.x, p.n);
    __syncthreads();
    for (int i = (int)threadIdx.x / 32; i < LIMBS; i += EXACT_THREADS / 32) {
        unsigned long long sum = 0;
        for (int t = (int)lane; t < EXACT_THREADS; t += 32)
            sum += own[i * EXACT_THREADS + t];
        sum = warp_sum(sum);
        __syncwarp();
        if (lane == 0)
            own[i * EXACT_THREADS] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i + 2 < LIMBS; i++) {
            own[(i + 1) * EXACT_THREADS] += own[i * EXACT_THREADS] >> 32;
            own[i * EXACT_THREADS] &= 0xffffffffu;
        }
    __syncthreads();
    if (threadIdx.x < LIMBS && own[threadIdx.x * EXACT_THREADS])
        atomicAdd(&limbs[threadIdx.x], own[threadIdx.x * EXACT_THREADS]);
}

template <typename T, int K>
static int exact_list(int count, const struct cuda_run *runs, int64_t *limbs, cudaStream_t s)
{
    run_list<K> l = list_runs<K>(count, runs);

    if (!l.blocks)
        return 0;
    LAUNCH((exact_squares<T, K>), (unsigned)l.blocks, EXACT_THREADS, 0, s, l, (unsigned long long *)limbs);
    return cuda_launched("exact squares");
}

template <typename T>
static int exact_arrays(int count, const struct cuda_run *runs, int64_t *limbs, cudaStream_t s)
{
    int rc = 0;

    if (count == 1)
        return exact_list<T, 1>(count, runs, limbs, s);
    for (int i = 0; i < count && !rc; i += RUNS)
        rc = exact_list<T, RUNS>(count - i < RUNS ? count - i : RUNS, runs + i, limbs, s);
    return rc;
}

extern "C" int elements_exact_squares(int count, const struct cuda_run *runs, enum dtype t, int64_t *limbs,
                                      struct CUstream_st *s)
{
    return t == DT_FP32 ? exact_arrays<float>(count, runs, limbs, s)
                        : exact_arrays<bf16>(count, runs, limbs, s);
}
