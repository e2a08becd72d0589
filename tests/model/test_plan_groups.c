/* The table of a plan's process groups: which there are, their names, ranks and members. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "model/plan/plan_groups.h"

static struct plan plan_of(enum strategy s, enum dialect d, int64_t world, int64_t shard)
{
    struct plan p = { .strategy = s, .dialect = d, .shard_group = shard };

    p.cluster.world_size = world;
    p.cluster.gpus_per_node = 8;
    return p;
}

/* "world 8, shard 4, replica 2" */
static void must_be(const struct plan *p, const char *want)
{
    struct plan_groups g;
    char text[256] = "", one[64];

    plan_groups(p, &g);
    for (int i = 0; i < g.n; i++) {
        snprintf(one, sizeof one, "%s%s %lld", i ? ", " : "", g.group[i].name, (long long)g.group[i].ranks);
        strcat(text, one);
        assert_int_equal(g.group[i].ranks, mesh_ranks(&g.group[i].of));
        assert_int_equal(plan_groups_find(&g, g.group[i].is), i);
    }
    assert_string_equal(text, want);
}

static void a_plan_has_the_groups_that_its_framework_makes(void **state)
{
    struct plan p = plan_of(STRAT_DDP, DIALECT_TORCH, 8, 0);

    (void)state;
    must_be(&p, "world 8");
    p = plan_of(STRAT_FSDP, DIALECT_TORCH, 8, 8);
    must_be(&p, "world 8");
    p = plan_of(STRAT_FSDP, DIALECT_TORCH, 8, 4);
    must_be(&p, "world 8, shard 4, replica 2");
    p.fsdp.reshard_after_forward = 2;
    p.fsdp.root_reshard_after_forward = 4;
    must_be(&p, "world 8, shard 4, replica 2, reshard 2, root_reshard 4");
    p.fsdp.reshard_after_forward = 1;       /* true: to all; the root alone has a number */
    must_be(&p, "world 8, shard 4, replica 2, reshard 4");
    p = plan_of(STRAT_FSDP, DIALECT_PAPER, 8, 4);
    p.fsdp.reshard_after_forward = 2;       /* not the paper's */
    must_be(&p, "world 8, shard 4, replica 2");
}

/* torchtitan's mesh dp_shard 8, cp 2, tp 4, pp 2 (128 ranks): pp 1, dp_shard 3, cp 1, tp 2 is rank 94; FSDP's group
 * has 16 ranks, 4 apart (parallel_dims.py). */
static void a_grid_has_torchtitans_groups(void **state)
{
    struct plan p = plan_of(STRAT_FSDP, DIALECT_TORCH, 128, 16);
    struct plan_groups g;
    struct mesh m;

    (void)state;
    p.parallel = (struct parallel_options){ .tensor = 4, .context = 2, .pipeline = 2 };
    must_be(&p, "data 16, tensor 4, context 2, pipe 2");
    m = plan_mesh(&p);
    assert_int_equal(mesh_digit(&m, 94, AXIS_PIPE), 1);
    assert_int_equal(mesh_digit(&m, 94, AXIS_SHARD), 3);
    assert_int_equal(mesh_digit(&m, 94, AXIS_CONTEXT), 1);
    assert_int_equal(mesh_digit(&m, 94, AXIS_TENSOR), 2);
    plan_groups(&p, &g);
    for (int i = 0; i < 16; i++)
        assert_int_equal(mesh_member(&g.group[0].of, 94, i), 64 + 2 + 4 * i);
    assert_int_equal(plan_batch_ranks(&p), 8);
    p.shard_group = 4;                      /* hybrid: 2 of dp_shard, 2 of context; 4 replicas */
    p.model.tied = true;
    must_be(&p, "data 16, shard 4, replica 4, tensor 4, context 2, pipe 2, tied 2");
    plan_groups(&p, &g);
    assert_int_equal(mesh_member(&g.group[1].of, 94, 3), 94);           /* shard 1, context 1 */
    assert_int_equal(mesh_member(&g.group[1].of, 94, 0), 94 - 4 - 8);
    assert_int_equal(mesh_member(&g.group[2].of, 94, 0), 94 - 16);      /* replica 1 of 0 to 3 */
    p.parallel.pipeline_schedule = PIPELINE_ZBV;        /* one rank has both ends */
    must_be(&p, "data 16, shard 4, replica 4, tensor 4, context 2, pipe 2");
}

/* FSDP1 makes both groups of a hybrid strategy, but one rank alone falls back to NO_SHARD. */
static void fsdp1_goes_by_its_strategy(void **state)
{
    struct plan p = plan_of(STRAT_FSDP, DIALECT_TORCH_FSDP1, 8, 4);

    (void)state;
    p.fsdp.sharding_strategy = FSDP1_FULL_SHARD;
    must_be(&p, "world 8");
    p.fsdp.sharding_strategy = FSDP1_HYBRID_SHARD;
    must_be(&p, "world 8, shard 4, replica 2");
    p.shard_group = 8;
    must_be(&p, "world 8, shard 8, replica 1");
    p.shard_group = 1;
    must_be(&p, "world 8, shard 1");
}

/* 8 ranks in shards of 4: rank 5 is in 4..7, has the replica 1, reshards to 2 with 4. */
static void members_are_where_the_mesh_has_them(void **state)
{
    struct plan p = plan_of(STRAT_FSDP, DIALECT_TORCH, 8, 4);
    struct plan_groups g;

    (void)state;
    p.fsdp.reshard_after_forward = 2;
    plan_groups(&p, &g);
    assert_int_equal(mesh_member(&g.group[plan_groups_find(&g, GROUP_DATA)].of, 5, 3), 3);
    assert_int_equal(mesh_member(&g.group[plan_groups_find(&g, GROUP_SHARD)].of, 5, 0), 4);
    assert_int_equal(mesh_member(&g.group[plan_groups_find(&g, GROUP_REPLICA)].of, 5, 0), 1);
    assert_int_equal(mesh_member(&g.group[plan_groups_find(&g, GROUP_RESHARD)].of, 5, 0), 4);
    assert_int_equal(plan_groups_find(&g, GROUP_ROOT_RESHARD), -1);
}

/* A rule may list places: of 4 stages of 2 ranks the first and the last, 1 and 7. */
static void a_rule_may_be_a_list(void **state)
{
    struct mesh m = { .order = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT, AXIS_TENSOR },
                      .size = { [AXIS_PIPE] = 4, [AXIS_REPLICA] = 1, [AXIS_SHARD] = 2, [AXIS_CONTEXT] = 1,
                                [AXIS_EXPERT] = 1, [AXIS_TENSOR] = 1 } };
    struct plan_groups g = { .n = 0 };
    int at = plan_groups_add(&g, &m, GROUP_REPLICA,
                             (struct group_rule){ .axes = MESH_AXIS(AXIS_PIPE), .nplaces = 2, .place = { 0, 3 } });

    (void)state;
    assert_int_equal(g.group[at].ranks, 2);
    assert_int_equal(mesh_member(&g.group[at].of, 1, 1), 7);
    assert_int_equal(mesh_place(&g.group[at].of, 7), 1);
    assert_int_equal(mesh_place(&g.group[at].of, 3), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_has_the_groups_that_its_framework_makes),
        cmocka_unit_test(a_grid_has_torchtitans_groups),
        cmocka_unit_test(fsdp1_goes_by_its_strategy),
        cmocka_unit_test(members_are_where_the_mesh_has_them),
        cmocka_unit_test(a_rule_may_be_a_list),
    };
    return cmocka_run_group_tests_name("model/plan_groups", tests, NULL, NULL);
}
