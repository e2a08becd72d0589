/* cuda_runtime.h -- the interface and, for C++, the language of kernels, as a host compiler takes it.
 *
 * A kernel is a function; emu_launch() calls it once for every thread (tests/emu/block.cc), with the
 * built-in variables set.  Only what the design of dpx's kernels allows is here. */
#ifndef EMU_CUDA_RUNTIME_H
#define EMU_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include <math.h>
#include <string.h>

#include <functional>
#include <tuple>
#include <type_traits>

#include "emu.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __restrict__ __restrict
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* ---- types; kernels look at arrays of other types through them, as nvcc allows ---- */

struct __attribute__((may_alias)) uint3 { unsigned x, y, z; };
struct __attribute__((may_alias, aligned(8))) float2 { float x, y; };
struct __attribute__((may_alias, aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((may_alias, aligned(8))) int2 { int x, y; };
struct __attribute__((may_alias, aligned(16))) int4 { int x, y, z, w; };
struct __attribute__((may_alias, aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((may_alias, aligned(16))) uint4 { unsigned x, y, z, w; };
struct __attribute__((may_alias, aligned(16))) double2 { double x, y; };

static inline float2 make_float2(float x, float y) { return { x, y }; }
static inline float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
static inline int2 make_int2(int x, int y) { return { x, y }; }
static inline int4 make_int4(int x, int y, int z, int w) { return { x, y, z, w }; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return { x, y }; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return { x, y, z, w }; }
static inline double2 make_double2(double x, double y) { return { x, y }; }

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* Of the thread that runs.  Not const: a compiler may keep a const over a barrier. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- what waits for other threads (block.cc, warp.cc); `line` is the caller's, for messages ---- */

void emu_barrier(int line);
void emu_warp_barrier(unsigned mask, int line);
uint64_t emu_shuffle(unsigned mask, uint64_t mine, int kind, int by, int width, int line);
unsigned emu_ballot(unsigned mask, bool vote, int line);
void emu_mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2], bool fp16, int line = __builtin_LINE());
void emu_ldmatrix_x4(uint32_t r[4], const void *row, bool transposed, int line = __builtin_LINE());
void emu_cp_async_16(void *shared, const void *from, bool there);
void emu_cp_async_commit();
void emu_cp_async_wait(int but);
void *emu_dynamic_shared();

enum { EMU_SHUFFLE_FROM, EMU_SHUFFLE_XOR, EMU_SHUFFLE_DOWN, EMU_SHUFFLE_UP };

template <typename T> static inline T emu_shuffled(unsigned mask, T x, int kind, int by, int width, int line)
{
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_arithmetic<T>::value, "a number");
    uint64_t word = 0;

    memcpy(&word, &x, sizeof x);
    word = emu_shuffle(mask, word, kind, by, width, line);
    memcpy(&x, &word, sizeof x);
    return x;
}

static inline void __syncthreads(int line = __builtin_LINE()) { emu_barrier(line); }
static inline void __syncwarp(unsigned mask = 0xffffffff, int line = __builtin_LINE()) { emu_warp_barrier(mask, line); }
static inline unsigned __ballot_sync(unsigned mask, int vote, int line = __builtin_LINE())
{
    return emu_ballot(mask, vote != 0, line);
}
static inline int __any_sync(unsigned mask, int vote, int line = __builtin_LINE())
{
    return emu_ballot(mask, vote != 0, line) != 0;
}
static inline int __all_sync(unsigned mask, int vote, int line = __builtin_LINE())
{
    return emu_ballot(mask, vote != 0, line) == 0xffffffff;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32, int line = __builtin_LINE())
{
    return emu_shuffled(mask, x, EMU_SHUFFLE_FROM, lane, width, line);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32, int line = __builtin_LINE())
{
    return emu_shuffled(mask, x, EMU_SHUFFLE_XOR, by, width, line);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32, int line = __builtin_LINE())
{
    return emu_shuffled(mask, x, EMU_SHUFFLE_DOWN, (int)by, width, line);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32, int line = __builtin_LINE())
{
    return emu_shuffled(mask, x, EMU_SHUFFLE_UP, (int)by, width, line);
}

/* ---- atomics: threads run one at a time ---- */

template <typename T> static inline T emu_add(T *p, T x) { T old = *p; *p = old + x; return old; }
static inline int atomicAdd(int *p, int x) { return emu_add(p, x); }
static inline unsigned atomicAdd(unsigned *p, unsigned x) { return emu_add(p, x); }
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long x) { return emu_add(p, x); }
static inline float atomicAdd(float *p, float x) { return emu_add(p, x); }
static inline double atomicAdd(double *p, double x) { return emu_add(p, x); }
static inline int atomicMax(int *p, int x) { int old = *p; *p = old > x ? old : x; return old; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* ---- arithmetic ---- */

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <typename T> static inline T __ldg(const T *p) { return *p; }
#define __expf(x) expf(x)                /* glibc has functions of these names */
#define __logf(x) logf(x)
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
/* Rounded once each; objects are built with -ffp-contract=off. */
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __uint_as_float(unsigned x) { float f; memcpy(&f, &x, sizeof f); return f; }
static inline unsigned __float_as_uint(float f) { unsigned x; memcpy(&x, &f, sizeof x); return x; }
static inline float __int_as_float(int x) { return __uint_as_float((unsigned)x); }
static inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }

/* Aborts, naming the thread, unless the address is a multiple of `to`. */
void emu_misaligned(const void *p, int to, const char *what);
static inline void emu_check_aligned(const void *p, int to, const char *what)
{
    if ((uintptr_t)p % (uintptr_t)to)
        emu_misaligned(p, to, what);
}

/* ---- launches ---- */

struct emu_pointer_args { int n; const void *p[32]; };

/* Queues the kernel; what is wrong with the launch is found by cudaGetLastError(). */
void emu_queue_kernel(const char *name, const void *kernel, std::function<void()> thread, dim3 grid, dim3 block,
                      size_t shared, cudaStream_t s, const emu_pointer_args *pointers);

template <typename T> static inline void emu_note_pointer(emu_pointer_args *into, const T &x)
{
    if constexpr (std::is_pointer<T>::value)
        if (into->n < 32)
            into->p[into->n++] = (const void *)x;
}

template <typename... P, typename... A>
static inline void emu_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                              cudaStream_t s, const A &...args)
{
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has");
    std::tuple<std::decay_t<P>...> values(static_cast<std::decay_t<P>>(args)...);
    emu_pointer_args pointers = {};

    std::apply([&](const auto &...x) { (emu_note_pointer(&pointers, x), ...); }, values);
    emu_queue_kernel(name, (const void *)kernel, [kernel, values] { std::apply(kernel, values); }, grid, block,
                     shared, s, &pointers);
}

template <typename... P>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, attribute, value);
}

template <typename... P>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...), int block,
                                                                        size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, block, shared);
}

template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t bytes) { return cudaMalloc((void **)p, bytes); }
template <typename T> static inline cudaError_t cudaMallocHost(T **p, size_t bytes) { return cudaMallocHost((void **)p, bytes); }

#endif
#endif
