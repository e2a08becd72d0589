/* The functions that the inner loops have of their own, for each CPU they are compiled for. */
#include "tests/exec/kernels_check.h"
#include "exec/kernels/kernels_simd.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { N = 4096 };

static const struct simd *compiled(int i)
{
#if defined(__x86_64__)
    if (i == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &simd_v3 : NULL;
    if (i == 2)
        return simd_best() == &simd_v4 ? &simd_v4 : NULL;
#endif
    return i == 0 ? &simd_base : NULL;
}

/* The largest distance from the truth over [lo, hi]: in units of the truth's last place, or
 * absolute. */
static double worst(void (*f)(int64_t, const float *, float *), double (*truth)(double), double lo, double hi,
                    bool ulps)
{
    float x[N], y[N];
    double most = 0;

    for (int part = 0; part < 64; part++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(lo + (hi - lo) * (part * N + i) / (64.0 * N));
        f(N, x, y);
        for (int i = 0; i < N; i++) {
            double want = truth((double)x[i]);
            double last = ulps ? fmax(fabs(want) * 0x1p-23, 0x1p-149) : 1;
            most = fmax(most, fabs((double)y[i] - want) / last);
        }
    }
    return most;
}

static void exp_is_within_two_ulp(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct simd *s = compiled(i);
        if (!s)
            continue;
        double near = worst(s->exps, exp, -1, 1, true), far = worst(s->exps, exp, -87, 88.7, true);
        double denormal = worst(s->exps, exp, -104, -87, true);
        print_message("%s: exp within %.2f ulp near 0, %.2f to 88.7, %.2f of denormals\n", s->name, near, far,
                      denormal);
        assert_true(near <= 2 && far <= 2 && denormal <= 2);
    }
}

static void exp_at_its_ends(void **state)
{
    const float x[] = { 0, -0.0f, -INFINITY, INFINITY, -200, 200, NAN };
    const float want[] = { 1, 1, 0, INFINITY, 0, INFINITY, NAN };
    float y[7];

    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!compiled(i))
            continue;
        compiled(i)->exps(7, x, y);
        for (int j = 0; j < 7; j++)
            assert_true(isnan(want[j]) ? isnan(y[j]) : y[j] == want[j]);
    }
}

/* A denormal costs ten times a multiplication, and attention has many of them: dpxcal once timed scores as
 * far apart as these, and predicted steps a quarter too long. */
static void probabilities_are_zero_or_normal(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct simd *s = compiled(i);
        float x[N], p[N], dp[N];
        if (!s)
            continue;
        for (int j = 0; j < N; j++) {
            x[j] = p[j] = -110.0f * (float)j / N;
            dp[j] = 1e-3f;
        }
        p[1] = x[1] = NAN;
        float sum = s->softmax(N, p, 0);
        assert_true(isnan(sum) && isnan(p[1]) && p[0] == 1);
        s->softmax_back(N, x, dp, 0, 0);
        assert_true(isnan(x[1]) && x[0] == 1);
        for (int j = 2; j < N; j++) {
            double want = exp(-110.0 * j / N);
            assert_true(want < exp(-60) ? p[j] == 0 : fabs(p[j] / want - 1) < 1e-5);
            assert_true(p[j] == x[j] && dp[j] == 1e-3f * p[j]);
            assert_true(fpclassify(p[j]) != FP_SUBNORMAL && fpclassify(dp[j]) != FP_SUBNORMAL);
        }
    }
}

static void erf_is_within_1_5e_7(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct simd *s = compiled(i);
        if (!s)
            continue;
        double most = worst(s->erfs, erf, -6, 6, false);
        print_message("%s: erf within %.3g\n", s->name, most);
        assert_true(most <= 1.5e-7);
    }
}

/* Every bf16 there and back; halfway goes to even; NaN stays NaN. */
static void bf16_is_rounded_to_even(void **state)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536];
    const float x[] = { 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 1 + 0x1p-8f + 0x1p-20f, NAN, INFINITY, -0x1.ffp127f,
                        3e38f };

    (void)state;
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int i = 0; i < 3; i++) {
        const struct simd *s = compiled(i);
        uint16_t y[7];
        if (!s)
            continue;
        s->widen(65536, all, wide);
        s->narrow(65536, wide, back);
        for (int j = 0; j < 65536; j++)
            assert_true(isnan(wide[j]) ? isnan(half_from_bf16(back[j])) : all[j] == back[j]);
        s->narrow(7, x, y);
        for (int j = 0; j < 7; j++)
            assert_int_equal(y[j], half_to_bf16(x[j]));
        assert_int_equal(y[0], 0x3f80);
        assert_int_equal(y[1], 0x3f82);
        assert_int_equal(y[2], 0x3f81);
    }
}

/* Every fp16 there and back, exactly; between neighbours the nearer, halfway the even one; from 65520 on infinite; NaN stays NaN. */
static void fp16_is_rounded_to_even(void **state)
{
    static uint16_t all[65536], back[65536];
    static float wide[65536];

    (void)state;
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (int i = 0; i < 3; i++) {
        const struct simd *s = compiled(i);
        if (!s)
            continue;
        s->widen_fp16(65536, all, wide);
        s->narrow_fp16(65536, wide, back);
        for (int j = 0; j < 65536; j++)
            assert_true(isnan(wide[j]) ? isnan(half_from_fp16(back[j])) : all[j] == back[j]);
        for (int j = 0; j < 0x7c00; j++) {
            int mantissa = j & 0x3ff, exponent = j >> 10;
            assert_true(wide[j] == (float)ldexp(exponent ? 1024 + mantissa : mantissa, (exponent ? exponent : 1) - 25));
        }
        for (int j = 0; j < 0x7c00; j++) {
            float next = j == 0x7bff ? 65536 : wide[j + 1], half = (wide[j] + next) / 2;
            const float x[] = { half, nextafterf(half, 0), nextafterf(half, 1e9f), -half, next, wide[j], half, half, half };
            const int to[] = { j + (j & 1), j, j + 1, 0x8000 | (j + (j & 1)), j + 1, j, j + (j & 1), j + (j & 1), j + (j & 1) };
            uint16_t y[9];
            s->narrow_fp16(9, x, y);
            for (int at = 0; at < 9; at++)
                assert_int_equal(y[at], to[at]);
        }
    }
}

/* Gradients in fp16 are mostly denormal.  A processor that meets one of fp32's as an operand may take twenty times as long, and notes it in
 * a flag: no conversion may set that. */
static void denormal_fp16_is_no_denormal_operand(void **state)
{
    (void)state;
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();
    float sum = 0;

    _mm_setcsr(before & ~(unsigned)_MM_EXCEPT_MASK);
    for (int h = 0; h < 0x7c00; h++) {
        sum += half_from_fp16((uint16_t)h);
        sum += half_to_fp16(half_from_fp16((uint16_t)(h | 0x8000)));
    }
    unsigned seen = _mm_getcsr();
    _mm_setcsr(before);
    assert_true(sum > 0);
    assert_int_equal(seen & _MM_EXCEPT_DENORM, 0);
#else
    skip();
#endif
}

/* Any strides of a, sums set or added to, all widths of registers. */
static void small_products_equal_their_formula(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        const struct simd *s = compiled(round % 3);
        int64_t m = 4 * random_int(1, 9), n = 16 * random_int(1, 9), k = random_int(1, 70);
        int64_t ldb = n + random_int(0, 3), ldc = n + random_int(0, 3);
        bool transposed = coin(), add = coin();
        int64_t row = transposed ? 1 : k, col = transposed ? m : 1;
        struct array a = array_random(m * k, DT_FP32, 1), b = array_random(k * ldb, DT_FP32, 1);
        struct array c = array_random(m * ldc, DT_FP32, 1), want = array_like(&c);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = add ? array_get(&c, i * ldc + j) : 0;
                for (int64_t l = 0; l < k; l++)
                    sum += array_get(&a, i * row + l * col) * array_get(&b, l * ldb + j);
                array_set(&want, i * ldc + j, sum);
            }
        if (s)
            s->multiply(m, n, k, a.x, row, col, b.x, ldb, c.x, ldc, add);
        if (s)
            assert_same(s->name, &c, &want, 1e-6, 5);
        array_free(&a), array_free(&b), array_free(&c), array_free(&want);
    }
}

static void every_compilation_drops_the_same(void **state)
{
    struct dropout d = { .p = 0.37, .key = 0xfedcba9876543210, .first = 12345 };
    float x[1000];

    (void)state;
    for (int i = 0; i < 3; i++) {
        if (!compiled(i))
            continue;
        for (int j = 0; j < 1000; j++)
            x[j] = 1;
        compiled(i)->drop(1000, x, drop_from(d.key, 12345), 77, (uint32_t)(0.37 * 0x1p32), 2);
        for (int j = 0; j < 1000; j++)
            assert_true(x[j] == (dropout_drops(&d, 77 + j) ? 0 : 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(exp_at_its_ends),
        cmocka_unit_test(probabilities_are_zero_or_normal),
        cmocka_unit_test(erf_is_within_1_5e_7),
        cmocka_unit_test(bf16_is_rounded_to_even),
        cmocka_unit_test(fp16_is_rounded_to_even),
        cmocka_unit_test(denormal_fp16_is_no_denormal_operand),
        cmocka_unit_test(small_products_equal_their_formula),
        cmocka_unit_test(every_compilation_drops_the_same),
    };
    return cmocka_run_group_tests_name("exec/kernels math", tests, NULL, NULL);
}
