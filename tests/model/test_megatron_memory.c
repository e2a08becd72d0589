/* test_megatron_memory.c -- Megatron-LM's theoretical memory report, to the last bit. */
#include <stdio.h>
#include <string.h>

#include "tests/check.h"
#include "model/exchange/megatron_memory.h"

static struct plan gpt3(void)
{
    struct plan p = { .dialect = DIALECT_MEGATRON, .strategy = STRAT_DDP, .seq = 2048, .micro_batch = 1, .accumulation = 64 };

    p.model = (struct model){ .hidden = 12288, .ffn = 49152, .layers = 96, .heads = 96, .kv_heads = 96, .head_dim = 128, .vocab = 51200,
                              .tied = true, .mlp = MLP_PLAIN, .norm = NORM_LAYER };
    p.megatron.make_vocab_size_divisible_by = 128;
    p.parallel.tensor = p.parallel.pipeline = 8;
    p.parallel.virtual_stages = p.parallel.context = 1;
    p.parallel.sequence = true;
    p.recompute = RECOMPUTE_SELECTIVE;
    p.cluster.world_size = 64;
    return p;
}

/* A layer keeps 34 bytes an element of s b h; all 96 of them are the twelve of the first stage times eight micro-batches in flight.  Its weights
 * are 12 h^2 a layer, 18 bytes each. */
static void gpt3_by_hand(void **state)
{
    struct plan p = gpt3();
    struct megatron_report r;
    const double sbh = 2048.0 * 12288, h = 12288;

    (void)state;
    assert_int_equal(megatron_report_of(&p, &r), 0);
    assert_true(r.by_positions);
    assert_close(r.activations, (96 * 34 * sbh + 8 * 2048 * 8 + 8 * sbh) / 8, 0);
    assert_close(r.weights, 18 * ((96 * 12 * h * h / 8 + 51200 * h) / 8 + (96 * 4 * h + 2 * h) / 8), 0);
    p.parallel.virtual_stages = 3;      /* 1 + 7/24 */
    assert_int_equal(megatron_report_of(&p, &r), 0);
    assert_close(r.activations, (96 * 34 * sbh + 8 * 2048 * 8 + 8 * sbh) / 8 * 31 / 24, 1e-15);
    p.recompute = RECOMPUTE_NONE;       /* 10 + 24/8, and 5 % */
    assert_int_equal(megatron_report_of(&p, &r), 0);
    assert_false(r.by_positions);
    assert_close(r.activations, (96 * 13 * sbh + 8 * 2048 * 8 + 8 * sbh) * 31 / 24 * 1.05, 1e-15);
}

/* Vector 81 of bytes a parameter: 18; with the distributed optimizer on 8 and on 64 ranks 7.5 and 6.1875. */
static void the_distributed_optimizer_divides_twelve_bytes(void **state)
{
    struct plan p = gpt3();
    struct megatron_report plain, of8, of64;

    (void)state;
    assert_int_equal(megatron_report_of(&p, &plain), 0);
    p.strategy = STRAT_ZERO1;
    p.cluster.world_size = 8 * 64;
    assert_int_equal(megatron_report_of(&p, &of8), 0);
    p.cluster.world_size = 64 * 64;
    assert_int_equal(megatron_report_of(&p, &of64), 0);
    assert_close(of8.weights / plain.weights, 7.5 / 18, 1e-15);
    assert_close(of64.weights / plain.weights, 6.1875 / 18, 1e-15);
}

static void every_recorded_report(void **state)
{
    FILE *f = fopen("tests/golden/estimators/megatron.txt", "r");
    int swiglu, rms, untied, distributed, selective, n = 0;
    long long h, ffn, layers, heads, groups, channels, vocab, s, b, tp, pp, vp, dp, micro;
    double weights, activations;

    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%d %d %d %d %d %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %la %la", &swiglu, &rms, &untied,
                  &distributed, &selective, &h, &ffn, &layers, &heads, &groups, &channels, &vocab, &s, &b, &tp, &pp, &vp, &dp, &micro, &weights,
                  &activations) == 21) {
        struct plan p = gpt3();
        struct megatron_report r;
        p.strategy = distributed ? STRAT_ZERO1 : STRAT_DDP;
        p.seq = s, p.micro_batch = b, p.accumulation = micro;
        p.model = (struct model){ .hidden = h, .ffn = ffn, .layers = layers, .heads = heads, .kv_heads = groups, .head_dim = channels,
                                  .vocab = vocab, .tied = !untied, .mlp = swiglu ? MLP_GATED : MLP_PLAIN, .norm = rms ? NORM_RMS : NORM_LAYER };
        p.parallel.tensor = tp, p.parallel.pipeline = pp, p.parallel.virtual_stages = vp;
        p.recompute = selective ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
        p.cluster.world_size = (int)(tp * pp * dp);
        assert_int_equal(megatron_report_of(&p, &r), 0);
        assert_true(r.weights == weights);
        assert_true(r.activations == activations);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 207);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt3_by_hand),
        cmocka_unit_test(the_distributed_optimizer_divides_twelve_bytes),
        cmocka_unit_test(every_recorded_report),
    };
    return cmocka_run_group_tests_name("model/megatron_memory", tests, NULL, NULL);
}
