/* Rotary positions, delta, and which kernels a call of attention goes to. */
#include "exec/cuda/attention_internal.cuh"

#include <limits.h>

enum { THREADS = 128, HEADS = 8 };      /* HEADS: that a thread rotates with the sines it worked out */

/* ---- a call ---- */

/* What kernels are told, or an error: numbers that make no sense or that a grid cannot have. */
int attention_call_of(const struct launch_attention *c, attn *a)
{
    int64_t multiple = c->at == LAUNCH_FP32 ? piece<float>::SIZE : piece<bf16>::SIZE;
    int device = 0, error;

    if (c->first < 0 || c->first > INT_MAX / 2 || c->batch < 1 || c->batch > 65535 || c->seq < 1 || c->seq > INT_MAX / 2 || c->kv_heads < 1
        || c->heads > 65535 || c->heads < c->kv_heads || c->heads % c->kv_heads != 0 || c->dim < 1
        || c->dim > ATTENTION_DIM || c->ld < (c->heads + 2 * c->kv_heads) * c->dim || c->ld > INT_MAX / 128
        || !(c->scale > 0))
        return cudaErrorInvalidValue;
    a->first = (int)c->first, a->ld = (int)c->ld, a->batch = (int)c->batch, a->seq = (int)c->seq, a->dim = (int)c->dim;
    a->heads = (int)c->heads, a->kv_heads = (int)c->kv_heads;
    a->scale = c->scale, a->scale_log2 = c->scale * LOG2E;
    a->wide = c->dim % multiple == 0 && c->ld % multiple == 0;
    a->drop = c->drop;
    if (!a->drop.limit)
        a->drop.keep = 1;
    if ((error = (int)cudaGetDevice(&device)) != 0)
        return error;
    return (int)cudaDeviceGetAttribute(&a->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

/* N elements that are moved together. */
template <class T, int N> struct alignas(N * sizeof(T)) together { T x[N]; };

/* ---- rotary positions ---- */

/* N pairs of elements of a token, in HEADS heads.  sign -1: by the negative angle. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS)
rotate(attn a, int half, const float *inv_freq, float sign, T *qkv)
{
    int groups = half / N, heads = a.heads + a.kv_heads;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, token = i / groups;
    int j = (int)(i % groups) * N, head = (int)blockIdx.y * HEADS;
    float c[N], s[N];

    if (token >= (int64_t)a.batch * a.seq)
        return;
#pragma unroll
    for (int n = 0; n < N; n++) {
        sincosf((float)((int)(token % a.seq) + a.first) * inv_freq[j + n], &s[n], &c[n]);
        s[n] *= sign;
    }
#pragma unroll 4
    for (int h = head; h < head + HEADS && h < heads; h++) {
        T *at = qkv + token * a.ld + (int64_t)h * a.dim + j;
        together<T, N> x = *(const together<T, N> *)at, y = *(const together<T, N> *)(at + half);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float u = get(&x.x[n]), v = get(&y.x[n]);
            put(&x.x[n], u * c[n] - v * s[n]);
            put(&y.x[n], v * c[n] + u * s[n]);
        }
        *(together<T, N> *)at = x;
        *(together<T, N> *)(at + half) = y;
    }
}

template <class T, int N>
static int launch_rotate(const attn &a, int half, const float *inv_freq, T *qkv, bool inverse,
                         cudaStream_t stream)
{
    int64_t blocks = ((int64_t)a.batch * a.seq * (half / N) + THREADS - 1) / THREADS;
    dim3 grid((unsigned)blocks, blocks_of(a.heads + a.kv_heads, HEADS));

    if (blocks > INT_MAX)
        return cudaErrorInvalidValue;
    LAUNCH((rotate<T, N>), grid, THREADS, 0, stream, a, half, inv_freq, inverse ? -1.0f : 1.0f, qkv);
    return cuda_launched("rotary");
}

template <class T>
static int rotate_any(const attn &a, int half, const float *inv_freq, void *qkv, bool inverse,
                      cudaStream_t stream)
{
    constexpr int N = piece<T>::SIZE;

    if (a.wide && half % N == 0 && aligned_16(qkv))
        return launch_rotate<T, N>(a, half, inv_freq, (T *)qkv, inverse, stream);
    return launch_rotate<T, 1>(a, half, inv_freq, (T *)qkv, inverse, stream);
}

extern "C" int attention_rotary(const struct launch_attention *c, int64_t rotary, const float *inv_freq,
                                void *qkv, bool inverse, struct CUstream_st *stream)
{
    attn a;
    int error = attention_call_of(c, &a), half = (int)(rotary / 2);

    if (!error && (rotary < 2 || rotary % 2 != 0 || rotary > a.dim))
        error = cudaErrorInvalidValue;
    if (error)
        return error;
    return BY_DTYPE(c->at, rotate_any, a, half, inv_freq, qkv, inverse, stream);
}

/* ---- attention ---- */

template <class T> static int forward_of(const attn &a, const void *qkv, void *o, float *lse, cudaStream_t stream)
{
    return attention_forward_in(a, (const T *)qkv, (T *)o, lse, stream);
}

extern "C" int attention_forward(const struct launch_attention *c, const void *qkv, void *o, float *lse,
                                 struct CUstream_st *stream)
{
    attn a;
    int error = attention_call_of(c, &a);

    if (error)
        return error;
    a.wide = a.wide && aligned_16(qkv) && aligned_16(o);
    return BY_DTYPE(c->at, forward_of, a, qkv, o, lse, stream);
}

/* delta = sum of dO * O over a head's row: a warp a row. */
template <class T, int N>
static __global__ void __launch_bounds__(THREADS) row_deltas(attn a, const T *o, const T *dout, float *delta)
{
    int64_t row = (int64_t)blockIdx.x * (THREADS / WARP) + warp_of(), token = row / a.heads;
    int head = (int)(row % a.heads);
    bool inside = token < (int64_t)a.batch * a.seq;
    float sum = 0;

    for (int j = lane_of() * N; inside && j < a.dim; j += WARP * N) {
        together<T, N> x = *(const together<T, N> *)(o + row * a.dim + j);
        together<T, N> y = *(const together<T, N> *)(dout + row * a.dim + j);
#pragma unroll
        for (int n = 0; n < N; n++)
            sum = fmaf(get(&x.x[n]), get(&y.x[n]), sum);
    }
    sum = warp_sum(sum);
    if (inside && lane_of() == 0)
        delta[stat_at(a, (int)(token / a.seq), head) + token % a.seq] = sum;
}

template <class T>
static int launch_deltas(const attn &a, const void *out, const void *gradient, float *delta, cudaStream_t stream)
{
    const T *o = (const T *)out, *dout = (const T *)gradient;
    constexpr int N = piece<T>::SIZE, ROWS = THREADS / WARP;
    int64_t blocks = ((int64_t)a.batch * a.seq * a.heads + ROWS - 1) / ROWS;

    if (blocks > INT_MAX)
        return cudaErrorInvalidValue;
    if (a.wide)
        LAUNCH((row_deltas<T, N>), (unsigned)blocks, THREADS, 0, stream, a, o, dout, delta);
    else
        LAUNCH((row_deltas<T, 1>), (unsigned)blocks, THREADS, 0, stream, a, o, dout, delta);
    return cuda_launched("attention backward: delta");
}

extern "C" int attention_deltas(const struct launch_attention *c, const void *o, const void *dout, float *delta,
                                struct CUstream_st *stream)
{
    attn a;
    int error = attention_call_of(c, &a);

    if (error)
        return error;
    a.wide = a.wide && aligned_16(o) && aligned_16(dout);
    return BY_DTYPE(c->at, launch_deltas, a, o, dout, delta, stream);
}

template <class T>
static int backward_of(const attn &a, const void *qkv, const float *lse, const void *dout, const float *delta, void *dqkv,
                       cudaStream_t stream)
{
    return attention_backward_in(a, back_arrays<T>{ (const T *)qkv, (const T *)dout, lse, delta, (T *)dqkv }, stream);
}

extern "C" int attention_backward(const struct launch_attention *c, const void *qkv, const void *o,
                                  const float *lse, const void *dout, float *delta, void *dqkv,
                                  struct CUstream_st *stream)
{
    attn a;
    int error = attention_call_of(c, &a);

    if (error)
        return error;
    a.wide = a.wide && aligned_16(qkv) && aligned_16(o) && aligned_16(dout) && aligned_16(dqkv);
    error = BY_DTYPE(c->at, launch_deltas, a, o, dout, delta, stream);
    return error ? error : BY_DTYPE(c->at, backward_of, a, qkv, lse, dout, delta, dqkv, stream);
}
