/* Slow-downs while computation and communication run together. */
#include "tests/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/clock/overlap.h"
#include "sim/price/gemm_cost.h"

static struct cluster of(const char *gpu, int64_t nodes, int64_t gpus)
{
    struct cluster c;

    cluster_of_gpu(&c, gpu_find(gpu), nodes, gpus);
    return c;
}

/* 24 of H100's 132 and of A100's 108 multiprocessors are gone, over several nodes two an adapter, 4 of an L40S's 142. */
static void products_slow_down_by_the_sms_that_are_gone(void **state)
{
    (void)state;
    struct cluster c = of("h100", 1, 8), nodes = of("h100", 4, 8), a100 = of("a100-80gb", 4, 8), pcie = of("l40s", 1, 8);

    assert_close(overlap_compute(&c, KC_GEMM, COLL_ALL_GATHER), 132.0 / 108, 1e-12);
    assert_close(overlap_compute(&nodes, KC_GEMM, COLL_ALL_GATHER), 132.0 / 116, 1e-12);
    assert_close(overlap_compute(&a100, KC_ATTENTION, COLL_ALL_REDUCE), 108.0 / 92, 1e-12);
    nodes.nics = 2;                                     /* 2 x 400 Gbit/s: four channels */
    assert_close(overlap_compute(&nodes, KC_GEMM, COLL_ALL_GATHER), 132.0 / 128, 1e-12);
    nodes.nics = 1;                                     /* never below the four of a node without NVLink */
    assert_close(overlap_compute(&nodes, KC_GEMM, COLL_ALL_GATHER), 132.0 / 128, 1e-12);
    assert_close(overlap_compute(&pcie, KC_GEMM, COLL_ALL_GATHER), 142.0 / 138, 1e-12);
    assert_int_equal(overlap_left(&c, COLL_ALL_GATHER), 108);
    assert_int_equal(overlap_left(&c, COLL_ALL_REDUCE), 116);
}

static double off(double predicted, double published) { return fabs(predicted / published - 1); }

/* What publications say a product takes beside a collective over NVLink: 1.14 (Galvatron's measured files, 1.126 and 1.153, A100);
 * 1.19 on average and 1.40 at most (arXiv 2507.03114, A100 and H100); 1.70 of exactly 132 blocks on H100, 80 to 47 % of peak
 * beside an all-gather (forums.developer.nvidia.com/t/337991); 1.76, a kernel of a GPT on A100 whose shape is not stated
 * (NVIDIA/nccl#1428: 1.18 to 2.08 ms); 2, all products of a trained transformer on H100 (pytorch#143988); 1.37 for 8192 x 8192 x 8192
 * in fp16 on H100 beside a gather of 8 x 64 MiB (pytorch#172714: one after the other 2.96 ms, together 2.02, together with the
 * gather on copy engines 1.77; the product alone takes between 1.58, at 0.7 PFLOP/s, and 1.77, hence 1.27 to 1.47).
 * Their median, left out one by one, is further off than waves: it was used before. */
static void waves_predict_publications_better_than_their_median(void **state)
{
    enum { VOTES = 6 };
    const double votes[VOTES] = { 1.14, 1.19, 1.70, 1.76, 2.00, 1.37 };
    const double median[VOTES] = { 1.70, 1.70, 1.37, 1.37, 1.37, 1.70 };
    struct gemm_device h100 = gemm_device(gpu_find("h100"), DT_BF16);
    struct gemm blocks = { .batch = 1, .m = 256 * 12, .n = 128 * 11, .k = 8192 };
    struct gemm cube = { .batch = 1, .m = 8192, .n = 8192, .k = 8192 };
    double a100 = 108.0 / 84, waves[VOTES] = { a100, (a100 + 132.0 / 108) / 2, 0, a100, 0, 0 }, by_waves = 0, by_median = 0;

    (void)state;
    waves[2] = gemm_held(&h100, &blocks, 108);
    waves[4] = waves[5] = gemm_held(&h100, &cube, 108);
    assert_close(waves[2], 2, .02);             /* the launch is not repeated */
    assert_close(waves[5], 2, .02);
    for (int i = 0; i < VOTES; i++) {
        by_waves += off(waves[i], votes[i]) / VOTES;
        by_median += off(median[i], votes[i]) / VOTES;
    }
    printf("  a product beside a collective: waves within %.0f %%, the median of the other publications within %.0f %%\n",
           100 * by_waves, 100 * by_median);
    assert_true(by_waves < by_median);
}

/* How many blocks cuBLAS starts: H100 80GB HBM3, CUDA 12.4, tiles of 128 x 128 (AMD-AGI/TraceLens tests/traces/h100, of PyTorch's
 * profiler): 560 tiles in 120 blocks, 1540 in 132, 328 in 112, 1312 in 132, 168 in 98.  So none has more than there are SMs, as blocks
 * of one tile would have, and all have at least those that take the same number of turns. */
static void traces_show_blocks_that_stay(void **state)
{
    const int seen[][2] = { { 560, 120 }, { 1540, 132 }, { 328, 112 }, { 1312, 132 }, { 168, 98 } };

    (void)state;
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        int turns = (seen[i][0] + 131) / 132, least = (seen[i][0] + turns - 1) / turns;
        assert_true(least <= seen[i][1] && seen[i][1] <= 132);
    }
}

/* 240 GB/s read and written take 480 of A100's 0.86 * 2039 GB/s; a reduction takes 720. */
static void streams_slow_down_by_the_bandwidth_that_is_gone(void **state)
{
    (void)state;
    struct cluster c = of("a100-80gb", 1, 8);
    double stream = 0.86 * 2039e9;

    assert_close(overlap_compute(&c, KC_NORM, COLL_ALL_GATHER), 1 / (1 - 480e9 / stream), 1e-12);
    assert_close(overlap_compute(&c, KC_NORM, COLL_REDUCE_SCATTER), 1 / (1 - 720e9 / stream), 1e-12);
}

static void one_rank_is_not_slowed(void **state)
{
    (void)state;
    struct cluster c = of("h100", 1, 1);

    for (int k = 0; k < NKERNEL_CLASS; k++)
        for (int op = 0; op < NCOLL; op++) {
            assert_close(overlap_compute(&c, (enum kernel_class)k, (enum coll_op)op), 1, 0);
            assert_close(overlap_comm(&c, (enum kernel_class)k, (enum coll_op)op), 1, 0);
        }
}

static void no_slowdown_is_below_one_or_above_two(void **state)
{
    (void)state;
    for (int i = 0; gpu_at(i); i++)
        for (int64_t nodes = 1; nodes <= 4; nodes *= 2)
            for (int k = 0; k < NKERNEL_CLASS; k++)
                for (int op = 0; op < NCOLL; op++) {
                    struct cluster c = of(gpu_at(i)->name, nodes, 8);
                    double a = overlap_compute(&c, (enum kernel_class)k, (enum coll_op)op);
                    double b = overlap_comm(&c, (enum kernel_class)k, (enum coll_op)op);
                    assert_true(a >= 1 && a <= 2 && b >= 1 && b <= 2);
                }
}

static void a_host_and_an_amd_gpu_have_their_own(void **state)
{
    (void)state;
    struct cluster host = { .is_host = 1, .world_size = 4, .nodes = 1, .gpus_per_node = 4 };
    struct cluster amd = of("mi300x", 1, 8);

    assert_close(overlap_compute(&host, KC_GEMM, COLL_ALL_REDUCE), 1.3, 1e-12);
    assert_int_equal(overlap_sms(&host, COLL_ALL_REDUCE), 0);
    /* C = M, both slowed alike: T = phi * C = (2 - 0.21) * C. */
    assert_close(overlap_compute(&amd, KC_GEMM, COLL_ALL_REDUCE), 2 - 0.21, 1e-12);
    assert_non_null(strstr(overlap_source(&host), "assumed"));
    assert_non_null(strstr(overlap_source(&amd), "assumed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_slow_down_by_the_sms_that_are_gone),
        cmocka_unit_test(waves_predict_publications_better_than_their_median),
        cmocka_unit_test(traces_show_blocks_that_stay),
        cmocka_unit_test(streams_slow_down_by_the_bandwidth_that_is_gone),
        cmocka_unit_test(one_rank_is_not_slowed),
        cmocka_unit_test(no_slowdown_is_below_one_or_above_two),
        cmocka_unit_test(a_host_and_an_amd_gpu_have_their_own),
    };
    return cmocka_run_group_tests_name("sim/overlap", tests, NULL, NULL);
}
