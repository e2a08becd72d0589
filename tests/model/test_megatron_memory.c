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

/* DeepSeek-V3 on one rank: the report counts its published 671,026,404,352 parameters to the last. */
static void deepseek_has_its_published_parameters(void **state)
{
    struct plan p = gpt3();
    struct megatron_report r;

    (void)state;
    assert_int_equal(model_load("deepseek-v3", &p.model), 0);
    p.parallel.tensor = p.parallel.pipeline = 1;
    p.cluster.world_size = 1;
    assert_int_equal(megatron_report_of(&p, &r), 0);
    assert_true(r.weights == 18 * 671026404352.0);
    p.strategy = STRAT_ZERO1;           /* 64 of 1 expert each: 58 x 4 x 3 x 7168 x 2048 of them on a rank, alone; the rest is cut by 64 */
    p.cluster.world_size = 64;
    p.parallel.expert = 64;
    const double expert = 58.0 * 4 * 3 * 7168 * 2048;
    assert_int_equal(megatron_report_of(&p, &r), 0);
    assert_true(r.weights == (671026404352.0 - 64 * expert) * (6 + 12.0 / 64) + expert * 18);
    model_free(&p.model);
}

/* Of gpt-oss-20b it counts the routers' biases, and no others: 24 layers of 2 x 2880 (4096 + 512) of attention, two norms, a router of 32 with biases, 32
 * experts of 3 x 2880^2; both ends; the last norm. */
static void gpt_oss_has_biases_in_its_routers(void **state)
{
    struct plan p = gpt3();
    struct megatron_report r;
    const double h = 2880, layer = 2 * h * (4096 + 512) + 2 * h + 32 * (h + 1) + 32 * 3 * h * h;

    (void)state;
    assert_int_equal(model_load("gpt-oss-20b", &p.model), 0);
    p.parallel.tensor = p.parallel.pipeline = 1;
    p.cluster.world_size = 1;
    assert_int_equal(megatron_report_of(&p, &r), 0);
    assert_close(r.weights, 18 * (24 * layer + 2 * 201088 * h + h), 1e-12);
    model_free(&p.model);
}

static void every_recorded_mixture(void **state)
{
    enum { FIELDS = 31 };
    FILE *f = fopen("tests/golden/estimators/megatron_mixtures.txt", "r");
    long long x[FIELDS];
    double weights, activations;
    int n = 0;

    (void)state;
    assert_non_null(f);
    for (;; n++) {
        struct plan p = gpt3();
        struct megatron_report r;
        int got = 0;
        for (int i = 0; i < FIELDS; i++)
            got += fscanf(f, "%lld", &x[i]) == 1;
        if (got < FIELDS || fscanf(f, "%la %la", &weights, &activations) != 2)
            break;
        p.strategy = x[3] ? STRAT_ZERO1 : STRAT_DDP;
        p.recompute = x[4] ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
        p.model = (struct model){ .mlp = x[0] ? MLP_GATED : MLP_PLAIN, .norm = x[1] ? NORM_RMS : NORM_LAYER, .tied = !x[2], .hidden = x[5], .ffn = x[6],
                                  .layers = x[7], .heads = x[8], .kv_heads = x[9], .head_dim = x[10], .vocab = x[11], .experts = x[19], .expert_ffn = x[20],
                                  .shared_ffn = x[21], .dense_first = x[22], .moe_every = 1, .mlp_bias = x[25], .q_rank = x[26], .kv_rank = x[27] };
        if (x[27] > 0)
            p.model.head_dim = x[28] + x[29], p.model.rope_dim = x[29], p.model.value_dim = x[30];
        p.seq = x[12], p.micro_batch = x[13], p.accumulation = x[18];
        p.parallel.tensor = x[14], p.parallel.pipeline = x[15], p.parallel.virtual_stages = x[16];
        p.parallel.expert_tensor = x[23], p.parallel.expert = x[24];
        p.cluster.world_size = (int)(x[14] * x[15] * x[17]);
        assert_int_equal(megatron_report_of(&p, &r), 0);
        assert_true(r.weights == weights);
        assert_true(r.activations == activations);
    }
    fclose(f);
    assert_int_equal(n, 155);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt3_by_hand),
        cmocka_unit_test(the_distributed_optimizer_divides_twelve_bytes),
        cmocka_unit_test(every_recorded_report),
        cmocka_unit_test(deepseek_has_its_published_parameters),
        cmocka_unit_test(gpt_oss_has_biases_in_its_routers),
        cmocka_unit_test(every_recorded_mixture),
    };
    return cmocka_run_group_tests_name("model/megatron_memory", tests, NULL, NULL);
}
