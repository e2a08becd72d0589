/* kernels_simd.h -- the inner loops of the host kernels, compiled for several CPUs.
 *
 * kernels_simd_body.h is compiled three times: for x86-64-v4 (AVX-512), x86-64-v3 (AVX2,
 * FMA) and for what the compiler targets by itself; simd_best() picks by what the CPU has.
 * (Not target_clones: gcc 12 does not clone OpenMP bodies, clang 14 has no such names, and
 * resolvers run before sanitizers are ready.)  All arrays are fp32 unless said otherwise;
 * none need be aligned.  Parallel loops and other dtypes are the callers' business.
 *
 * exp is within 2 ulp, denormals included, erf within 1.5e-7: measured in
 * tests/exec/test_kernels_math.c. */
#ifndef DPX_KERNELS_SIMD_H
#define DPX_KERNELS_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#include "model/arch/transformer.h"

/* p = decay*p - step_size * m / (sqrt(v)*root + eps), g times scale first */
struct adamw_rates { float decay, keep1, b2, keep2, step_size, root, eps, scale; };  /* keep: 1 - b */
/* sgd: g += decay*p, m = b1*m + g, p -= lr*m; lion: p = decay*p - lr*sign(b1*m + keep1*g), m = b2*m + keep2*g */
struct moment_rates { float lr, decay, b1, keep1, b2, keep2, scale; };

struct simd {
    const char *name;
    void (*widen)(int64_t n, const uint16_t *bf16, float *x);
    void (*narrow)(int64_t n, const float *x, uint16_t *bf16);
    void (*widen_fp16)(int64_t n, const uint16_t *fp16, float *x);
    void (*narrow_fp16)(int64_t n, const float *x, uint16_t *fp16);        /* what is beyond its range becomes infinite */

    void (*exps)(int64_t n, const float *x, float *y);
    void (*erfs)(int64_t n, const float *x, float *y);
    void (*activation)(enum activation act, int64_t n, const float *gate, const float *up, float *y);
    void (*activation_back)(enum activation act, int64_t n, const float *gate, const float *up,
                            float *du, float *dgate);

    void   (*scale)(int64_t n, float a, const float *x, float *y);          /* y = a x */
    void   (*axpy)(int64_t n, float a, const float *x, float *y);           /* y += a x */
    void   (*plus)(int64_t n, const float *x, const float *z, float *y);    /* y = x + z */
    float  (*dot)(int64_t n, const float *x, const float *y);
    double (*sum_squares)(int64_t n, const float *x);
    /* x[i] = keep*x[i], or 0 where the hash of first + i is below the limit */
    void (*drop)(int64_t n, float *x, uint64_t seed, int64_t first, uint32_t limit, float keep);
    void (*adamw)(const struct adamw_rates *r, int64_t n, float *p, float *m, float *v, const float *g);
    void (*sgd)(const struct moment_rates *r, int64_t n, float *p, float *m, const float *g);
    void (*lion)(const struct moment_rates *r, int64_t n, float *p, float *m, const float *g);

    /* (x, y) = (x c - y s, y c + x s) */
    void (*rotate)(int64_t n, const float *c, const float *s, float *x, float *y);

    /* One row.  w and b may be NULL. */
    void (*layer_norm)(int64_t h, float eps, const float *x, const float *w, const float *b, float *y,
                       float *mean, float *rstd);
    void (*rms_norm)(int64_t h, float eps, const float *x, const float *w, const float *b, float *y,
                     float *rstd);
    /* RMSNorm: not centred, mean 0. */
    void (*norm_back)(int64_t h, bool centred, float mean, float rstd, const float *dy, const float *x,
                      const float *w, float *dx);
    void (*norm_weight_back)(int64_t h, float mean, float rstd, const float *dy, const float *x, float *dw);

    float (*largest)(int64_t n, const float *x);
    float (*sum_exp)(int64_t n, const float *x, float shift);               /* of exp(x - shift) */
    void  (*scaled_exp)(int64_t n, float a, const float *x, float shift, float *y);
    /* x = exp(x - shift), 0 where that is below e^-60; their sum */
    float (*softmax)(int64_t n, float *x, float shift);
    /* likewise; s = p = exp(s - lse);  dp = p (dp - delta) */
    void  (*softmax_back)(int64_t n, float *s, float *dp, float lse, float delta);

    /* c[m, n] (+)= a[m, k] b[k, n]; m a multiple of 4, n of 16; elements of a are a_row, a_col
     * apart, rows of b and c ldb, ldc. */
    void (*multiply)(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                     const float *b, int64_t ldb, float *c, int64_t ldc, bool add);
};

const struct simd *simd_best(void);
extern const struct simd simd_base;
#if defined(__x86_64__)
extern const struct simd simd_v3, simd_v4;
#endif

/* The seed whose element 0 is this one's element `first`. */
static inline uint64_t drop_from(uint64_t seed, uint64_t first)
{
    return seed + first * 0x9e3779b97f4a7c15;
}

/* SplitMix64's finaliser over a Weyl sequence that starts at the seed (Steele, Lea and
 * Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). */
static inline uint64_t drop_hash(uint64_t seed, uint64_t i)
{
    uint64_t z = drop_from(seed, i + 1);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

#endif
