/* pack.cuh -- W neighbouring elements of an array, which a thread loads and stores at once.
 *
 * An element is a float, a bf16 as uint16_t, or an fp16; a pack has the fp32 values.  W > 1 asks for an
 * address that is a multiple of 16 bytes (of W elements, where that is less); W = 1 for nothing. */
#ifndef DPX_PACK_CUH
#define DPX_PACK_CUH

#include "exec/cuda/common.cuh"
#include "exec/cuda/elements.h"

/* Large parameters that a kernel reads where they are, by an index: no thread gets a copy. */
#ifdef DPX_EMU
#define GRID_CONSTANT
#else
#define GRID_CONSTANT __grid_constant__
#endif

/* Elements in 16 bytes. */
template <typename T> struct full { static constexpr int W = 16 / (int)sizeof(T); };

/* Whether packs of w elements may be loaded at p. */
static inline bool takes(const void *p, enum dtype t, int w)
{
    int bytes = w * (t == DT_FP32 ? 4 : 2);

    return (uintptr_t)p % (uintptr_t)(bytes < 16 ? bytes : 16) == 0;
}

template <int W> DEVICE void load(const float *from, float (&x)[W])
{
    if constexpr (W == 1) {
        x[0] = *from;
    } else {
#pragma unroll
        for (int j = 0; j < W; j += 4) {
            float4 v = *(const float4 *)(from + j);
            x[j] = v.x, x[j + 1] = v.y, x[j + 2] = v.z, x[j + 3] = v.w;
        }
    }
}

template <typename H> DEVICE void widen_pair(uint32_t pair, float *x)
{
    x[0] = pair_low<H>(pair);
    x[1] = pair_high<H>(pair);
}

template <typename H> DEVICE void widen_pairs(uint4 v, float (&x)[8])
{
    widen_pair<H>(v.x, x), widen_pair<H>(v.y, x + 2), widen_pair<H>(v.z, x + 4), widen_pair<H>(v.w, x + 6);
}

template <int W, typename H> DEVICE void load(const H *from, float (&x)[W])
{
    static_assert(W == 1 || W == 4 || W == 8, "2, 8 or 16 bytes");
    if constexpr (W == 1) {
        x[0] = get(from);
    } else if constexpr (W == 4) {
        uint2 v = *(const uint2 *)from;
        widen_pair<H>(v.x, x), widen_pair<H>(v.y, x + 2);
    } else {
        widen_pairs<H>(*(const uint4 *)from, x);
    }
}

template <int W> DEVICE void store(float *to, const float (&x)[W])
{
    if constexpr (W == 1) {
        *to = x[0];
    } else {
#pragma unroll
        for (int j = 0; j < W; j += 4)
            *(float4 *)(to + j) = make_float4(x[j], x[j + 1], x[j + 2], x[j + 3]);
    }
}

template <typename H> DEVICE uint32_t narrow_pair(const float *x)
{
    return floats_to_pair<H>(x[0], x[1]);
}

template <int W, typename H> DEVICE void store(H *to, const float (&x)[W])
{
    if constexpr (W == 1)
        put(to, x[0]);
    else if constexpr (W == 4)
        *(uint2 *)to = make_uint2(narrow_pair<H>(x), narrow_pair<H>(x + 2));
    else
        *(uint4 *)to = make_uint4(narrow_pair<H>(x), narrow_pair<H>(x + 2), narrow_pair<H>(x + 4), narrow_pair<H>(x + 6));
}

/* The same at the end of an array: `left` elements are there, and the rest of the pack is 0. */
template <int W, typename T> DEVICE void load(const T *from, int64_t left, float (&x)[W])
{
    if (left >= W) {
        load<W>(from, x);
    } else {
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = j < left ? get(from + j) : 0;
    }
}

template <int W, typename T> DEVICE void store(T *to, int64_t left, const float (&x)[W])
{
    if (left >= W) {
        store<W>(to, x);
    } else {
#pragma unroll
        for (int j = 0; j < W; j++)
            if (j < left)
                put(to + j, x[j]);
    }
}

/* Parameters and their gradients, whose dtype is the same for all threads: a branch, not a template. */
template <int W> DEVICE void load_as(enum dtype t, const void *from, int64_t at, int64_t left, float (&x)[W])
{
    if (t == DT_FP32)
        load<W>((const float *)from + at, left, x);
    else if (t == DT_FP16)
        load<W>((const fp16 *)from + at, left, x);
    else
        load<W>((const bf16 *)from + at, left, x);
}

template <int W> DEVICE void store_as(enum dtype t, void *to, int64_t at, int64_t left, const float (&x)[W])
{
    if (t == DT_FP32)
        store<W>((float *)to + at, left, x);
    else if (t == DT_FP16)
        store<W>((fp16 *)to + at, left, x);
    else
        store<W>((bf16 *)to + at, left, x);
}

/* ---- several arrays in one launch ---- */

/* Which array block b works on: the last whose first block is not beyond it.  Empty ones share
 * their first block with the next. */
DEVICE int array_of(const int *first, int count, int b)
{
    int low = 0, high = count - 1;

    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (first[mid] <= b)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* ---- dropout ---- */

/* An element as dropout leaves it.  Its product is rounded as it stands: nvcc would fuse it with the sum
 * that it enters, the host does not. */
DEVICE float dropped(const struct cuda_drop &d, int64_t i, float x)
{
    return (uint32_t)(drop_hash(d.seed, (uint64_t)i) >> 32) < d.limit ? 0.0f : __fmul_rn(d.keep, x);
}

#endif
