/* Measured products whose rows of 16 bits start on an odd number: other kernels of the library, priced by points of their own where there are some. */
#include "tests/check.h"

#include <math.h>
#include <string.h>

#include "sim/price/gemm_cost.h"
#include "sim/price/measured_cost.h"

/* A Hopper on which a product of whole rows took twice its prior: one whose result has odd rows takes twice its own, which is 1/0.127 of that of whole ones, its
 * gradients' 1/0.19.  In fp32 rows do not matter. */
static void odd_rows_are_slower_than_the_points_nearby(void **state)
{
    (void)state;
    const struct gemm_device hopper = { .sms = 100, .flops = 100e12, .bytes = 1e30, .feed = 80, .persistent = true, .calm = 1 };
    struct measured_kernel points[3];
    struct measured_device d = { .kernel = points, .nkernel = 3, .precision = DT_BF16 };
    static const struct { int fn; int64_t m, n, k; double share; } asked[] = {
        { FN_LINEAR, 8192, 50257, 768, .127 }, { FN_LINEAR_DX, 8192, 768, 50257, .19 }, { FN_LINEAR_DW, 50257, 768, 8192, .19 },
        { FN_LINEAR, 8192, 50264, 768, 1 }, { FN_LINEAR_DX, 8192, 768, 50260, .69 },
    };

    for (int i = 0; i < 3; i++) {
        struct gemm whole = { .batch = 1, .m = 8192, .n = 4096, .k = 4096 };
        points[i] = (struct measured_kernel){ .fn = i == 0 ? FN_LINEAR : i == 1 ? FN_LINEAR_DX : FN_LINEAR_DW, .kind = KC_GEMM, .batch = 1, .m = 8192,
                                              .n = 4096, .k = 4096, .s = 2 * gemm_prior(&hopper, &whole, NULL) };
    }
    for (int fp32 = 0; fp32 < 2; fp32++)
        for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
            struct gemm whole = { .batch = 1, .m = asked[i].m, .n = asked[i].n, .k = asked[i].k };
            struct kernel k = { .fn = (uint8_t)asked[i].fn, .kind = KC_GEMM, .batch = 1, .m = whole.m, .n = whole.n, .k = whole.k };
            struct kernel_query q = { .k = &k };
            struct estimate e;
            d.precision = fp32 ? DT_FP32 : DT_BF16;
            assert_true(measured_kernel(&d, &hopper, &q, &e));
            assert_close(e.s, 2 * gemm_prior(&hopper, &whole, NULL) / (fp32 ? 1 : asked[i].share), 1e-9);
        }
}

/* One whole product took what the prior says, one with an odd result beside it three times what it says: another odd one takes three times too, and a whole
 * one as long as the prior says, each to what the point of other rows weighs (a part in a thousand). */
static void odd_rows_follow_odd_points(void **state)
{
    (void)state;
    const struct gemm_device hopper = { .sms = 100, .flops = 100e12, .bytes = 1e30, .feed = 80, .persistent = true, .calm = 1 };
    struct measured_kernel points[2];
    struct measured_device d = { .kernel = points, .nkernel = 2, .precision = DT_BF16 };

    for (int i = 0; i < 2; i++) {
        struct gemm g = { .batch = 1, .m = 8192, .n = i ? 50257 : 50304, .k = 768, .rows = i ? ROWS_ODD_RESULT : ROWS_WHOLE };
        points[i] = (struct measured_kernel){ .fn = FN_LINEAR, .kind = KC_GEMM, .batch = 1, .m = g.m, .n = g.n, .k = g.k,
                                              .s = (i ? 3 : 1) * gemm_prior(&hopper, &g, NULL) };
    }
    for (int i = 0; i < 2; i++) {
        struct gemm g = { .batch = 1, .m = 8192, .n = i ? 50257 : 50304, .k = 1280, .rows = i ? ROWS_ODD_RESULT : ROWS_WHOLE };
        struct kernel k = { .fn = FN_LINEAR, .kind = KC_GEMM, .batch = 1, .m = g.m, .n = g.n, .k = g.k };
        struct kernel_query q = { .k = &k };
        struct estimate e;
        assert_true(measured_kernel(&d, &hopper, &q, &e));
        assert_close(e.s, (i ? 3 : 1) * gemm_prior(&hopper, &g, NULL), 2e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_rows_are_slower_than_the_points_nearby),
        cmocka_unit_test(odd_rows_follow_odd_points),
    };
    return cmocka_run_group_tests_name("sim/measured_rows", tests, NULL, NULL);
}
