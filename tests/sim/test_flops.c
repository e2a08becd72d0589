/* FLOPs per token and shares of the peak, by named conventions. */
#include "tests/check.h"

#include <string.h>

#include "sim/price/flops.h"

/* 2 layers, hidden 8 in 2 heads of 4, vocabulary 10: 1000 parameters, 80 of them the embedding. */
static const struct model small = { .layers = 2, .hidden = 8, .heads = 2, .head_dim = 4, .vocab = 10,
                                    .token_width = 8, .params = 1000, .active = 1000 };

static void conventions_differ_by_what_they_count(void **state)
{
    (void)state;
    /* attention: 12 * 2 layers * 8 * 16 tokens = 3072 */
    assert_close(flops_per_token(&small, 16, FLOPS_PALM), 6000 + 3072, 0);
    assert_close(flops_per_token(&small, 16, FLOPS_CAUSAL), 6000 + 1536, 0);
    assert_close(flops_per_token(&small, 16, FLOPS_MATMUL), 6 * 920 + 3072, 0);
    struct model tied = small;
    tied.tied = true;
    assert_close(flops_per_token(&tied, 16, FLOPS_MATMUL), 6000 + 3072, 0);
    struct model narrow = small;
    narrow.token_width = 4;                     /* 40 of the embedding (opt-350m) */
    assert_close(flops_per_token(&narrow, 16, FLOPS_MATMUL), 6 * 960 + 3072, 0);
}

/* The label says what is computed: 2N forward, 2N for what comes before, 2N for gradients of what trains. */
static void frozen_weights_are_labelled_as_they_count(void **state)
{
    struct tensor t[2] = { { .role = ROLE_UP, .numel = 900, .frozen = true }, { .role = ROLE_DOWN, .numel = 100 } };
    struct model m = small;

    (void)state;
    m.tensors = t;
    m.ntensors = 2;
    m.trainable = 100;
    assert_close(flops_per_token(&m, 16, FLOPS_PALM), 4 * 1000 + 2 * 100 + 3072, 0);
    assert_non_null(strstr(flop_convention_of(&m, FLOPS_PALM), "4N + 2N that train + 12LHQT"));
    m.trainable = 1000;
    t[0].frozen = false;
    assert_close(flops_per_token(&m, 16, FLOPS_PALM), 6 * 1000 + 3072, 0);
    assert_non_null(strstr(flop_convention_of(&m, FLOPS_PALM), "6N + 12LHQT"));
}

static void every_convention_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < NFLOP_CONVENTION; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(flop_convention_name((enum flop_convention)i),
                                    flop_convention_name((enum flop_convention)j));
}

/* Full: forward of the blocks again, 2 * (1000 - 160) + 4 * 2 * 8 * 16 = 2704; every second
 * block: half.  Selective: attention's core, 1024. */
static void recomputation_counts_as_hardware_flops(void **state)
{
    (void)state;
    struct plan p = { .model = small, .seq = 16, .recompute_interval = 1 };
    double once = flops_per_token(&small, 16, FLOPS_PALM);

    assert_close(flops_hardware_per_token(&p, FLOPS_PALM), once, 0);
    p.recompute = RECOMPUTE_FULL;
    assert_close(flops_hardware_per_token(&p, FLOPS_PALM), once + 2704, 0);
    p.recompute_interval = 2;
    assert_close(flops_hardware_per_token(&p, FLOPS_PALM), once + 1352, 0);
    p.recompute_interval = 1;
    p.recompute = RECOMPUTE_SELECTIVE;
    assert_close(flops_hardware_per_token(&p, FLOPS_PALM), once + 1024, 0);
}

/* llm-foundry's table (scripts/train/benchmarking/README.md): 251 samples of 2048 tokens a second
 * on 512 H100, 64862437376 parameters, 80 layers of 8192: MFU 41.25 %, HFU 55.0 %. */
static void a_published_mfu_is_reproduced(void **state)
{
    (void)state;
    struct plan p = { .seq = 2048, .precision = DT_BF16, .recompute = RECOMPUTE_FULL,
                      .recompute_interval = 1 };
    double rate = 515636.0 / 512;

    p.model = (struct model){ .layers = 80, .hidden = 8192, .heads = 64, .head_dim = 128,
                              .vocab = 50368, .token_width = 8192, .params = 64862437376, .active = 64862437376, .tied = true };
    cluster_of_gpu(&p.cluster, gpu_find("h100"), 64, 8);
    assert_close(flops_mfu(&p, FLOPS_PALM, rate), 0.4125, 0.005);
    assert_close(flops_hfu(&p, FLOPS_PALM, rate), 0.55, 0.01);
}

static void a_host_has_no_peak(void **state)
{
    (void)state;
    struct plan p = { .model = small, .seq = 16 };

    p.cluster.is_host = 1;
    assert_true(flops_mfu(&p, FLOPS_PALM, 1e6) == 0);
}

/* Of experts those that a token takes count: 6 (active - embedding), and 12 L H Q T of attention; in latent attention
 * 6 L H (192 + 128) T, for values are narrower than keys. */
static void experts_count_as_far_as_a_token_takes_them(void **state)
{
    struct model m;

    (void)state;
    assert_int_equal(model_load("qwen3-30b-a3b", &m), 0);
    assert_close(flops_per_token(&m, 4096, FLOPS_MATMUL), 6 * 3041867776.0 + 12.0 * 48 * 32 * 128 * 4096, 0);
    model_free(&m);
    assert_int_equal(model_load("deepseek-v3", &m), 0);
    assert_close(flops_per_token(&m, 4096, FLOPS_MATMUL), 6 * 36625603584.0 + 6.0 * 61 * 128 * (192 + 128) * 4096, 0);
    model_free(&m);
}

/* Of a token of DeepSeek-V3, modules that run again: routers of 256, 8 experts and a shared one of three products of 7168 by 2048, in 58 blocks; the
 * first three blocks' MLP of 18432; up from 1536 to 128 x 192, from 512 to 128 x (128 + 128), in all 61.  Norms and activations have no products. */
static void modules_that_run_again_count_their_products(void **state)
{
    const double expert = 3.0 * 7168 * 2048;
    const struct { const char *modules; double products; } cases[] = {
        { "layernorm,moe_act", 0 },
        { "moe", 58 * (256.0 * 7168 + 9 * expert) },
        { "shared_experts", 58 * expert },
        { "moe,shared_experts", 58 * (256.0 * 7168 + 10 * expert) },
        { "mlp", 3 * 3.0 * 7168 * 18432 },
        { "mla_up_proj", 61 * (1536.0 * 128 * 192 + 512.0 * 128 * 256) },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan p = { .seq = 4096, .recompute = RECOMPUTE_SELECTIVE, .recompute_interval = 1 };
        assert_int_equal(model_load("deepseek-v3", &p.model), 0);
        strcpy(p.megatron.recompute_modules, cases[i].modules);
        assert_close(flops_hardware_per_token(&p, FLOPS_PALM), flops_per_token(&p.model, 4096, FLOPS_PALM) + 2 * cases[i].products, 0);
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conventions_differ_by_what_they_count),
        cmocka_unit_test(every_convention_has_a_name),
        cmocka_unit_test(frozen_weights_are_labelled_as_they_count),
        cmocka_unit_test(recomputation_counts_as_hardware_flops),
        cmocka_unit_test(a_published_mfu_is_reproduced),
        cmocka_unit_test(a_host_has_no_peak),
        cmocka_unit_test(experts_count_as_far_as_a_token_takes_them),
        cmocka_unit_test(modules_that_run_again_count_their_products),
    };
    return cmocka_run_group_tests_name("sim/flops", tests, NULL, NULL);
}
