/* kernels_check.h -- arrays with guards, and kernels beside the reference. */
#ifndef DPX_KERNELS_CHECK_H
#define DPX_KERNELS_CHECK_H

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "base/fail.h"
#include "exec/kernels/half.h"
#include "exec/kernels/kernels.h"

enum { GUARD = 256 };                   /* bytes before and behind */
#define GUARD_BYTE 0xa5

/* ---- random numbers: xorshift64*, from a fixed seed ---- */

static uint64_t random_state = 88172645463325252u;

static inline uint64_t random_bits(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 2685821657736338717u;
}

static inline int64_t random_int(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(random_bits() % (uint64_t)(hi - lo + 1));
}

static inline double random_real(void) { return (double)(random_bits() >> 11) * 0x1p-52 - 1; }

static inline bool coin(void) { return random_bits() >> 63; }

/* ---- arrays ---- */

struct array { char *base; void *x; int64_t n; enum dtype t; };

static inline double array_get(const struct array *a, int64_t i)
{
    switch (a->t) {
    case DT_FP64: return ((double *)a->x)[i];
    case DT_BF16: return (double)half_from_bf16(((uint16_t *)a->x)[i]);
    case DT_FP16: return (double)half_from_fp16(((uint16_t *)a->x)[i]);
    case DT_UINT8: return ((uint8_t *)a->x)[i];
    default:      return (double)((float *)a->x)[i];
    }
}

static inline void array_set(const struct array *a, int64_t i, double value)
{
    switch (a->t) {
    case DT_FP64: ((double *)a->x)[i] = value; break;
    case DT_BF16: ((uint16_t *)a->x)[i] = half_to_bf16((float)value); break;
    case DT_FP16: ((uint16_t *)a->x)[i] = half_to_fp16((float)value); break;
    case DT_UINT8: ((uint8_t *)a->x)[i] = isnan(value) ? UINT8_MAX : (uint8_t)value; break;
    default:      ((float *)a->x)[i] = (float)value; break;
    }
}

/* n elements, all NaN, between guards. */
static inline struct array array_new(int64_t n, enum dtype t)
{
    int64_t bytes = n * dtype_bytes(t);
    struct array a = { .n = n, .t = t };

    a.base = malloc((size_t)bytes + 2 * GUARD);
    assert_non_null(a.base);
    memset(a.base, GUARD_BYTE, (size_t)bytes + 2 * GUARD);
    a.x = a.base + GUARD;
    for (int64_t i = 0; i < n; i++)
        array_set(&a, i, NAN);
    return a;
}

static inline struct array array_random(int64_t n, enum dtype t, double size)
{
    struct array a = array_new(n, t);

    for (int64_t i = 0; i < n; i++)
        array_set(&a, i, size * random_real());
    return a;
}

static inline struct array array_like(const struct array *from)
{
    struct array a = array_new(from->n, from->t);

    memcpy(a.x, from->x, (size_t)(a.n * dtype_bytes(a.t)));
    return a;
}

static inline bool guards_hold(const struct array *a)
{
    const unsigned char *end = (unsigned char *)a->x + a->n * dtype_bytes(a->t);

    for (int i = 0; i < GUARD; i++)
        if ((unsigned char)a->base[i] != GUARD_BYTE || end[i] != GUARD_BYTE)
            return false;
    return true;
}

static inline void array_free(struct array *a)
{
    assert_true(guards_hold(a));
    free(a->base);
}

/* fp32, or 16 bits. */
static inline enum dtype dtype_if(bool fp32) { return fp32 ? DT_FP32 : coin() ? DT_BF16 : DT_FP16; }
static inline enum dtype host_dtype(void) { return dtype_if(coin()); }

/* How far apart neighbours are: bf16's up to 2^-7 of their size, fp16's 2^-10; fp32 is given what its sums may differ. */
static inline double half_tol(enum dtype t, double fp32) { return t == DT_BF16 ? 1.01 * 0x1p-7 : t == DT_FP16 ? 1.01 * 0x1p-10 : fp32; }

/* assert_same()'s size: in fp16 that which lets sums differ by as much as bf16's does, and numbers below 2^-14 by 2^-24. */
static inline double half_size(enum dtype t, double bf16, double fp32) { return t == DT_BF16 ? bf16 : t == DT_FP16 ? 8 * bf16 + 0x1p-14 : fp32; }

/* ---- kernels ---- */

struct opened { struct kernels *k; const struct kernel_ops *ops; struct array workspace; };

static inline struct opened open_kernels(const struct kernels_need *need, bool reference)
{
    int64_t bytes = kernels_workspace(need);
    struct opened o = { .workspace = array_new(bytes / 4 + 1, DT_FP32) };

    o.k = kernels_open(need->threads, o.workspace.x, bytes, reference);
    assert_non_null(o.k);
    o.ops = kernels_ops(o.k);
    return o;
}

static inline void close_kernels(struct opened *o)
{
    kernels_close(o->k);
    array_free(&o->workspace);
}

/* Both, on the same shapes. */
struct both { struct opened host, ref; };

static inline struct both open_both(const struct kernels_need *need)
{
    return (struct both){ open_kernels(need, false), open_kernels(need, true) };
}

static inline void close_both(struct both *b)
{
    close_kernels(&b->host);
    close_kernels(&b->ref);
}

/* ---- comparing ---- */

/* Of one rounding to the dtype. */
static inline double unit(enum dtype t) { return t == DT_BF16 ? 0x1p-8 : t == DT_FP32 ? 0x1p-23 : 0x1p-52; }

/* Every element within tol of its own size plus tol of `size`, what the terms that were summed into it are like; of fp16 whose numbers below
 * 2^-14 are multiples of 2^-24, within one of those too; guards whole. */
static inline void assert_same(const char *what, const struct array *got, const struct array *want,
                               double tol, double size)
{
    assert_true(guards_hold(got));
    for (int64_t i = 0; i < want->n; i++) {
        double g = array_get(got, i), w = array_get(want, i);
        if (isnan(g) && isnan(w))       /* left alone by both */
            continue;
        if (!(fabs(g - w) <= fmax(tol * (fabs(w) + size), want->t == DT_FP16 ? 0x1p-24 : 0)))
            fail_msg("%s: element %" PRId64 " of %" PRId64 " is %.9g, the reference has %.9g (%s)", what, i,
                     want->n, g, w, dtype_name(want->t));
    }
}

#endif
