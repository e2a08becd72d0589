/* common.cuh -- what the kernels share: launches, 16-byte accesses, sums, tensor cores, dropout.
 *
 * The same source is compiled by nvcc for devices (sm_80 and later) and, with DPX_EMU, by a host
 * compiler against tests/emu/include, where a block's threads are fibers.  What the two do
 * differently is here and nowhere else.
 *
 * Blocks are one-dimensional, of a multiple of 32 threads.  All threads of a warp reach each
 * warp_*, mma_* and ldmatrix_* call, and all threads of a block each block_* call. */
#ifndef DPX_CUDA_COMMON_CUH
#define DPX_CUDA_COMMON_CUH

#include <cuda_runtime.h>
#ifdef DPX_EMU
#include "exec/kernels/half.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "exec/cuda/launch.h"

#define DEVICE static __device__ __forceinline__

/* ---- launches and shared memory ----
 *
 *     LAUNCH(kernel, grid, block, shared_bytes, stream, args...);
 *     LAUNCH((kernel<float, 4>), grid, ...);          a template: in parentheses
 *     return cuda_launched("kernel");
 *
 *     SHARED float tile[32];                          static, 48 KiB at most in all
 *     DYNAMIC_SHARED(float, tile);                    float *tile, aligned to 128 bytes; one a kernel */
#ifdef DPX_EMU
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    emu_launch(#kernel, kernel, grid, block, shared, stream, ##__VA_ARGS__)
#define SHARED static thread_local
#define DYNAMIC_SHARED(type, name) type *name = (type *)emu_dynamic_shared()
#else
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#define SHARED __shared__
#define DYNAMIC_SHARED(type, name) \
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[]; \
    type *name = (type *)dynamic_shared_bytes
#endif

/* What the launch itself complained about: 0, or the cudaError_t.  The name is for the reader. */
static inline int cuda_launched(const char *)
{
    return (int)cudaGetLastError();
}

/* Allows a kernel more than 48 KiB of dynamic shared memory.  0 or the cudaError_t. */
#define ALLOW_SHARED(kernel, bytes) \
    ((int)cudaFuncSetAttribute((const void *)(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)))

/* Blocks for n items, `each` a block; at least 1 and at most `most`, for loops that stride. */
static inline unsigned blocks_for(int64_t n, int64_t each, int64_t most)
{
    int64_t blocks = (n + each - 1) / each;

    return (unsigned)(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

static inline bool aligned_16(const void *p) { return (uintptr_t)p % 16 == 0; }

/* ---- bf16: the upper half of fp32, raw in memory ---- */

typedef uint16_t bf16;

DEVICE float bf16_to_float(bf16 x)
{
#ifdef DPX_EMU
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
#else
    return __uint_as_float((uint32_t)x << 16);
#endif
}

/* To the nearest, to even when halfway; NaN stays NaN. */
DEVICE bf16 float_to_bf16(float f)
{
#ifdef DPX_EMU
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    if (f != f)
        return 0x7fff;
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#else
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
#endif
}

/* ---- fp16: IEEE 754's binary16, raw in memory ---- */

struct fp16 { uint16_t bits; };

DEVICE float fp16_to_float(fp16 x)
{
#ifdef DPX_EMU
    return half_from_fp16(x.bits);
#else
    return __half2float(__ushort_as_half(x.bits));
#endif
}

/* To the nearest, to even when halfway; NaN stays NaN. */
DEVICE fp16 float_to_fp16(float f)
{
#ifdef DPX_EMU
    return fp16{ half_to_fp16(f) };
#else
    return fp16{ __half_as_ushort(__float2half_rn(f)) };
#endif
}

/* ---- elements in memory, fp32 in registers: T is float, bf16 or fp16, H one of the latter two ---- */

DEVICE float get(const float *p) { return *p; }
DEVICE float get(const bf16 *p) { return bf16_to_float(*p); }
DEVICE float get(const fp16 *p) { return fp16_to_float(*p); }
DEVICE void put(float *p, float x) { *p = x; }
DEVICE void put(bf16 *p, float x) { *p = float_to_bf16(x); }
DEVICE void put(fp16 *p, float x) { *p = float_to_fp16(x); }

template <typename T> struct is_fp16 { enum { YES = false }; };
template <> struct is_fp16<fp16> { enum { YES = true }; };

/* Two of H in a word, as fragments of mma hold them: `low` is the element that comes first.  fp16: from 65520 on infinity. */
template <typename H> DEVICE uint32_t floats_to_pair(float low, float high)
{
    uint32_t word;

#ifdef DPX_EMU
    H x[2];

    put(x, low), put(x + 1, high);
    memcpy(&word, x, sizeof word);
#else
    if constexpr (is_fp16<H>::YES)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
#endif
    return word;
}

template <typename H> DEVICE float half_to_float(uint32_t bits)
{
    if constexpr (is_fp16<H>::YES)
        return fp16_to_float(fp16{ (uint16_t)bits });
    else
        return bf16_to_float((bf16)bits);
}

template <typename H> DEVICE float pair_low(uint32_t word) { return half_to_float<H>(word & 0xffff); }
template <typename H> DEVICE float pair_high(uint32_t word) { return half_to_float<H>(word >> 16); }

/* f<T>(...) of the code that launchers are given: DT_FP32, DT_FP16 or DT_BF16. */
#define BY_DTYPE(at, f, ...) \
    ((int)(at) == LAUNCH_FP32 ? f<float>(__VA_ARGS__) : (int)(at) == LAUNCH_FP16 ? f<fp16>(__VA_ARGS__) : f<bf16>(__VA_ARGS__))

/* f<T, W>(...), W being the elements in 16 bytes where that many are moved at a time, else 1. */
#define BY_PACK(at, wide, f, ...) \
    ((int)(at) == LAUNCH_FP32 ? (wide) ? f<float, 4>(__VA_ARGS__) : f<float, 1>(__VA_ARGS__) : \
     (int)(at) == LAUNCH_FP16 ? (wide) ? f<fp16, 8>(__VA_ARGS__) : f<fp16, 1>(__VA_ARGS__) \
                              : (wide) ? f<bf16, 8>(__VA_ARGS__) : f<bf16, 1>(__VA_ARGS__))

/* 16 bytes as they are: 4 floats or 8 of 16 bits.  The address must be aligned to 16. */
struct raw16 { uint32_t word[4]; };

DEVICE raw16 load_raw16(const void *p)
{
#ifdef DPX_EMU
    emu_check_aligned(p, 16, "a load of 16 bytes");
#endif
    uint4 x = *(const uint4 *)p;
    raw16 r = { { x.x, x.y, x.z, x.w } };

    return r;
}

DEVICE void store_raw16(void *p, raw16 r)
{
#ifdef DPX_EMU
    emu_check_aligned(p, 16, "a store of 16 bytes");
#endif
    *(uint4 *)p = make_uint4(r.word[0], r.word[1], r.word[2], r.word[3]);
}

/* 16 bytes of T's, widened. */
template <typename T> struct vec { enum { N = 16 / sizeof(T) }; float v[N]; };

DEVICE vec<float> load16(const float *p)
{
    raw16 r = load_raw16(p);
    vec<float> x;

    memcpy(x.v, r.word, sizeof x.v);
    return x;
}

template <typename H> DEVICE vec<H> load16(const H *p)
{
    raw16 r = load_raw16(p);
    vec<H> x;

#pragma unroll
    for (int i = 0; i < 4; i++) {
        x.v[2 * i] = pair_low<H>(r.word[i]);
        x.v[2 * i + 1] = pair_high<H>(r.word[i]);
    }
    return x;
}

DEVICE void store16(float *p, const vec<float> &x)
{
    raw16 r;

    memcpy(r.word, x.v, sizeof r.word);
    store_raw16(p, r);
}

template <typename H> DEVICE void store16(H *p, const vec<H> &x)
{
    raw16 r;

#pragma unroll
    for (int i = 0; i < 4; i++)
        r.word[i] = floats_to_pair<H>(x.v[2 * i], x.v[2 * i + 1]);
    store_raw16(p, r);
}

/* ---- sums and maxima: every thread gets the result, the same on every run ---- */

enum { WARP = 32, FULL_WARP = -1 };     /* the mask of all lanes */

DEVICE int lane_of() { return (int)(threadIdx.x % WARP); }
DEVICE int warp_of() { return (int)(threadIdx.x / WARP); }

/* float, double, int, unsigned */
template <typename T> DEVICE T warp_sum(T x)
{
#pragma unroll
    for (int apart = WARP / 2; apart; apart /= 2)
        x += __shfl_xor_sync((unsigned)FULL_WARP, x, apart);
    return x;
}

/* NaN is lost, as by fmaxf(). */
DEVICE float warp_max(float x)
{
#pragma unroll
    for (int apart = WARP / 2; apart; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync((unsigned)FULL_WARP, x, apart));
    return x;
}

/* `buffer`: 32 elements of shared memory that all threads pass alike.  It may be used again
 * right after, for the next sum too: both functions end with a barrier. */
template <typename T> DEVICE T block_sum(T x, T *buffer)
{
    int lane = lane_of(), warps = (int)(blockDim.x / WARP);

    x = warp_sum(x);
    if (lane == 0)
        buffer[warp_of()] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? buffer[lane] : (T)0);
    __syncthreads();
    return x;
}

DEVICE float block_max(float x, float *buffer)
{
    int lane = lane_of(), warps = (int)(blockDim.x / WARP);

    x = warp_max(x);
    if (lane == 0)
        buffer[warp_of()] = x;
    __syncthreads();
    x = warp_max(lane < warps ? buffer[lane] : -INFINITY);
    __syncthreads();
    return x;
}

/* ---- tensor cores and what feeds them: PTX ISA 9.7.14 (mma, ldmatrix), 9.7.9.25 (cp.async) ----
 *
 * Fragments of lane t, g = t/4, c = 2 (t%4); a word is two of H, the lower half first:
 *     a[0] = A[g][c, c+1]    a[1] = A[g+8][c, c+1]    a[2] = A[g][c+8, c+9]    a[3] = A[g+8][c+8, c+9]
 *     b[0] = B[c, c+1][g]    b[1] = B[c+8, c+9][g]
 *     d[0] = D[g][c]    d[1] = D[g][c+1]    d[2] = D[g+8][c]    d[3] = D[g+8][c+1] */

/* D[16, 8] += A[16, 16] B[16, 8] */
#define MMA_16816(H, d, a, b) \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." H "." H ".f32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <typename H> DEVICE void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
#ifdef DPX_EMU
    emu_mma_16816(d, a, b, is_fp16<H>::YES);
#else
    if constexpr (is_fp16<H>::YES)
        MMA_16816("f16", d, a, b);
    else
        MMA_16816("bf16", d, a, b);
#endif
}

/* Four 8 x 8 matrices of 16-bit elements in shared memory: lane t names row t%8 of matrix t/8,
 * 8 elements aligned to 16 bytes.  r[i] = matrix i's [t/4][2 (t%4), 2 (t%4) + 1]. */
DEVICE void ldmatrix_x4(uint32_t r[4], const void *row)
{
#ifdef DPX_EMU
    emu_ldmatrix_x4(r, row, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/* r[i] = matrix i's [2 (t%4), 2 (t%4) + 1][t/4] */
DEVICE void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
#ifdef DPX_EMU
    emu_ldmatrix_x4(r, row, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

/* Starts copying 16 aligned bytes to shared memory, zeros unless `there` (`from` is not read
 * then, but must be an address of device memory).  They are there for the thread itself after
 * cp_async_wait, for the block after a barrier that follows. */
DEVICE void cp_async_16_if(void *shared, const void *from, bool there)
{
#ifdef DPX_EMU
    emu_cp_async_16(shared, from, there);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 : : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(__cvta_generic_to_global(from)),
                     "r"(there ? 16 : 0)
                 : "memory");
#endif
}

DEVICE void cp_async_16(void *shared, const void *from)
{
#ifdef DPX_EMU
    emu_cp_async_16(shared, from, true);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 : : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(__cvta_generic_to_global(from))
                 : "memory");
#endif
}

/* What this thread started since the last commit becomes a group. */
DEVICE void cp_async_commit()
{
#ifdef DPX_EMU
    emu_cp_async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until all groups but the last N are there. */
template <int N> DEVICE void cp_async_wait()
{
#ifdef DPX_EMU
    emu_cp_async_wait(N);
#else
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}

/* ---- dropout: the bits of exec/kernels/kernels_simd.h ---- */

DEVICE uint64_t drop_hash(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* x as dropout leaves element i. */
DEVICE float dropped(const launch_drop &d, uint64_t i, float x)
{
    return (uint32_t)(drop_hash(d.seed, i) >> 32) < d.limit ? 0.0f : d.keep * x;
}

#endif
