/* attention_internal.cuh -- what attention.cu and the kernels of attention_half.cu, attention_half_back.cu
 * and attention_fp32.cu share: the numbers of a call, where heads lie, tiles in shared memory. */
#ifndef DPX_CUDA_ATTENTION_INTERNAL_CUH
#define DPX_CUDA_ATTENTION_INTERNAL_CUH

#include "exec/cuda/attention.h"
#include "exec/cuda/common.cuh"

/* A call's numbers, as kernels take them. */
struct attn {
    int   ld, batch, seq, heads, kv_heads, dim;         /* 128 ld and 128 heads dim fit an int */
    float scale, scale_log2;                            /* scale_log2: for powers of 2 instead of e */
    bool  wide;                                         /* heads' rows begin at multiples of 16 bytes */
    launch_drop drop;                                   /* keep: 1 without dropout */
    int   shared;                                       /* bytes that a block may have on this device */
    int   first;                                        /* position of a sample's first token */
};

/* attention.cu: what kernels are told, or a cudaError_t. */
int attention_call_of(const struct launch_attention *c, attn *a);

/* What gradients are made from, and where they go: dqkv. */
template <class T> struct back_arrays {
    const T *qkv, *dout;
    const float *lse, *delta;
    T *dqkv;
};

/* attention_half.cu, attention_half_back.cu (bf16, fp16), attention_fp32.cu; cudaError_t as int. */
int attention_forward_in(const attn &a, const float *qkv, float *o, float *lse, cudaStream_t s);
int attention_forward_in(const attn &a, const bf16 *qkv, bf16 *o, float *lse, cudaStream_t s);
int attention_forward_in(const attn &a, const fp16 *qkv, fp16 *o, float *lse, cudaStream_t s);
int attention_backward_in(const attn &a, const back_arrays<float> &x, cudaStream_t s);
int attention_backward_in(const attn &a, const back_arrays<bf16> &x, cudaStream_t s);
int attention_backward_in(const attn &a, const back_arrays<fp16> &x, cudaStream_t s);

/* ---- where things lie, in elements ---- */

/* Head `head` of q, or of k and v behind them, in the first token of a sample. */
DEVICE int64_t q_at(const attn &a, int sample, int head)
{
    return (int64_t)sample * a.seq * a.ld + (int64_t)head * a.dim;
}

DEVICE int64_t k_at(const attn &a, int sample, int kv)
{
    return q_at(a, sample, a.heads + kv);
}

DEVICE int64_t v_at(const attn &a, int sample, int kv)
{
    return q_at(a, sample, a.heads + a.kv_heads + kv);
}

DEVICE int o_pitch(const attn &a) { return a.heads * a.dim; }

DEVICE int64_t o_at(const attn &a, int sample, int head)
{
    return (int64_t)sample * a.seq * o_pitch(a) + (int64_t)head * a.dim;
}

/* Of log-sum-exp and delta. */
DEVICE int64_t stat_at(const attn &a, int sample, int head)
{
    return ((int64_t)sample * a.heads + head) * a.seq;
}

/* ---- numbers ---- */

#define LOG2E 1.4426950408889634f

/* 2^x within two units in the last place; 0 for -Inf. */
DEVICE float exp2_fast(float x)
{
#ifdef DPX_EMU
    return exp2f(x);
#else
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Element `i` of the probabilities: ((sample * heads + head) * seq + t) * seq + u. */
DEVICE bool drops(const attn &a, int64_t i)
{
    return (uint32_t)(drop_hash(a.drop.seed, (uint64_t)i) >> 32) < a.drop.limit;
}

/* ---- tiles ---- */

/* Rows of a tile are 16 bytes longer than what they hold: then eight rows' pieces of 16 bytes,
 * as ldmatrix and float4 read them, lie in different banks (DIM being a multiple of 16 elements
 * of 16 bits and of 8 in fp32, a row is an odd number of such pieces). */
template <class T> struct piece { static constexpr int SIZE = 16 / (int)sizeof(T); };

template <class T, int DIM> struct tile {
    static constexpr int PITCH = DIM + piece<T>::SIZE, PIECES = DIM / piece<T>::SIZE;
};

/* Rows row ... row+ROWS-1 of x, `pitch` apart, into shared memory: those before `end` and their
 * first `dim` elements; the rest becomes zero, so that products with it are.  Asynchronous where
 * 16 bytes can be moved: cp_async_commit() is the caller's. */
template <class T, int DIM, int ROWS, int THREADS>
DEVICE void load_tile(const attn &a, T *into, const T *x, int pitch, int row, int end)
{
    constexpr int PITCH = tile<T, DIM>::PITCH, PIECES = tile<T, DIM>::PIECES, STEP = THREADS / PIECES;

    x += (int64_t)row * pitch;
    end -= row;
    if (a.wide) {
        /* A thread stays in one column, so that its addresses are one and a distance; where a row
         * is no power of two pieces a few threads rest. */
        int r = (int)threadIdx.x / PIECES, c = (int)threadIdx.x % PIECES * piece<T>::SIZE;
#pragma unroll
        for (int n = 0; n < ROWS; n += STEP) {
            bool inside = r + n < end && c < a.dim;
            if ((THREADS % PIECES == 0 || r < STEP) && (ROWS % STEP == 0 || r + n < ROWS))
                cp_async_16_if(into + (r + n) * PITCH + c, x + (inside ? (r + n) * pitch + c : 0), inside);
        }
        return;
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < ROWS * DIM; i += THREADS) {
        int r = i / DIM, c = i % DIM;
        into[r * PITCH + c] = r < end && c < a.dim ? x[r * pitch + c] : T{};
    }
}

/* ---- launching ---- */

static inline __host__ __device__ int blocks_of(int n, int size) { return (n + size - 1) / size; }

#endif
