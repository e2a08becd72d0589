/* What products of 8 and 4 bits reach beside those of 16: the shares of gpu_rates.c from the benchmark that they are of. */
#include "tests/check.h"

#include <math.h>

#include "sim/price/gemm_cost.h"
#include "sim/price/gpu_rates.h"

/* NVIDIA/TransformerEngine d0067d0d, docs/examples/gemm_profiling/gemm_profiling.rst: milliseconds of the twelve products of a layer,
 * operands already in their format (--pre-quantize). */
struct published { const char *gpu; double bf16, scaled; enum scaled format; };
static const struct published rows[] = {
    { "h200", 31.968, 16.785, SCALED_FP8_TENSOR }, { "h200", 31.968, 22.882 - (18.978 - 16.785), SCALED_FP8_BLOCK },
    { "b300", 13.102, 6.812, SCALED_FP8_TENSOR },  { "b300", 13.102, 7.161, SCALED_MXFP8 },  { "b300", 13.102, 3.764, SCALED_NVFP4 },
};

enum { TOKENS = 15872, HIDDEN = 4096, FFN = 16384 };

/* Forward, gradients of inputs, gradients of weights, of four layers, where a product runs at `flops`. */
static double layer(const struct gpu *g, double flops)
{
    static const int64_t of[4][2] = { { 3 * HIDDEN, HIDDEN }, { HIDDEN, HIDDEN }, { FFN, HIDDEN }, { HIDDEN, FFN } };
    struct gemm_device d = gemm_device(g, DT_BF16);
    double s = 0;

    d.flops = flops;
    d.bytes = 1e30;
    for (int i = 0; i < 4; i++) {
        int64_t n = of[i][0], k = of[i][1];
        s += gemm_prior(&d, &(struct gemm){ 1, TOKENS, n, k, 0, false }, NULL) + gemm_prior(&d, &(struct gemm){ 1, TOKENS, k, n, 0, false }, NULL) +
             gemm_prior(&d, &(struct gemm){ 1, k, n, TOKENS, 0, false }, NULL);
    }
    return s;
}

/* The rate at which the form of gemm_cost.c takes so long. */
static double rate(const struct gpu *g, double peak, double ms)
{
    double low = peak / 100, high = peak * 100;

    for (int i = 0; i < 100; i++) {
        double mid = (low + high) / 2;
        if (layer(g, mid) * 1e3 > ms)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static void shares_are_those_of_the_benchmark(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct gpu *g = gpu_find(rows[i].gpu);
        bool published;
        double plain = rate(g, g->bf16, rows[i].bf16) / g->bf16, peak = gpu_scaled_peak(g, rows[i].format);
        double share = rate(g, peak, rows[i].scaled) / peak / plain;
        if (fabs(share - gpu_scaled_share(g, rows[i].format, &published)) > 0.005)
            print_error("%s, %s: %.4f (16 bits: %.4f)\n", g->name, scaled_name(rows[i].format), share, plain);
assert_close(gpu_scaled_share(g, rows[i].format, &published), share, 0.005);
        assert_true(published);
    }
}

static void formats_wait_for_their_generation(void **state)
{
    (void)state;
    static const struct { const char *gpu; bool tensor, block, mx, nv; } of[] = {
        { "a100-80gb", false, false, false, false }, { "l40s", true, false, false, false }, { "h100", true, true, false, false },
        { "b200", true, true, true, true }, { "gb200", true, true, true, true }, { "gb300", true, true, true, true },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct gpu *g = gpu_find(of[i].gpu);
        assert_int_equal(gpu_lacks_scaled(g, SCALED_FP8_TENSOR) == NULL, of[i].tensor);
        assert_int_equal(gpu_lacks_scaled(g, SCALED_FP8_BLOCK) == NULL, of[i].block);
        assert_int_equal(gpu_lacks_scaled(g, SCALED_MXFP8) == NULL, of[i].mx);
        assert_int_equal(gpu_lacks_scaled(g, SCALED_NVFP4) == NULL, of[i].nv);
        assert_null(gpu_lacks_scaled(g, SCALED_NONE));
    }
}

/* Datasheets: dense FP8 is twice bf16 on all of them; FP4 four times on B200 and GB200, six on B300 and GB300. */
static void peaks_are_dense(void **state)
{
    (void)state;
    static const struct { const char *gpu; double fp4; } of[] = { { "b200", 4 }, { "gb200", 4 }, { "b300", 6 }, { "gb300", 6 } };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct gpu *g = gpu_find(of[i].gpu);
        assert_close(gpu_scaled_peak(g, SCALED_MXFP8) / g->bf16, 2, 1e-12);
        assert_close(gpu_scaled_peak(g, SCALED_NVFP4) / g->bf16, of[i].fp4, 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_the_benchmark),
        cmocka_unit_test(formats_wait_for_their_generation),
        cmocka_unit_test(peaks_are_dense),
    };
    return cmocka_run_group_tests_name("sim/gpu_rates", tests, NULL, NULL);
}
