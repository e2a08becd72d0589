/* ZeRO++'s secondary partitions (hpZ): which group each gather asks, what the partitions weigh, what is refused.  The lists of
 * DeepSpeed itself are in test_collectives.c, the data in test_zero3_data.c. */
#include "tests/model/zero.h"

/* Two nodes of eight; nothing is kept, prefetched or persistent: each use is a gather. */
static void two_nodes(struct plan *p, int64_t layers, int64_t accumulation)
{
    deepspeed(p, "llama-2-7b", layers, 16, STRAT_ZERO3, DT_BF16);
    p->cluster.gpus_per_node = 8;
    p->accumulation = accumulation;
    p->ds.zero_hpz_partition_size = 8;
    p->ds.stage3_prefetch_bucket_size = 0;
    p->ds.stage3_max_reuse_distance = 0;
    p->ds.stage3_param_persistence_threshold = 0;
}

/* Elements that all-gathers of a group move in a schedule. */
static int64_t gathered(enum sched_id id, enum group is)
{
    int64_t sum = 0;

    for (int i = s.begin[id]; i < s.end[id]; i++)
        if (s.ops[i].kind == OP_COLL && s.ops[i].u.coll.op == COLL_ALL_GATHER &&
            s.groups.group[s.ops[i].u.coll.group].is == is)
            sum += s.ops[i].u.coll.elems;
    return sum;
}

/* Of a step's 2 m gathers of P the first goes to all ranks; the copies that construction left serve the first step. */
static void one_gather_a_step_leaves_the_node(void **state)
{
    (void)state;
    for (int64_t m = 1; m <= 3; m++) {
        struct plan p;
        two_nodes(&p, 2, m);
        lowered(&p, 11, &s);
        int64_t all = 16 * parts(&p.model, 16);
        assert_int_equal(gathered(SCHED_FIRST, GROUP_DATA), 0);
        assert_int_equal(gathered(SCHED_FIRST, GROUP_SECONDARY), 2 * m * all);
        assert_int_equal(gathered(SCHED_STEADY, GROUP_DATA), all);
        assert_int_equal(gathered(SCHED_STEADY, GROUP_SECONDARY), (2 * m - 1) * all);
        assert_int_equal(tally_of(&s, SCHED_STEADY, COLL_REDUCE_SCATTER).elems, m * all);
        struct mesh_lie lie = plan_groups_slowest(&p, &s.groups, plan_groups_find(&s.groups, GROUP_SECONDARY));
        assert_int_equal(lie.nodes, 1);
        assert_int_equal(lie.ranks, 8);
        plan_free(&p);
    }
}

/* 2 P / G bytes: for 7e9 parameters and 8 ranks 1.75e9; Llama-2-7B has 6,738,415,616, all tensors of which 64 divides. */
static void a_rank_keeps_an_eighth(void **state)
{
    struct plan p;
    int64_t sum = 0;

    (void)state;
    deepspeed(&p, "llama-2-7b", 0, 64, STRAT_ZERO3, DT_BF16);
    p.ds.zero_hpz_partition_size = 8;
    lowered(&p, 0, &s);
    for (int i = 0; i < s.nbufs; i++)
        if (!strcmp(s.bufs[i].what, "secondary partition"))
            sum += s.bufs[i].bytes * s.bufs[i].count;
    assert_int_equal(sum, 2 * INT64_C(6738415616) / 8);
    plan_free(&p);
}

/* DeepSpeed takes as many ranks as there are, in a group of its own, and makes the copies all the same. */
static void more_than_all_ranks_are_all(void **state)
{
    struct plan p;

    (void)state;
    two_nodes(&p, 2, 1);
    p.ds.zero_hpz_partition_size = 64;
    lowered(&p, 3, &s);
    assert_int_equal(s.groups.group[plan_groups_find(&s.groups, GROUP_SECONDARY)].ranks, 16);
    assert_int_equal(gathered(SCHED_STEADY, GROUP_SECONDARY), 16 * parts(&p.model, 16));
    plan_free(&p);
}

/* Nothing of them is left when the step ends: what the next one starts from is what it would be without. */
static void the_step_drops_them(void **state)
{
    struct plan p;
    struct ledger with, without;

    (void)state;
    two_nodes(&p, 2, 2);
    lowered(&p, 0, &s);
    ledger_run(&s, &with);
    p.ds.zero_hpz_partition_size = 1;
    lowered(&p, 0, &s);
    ledger_run(&s, &without);
    for (int c = 0; c < NCAT; c++)
        assert_int_equal(with.persistent[c], without.persistent[c]);
    assert_true(with.peak.bytes > without.peak.bytes);
    plan_free(&p);
}

static void what_deepspeed_refuses_is_refused(void **state)
{
    struct plan p;

    (void)state;
    two_nodes(&p, 2, 1);
    p.ds.zero_hpz_partition_size = 3;
    plan_refused(&p, "deepspeed.zero_hpz_partition_size: 3 does not divide 16 ranks");
    p.ds.zero_hpz_partition_size = 8;
    p.ds.offload_param.device = OFFLOAD_CPU;
    plan_refused(&p, "with offload_param");
    p.ds.offload_param.device = OFFLOAD_NONE;
    plan_move(&p, 1);
    p.ds.zero_hpz_partition_size = 8;
    plan_refused(&p, "one rank");
    plan_free(&p);
}

static int end(void **state)
{
    (void)state;
    schedules_free(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gather_a_step_leaves_the_node),
        cmocka_unit_test(a_rank_keeps_an_eighth),
        cmocka_unit_test(more_than_all_ranks_are_all),
        cmocka_unit_test(the_step_drops_them),
        cmocka_unit_test(what_deepspeed_refuses_is_refused),
    };
    return cmocka_run_group_tests_name("model/zero3_second", tests, NULL, end);
}
