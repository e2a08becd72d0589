/* test_deepspeed_experts.c -- experts over ranks as DeepSpeed has them: its AutoEP, and its own layer, deepspeed.moe.layer.MoE. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "model/exchange/export.h"
#include "model/lower/lower.h"
#include "model/plan/expert_capacity.h"
#include "model/plan/local_model.h"
#include "tests/model/expert_plans.h"

/* ---- DeepSpeed's AutoEP ---- */

/* DeepSpeed makes the group of a rank's experts' sisters also where it is one rank (utils/groups.py). */
static void deepspeed_shares_experts_out_over_runs_of_ranks(void **state)
{
    struct plan p;

    (void)state;
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 16, 4);
    has_ranks(&p, GROUP_EXPERT, 6, (const int64_t[]){ 4, 5, 6, 7 }, 4);
    has_ranks(&p, GROUP_EXPERT_DATA, 6, (const int64_t[]){ 2, 6, 10, 14 }, 4);
    model_free(&p.model);
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 8, 8);
    has_ranks(&p, GROUP_EXPERT_DATA, 6, (const int64_t[]){ 6 }, 1);
    model_free(&p.model);
}

/* Experts over 4 of 16 ranks: a rank has 2 of 8, three tensors of 2 x 14336 x 4096 = 117,440,512 elements a block.  Two are more than the
 * 178,956,971 of a parameter group, so each of 3 x 6 tensors is a group, cut over the 4 ranks that have the same and gathered by them; all
 * else, cut over 16.  The norms: one of each group over the world, each of the experts' once more among those 4. */
static void deepspeed_makes_groups_of_experts(void **state)
{
    const int64_t layers = 6, tensor = 2 * 14336 * 4096LL, rest = layers * (41943040 + 32768 + 8192) + 2 * 32000 * 4096LL + 4096;
    struct schedules s = { 0 };
    int64_t sum, optimizer = 0;
    struct plan p;

    (void)state;
    assert_int_equal(tensor, 117440512);
    assert_true(2 * tensor > 178956971);
    for (int stage = STRAT_ZERO1; stage <= STRAT_ZERO2; stage++) {
        plan_of_deepspeed(&p, (enum strategy)stage, layers, 16, 4);
        assert_int_equal(plan_check(&p, "plan"), 0);
        assert_int_equal(lower(&p, 5, &s), 0);
        assert_int_equal(count(&s, COLL_ALL_GATHER, GROUP_EXPERT_DATA, DT_BF16, &sum), 3 * layers);
        assert_int_equal(sum, 3 * layers * tensor);
        assert_int_equal(count(&s, COLL_ALL_GATHER, GROUP_DATA, DT_BF16, &sum), 1);
        assert_true(sum >= rest && sum < rest + 32);
        count(&s, COLL_ALL_REDUCE, GROUP_EXPERT_DATA, DT_BF16, &sum);
        assert_int_equal(sum, 3 * layers * tensor);
        assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_DATA, DT_FP32, &sum), 1 + 3 * layers);
        assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT_DATA, DT_FP32, &sum), 3 * layers);
        assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_INT32, &sum), layers);
        assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_BF16, &sum), 4 * layers);
        assert_int_equal(sum, 4 * layers * p.micro_batch * p.seq * 2 * 4096);
        assert_int_equal(waits(&s), layers);
        optimizer = 0;
        for (int i = 0; i < s.nbufs; i++)
            optimizer += s.bufs[i].category == CAT_OPTIMIZER ? s.bufs[i].bytes * s.bufs[i].count : 0;
        /* fp32 weights and two moments; each is rounded up to 512 bytes */
        sum = 12 * (3 * layers * tensor / 4 + (rest + 31) / 32 * 32 / 16);
        assert_true(optimizer >= sum && optimizer < sum + 4096);
        schedules_free(&s);
        model_free(&p.model);
    }
}

/* Over 2 of 4 ranks a tensor of 234,881,024 elements is a group by itself, the first too; over 8 of 16 the three of a block, 176,160,768
 * elements, are one.  A group's norm goes over the world. */
static void a_group_of_experts_has_as_many_tensors_as_fit(void **state)
{
    const struct { int64_t world, expert, groups; } of[] = { { 4, 2, 3 * 2 }, { 16, 8, 2 } };
    struct schedules s = { 0 };
    struct plan p;
    int64_t sum;

    (void)state;
    assert_int_equal(4 * 14336 * 4096LL, 234881024);
    assert_true(3 * 14336 * 4096LL < 178956971);
    for (int i = 0; i < 2; i++) {
        plan_of_deepspeed(&p, STRAT_ZERO2, 2, of[i].world, of[i].expert);
        assert_int_equal(lower(&p, 0, &s), 0);
        assert_int_equal(count(&s, COLL_ALL_GATHER, GROUP_EXPERT_DATA, DT_BF16, &sum), of[i].groups);
        assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_DATA, DT_FP32, &sum), 1 + of[i].groups);
        schedules_free(&s);
        model_free(&p.model);
    }
}

/* At stage 0 a rank has all states of what it computes: experts over 4 of 16 ranks, 2 of 8.  One reduction of what is no expert (346 million
 * elements, below 5e8) over all; the experts', 3 x 2 tensors of 117,440,512, are flushed where they are beyond 5e8: 5 and 1, over the 4
 * ranks that have the same.  The overflow and the experts' norm are one number each over the ranks that share them out. */
static void deepspeeds_stage_0_keeps_all_states_of_its_experts(void **state)
{
    const int64_t layers = 2, tensor = 2 * 14336 * 4096LL, rest = layers * (41943040 + 32768 + 8192) + 2 * 32000 * 4096LL + 4096;
    struct schedules s = { 0 };
    int64_t sum, optimizer = 0;
    struct plan p;

    (void)state;
    assert_true(rest < 500000000 && 4 * tensor < 500000000 && 5 * tensor > 500000000);
    plan_of_deepspeed(&p, STRAT_DDP, layers, 16, 4);
    assert_int_equal(plan_check(&p, "plan"), 0);
    assert_int_equal(lower(&p, 5, &s), 0);
    assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_DATA, DT_BF16, &sum), 1);
    assert_int_equal(sum, rest);
    assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT_DATA, DT_BF16, &sum), 2);
    assert_int_equal(sum, 3 * layers * tensor);
    assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT, DT_FP32, &sum), 1);
    assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT, DT_UINT8, &sum), 1);
    assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_DATA, DT_FP32, &sum), 0);
    for (int i = 0; i < s.nbufs; i++)
        optimizer += s.bufs[i].category == CAT_OPTIMIZER ? s.bufs[i].bytes * s.bufs[i].count : 0;
    sum = 12 * (3 * layers * tensor + rest);
    assert_true(optimizer >= sum && optimizer < sum + 8192);
    schedules_free(&s);
    model_free(&p.model);
}

/* Stage 3: each tensor by itself, an expert's over the 4 of 16 ranks that have it, 2 x 14336 x 4096 elements of each of three; all else over
 * 16.  With nothing prefetched and no reuse in sight a block's experts are gathered for forward and again for backward, the three in one call;
 * reduced in one bucket, because the router's gradient, behind theirs, is of other ranks.  A norm of the experts is summed over both of their
 * groups.  States are as with the other stages: 12 bytes an element of a share. */
static void deepspeeds_stage_3_partitions_experts_over_their_ranks(void **state)
{
    const int64_t layers = 4, tensor = 2 * 14336 * 4096LL, block = 3 * tensor;
    const int64_t rest = layers * (41943040 + 32768 + 8192) + 2 * 32000 * 4096LL + 4096;
    struct schedules s = { 0 };
    int64_t sum, optimizer = 0, n;
    struct plan p;

    (void)state;
    plan_of_deepspeed(&p, STRAT_ZERO3, layers, 16, 4);
    p.ds.stage3_max_reuse_distance = p.ds.stage3_prefetch_bucket_size = 0;
    assert_int_equal(plan_check(&p, "plan"), 0);
    assert_int_equal(lower(&p, 5, &s), 0);
    n = count(&s, COLL_ALL_GATHER, GROUP_EXPERT_DATA, DT_BF16, &sum);
    assert_int_equal(n, 2 * layers);
    assert_int_equal(sum, n * block);
    assert_int_equal(count(&s, COLL_REDUCE_SCATTER, GROUP_EXPERT_DATA, DT_BF16, &sum), layers);
    assert_int_equal(sum, layers * block);
    count(&s, COLL_REDUCE_SCATTER, GROUP_DATA, DT_BF16, &sum);
    assert_int_equal(sum, rest);                /* all of it divides by 16 */
    assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT, DT_FP64, &sum), count(&s, COLL_ALL_REDUCE, GROUP_EXPERT_DATA, DT_FP64, &sum));
    assert_true(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT, DT_FP64, &sum) >= 1);
    assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_BF16, &sum), 4 * layers);
    assert_int_equal(waits(&s), layers);
    for (int i = 0; i < s.nbufs; i++)
        optimizer += s.bufs[i].category == CAT_OPTIMIZER ? s.bufs[i].bytes * s.bufs[i].count : 0;
    sum = 12 * (layers * block / 4 + rest / 16);
    assert_true(optimizer >= sum && optimizer < sum + 65536);
    schedules_free(&s);
    model_free(&p.model);
}

/* Where one rank alone has an expert, nothing of it is gathered; its gradients go through a collective of one. */
static void an_expert_that_one_rank_has_is_not_gathered(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    int64_t sum;

    (void)state;
    plan_of_deepspeed(&p, STRAT_ZERO3, 2, 8, 8);
    assert_int_equal(lower(&p, 0, &s), 0);
    assert_int_equal(count(&s, COLL_ALL_GATHER, GROUP_EXPERT_DATA, DT_BF16, &sum), 0);
    assert_int_equal(count(&s, COLL_REDUCE_SCATTER, GROUP_EXPERT_DATA, DT_BF16, &sum), 2);
    schedules_free(&s);
    model_free(&p.model);
}

/* ---- deepspeed.moe.layer.MoE ---- */

/* 512 tokens, 2 of 8 experts: 128 rows an expert and rank; times 1.25, 160.  All experts' capacity goes out and comes in, four times a block;
 * the host waits for nothing.  Where no token may be dropped, ranks agree on the busiest expert's rows in each block, and the host waits. */
static void deepspeeds_own_layer_sends_capacities(void **state)
{
    const struct { double factor; int64_t least; bool drops; int64_t rows; } of[] = {
        { 1, 4, true, 128 }, { 1.25, 4, true, 160 }, { 1, 200, true, 200 }, { 1, 4, false, 128 },
    };
    struct schedules s = { 0 };
    struct plan p;
    int64_t sum;

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int stage = STRAT_DDP; stage <= STRAT_ZERO2; stage++) {
            plan_of_deepspeed(&p, (enum strategy)stage, 2, 8, 4);
            p.seq = 512;
            p.micro_batch = 1;
            p.ds.moe_layer = MOE_NATIVE;
            p.ds.moe_capacity_factor = of[i].factor;
            p.ds.moe_min_capacity = of[i].least;
            p.ds.moe_drop_tokens = of[i].drops;
            plan_resolve(&p);
            assert_int_equal(plan_check(&p, "plan"), 0);
            assert_int_equal(expert_capacity_of(&p, expert_capacity_tokens(&p)), of[i].rows);
            assert_int_equal(lower(&p, 0, &s), 0);
            assert_int_equal(count(&s, COLL_ALL_TO_ALL, GROUP_EXPERT, DT_BF16, &sum), 4 * 2);
            assert_int_equal(sum, 4 * 2 * 8 * of[i].rows * 4096);
            assert_int_equal(count(&s, COLL_ALL_REDUCE, GROUP_EXPERT, DT_INT64, &sum), of[i].drops ? 0 : 2);
            assert_int_equal(waits(&s), of[i].drops ? 0 : 2);
            schedules_free(&s);
            model_free(&p.model);
        }
}

/* Two experts a rank, three matrices each, after one another: gate, up and down of one, then of the next. */
static void each_expert_of_deepspeeds_own_layer_is_a_module(void **state)
{
    static const char *const names[] = { "gate.wg", "experts.deepspeed_experts.0.gate_proj", "experts.deepspeed_experts.0.up_proj",
                                         "experts.deepspeed_experts.0.down_proj", "experts.deepspeed_experts.1.gate_proj" };
    struct local_model local;
    struct plan p;
    char name[128];
    int at = 0;

    (void)state;
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 8, 4);
    p.ds.moe_layer = MOE_NATIVE;
    assert_int_equal(local_model_of(&p, 3, &local), 0);
    const struct model *m = local.model;
    assert_int_equal(m->per_block, p.model.per_block - 2 + 2 * 3);      /* in place of gate_up_proj and down_proj */
    assert_int_equal(m->ntensors, p.model.ntensors + 2 * (2 * 3 - 2));
    while (m->tensors[at].role != ROLE_ROUTER)
        at++;
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "model.layers.0.mlp.deepspeed_moe.%s.weight", names[i]);
        assert_string_equal(m->tensors[at + i].name, name);
    }
    assert_int_equal(m->tensors[at + 3].shape[0], 4096);
    assert_int_equal(m->tensors[at + 3].shape[1], 14336);
    int64_t numel = 0;
    for (int i = 0; i < m->ntensors; i++)
        numel += m->tensors[i].numel;
    assert_int_equal(numel, m->params);
    local_model_free(&local);
    model_free(&p.model);
}

/* 32 experts of 3 matrices, each with a gradient of its own: 96 and more of a block, all of which enter the bucket. */
static void a_rank_has_as_many_experts_as_it_likes(void **state)
{
    struct schedules s = { 0 };
    struct plan p;
    int64_t grads = 0;

    (void)state;
    plan_of(&p, "qwen3-30b-a3b", 2, 8, STRAT_ZERO2, DIALECT_DEEPSPEED, DT_BF16);
    p.kernels = KERNELS_TORCH_SDPA;
    p.parallel.expert = 4;
    p.ds.moe_layer = MOE_NATIVE;
    assert_int_equal(p.model.experts, 128);
    assert_int_equal(plan_check(&p, "plan"), 0);
    s.detailed = true;
    assert_int_equal(lower(&p, 0, &s), 0);
    for (int i = s.begin[SCHED_STEADY]; i < s.end[SCHED_STEADY]; i++)
        if (s.ops[i].what && strcmp(s.ops[i].what, "copy into bucket") == 0)
            grads += s.ops[i].u.copy.writes;
    assert_int_equal(grads, 2 * s.units[0].numel);      /* in bf16, once each */
    schedules_free(&s);
    plan_free(&p);
}

static void what_deepspeeds_own_layer_has_not_is_refused(void **state)
{
    char why[512] = "";
    struct plan p;

    (void)state;
    plan_of_deepspeed(&p, STRAT_ZERO2, 2, 8, 4);
    p.ds.moe_layer = MOE_NATIVE;
    p.parallel.expert_imbalance = 1.5;
    refused(&p, "every expert gets its capacity of rows");
    p.ds.moe_drop_tokens = false;
    assert_int_equal(plan_check(&p, "plan"), 0);
    fail_capture(why, sizeof why);
    assert_int_equal(export_plan(&p, "deepspeed", stderr), -1);
    fail_capture(NULL, 0);
    assert_non_null(strstr(why, "arguments of deepspeed.moe.layer.MoE"));
    p.ds.moe_drop_tokens = true;
    p.parallel.expert_imbalance = 1;
    p.ds.moe_capacity_factor = 0;
    refused(&p, "moe_capacity_factor: 0 is out of range");
    model_free(&p.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepspeed_shares_experts_out_over_runs_of_ranks),
        cmocka_unit_test(deepspeed_makes_groups_of_experts),
        cmocka_unit_test(a_group_of_experts_has_as_many_tensors_as_fit),
        cmocka_unit_test(deepspeeds_stage_0_keeps_all_states_of_its_experts),
        cmocka_unit_test(deepspeeds_stage_3_partitions_experts_over_their_ranks),
        cmocka_unit_test(an_expert_that_one_rank_has_is_not_gathered),
        cmocka_unit_test(deepspeeds_own_layer_sends_capacities),
        cmocka_unit_test(each_expert_of_deepspeeds_own_layer_is_a_module),
        cmocka_unit_test(a_rank_has_as_many_experts_as_it_likes),
        cmocka_unit_test(what_deepspeeds_own_layer_has_not_is_refused),
    };

    return cmocka_run_group_tests_name("model/deepspeed_experts", tests, NULL, NULL);
}
