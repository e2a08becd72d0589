#include "tests/check.h"
#include "sim/search/limits.h"

/* How large a model's states fit 80 GB (8e10 bytes), in the paper's recipe: of
 * each 64 parameters on 64 ranks stage 1 holds 64*4 + 12 = 268 bytes, stage 2
 * 64*2 + 14 = 142, stage 3 16; without sharding each parameter holds 16. */
static void eighty_gigabytes_hold_what_the_sources_say(void **state)
{
    (void)state;
    static const int64_t memory = 80000000000;
    static const struct { enum strategy s; int64_t world, per, of; double billions; } want[] = {
        { STRAT_DDP,   1,  16,  1,  5.0 }, { STRAT_DDP,  64, 16,  1,  5.0 },
        { STRAT_ZERO1, 64, 268, 64, 19 },  { STRAT_ZERO2, 64, 142, 64, 36 },
        { STRAT_ZERO3, 64, 16,  64, 320 }, { STRAT_FSDP, 64, 16,  64, 320 },
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct limit l;
        assert_int_equal(limit_states(memory, want[i].world, want[i].s, DIALECT_PAPER, DT_BF16, &l), 0);
        assert_int_equal(l.max_params, memory / want[i].per * want[i].of);
        assert_close(l.bytes_per_param, (double)want[i].per / (double)want[i].of, 1e-9);
        assert_close((double)l.max_params / 1e9, want[i].billions, 0.01);
    }
}

/* One byte less and it is one rank's worth of parameters less. */
static void one_byte_less_holds_less(void **state)
{
    (void)state;
    struct limit a, b;

    assert_int_equal(limit_states(16000, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16, &a), 0);
    assert_int_equal(limit_states(15999, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16, &b), 0);
    assert_int_equal(a.max_params, 1000);
    assert_int_equal(b.max_params, 999);
}

static void what_holds_no_parameter_holds_none(void **state)
{
    (void)state;
    struct limit l;

    assert_int_equal(limit_states(15, 1, STRAT_DDP, DIALECT_PAPER, DT_BF16, &l), 0);
    assert_int_equal(l.max_params, 0);
}

/* Frameworks keep whole gradients too: fp32 parameter, gradient and two moments under
 * autocast; DeepSpeed 2 + 2 + 12 bytes. */
static void frameworks_hold_gradients_as_well(void **state)
{
    (void)state;
    static const struct { enum strategy s; enum dialect d; } want[] = {
        { STRAT_DDP, DIALECT_TORCH }, { STRAT_DDP, DIALECT_DEEPSPEED }, { STRAT_DP, DIALECT_TORCH },
    };

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct limit l;
        assert_int_equal(limit_states(80000000000, 8, want[i].s, want[i].d, DT_BF16, &l), 0);
        assert_close(l.bytes_per_param, 16, 1e-3);
    }
}

/* DataParallel is one process: two nodes answer as one does. */
static void data_parallel_is_asked_on_one_node(void **state)
{
    (void)state;
    struct plan p = { .seq = 1024, .micro_batch = 1, .accumulation = 1, .kernels = KERNELS_TORCH_SDPA,
                      .recompute_interval = 1 };
    struct limit one, two;

    assert_int_equal(model_load("gpt2", &p.model), 0);
    assert_int_equal(cluster_load("8xl4", &p.cluster), 0);
    assert_int_equal(limit_real(&p, STRAT_DP, DIALECT_TORCH, DT_BF16, ELSEWHERE_NOTHING, &one), 0);
    assert_int_equal(cluster_load("2x8xl4", &p.cluster), 0);
    assert_int_equal(limit_real(&p, STRAT_DP, DIALECT_TORCH, DT_BF16, ELSEWHERE_NOTHING, &two), 0);
    assert_int_equal(one.max_layers, two.max_layers);
    assert_int_equal(one.max_micro_batch, two.max_micro_batch);
    assert_int_equal(one.min_gpus, 1);
    plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eighty_gigabytes_hold_what_the_sources_say),
        cmocka_unit_test(one_byte_less_holds_less),
        cmocka_unit_test(what_holds_no_parameter_holds_none),
        cmocka_unit_test(frameworks_hold_gradients_as_well),
        cmocka_unit_test(data_parallel_is_asked_on_one_node),
    };
    return cmocka_run_group_tests_name("sim/limits", tests, NULL, NULL);
}
