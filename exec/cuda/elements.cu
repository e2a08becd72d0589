/* Kernels that read an array and write an array: as fast as memory, so each element is read once and
 * written once, 16 bytes a thread where that is possible. */
#include "exec/cuda/pack.cuh"

#include <math.h>

#include "model/arch/transformer.h"

enum { THREADS = 256, MOST_BLOCKS = 1 << 22 };

/* This thread's first pack of W, and from one to its next: grids are as large as the array, up to a limit. */
#define FOR_PACKS(W, i, n) \
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * (W); i < (n); \
         i += (int64_t)gridDim.x * THREADS * (W))

static unsigned blocks_of(int64_t n, int w) { return blocks_for(n, (int64_t)THREADS * w, MOST_BLOCKS); }

/* ---- activations: f(x) and f'(x), as kernels_simd_body.h ---- */

#define SQRT_HALF       0.707106781f
#define ONE_BY_ROOT_2PI 0.398942280f
#define GELU_LINEAR     1.595769122f            /* 2 sqrt(2/pi) */
#define GELU_CUBIC      0.0713548163f           /* 0.044715 of it */

/* e^-x may be infinite: then 0, as it should be. */
DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

/* (1 + tanh z)/2 is the sigmoid of 2z, without its cancellation. */
DEVICE float tanh_gate(float x)
{
    return sigmoid(x * fmaf(GELU_CUBIC * x, x, GELU_LINEAR));
}

template <int ACT> DEVICE float act_of(float x)
{
    if constexpr (ACT == ACT_GELU)
        return 0.5f * x * (1.0f + erff(SQRT_HALF * x));
    else if constexpr (ACT == ACT_GELU_TANH)
        return x * tanh_gate(x);
    else if constexpr (ACT == ACT_RELU)
        return x > 0.0f ? x : 0.0f * x;         /* NaN stays NaN */
    else
        return x * sigmoid(x);
}

template <int ACT> DEVICE float act_slope(float x)
{
    if constexpr (ACT == ACT_GELU) {
        return 0.5f * (1.0f + erff(SQRT_HALF * x)) + x * ONE_BY_ROOT_2PI * expf(-0.5f * x * x);
    } else if constexpr (ACT == ACT_GELU_TANH) {
        float s = tanh_gate(x);
        return s + x * s * (1.0f - s) * fmaf(3.0f * GELU_CUBIC * x, x, GELU_LINEAR);
    } else if constexpr (ACT == ACT_RELU) {
        return x > 0.0f ? 1.0f : 0.0f;
    } else {
        float s = sigmoid(x);
        return s + x * s * (1.0f - s);
    }
}

template <typename T, int W, int ACT>
__global__ void __launch_bounds__(THREADS) act_forward(int64_t n, const T *gate, const T *up, T *product)
{
    FOR_PACKS(W, i, n) {
        float g[W], u[W];
        load<W>(up + i, n - i, u);
        if (gate) {
            load<W>(gate + i, n - i, g);
#pragma unroll
            for (int j = 0; j < W; j++)
                u[j] *= act_of<ACT>(g[j]);
        } else {
#pragma unroll
            for (int j = 0; j < W; j++)
                u[j] = act_of<ACT>(u[j]);
        }
        store<W>(product + i, n - i, u);
    }
}

template <typename T, int W, int ACT>
__global__ void __launch_bounds__(THREADS) act_backward(int64_t n, const T *gate, const T *up, T *du,
                                                        T *dgate)
{
    FOR_PACKS(W, i, n) {
        float g[W], u[W], d[W];
        load<W>(up + i, n - i, u);
        load<W>(du + i, n - i, d);
        if (gate) {
            load<W>(gate + i, n - i, g);
#pragma unroll
            for (int j = 0; j < W; j++) {
                u[j] *= d[j] * act_slope<ACT>(g[j]);
                d[j] *= act_of<ACT>(g[j]);
            }
            store<W>(dgate + i, n - i, u);
        } else {
#pragma unroll
            for (int j = 0; j < W; j++)
                d[j] *= act_slope<ACT>(u[j]);
        }
        store<W>(du + i, n - i, d);
    }
}

template <typename T, int W, int ACT>
static int activate_by(int64_t n, const void *gate, const void *up, void *product, cudaStream_t s)
{
    LAUNCH((act_forward<T, W, ACT>), blocks_of(n, W), THREADS, 0, s, n, (const T *)gate, (const T *)up,
           (T *)product);
    return cuda_launched("activation");
}

template <typename T, int W, int ACT>
static int activate_back_by(int64_t n, const void *gate, const void *up, void *du, void *dgate, cudaStream_t s)
{
    LAUNCH((act_backward<T, W, ACT>), blocks_of(n, W), THREADS, 0, s, n, (const T *)gate, (const T *)up,
           (T *)du, (T *)dgate);
    return cuda_launched("activation backward");
}

/* f<T, W, ACT>(...) of the activation. */
#define BY_ACT(act, f, T, W, ...) \
    ((act) == ACT_GELU      ? f<T, W, ACT_GELU>(__VA_ARGS__) : \
     (act) == ACT_GELU_TANH ? f<T, W, ACT_GELU_TANH>(__VA_ARGS__) : \
     (act) == ACT_RELU      ? f<T, W, ACT_RELU>(__VA_ARGS__) : \
     (act) == ACT_SILU      ? f<T, W, ACT_SILU>(__VA_ARGS__) : (int)cudaErrorInvalidValue)

template <typename T, int W>
static int activate(int act, int64_t n, const void *gate, const void *up, void *product, cudaStream_t s)
{
    return BY_ACT(act, activate_by, T, W, n, gate, up, product, s);
}

template <typename T, int W>
static int activate_back(int act, int64_t n, const void *gate, const void *up, void *du, void *dgate, cudaStream_t s)
{
    return BY_ACT(act, activate_back_by, T, W, n, gate, up, du, dgate, s);
}

extern "C" int elements_activation(int act, int64_t n, const void *gate, const void *up, void *product,
                                   enum dtype at, struct CUstream_st *s)
{
    bool wide = aligned_16(gate) && aligned_16(up) && aligned_16(product);

    return n <= 0 ? 0 : BY_PACK(at, wide, activate, act, n, gate, up, product, s);
}

extern "C" int elements_activation_back(int act, int64_t n, const void *gate, const void *up, void *du,
                                        void *dgate, enum dtype at, struct CUstream_st *s)
{
    bool wide = aligned_16(gate) && aligned_16(up) && aligned_16(du) && aligned_16(dgate);

    return n <= 0 ? 0 : BY_PACK(at, wide, activate_back, act, n, gate, up, du, dgate, s);
}

/* ---- copy ---- */

template <typename D, typename S, int W>
__global__ void __launch_bounds__(THREADS) copy_array(int64_t n, D *dst, const S *src, float scale, bool add)
{
    FOR_PACKS(W, i, n) {
        float x[W], y[W];
        load<W>(src + i, n - i, x);
        if (add)
            load<W>(dst + i, n - i, y);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = add ? y[j] + __fmul_rn(scale, x[j]) : __fmul_rn(scale, x[j]);
        store<W>(dst + i, n - i, x);
    }
}

template <typename D, typename S, int W>
static int copied(int64_t n, void *dst, const void *src, float scale, bool add, cudaStream_t s)
{
    LAUNCH((copy_array<D, S, W>), blocks_of(n, W), THREADS, 0, s, n, (D *)dst, (const S *)src, scale, add);
    return cuda_launched("copy");
}

template <typename D, typename S>
static int copy_between(int64_t n, void *dst, const void *src, float scale, bool add, cudaStream_t s)
{
    constexpr int W = sizeof(D) + sizeof(S) == 8 ? 4 : 8;

    return aligned_16(dst) && aligned_16(src) ? copied<D, S, W>(n, dst, src, scale, add, s)
                                              : copied<D, S, 1>(n, dst, src, scale, add, s);
}

/* f<D, S>(...) of the source's dtype. */
#define FROM_DTYPE(st, f, D, ...) \
    ((st) == DT_FP32 ? f<D, float>(__VA_ARGS__) : (st) == DT_FP16 ? f<D, fp16>(__VA_ARGS__) : f<D, bf16>(__VA_ARGS__))

template <typename D>
static int copy_to(int64_t n, void *dst, const void *src, enum dtype st, float scale, bool add, cudaStream_t s)
{
    return FROM_DTYPE(st, copy_between, D, n, dst, src, scale, add, s);
}

extern "C" int elements_copy(int64_t n, void *dst, enum dtype dt, const void *src, enum dtype st, float scale,
                             bool add, struct CUstream_st *s)
{
    bool same = dt == st;
    size_t bytes = (size_t)n * (dt == DT_FP32 ? 4 : dt == DT_UINT8 || dt == DT_FP8 ? 1 : 2);

    if (n <= 0 || (same && dst == src && scale == 1 && !add))
        return 0;
    if (same && scale == 1 && !add)
        return (int)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, s);
    return BY_DTYPE(dt, copy_to, n, dst, src, st, scale, add, s);
}

/* One element a thread: runs are rows of heads, whose neighbours lie side by side. */
template <typename D, typename S>
__global__ void __launch_bounds__(THREADS) copy_each_run(struct cuda_runs r, D *dst, const S *src, bool add)
{
    FOR_PACKS(1, i, r.n[0] * r.n[1] * r.run) {
        int64_t e = i % r.run, b = i / r.run % r.n[1], a = i / r.run / r.n[1];
        D *to = dst + a * r.to[0] + b * r.to[1] + e;
        float x = get(src + a * r.from[0] + b * r.from[1] + e);
        put(to, add ? get(to) + x : x);
    }
}

template <typename D, typename S>
static int copied_runs(const struct cuda_runs *r, void *dst, const void *src, bool add, cudaStream_t s)
{
    LAUNCH((copy_each_run<D, S>), blocks_of(r->n[0] * r->n[1] * r->run, 1), THREADS, 0, s, *r, (D *)dst, (const S *)src, add);
    return cuda_launched("copy of runs");
}

template <typename D>
static int copied_runs_to(const struct cuda_runs *r, void *dst, const void *src, enum dtype st, bool add, cudaStream_t s)
{
    return FROM_DTYPE(st, copied_runs, D, r, dst, src, add, s);
}

extern "C" int elements_copy_runs(const struct cuda_runs *r, void *dst, enum dtype dt, const void *src, enum dtype st, bool add,
                                  struct CUstream_st *s)
{
    return r->n[0] * r->n[1] * r->run <= 0 ? 0 : BY_DTYPE(dt, copied_runs_to, r, dst, src, st, add, s);
}

/* ---- dropout ---- */

template <typename T, int W>
__global__ void __launch_bounds__(THREADS) drop_array(int64_t n, T *dx, struct cuda_drop d)
{
    FOR_PACKS(W, i, n) {
        float x[W];
        load<W>(dx + i, n - i, x);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = dropped(d, i + j, x[j]);
        store<W>(dx + i, n - i, x);
    }
}

template <typename T, int W> static int drop(int64_t n, void *dx, struct cuda_drop d, cudaStream_t s)
{
    LAUNCH((drop_array<T, W>), blocks_of(n, W), THREADS, 0, s, n, (T *)dx, d);
    return cuda_launched("dropout");
}

extern "C" int elements_dropout(int64_t n, void *dx, enum dtype at, struct cuda_drop d, struct CUstream_st *s)
{
    bool wide = aligned_16(dx);

    return n <= 0 || !d.limit ? 0 : BY_PACK(at, wide, drop, n, dx, d, s);
}

/* ---- what follows a matrix product ---- */

struct residual_args {
    int64_t rows, cols, ldx, ldr, ldy;
    const void *x, *residual, *bias;
    enum dtype wt;
    void *y;
    struct cuda_drop drop;
};

/* A row is a block's: no division finds the row of an element. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS) add_residual(struct residual_args a)
{
    const T *from = (const T *)a.x, *residual = (const T *)a.residual;
    T *to = (T *)a.y;

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x)
        for (int64_t c = (int64_t)threadIdx.x * W; c < a.cols; c += (int64_t)blockDim.x * W) {
            float x[W], more[W];
            load<W>(from + r * a.ldx + c, a.cols - c, x);
            if (a.bias) {
                load_as<W>(a.wt, a.bias, c, a.cols - c, more);
#pragma unroll
                for (int j = 0; j < W; j++)
                    x[j] += more[j];
            }
            if (a.drop.limit) {
#pragma unroll
                for (int j = 0; j < W; j++)
                    x[j] = dropped(a.drop, r * a.cols + c + j, x[j]);
            }
            if (residual) {
                load<W>(residual + r * a.ldr + c, a.cols - c, more);
#pragma unroll
                for (int j = 0; j < W; j++)
                    x[j] += more[j];
            }
            store<W>(to + r * a.ldy + c, a.cols - c, x);
        }
}

/* Whether all rows start where packs of w may. */
static bool rows_at(const void *x, int64_t ld, enum dtype t, int w) { return takes(x, t, w) && ld % w == 0; }

template <typename T, int W> static int residual_launch(const struct residual_args &a, cudaStream_t s)
{
    int64_t packs = (a.cols + W - 1) / W;
    unsigned threads = packs < THREADS ? ((unsigned)packs + 31) / 32 * 32 : (unsigned)THREADS;

    LAUNCH((add_residual<T, W>), blocks_for(a.rows, 1, MOST_BLOCKS), threads, 0, s, a);
    return cuda_launched("residual");
}


extern "C" int elements_residual(int64_t rows, int64_t cols, const void *x, int64_t ldx, const void *bias,
                                 enum dtype wt, const void *residual, int64_t ldr, void *y, int64_t ldy,
                                 enum dtype at, struct cuda_drop d, struct CUstream_st *s)
{
    struct residual_args a = { rows, cols, ldx, ldr, ldy, x, residual, bias, wt, y, d };
    int w = at == DT_FP32 ? 4 : 8;
    bool wide = rows_at(x, ldx, at, w) && rows_at(y, ldy, at, w) && (!residual || rows_at(residual, ldr, at, w)) &&
                (!bias || takes(bias, wt, w));

    return rows <= 0 || cols <= 0 ? 0 : BY_PACK(at, wide, residual_launch, a, s);
}

/* ---- AdamW ---- */

/* 48 of 52 bytes and a head: kernel parameters may be 4 KiB. */
enum { STEPS = 48, STEP_SPAN = THREADS * 4 * 4 };       /* elements a block: four packs a thread */

template <int K> struct step_list {
    int count;
    enum dtype gt, ot;
    struct cuda_rates r;
    int first[K];
    bool wide[K];
    struct cuda_step of[K];
};

/* kernels_simd_body.h's adamw_lanes() */
DEVICE void adamw_one(const struct cuda_rates &r, float &p, float &m, float &v, float g)
{
    g = __fmul_rn(r.scale, g);
    m += __fmul_rn(r.keep1, g - m);
    v = __fmul_rn(r.b2, v) + __fmul_rn(r.keep2, __fmul_rn(g, g));
    p = __fmul_rn(r.decay, p) - __fmul_rn(r.step_size, m / (__fmul_rn(__fsqrt_rn(v), r.root) + r.eps));
}

template <int W> DEVICE void adamw_packs(const struct cuda_rates &r, const struct cuda_step &a, enum dtype gt,
                                            enum dtype ot, int64_t from, int64_t to)
{
    for (int64_t i = from + (int64_t)threadIdx.x * W; i < to; i += THREADS * W) {
        float p[W], m[W], v[W], g[W];
        load<W>(a.p + i, to - i, p);
        load<W>(a.m + i, to - i, m);
        load<W>(a.v + i, to - i, v);
        load_as<W>(gt, a.g, i, to - i, g);
#pragma unroll
        for (int j = 0; j < W; j++)
            adamw_one(r, p[j], m[j], v[j], g[j]);
        store<W>(a.p + i, to - i, p);
        store<W>(a.m + i, to - i, m);
        store<W>(a.v + i, to - i, v);
        if (a.out)
            store_as<W>(ot, a.out, i, to - i, p);
    }
}

template <int K> __global__ void __launch_bounds__(THREADS) adamw_steps(const GRID_CONSTANT step_list<K> l)
{
    int which = array_of(l.first, l.count, (int)blockIdx.x);
    const struct cuda_step &a = l.of[which];
    int64_t from = ((int64_t)blockIdx.x - l.first[which]) * STEP_SPAN;
    int64_t to = a.n - from < STEP_SPAN ? a.n : from + STEP_SPAN;

    if (l.wide[which])
        adamw_packs<4>(l.r, a, l.gt, l.ot, from, to);
    else
        adamw_packs<1>(l.r, a, l.gt, l.ot, from, to);
}

/* kernels_simd_body.h's sgd() and lion() */
template <bool LION> DEVICE void moment_one(const struct cuda_moment &r, float &p, float &m, float g)
{
    g = __fmul_rn(r.scale, g);
    if (LION) {
        float u = __fadd_rn(__fmul_rn(r.b1, m), __fmul_rn(r.keep1, g));
        p = __fadd_rn(__fmul_rn(r.decay, p), -__fmul_rn(r.lr, (float)((u > 0) - (u < 0))));
        m = __fadd_rn(__fmul_rn(r.b2, m), __fmul_rn(r.keep2, g));
    } else {
        m = __fadd_rn(__fmul_rn(r.b1, m), __fadd_rn(g, __fmul_rn(r.decay, p)));
        p = __fadd_rn(p, -__fmul_rn(r.lr, m));
    }
}

template <bool LION, int W> __global__ void __launch_bounds__(THREADS)
moment_steps(const GRID_CONSTANT struct cuda_step a, enum dtype gt, enum dtype ot, const GRID_CONSTANT struct cuda_moment r)
{
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W; i < a.n; i += (int64_t)gridDim.x * THREADS * W) {
        float p[W], m[W], g[W];
        load<W>(a.p + i, a.n - i, p);
        load<W>(a.m + i, a.n - i, m);
        load_as<W>(gt, a.g, i, a.n - i, g);
#pragma unroll
        for (int j = 0; j < W; j++)
            moment_one<LION>(r, p[j], m[j], g[j]);
        store<W>(a.p + i, a.n - i, p);
        store<W>(a.m + i, a.n - i, m);
        if (a.out)
            store_as<W>(ot, a.out, i, a.n - i, p);
    }
}

template <bool LION>
static int moment_of(const struct cuda_step *a, enum dtype gt, enum dtype ot, const struct cuda_moment &r, cudaStream_t s)
{
    bool wide = takes(a->p, DT_FP32, 4) && takes(a->m, DT_FP32, 4) && takes(a->g, gt, 4) && (!a->out || takes(a->out, ot, 4));
    int64_t blocks = (a->n + STEP_SPAN - 1) / STEP_SPAN;
    unsigned grid = (unsigned)(blocks < (int64_t)MOST_BLOCKS ? blocks : (int64_t)MOST_BLOCKS);

    if (blocks == 0)
        return 0;
    if (wide)
        LAUNCH((moment_steps<LION, 4>), grid, THREADS, 0, s, *a, gt, ot, r);
    else
        LAUNCH((moment_steps<LION, 1>), grid, THREADS, 0, s, *a, gt, ot, r);
    return cuda_launched(LION ? "lion" : "sgd");
}

extern "C" int elements_moment(bool lion, const struct cuda_step *a, enum dtype gt, enum dtype ot, struct cuda_moment rates,
                               struct CUstream_st *s)
{
    return lion ? moment_of<true>(a, gt, ot, rates, s) : moment_of<false>(a, gt, ot, rates, s);
}

/* Up to K of them. */
template <int K>
static int adamw_list(int count, const struct cuda_step *steps, enum dtype gt, enum dtype ot,
                      const struct cuda_rates &rates, cudaStream_t s)
{
    step_list<K> l = {};
    int64_t blocks = 0;

    static_assert(sizeof l <= 4096, "kernel parameters of every CUDA");
    l.count = count, l.gt = gt, l.ot = ot, l.r = rates;
    for (int i = 0; i < count; i++) {
        const struct cuda_step *a = &steps[i];
        l.first[i] = (int)blocks;
        l.of[i] = *a;
        l.wide[i] = takes(a->p, DT_FP32, 4) && takes(a->m, DT_FP32, 4) && takes(a->v, DT_FP32, 4) &&
                    takes(a->g, gt, 4) && (!a->out || takes(a->out, ot, 4));
        blocks += a->n > 0 ? (a->n + STEP_SPAN - 1) / STEP_SPAN : 0;
    }
    if (blocks > INT32_MAX)
        return (int)cudaErrorInvalidValue;      /* 2^43 parameters */
    if (!blocks)
        return 0;
    LAUNCH((adamw_steps<K>), (unsigned)blocks, THREADS, 0, s, l);
    return cuda_launched("adamw");
}

extern "C" int elements_adamw(int count, const struct cuda_step *steps, enum dtype gt, enum dtype ot,
                              struct cuda_rates rates, struct CUstream_st *s)
{
    int rc = 0;

    if (count == 1)
        return adamw_list<1>(count, steps, gt, ot, rates, s);
    for (int i = 0; i < count && !rc; i += STEPS)
        rc = adamw_list<STEPS>(count - i < STEPS ? count - i : STEPS, steps + i, gt, ot, rates, s);
    return rc;
}
