/* kernels_simd_body.h -- what struct simd points to, as text.
 *
 * A file that includes it says how it is compiled: SIMD_TABLE, the table's name, SIMD_NAME,
 * what is printed; SIMD_LANES, floats in a register; SIMD_FMA, whether there is fused
 * multiply-add; SIMD_MULTIPLY_ADD(a, b, c) and SIMD_SQRT(a) on registers; where there are
 * instructions for it SIMD_FROM_FP16(p) and SIMD_TO_FP16(p, a), a register of fp16 in memory.  Loops are plain C
 * for the compiler to vectorise, but where it cannot. */
#ifndef DPX_KERNELS_SIMD_BODY_H
#define DPX_KERNELS_SIMD_BODY_H

#include <math.h>
#include <string.h>

#include "exec/kernels/half.h"
#include "exec/kernels/kernels_simd.h"

#define INLINE static inline __attribute__((always_inline))

/* A register, and one's worth of memory at any address. */
typedef float   lanes __attribute__((vector_size(4 * SIMD_LANES)));
typedef float   loose __attribute__((vector_size(4 * SIMD_LANES), aligned(4), may_alias));
typedef int32_t masks __attribute__((vector_size(4 * SIMD_LANES)));

/* Fused where the machine can, by name: -ffp-contract=off leaves expressions alone. */
INLINE float fma_of(float a, float b, float c)
{
#if SIMD_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

INLINE int32_t bits_of(float x)    { int32_t i; memcpy(&i, &x, sizeof i); return i; }
INLINE float   float_of(int32_t i) { float x; memcpy(&x, &i, sizeof x); return x; }

INLINE float power_of_2(int32_t n) { return float_of((int32_t)(((uint32_t)n + 127u) << 23)); }

/* ---- bf16 ---- */

static void widen(int64_t n, const uint16_t *bf16, float *x)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = float_of((int32_t)((uint32_t)bf16[i] << 16));
}

/* To the nearest, to even when halfway; NaN stays NaN. */
INLINE uint16_t bf16_of(float x)
{
    uint32_t bits = (uint32_t)bits_of(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;

    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static void narrow(int64_t n, const float *x, uint16_t *bf16)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        bf16[i] = bf16_of(x[i]);
}

/* ---- fp16 ---- */

static void widen_fp16(int64_t n, const uint16_t *fp16, float *x)
{
    int64_t i = 0;

#ifdef SIMD_FROM_FP16
    for (; i + SIMD_LANES <= n; i += SIMD_LANES)
        *(loose *)(x + i) = SIMD_FROM_FP16(fp16 + i);
#endif
    for (; i < n; i++)
        x[i] = half_from_fp16(fp16[i]);
}

static void narrow_fp16(int64_t n, const float *x, uint16_t *fp16)
{
    int64_t i = 0;

#ifdef SIMD_TO_FP16
    for (; i + SIMD_LANES <= n; i += SIMD_LANES)
        SIMD_TO_FP16(fp16 + i, *(const loose *)(x + i));
#endif
    for (; i < n; i++)
        fp16[i] = half_to_fp16(x[i]);
}

/* ---- functions ---- */

/* e^x = 2^n e^r, |r| <= ln2/2, e^r = 1 + r + r^2 P(r); P interpolates at Chebyshev's points
 * (error 8e-9).  2^n in two factors, so that denormals and the largest floats are right. */
INLINE float exp_of(float x)
{
    const float to_integer = 12582912.0f;       /* 1.5 * 2^23: the sum's low bits are n */

    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = fma_of(x, 1.44269504f, to_integer);
    float n = shifted - to_integer;
    float r = fma_of(n, -0.693145752f, x);      /* ln2 in two parts, the first short */
    r = fma_of(n, -1.42860677e-6f, r);
    float p = fma_of(r, 0.0013926926614f, 0.00836377387441f);
    p = fma_of(p, r, 0.0416665501103f);
    p = fma_of(p, r, 0.166665733819f);
    p = fma_of(p, r, 0.5f);
    p = fma_of(p * r, r, r) + 1.0f;
    /* Unsigned where a NaN's bits would overflow: p is NaN then, whatever they come to. */
    int32_t k = (int32_t)((uint32_t)bits_of(shifted) - 0x4b400000u), half = k >> 1;
    return p * power_of_2(half) * power_of_2(k - half);
}

INLINE float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

/* |x| < 1: x P(x^2);  else 1 - e^-Q(|x|), which is 1 beyond 4. */
INLINE float erf_of(float x)
{
    float t = fabsf(x), s = x * x;
    float p = fma_of(s, 7.87587506269e-5f, -0.000801686428717f);
    p = fma_of(p, s, 0.00518908742343f);
    p = fma_of(p, s, -0.0268542120106f);
    p = fma_of(p, s, 0.112835947152f);
    p = fma_of(p, s, -0.376126266667f);
    p = fma_of(p, s, 1.12837916585f) * x;
    t = t > 4.0f ? 4.0f : t;
    float q = fma_of(t, -1.64267896843e-6f, 4.61647851613e-5f);
    q = fma_of(q, t, -0.000597677274919f);
    q = fma_of(q, t, 0.00476350966326f);
    q = fma_of(q, t, -0.0264316432828f);
    q = fma_of(q, t, 0.110097242506f);
    q = fma_of(q, t, 0.631809550131f);
    q = fma_of(q, t, 1.13024187748f);
    q = fma_of(q, t, -0.000321866257549f);
    q = 1.0f - exp_of(-q);
    q = x < 0.0f ? -q : q;
    return t < 1.0f ? p : q;
}

static void exps(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = exp_of(x[i]);
}

static void erfs(int64_t n, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = erf_of(x[i]);
}

/* ---- activations: f(x) and f'(x) ---- */

#define SQRT_HALF      0.707106781f
#define ONE_BY_ROOT_2PI 0.398942280f
#define GELU_LINEAR    1.595769122f         /* 2 sqrt(2/pi) */
#define GELU_CUBIC     0.0713548163f        /* 0.044715 of it */

INLINE float gelu(float x) { return 0.5f * x * (1.0f + erf_of(SQRT_HALF * x)); }
INLINE float gelu_slope(float x)
{
    return 0.5f * (1.0f + erf_of(SQRT_HALF * x)) + x * ONE_BY_ROOT_2PI * exp_of(-0.5f * x * x);
}

/* (1 + tanh z)/2 is the sigmoid of 2z, without its cancellation. */
INLINE float gelu_tanh(float x)
{
    return x * sigmoid_of(x * fma_of(GELU_CUBIC * x, x, GELU_LINEAR));
}
INLINE float gelu_tanh_slope(float x)
{
    float s = sigmoid_of(x * fma_of(GELU_CUBIC * x, x, GELU_LINEAR));

    return s + x * s * (1.0f - s) * fma_of(3.0f * GELU_CUBIC * x, x, GELU_LINEAR);
}

INLINE float relu(float x)       { return x > 0.0f ? x : 0.0f * x; }    /* NaN stays NaN */
INLINE float relu_slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
INLINE float relu2(float x)      { return x > 0.0f ? x * x : 0.0f * x; }
INLINE float relu2_slope(float x) { return x > 0.0f ? 2.0f * x : 0.0f; }
INLINE float silu(float x)       { return x * sigmoid_of(x); }
INLINE float silu_slope(float x)
{
    float s = sigmoid_of(x);

    return s + x * s * (1.0f - s);
}

/* One pair of loops an activation: a function pointer inside would not be vectorised. */
#define ACTIVATION(f) \
    static void f##_forward(int64_t n, const float *gate, const float *up, float *y) \
    { \
        if (!gate) { \
            _Pragma("omp simd") \
            for (int64_t i = 0; i < n; i++) \
                y[i] = f(up[i]); \
        } else { \
            _Pragma("omp simd") \
            for (int64_t i = 0; i < n; i++) \
                y[i] = f(gate[i]) * up[i]; \
        } \
    } \
    static void f##_backward(int64_t n, const float *gate, const float *up, float *du, float *dgate) \
    { \
        if (!gate) { \
            _Pragma("omp simd") \
            for (int64_t i = 0; i < n; i++) \
                du[i] *= f##_slope(up[i]); \
        } else { \
            _Pragma("omp simd") \
            for (int64_t i = 0; i < n; i++) { \
                dgate[i] = du[i] * up[i] * f##_slope(gate[i]); \
                du[i] *= f(gate[i]); \
            } \
        } \
    }

ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(relu)
ACTIVATION(silu)
ACTIVATION(relu2)

static void activation(enum activation act, int64_t n, const float *gate, const float *up, float *y)
{
    switch (act) {
    case ACT_GELU:      gelu_forward(n, gate, up, y); break;
    case ACT_GELU_TANH: gelu_tanh_forward(n, gate, up, y); break;
    case ACT_RELU:      relu_forward(n, gate, up, y); break;
    case ACT_SILU:      silu_forward(n, gate, up, y); break;
    case ACT_RELU2:     relu2_forward(n, gate, up, y); break;
    }
}

static void activation_back(enum activation act, int64_t n, const float *gate, const float *up, float *du,
                            float *dgate)
{
    switch (act) {
    case ACT_GELU:      gelu_backward(n, gate, up, du, dgate); break;
    case ACT_GELU_TANH: gelu_tanh_backward(n, gate, up, du, dgate); break;
    case ACT_RELU:      relu_backward(n, gate, up, du, dgate); break;
    case ACT_SILU:      silu_backward(n, gate, up, du, dgate); break;
    case ACT_RELU2:     relu2_backward(n, gate, up, du, dgate); break;
    }
}

/* ---- vectors ---- */

static void scale(int64_t n, float a, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a * x[i];
}

/* Not fused: y + x must be the same whatever the CPU, where a is 1. */
static void axpy(int64_t n, float a, const float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void plus(int64_t n, const float *x, const float *z, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] + z[i];
}

static float dot(int64_t n, const float *x, const float *y)
{
    float sum = 0;

#pragma omp simd reduction(+:sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static double sum_squares(int64_t n, const float *x)
{
    double sum = 0;

#pragma omp simd reduction(+:sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* The same arithmetic as dropout_drops(). */
static void drop(int64_t n, float *x, uint64_t seed, int64_t first, uint32_t limit, float keep)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = drop_hash(seed, (uint64_t)(first + i));
        x[i] = (uint32_t)(z >> 32) < limit ? 0.0f : keep * x[i];
    }
}

/* One register of each array.  Nothing is fused, and nothing depends on the neighbours: an
 * element comes out the same wherever its array is cut. */
INLINE void adamw_lanes(const struct adamw_rates *r, loose *p, loose *m, loose *v, const loose *g)
{
    lanes gi = r->scale * *g;
    lanes mi = *m + r->keep1 * (gi - *m);
    lanes vi = r->b2 * *v + r->keep2 * (gi * gi);

    *m = mi;
    *v = vi;
    *p = r->decay * *p - r->step_size * (mi / (SIMD_SQRT(vi) * r->root + r->eps));
}

/* By registers, since what sqrtf() does to errno keeps compilers from vectorising it. */
static void adamw(const struct adamw_rates *rates, int64_t n, float *p, float *m, float *v, const float *g)
{
    const struct adamw_rates r = *rates;        /* the arrays might alias the caller's */
    loose rest[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
    int64_t i = 0;

    for (; i + SIMD_LANES <= n; i += SIMD_LANES)
        adamw_lanes(&r, (loose *)&p[i], (loose *)&m[i], (loose *)&v[i], (const loose *)&g[i]);
    if (i == n)
        return;
    size_t bytes = (size_t)(n - i) * sizeof *p;
    memcpy(&rest[0], p + i, bytes), memcpy(&rest[1], m + i, bytes);
    memcpy(&rest[2], v + i, bytes), memcpy(&rest[3], g + i, bytes);
    adamw_lanes(&r, &rest[0], &rest[1], &rest[2], &rest[3]);
    memcpy(p + i, &rest[0], bytes), memcpy(m + i, &rest[1], bytes), memcpy(v + i, &rest[2], bytes);
}

static void sgd(const struct moment_rates *rates, int64_t n, float *p, float *m, const float *g)
{
    const struct moment_rates r = *rates;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gi = r.scale * g[i] + r.decay * p[i];
        m[i] = r.b1 * m[i] + gi;
        p[i] -= r.lr * m[i];
    }
}

static void lion(const struct moment_rates *rates, int64_t n, float *p, float *m, const float *g)
{
    const struct moment_rates r = *rates;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gi = r.scale * g[i], u = r.b1 * m[i] + r.keep1 * gi;
        p[i] = r.decay * p[i] - r.lr * (float)((u > 0) - (u < 0));
        m[i] = r.b2 * m[i] + r.keep2 * gi;
    }
}

static void rotate(int64_t n, const float *c, const float *s, float *x, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float xi = x[i], yi = y[i];
        x[i] = xi * c[i] - yi * s[i];
        y[i] = yi * c[i] + xi * s[i];
    }
}

/* ---- norms ---- */

static void layer_norm(int64_t h, float eps, const float *x, const float *w, const float *b, float *y,
                       float *mean, float *rstd)
{
    float sum = 0, squares = 0;

#pragma omp simd reduction(+:sum)
    for (int64_t i = 0; i < h; i++)
        sum += x[i];
    float mu = sum / (float)h;
#pragma omp simd reduction(+:squares)
    for (int64_t i = 0; i < h; i++)
        squares += (x[i] - mu) * (x[i] - mu);
    float r = 1.0f / sqrtf(squares / (float)h + eps);
    *mean = mu;
    *rstd = r;
    if (w && b) {
#pragma omp simd
        for (int64_t i = 0; i < h; i++)
            y[i] = fma_of((x[i] - mu) * r, w[i], b[i]);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < h; i++)
        y[i] = (x[i] - mu) * r * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

static void rms_norm(int64_t h, float eps, const float *x, const float *w, const float *b, float *y,
                     float *rstd)
{
    float squares = 0;

#pragma omp simd reduction(+:squares)
    for (int64_t i = 0; i < h; i++)
        squares += x[i] * x[i];
    float r = 1.0f / sqrtf(squares / (float)h + eps);
    *rstd = r;
    if (w && !b) {
#pragma omp simd
        for (int64_t i = 0; i < h; i++)
            y[i] = x[i] * r * w[i];
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < h; i++)
        y[i] = x[i] * r * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
}

/* With g = dy w and xhat = (x - mean) rstd:
 * dx = rstd (g - mean(g) - xhat mean(g xhat)); RMSNorm lacks mean(g). */
static void norm_back(int64_t h, bool centred, float mean, float rstd, const float *dy, const float *x,
                      const float *w, float *dx)
{
    float g_sum = 0, gx_sum = 0;

    if (w) {
#pragma omp simd reduction(+:g_sum, gx_sum)
        for (int64_t i = 0; i < h; i++) {
            float g = dy[i] * w[i];
            g_sum += g;
            gx_sum += g * ((x[i] - mean) * rstd);
        }
    } else {
#pragma omp simd reduction(+:g_sum, gx_sum)
        for (int64_t i = 0; i < h; i++) {
            g_sum += dy[i];
            gx_sum += dy[i] * ((x[i] - mean) * rstd);
        }
    }
    float g_mean = centred ? g_sum / (float)h : 0.0f, gx_mean = gx_sum / (float)h;
    if (w) {
#pragma omp simd
        for (int64_t i = 0; i < h; i++)
            dx[i] = rstd * (dy[i] * w[i] - g_mean - (x[i] - mean) * rstd * gx_mean);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < h; i++)
            dx[i] = rstd * (dy[i] - g_mean - (x[i] - mean) * rstd * gx_mean);
    }
}

/* dw += dy xhat, of one row */
static void norm_weight_back(int64_t h, float mean, float rstd, const float *dy, const float *x, float *dw)
{
#pragma omp simd
    for (int64_t i = 0; i < h; i++)
        dw[i] = fma_of(dy[i], (x[i] - mean) * rstd, dw[i]);
}

/* ---- softmax ---- */

static float largest(int64_t n, const float *x)
{
    lanes most = (lanes){ 0 } - INFINITY;
    float one = -INFINITY;
    int64_t i = 0;

    for (; i + SIMD_LANES <= n; i += SIMD_LANES) {
        lanes here = *(const loose *)&x[i];
        masks more = here > most;
        most = (lanes)((more & (masks)here) | (~more & (masks)most));
    }
    for (; i < n; i++)
        one = x[i] > one ? x[i] : one;
    for (int l = 0; l < SIMD_LANES; l++)
        one = most[l] > one ? most[l] : one;
    return one;
}

static float sum_exp(int64_t n, const float *x, float shift)
{
    float sum = 0;

#pragma omp simd reduction(+:sum)
    for (int64_t i = 0; i < n; i++)
        sum += exp_of(x[i] - shift);
    return sum;
}

static void scaled_exp(int64_t n, float a, const float *x, float shift, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a * exp_of(x[i] - shift);
}

/* Beside a largest of 1 what is below e^-60 = 2^-87 changes no sum in fp32.  As 0 it is no
 * denormal, and nor are its products with values of any size: on those processors take ten times as long. */
INLINE float probability_of(float x) { return x < -60.0f ? 0 : exp_of(x); }

static float softmax(int64_t n, float *x, float shift)
{
    float sum = 0;

#pragma omp simd reduction(+:sum)
    for (int64_t i = 0; i < n; i++) {
        float e = probability_of(x[i] - shift);
        x[i] = e;
        sum += e;
    }
    return sum;
}

static void softmax_back(int64_t n, float *s, float *dp, float lse, float delta)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float p = probability_of(s[i] - lse);
        s[i] = p;
        dp[i] = p * (dp[i] - delta);
    }
}

/* ---- small products ---- */

enum { ROWS = 4, WIDEST = SIMD_LANES == 16 ? 4 : 2 };       /* registers: 16, 8 or 8 sums */

/* ROWS x `wide` registers of c. */
INLINE void tile(int wide, int64_t k, const float *a, int64_t a_row, int64_t a_col, const float *b,
                 int64_t ldb, float *c, int64_t ldc, bool add)
{
    lanes sum[ROWS][WIDEST];

    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < wide; j++)
            sum[i][j] = (lanes){ 0 };
    if (add)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < wide; j++)
                sum[i][j] = *(const loose *)&c[i * ldc + j * SIMD_LANES];
    for (int64_t l = 0; l < k; l++) {
        lanes row[WIDEST];
        for (int j = 0; j < wide; j++)
            row[j] = *(const loose *)&b[l * ldb + j * SIMD_LANES];
        for (int i = 0; i < ROWS; i++) {
            float x = a[i * a_row + l * a_col];
            lanes all = x - (lanes){ 0 };
            for (int j = 0; j < wide; j++)
                sum[i][j] = SIMD_MULTIPLY_ADD(all, row[j], sum[i][j]);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < wide; j++)
            *(loose *)&c[i * ldc + j * SIMD_LANES] = sum[i][j];
}

static void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_col,
                     const float *b, int64_t ldb, float *c, int64_t ldc, bool add)
{
    int64_t j = 0;

    for (; j + WIDEST * SIMD_LANES <= n; j += WIDEST * SIMD_LANES)
        for (int64_t i = 0; i < m; i += ROWS)
            tile(WIDEST, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
    for (; j < n; j += SIMD_LANES)
        for (int64_t i = 0; i < m; i += ROWS)
            tile(1, k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc, add);
}

const struct simd SIMD_TABLE = {
    .name = SIMD_NAME,
    .widen = widen, .narrow = narrow, .widen_fp16 = widen_fp16, .narrow_fp16 = narrow_fp16,
    .exps = exps, .erfs = erfs, .activation = activation, .activation_back = activation_back,
    .scale = scale, .axpy = axpy, .plus = plus, .dot = dot, .sum_squares = sum_squares,
    .drop = drop, .adamw = adamw, .sgd = sgd, .lion = lion,
    .rotate = rotate,
    .layer_norm = layer_norm, .rms_norm = rms_norm, .norm_back = norm_back,
    .norm_weight_back = norm_weight_back,
    .largest = largest, .sum_exp = sum_exp, .scaled_exp = scaled_exp,
    .softmax = softmax, .softmax_back = softmax_back, .multiply = multiply,
};

#endif
