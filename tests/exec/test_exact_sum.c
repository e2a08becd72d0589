/* Squares whose sum is known exactly, in orders and cuts that round differently in fp64. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "exec/kernels/exact_sum.h"

static double sum_of(const float *x, int64_t n)
{
    struct exact_sum s = { { 0 } };

    exact_add_squares(&s, n, x, DT_FP32);
    return exact_value(&s);
}

static void small_squares_survive_beside_large_ones(void **state)
{
    (void)state;
    const float x[] = { 0x1p60f, 1, 0x1p-60f };
    struct exact_sum s = { { 0 } }, less = { { 0 } };

    exact_add_squares(&s, 3, x, DT_FP32);
    exact_add_squares(&less, 1, x, DT_FP32);
    for (int i = 0; i < NORM_LIMBS; i++)    /* 2^120 goes; 1 + 2^-120 is left, which fp64 could not keep beside it */
        s.limb[i] -= less.limb[i];
    assert_true(exact_value(&s) == 1);
    assert_true(s.limb[(320 - 120) / 32] != 0);
}

static void integers_add_up_exactly(void **state)
{
    (void)state;
    float x[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = (float)(i + 1);
    assert_true(sum_of(x, 1000) == 1000.0 * 1001 * 2001 / 6);       /* n (n+1) (2n+1) / 6 */
}

static void the_extremes_of_fp32_fit(void **state)
{
    (void)state;
    const float least[] = { 0x1p-149f }, most[] = { 0x1.fffffep127f };
    assert_true(sum_of(least, 1) == 0x1p-298);
    assert_true(sum_of(most, 1) == 0x1.fffffep127 * 0x1.fffffep127);
    assert_true(sum_of((const float[]){ 0 }, 1) == 0);
}

static void any_cut_and_any_order_give_the_same_bits(void **state)
{
    (void)state;
    float x[4096];
    uint32_t r = 1;
    for (int i = 0; i < 4096; i++) {
        r = r * 1664525 + 1013904223;
        x[i] = ldexpf((float)(int32_t)r, (int)(r >> 27) - 50);
    }
    struct exact_sum whole = { { 0 } };
    exact_add_squares(&whole, 4096, x, DT_FP32);
    for (int cut = 1; cut < 4096; cut += 97) {
        struct exact_sum a = { { 0 } }, b = { { 0 } };
        exact_add_squares(&b, 4096 - cut, x + cut, DT_FP32);
        exact_add_squares(&a, cut, x, DT_FP32);
        for (int i = 0; i < NORM_LIMBS; i++)
            a.limb[i] += b.limb[i];
        exact_carry(&a);
        assert_memory_equal(&a, &whole, sizeof a);
    }
}

static void infinity_is_told(void **state)
{
    (void)state;
    const float x[] = { 1, INFINITY };
    assert_true(isnan(sum_of(x, 2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_squares_survive_beside_large_ones),
        cmocka_unit_test(integers_add_up_exactly),
        cmocka_unit_test(the_extremes_of_fp32_fit),
        cmocka_unit_test(any_cut_and_any_order_give_the_same_bits),
        cmocka_unit_test(infinity_is_told),
    };
    return cmocka_run_group_tests_name("exec/exact_sum", tests, NULL, NULL);
}
