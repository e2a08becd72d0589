/* comm_reduce.c -- the additions of collectives: plain loops that the compiler vectorises.
 *
 * bf16 and fp16 are widened to fp32, added, and rounded to the nearest even; NaN stays NaN.  A maximum
 * with a NaN is a NaN.  Integers wrap.  Nothing is fused: a product is rounded before it is
 * added, so that a sum is the same bits on every machine. */
#include "exec/comm/comm_internal.h"

#include <assert.h>
#include <string.h>

#include "exec/kernels/half.h"

/* ---- one loop a format ---- */

#define FLOAT_LOOPS(type)                                                                       \
    static void add_##type(type *dst, const type *a, const type *b, type scale, int64_t n)      \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                         \
            dst[i] = a[i] + scale * b[i];                                                       \
    }                                                                                           \
    static void scale_##type(type *dst, const type *src, type scale, int64_t n)                 \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                         \
            dst[i] = scale * src[i];                                                            \
    }                                                                                           \
    static void divide_##type(type *x, type by, int64_t n)                                      \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                         \
            x[i] /= by;                                                                         \
    }
FLOAT_LOOPS(float)
FLOAT_LOOPS(double)

#define MAX_LOOP(type)                                                                          \
    static void max_##type(type *dst, const type *a, const type *b, int64_t n)                  \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                         \
            dst[i] = a[i] > b[i] || a[i] != a[i] ? a[i] : b[i];                                 \
    }
MAX_LOOP(float)
MAX_LOOP(double)
MAX_LOOP(int32_t)
MAX_LOOP(int64_t)
MAX_LOOP(uint8_t)

#define MIN_LOOP(type)                                                                          \
    static void min_##type(type *dst, const type *a, const type *b, int64_t n)                  \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                         \
            dst[i] = a[i] < b[i] ? a[i] : b[i];                                                 \
    }
MIN_LOOP(int32_t)
MIN_LOOP(int64_t)
MIN_LOOP(uint8_t)

/* Unsigned: a signed sum must not overflow. */
#define WHOLE_LOOP(type)                                                                        \
    static void add_##type(type *dst, const type *a, const type *b, int64_t n)                  \
    {                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                         \
            dst[i] = (type)(a[i] + b[i]);                                                       \
    }
WHOLE_LOOP(uint32_t)
WHOLE_LOOP(uint64_t)
WHOLE_LOOP(uint8_t)

/* half_to_bf16() without its branch, which keeps gcc 12 from vectorising. */
static inline uint16_t narrow_bf16(float f)
{
    uint32_t bits, rounded;

    memcpy(&bits, &f, sizeof bits);
    rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((f == f ? rounded : bits | 0x400000) >> 16);
}

static inline uint16_t narrow_fp16(float f) { return half_to_fp16(f); }

#define HALF_LOOPS(type)                                                                                \
    static void add_##type(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n)              \
    {                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                                 \
            dst[i] = narrow_##type(half_from_##type(a[i]) + half_from_##type(b[i]));                    \
    }                                                                                                   \
    static void add_scaled_##type(uint16_t *dst, const uint16_t *a, const uint16_t *b, float scale, int64_t n) \
    {                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                                 \
            dst[i] = narrow_##type(half_from_##type(a[i]) +                                             \
                                   half_from_##type(narrow_##type(scale * half_from_##type(b[i]))));    \
    }                                                                                                   \
    static void max_##type(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n)              \
    {                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                               \
            float x = half_from_##type(a[i]), y = half_from_##type(b[i]);                               \
            dst[i] = x > y || x != x ? a[i] : b[i];                                                     \
        }                                                                                               \
    }                                                                                                   \
    static void scale_##type(uint16_t *dst, const uint16_t *src, float scale, int64_t n)                \
    {                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                                 \
            dst[i] = narrow_##type(scale * half_from_##type(src[i]));                                   \
    }                                                                                                   \
    static void divide_##type(uint16_t *x, float by, int64_t n)                                         \
    {                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                                 \
            x[i] = narrow_##type(half_from_##type(x[i]) / by);                                          \
    }
HALF_LOOPS(bf16)
HALF_LOOPS(fp16)

/* ---- by dtype ---- */

static void maximum(enum dtype t, void *dst, const void *a, const void *b, int64_t n)
{
    switch (t) {
    case DT_FP32:  max_float(dst, a, b, n); break;
    case DT_FP64:  max_double(dst, a, b, n); break;
    case DT_BF16:  max_bf16(dst, a, b, n); break;
    case DT_FP16:  max_fp16(dst, a, b, n); break;
    case DT_INT32: max_int32_t(dst, a, b, n); break;
    case DT_INT64: max_int64_t(dst, a, b, n); break;
    case DT_UINT8: max_uint8_t(dst, a, b, n); break;
    case DT_INT8: case DT_FP8:
    case NDTYPE:   assert(!"a maximum of this dtype");
    }
}

static void minimum(enum dtype t, void *dst, const void *a, const void *b, int64_t n)
{
    switch (t) {
    case DT_INT32: min_int32_t(dst, a, b, n); break;
    case DT_INT64: min_int64_t(dst, a, b, n); break;
    case DT_UINT8: min_uint8_t(dst, a, b, n); break;
    default:       assert(!"a minimum of this dtype");
    }
}

void reduce_add(enum dtype t, enum red_op red, void *dst, const void *a, const void *b, double scale,
                int64_t n)
{
    if (red == RED_MAX) {
        maximum(t, dst, a, b, n);
        return;
    }
    if (red == RED_MIN) {
        minimum(t, dst, a, b, n);
        return;
    }
    switch (t) {
    case DT_FP32:  add_float(dst, a, b, (float)scale, n); break;
    case DT_FP64:  add_double(dst, a, b, scale, n); break;
    case DT_INT32: add_uint32_t(dst, a, b, n); break;
    case DT_INT64: add_uint64_t(dst, a, b, n); break;
    case DT_UINT8: add_uint8_t(dst, a, b, n); break;
    case DT_BF16:
        if (scale == 1)
            add_bf16(dst, a, b, n);
        else
            add_scaled_bf16(dst, a, b, (float)scale, n);
        break;
    case DT_FP16:
        if (scale == 1)
            add_fp16(dst, a, b, n);
        else
            add_scaled_fp16(dst, a, b, (float)scale, n);
        break;
    case DT_INT8: case DT_FP8:
    case NDTYPE:   assert(!"a sum of this dtype");
    }
}

void reduce_scale(enum dtype t, void *dst, const void *src, double scale, int64_t n)
{
    assert(t == DT_FP32 || t == DT_FP64 || t == DT_BF16 || t == DT_FP16);
    if (t == DT_FP32)
        scale_float(dst, src, (float)scale, n);
    else if (t == DT_FP64)
        scale_double(dst, src, scale, n);
    else if (t == DT_FP16)
        scale_fp16(dst, src, (float)scale, n);
    else
        scale_bf16(dst, src, (float)scale, n);
}

void reduce_divide(enum dtype t, void *x, double by, int64_t n)
{
    assert(t == DT_FP32 || t == DT_FP64 || t == DT_BF16 || t == DT_FP16);
    if (t == DT_FP32)
        divide_float(x, (float)by, n);
    else if (t == DT_FP64)
        divide_double(x, by, n);
    else if (t == DT_FP16)
        divide_fp16(x, (float)by, n);
    else
        divide_bf16(x, (float)by, n);
}

/* ---- in rank order ---- */

enum { BLOCK = 1024 };          /* elements whose sum stays in the first cache */

static void widen(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = half_from_bf16(src[i]);
}

/* dst = a block of the sum, in fp32 until it is rounded. */
static void sum_once(const struct coll_call *c, uint16_t *dst, const void *const *x, int nx, int64_t at,
                     int64_t n)
{
    float sum[BLOCK], more[BLOCK];

    widen(sum, (const uint16_t *)x[0] + at, n);
    for (int k = 1; k < nx; k++) {
        widen(more, (const uint16_t *)x[k] + at, n);
        add_float(sum, sum, more, 1, n);
    }
    if (c->red == RED_AVG)
        divide_float(sum, (float)nx, n);
    for (int64_t i = 0; i < n; i++)
        dst[at + i] = narrow_bf16(sum[i]);
}

/* The same in the dtype itself. */
static void sum_each(const struct coll_call *c, char *dst, const void *const *x, int nx, int64_t at,
                     int64_t n)
{
    _Alignas(64) char sum[BLOCK * 8];
    int64_t size = dtype_bytes(c->dtype);

    memcpy(sum, (const char *)x[0] + at * size, (size_t)(n * size));
    for (int k = 1; k < nx; k++)
        reduce_add(c->dtype, c->red, sum, sum, (const char *)x[k] + at * size, 1, n);
    if (c->red == RED_AVG)
        reduce_divide(c->dtype, sum, nx, n);
    memcpy(dst + at * size, sum, (size_t)(n * size));
}

void reduce_ranks(const struct coll_call *c, void *dst, const void *const *x, int nx, int64_t n)
{
    bool once = c->dtype == DT_BF16 && c->sum == SUM_ONCE && c->red != RED_MAX;

    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t len = n - at < BLOCK ? n - at : BLOCK;

        if (once)
            sum_once(c, dst, x, nx, at, len);
        else
            sum_each(c, dst, x, nx, at, len);
    }
}
