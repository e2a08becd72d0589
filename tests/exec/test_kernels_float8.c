/* test_kernels_float8.c -- tensors as 8-bit floats: largest magnitudes, codes and numbers, one by one as fp8.h has them (which test_fp8.c holds
 * against torch and torchao). */
#include "exec/kernels/fp8.h"
#include "tests/exec/kernels_check.h"

static const struct fp8_kind *const kinds[] = { [FLOAT8_E4M3] = &fp8_e4m3, [FLOAT8_E5M2] = &fp8_e5m2 };

static struct kernels_need need_of(int threads)
{
    return (struct kernels_need){ .n = 16, .widest_in = 16, .widest_out = 16, .threads = threads, .at = DT_FP32, .wt = DT_FP32 };
}

/* Rows 5 elements wider than what is cast, of which the rest is NaN. */
static struct array rows_of(const struct strided *s, enum dtype t)
{
    struct array x = array_random(s->rows * s->ld, t, 3);

    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = s->cols; i < s->ld; i++)
            array_set(&x, r * s->ld + i, NAN);
    return x;
}

static void check_cast(const struct strided *s, enum float8_by by, enum dtype t, enum float8_format f, float size, int threads)
{
    struct kernels_need need = need_of(threads);
    struct both b = open_both(&need);
    struct array x = rows_of(s, t), codes = array_new(s->rows * s->cols, DT_UINT8), wide = array_new(s->rows * s->cols, t);
    struct array again = array_new(s->rows * s->cols, DT_BF16), scale = array_random(float8_scales(by, s->rows, s->cols), DT_FP32, (double)size);
    const float *of = scale.x;

    assert_int_equal(b.host.ops->cast8(b.host.k, f, s, by, x.x, t, of, codes.x, DT_FP8), 0);
    assert_int_equal(b.host.ops->cast8(b.host.k, f, s, by, x.x, t, of, wide.x, t), 0);
    assert_int_equal(b.host.ops->numbers8(b.host.k, s->rows * s->cols, codes.x, again.x, DT_BF16), 0);
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < s->cols; i++) {
            float one = of[by == FLOAT8_BY_ROWS ? r : by == FLOAT8_BY_COLUMNS ? i : 0];
            uint8_t code = fp8_saturated(kinds[f], (float)array_get(&x, r * s->ld + i) * one);
            int64_t at = r * s->cols + i;
            assert_int_equal(((uint8_t *)codes.x)[at], code);
            assert_float_equal(array_get(&wide, at), fp8_decode(kinds[f], code), 0);
            if (f == FLOAT8_E4M3)
                assert_float_equal(array_get(&again, at), fp8_decode(kinds[f], code), 0);
        }
    array_free(&x), array_free(&codes), array_free(&wide), array_free(&again), array_free(&scale);
    close_both(&b);
}

static void each_number_is_rounded_as_by_itself(void **state)
{
    static const struct strided shape[] = { { 1, 3000, 3000 }, { 7, 16, 21 }, { 3, 1030, 1035 } };
    static const float scales[] = { 1, 100, 0.001f, 7e6f };

    (void)state;
    for (int i = 0; i < 24; i++)
        check_cast(&shape[i % 3], (enum float8_by)(FLOAT8_BY_TENSOR + i / 2 % 3), i / 3 % 2 ? DT_BF16 : DT_FP32, i / 6 % 2 ? FLOAT8_E5M2 : FLOAT8_E4M3, scales[i % 4], 1 + i % 2);
}

static void amax_of(const struct strided *s, enum float8_by by, const struct array *x, int threads, float *amax)
{
    struct kernels_need need = need_of(threads);
    struct both b = open_both(&need);

    assert_int_equal(b.host.ops->amax(b.host.k, s, by, x->x, x->t, amax), 0);
    close_both(&b);
}

/* Of numbers up to 3 but for those that are set. */
static void the_largest_magnitude_is_that_of_the_rows(void **state)
{
    const struct strided s = { 5, 1500, 1501 };
    enum dtype of[] = { DT_FP32, DT_BF16 };
    float amax[1500];

    (void)state;
    for (int t = 0; t < 4; t++) {
        struct array x = rows_of(&s, of[t / 2]);
        array_set(&x, 3 * s.ld + 1499, -17);
        array_set(&x, s.ld + 1200, 5);
        amax_of(&s, FLOAT8_BY_TENSOR, &x, 1 + t % 2, amax);
        assert_float_equal(amax[0], 17, 0);
        amax_of(&s, FLOAT8_BY_ROWS, &x, 1 + t % 2, amax);
        assert_true(amax[0] <= 3 && amax[2] <= 3 && amax[4] <= 3 && amax[0] > 2.5f);
        assert_float_equal(amax[1], 5, 0);
        assert_float_equal(amax[3], 17, 0);
        amax_of(&s, FLOAT8_BY_COLUMNS, &x, 1 + t % 2, amax);
        for (int i = 0; i < 1500; i++)
            assert_true(i == 1499 ? !(amax[i] < 17 || amax[i] > 17) : i == 1200 ? !(amax[i] < 5 || amax[i] > 5) : amax[i] <= 3 && amax[i] > 0);
        array_set(&x, 2, INFINITY);
        amax_of(&s, FLOAT8_BY_TENSOR, &x, 2, amax);
        assert_true(isinf(amax[0]));
        array_set(&x, 4 * s.ld, NAN);
        amax_of(&s, FLOAT8_BY_TENSOR, &x, 2, amax);
        assert_true(isnan(amax[0]) && isnan(fp8_scale(&fp8_e4m3, amax[0], 0)));
        array_free(&x);
    }
}

/* Of a tensor of zeros torchao's scale is the largest number over 1e-12. */
static void zeros_have_a_scale(void **state)
{
    const struct strided s = { 2, 16, 16 };
    struct array x = array_random(32, DT_FP32, 0);
    float amax = -1;

    (void)state;
    amax_of(&s, FLOAT8_BY_TENSOR, &x, 1, &amax);
    assert_float_equal(amax, 0, 0);
    assert_float_equal(fp8_scale(&fp8_e4m3, 0, 0), 448e12f, 0);
    array_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_rounded_as_by_itself),
        cmocka_unit_test(the_largest_magnitude_is_that_of_the_rows),
        cmocka_unit_test(zeros_have_a_scale),
    };

    return cmocka_run_group_tests_name("exec/kernels_float8", tests, NULL, NULL);
}
