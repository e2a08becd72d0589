/* Bounds against what plans really need: never above it. */
#include "tests/model/plans.h"

#include <string.h>

#include "model/arch/training.h"
#include "model/plan/knob.h"
#include "sim/search/bounds.h"
#include "sim/search/enumerate.h"

struct seen { int64_t n; double sum; };

static int below(const struct plan *p, void *arg)
{
    struct seen *seen = arg;
    struct evaluation e;
    struct program g = { 0 };

    assert_int_equal(program_build(p, &g), 0);
    int64_t least = bounds_held(p, &g), host = bounds_host_bytes(p, &g);
    assert_true(least >= bounds_activations(p, &g));
    assert_int_equal(evaluate(p, &e), 0);
    if (least <= 0 || least > e.m.ledger.peak.bytes) {
        char label[KNOB_LABEL];
        knob_label(p, label, sizeof label);
        fail_msg("%s on %s, seq %lld: the bound is %lld, it needs %lld", label, p->cluster.name, (long long)p->seq, (long long)least,
                 (long long)e.m.ledger.peak.bytes);
    }
    assert_true(bounds_overhead(p) <= e.m.needed - e.m.ledger.peak.bytes);
    if (host > 0)
        assert_true(host <= e.m.spaces.of[SPACE_PINNED].peak + e.m.spaces.of[SPACE_HOST].peak);
    seen->sum += (double)least / (double)e.m.ledger.peak.bytes;
    seen->n++;
    evaluation_free(&e);
    program_free(&g);
    return 0;
}

/* Of one GPU the buffers of DeepSpeed's offload may be too small for a partition: that is refused when it is lowered. */
static int below_if_planned(const struct plan *p, void *arg)
{
    struct schedules s = { 0 };
    char why[256];

    fail_capture(why, sizeof why);
    int rc = lower(p, 0, &s);
    fail_capture(NULL, 0);
    schedules_free(&s);
    return rc < 0 ? 0 : below(p, arg);
}

static int and_saving(const struct plan *p, void *arg)
{
    static const struct search_options none = { .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL };

    return below(p, arg) < 0 ? -1 : enumerate_saving(&none, p, false, below_if_planned, arg);
}

/* Every plan of a small model, all dialects and strategies; and what saves memory, of one micro-batch.  On one GPU nothing is cut, and
 * gradients that wait for others have the dtype in which they are. */
static void no_plan_needs_less(void **state)
{
    static const char *const models[] = { "gpt2", "llama-3.2-1b", "qwen2.5-0.5b" };
    static const char *const clusters[] = { "2x2xa100-40gb", "a100-40gb" };
    static const enum kernel_set kernels[] = { KERNELS_TORCH_SDPA, KERNELS_DPX };
    struct seen seen = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            struct model whole, m;
            struct cluster c;
            assert_int_equal(model_load(models[i], &whole), 0);
            assert_int_equal(model_with_layers(&whole, 5, &m), 0);
            assert_int_equal(cluster_load(clusters[k / 2], &c), 0);
            struct search_options o = { .model = &m, .cluster = &c, .seq = k < 2 ? 128 : 512, .global_batch = 8, .strategies = ~0ull, .dialects = ~0ull,
                                        .kernels = kernels[k % 2], .precision = k % 2 ? DT_FP32 : DT_BF16, .recompute = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_SELECTIVE | 1u << RECOMPUTE_FULL };
            assert_int_equal(enumerate(&o, below, &seen), 0);
            o.strategies = 1u << STRAT_ZERO3 | 1u << STRAT_FSDP | 1u << STRAT_ZERO2;
            o.micro_batch = 2;
            o.recompute = 1u << RECOMPUTE_NONE;
            if (k % 2 == 0)
                assert_int_equal(enumerate(&o, and_saving, &seen), 0);
            model_free(&m);
            model_free(&whole);
        }
    assert_true(seen.n > 1000);
    print_message("%lld plans, a bound is %.2f of the truth\n", (long long)seen.n, seen.sum / (double)seen.n);
}

/* Stages of mixtures, whose experts the stage's ranks share out or have whole; a first stage without experts. */
static void no_stage_of_a_mixture_needs_less(void **state)
{
    static const struct { const char *model; int64_t layers; } models[] = { { "mixtral-8x7b", 4 }, { "moonlight-16b-a3b", 5 } };
    static const struct { enum pipeline_kind kind; int chunks; } of[] = { { PIPELINE_GPIPE, 1 }, { PIPELINE_1F1B, 1 }, { PIPELINE_INTERLEAVED, 2 } };
    struct seen seen = { 0 };

    (void)state;
    for (int i = 0; i < 2 * 3 * 3 * 2; i++) {
        struct model whole;
        struct plan p;
        assert_int_equal(model_load(models[i % 2].model, &whole), 0);
        memset(&p, 0, sizeof p);
        assert_int_equal(model_with_layers(&whole, models[i % 2].layers, &p.model), 0);
        assert_int_equal(cluster_load("1x8xh100", &p.cluster), 0);
        plan_defaults(&p, STRAT_FSDP, DIALECT_TORCH, DT_BF16);
        p.kernels = KERNELS_TORCH_SDPA;
        p.seq = 256;
        p.micro_batch = 1;
        p.parallel.pipeline = 2;
        p.parallel.pipeline_schedule = of[i / 2 % 3].kind;
        p.parallel.virtual_stages = of[i / 2 % 3].chunks;
        p.parallel.first_stage_less = p.parallel.last_stage_less = 0;
        p.parallel.expert = (int64_t)1 << i / 6 % 3;
        p.recompute = i / 18 % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
        p.accumulation = 4;
        p.shard_group = 4;
        p.sync_every_micro_step = false;
        plan_resolve(&p);
        assert_int_equal(plan_check(&p, "plan"), 0);
        below(&p, &seen);
        model_free(&p.model);
        model_free(&whole);
    }
    assert_int_equal(seen.n, 36);
}

static void adapt(struct model *m)
{
    struct training t = training_default();

    strcpy(t.what, "lora");
    t.rank = 16;
    strcpy(t.target_modules, "all-linear");
    assert_int_equal(training_apply(m, &t, "test"), 0);
}

/* Units of up to eight blocks, and of what is left; groups of ranks that shard, and replicas of them; experts, whose first dimension is
 * smaller than the ranks are, and which ZeRO-3 keeps whole for backward, as it does falcon's layers; adapters beside a model that does
 * not train. */
static void no_unit_needs_less(void **state)
{
    static const char *const models[] = { "mixtral-8x7b", "llama-3.2-1b", "llama-3.2-1b", "falcon-7b", "gpt-oss-20b" };
    static const char *const clusters[] = { "2x8xh100", "4xa100-80gb", "4x4xh100", "4xa100-80gb", "2x4xa100-80gb" };
    struct seen seen = { 0 };

    (void)state;
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 2; k++) {
            struct model whole, m;
            struct cluster c;
            assert_int_equal(model_load(models[i], &whole), 0);
            assert_int_equal(model_with_layers(&whole, i == 0 || i > 2 ? 3 : 11, &m), 0);
            if (i == 1)
                adapt(&m);
            assert_int_equal(cluster_load(clusters[i], &c), 0);
            struct search_options o = { .model = &m, .cluster = &c, .seq = k ? 2048 : 256, .global_batch = c.world_size * (k ? 1 : 4), .strategies = ~0ull,
                                        .dialects = ~(1ull << DIALECT_PAPER), .kernels = attention_default(&m), .precision = DT_BF16,
                                        .micro_batch = 1, .recompute = k ? 7 : 1u << RECOMPUTE_FULL };
            assert_int_equal(enumerate(&o, below, &seen), 0);
            model_free(&m);
            model_free(&whole);
        }
    assert_true(seen.n > 1000);
    print_message("%lld plans, a bound is %.2f of the truth\n", (long long)seen.n, seen.sum / (double)seen.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_stage_of_a_mixture_needs_less), cmocka_unit_test(no_plan_needs_less), cmocka_unit_test(no_unit_needs_less) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
