/* test_overhead.c -- memory beside a schedule: contexts, NCCL's buffers, workspaces. */
#include "tests/check.h"
#include "model/memory/overhead.h"

#include <stdio.h>
#include <string.h>

#define MiB ((int64_t)1 << 20)

/* Groups that a schedule communicates in, by what they are for. */
static const unsigned world = 1u << GROUP_DATA, hybrid = 1u << GROUP_SHARD | 1u << GROUP_REPLICA;

static int64_t overhead_in(const struct plan *p, unsigned purposes, struct overhead *o)
{
    struct plan_groups groups;
    uint32_t communicates = 0;

    plan_groups(p, &groups);
    for (int g = 0; g < groups.n; g++)
        communicates |= (purposes >> groups.group[g].is & 1) << g;
    return overhead_bytes(p, &groups, communicates, o);
}

static struct plan plan_on(const char *cluster, enum strategy s, int64_t shard)
{
    struct plan p;

    memset(&p, 0, sizeof p);
    assert_int_equal(cluster_load(cluster, &p.cluster), 0);
    p.strategy = s;
    p.kernels = KERNELS_TORCH_SDPA;
    p.shard_group = shard ? shard : p.cluster.world_size;
    return p;
}

/* 8xH100: 24 channels of 12 MiB (10 to receive, 2 to send: nccl#1685 traces allocations of just these), and 16 NVLS
 * channels of 2*1 MiB for each of 8 heads. */
static void one_hopper_node(void **state)
{
    struct plan     p = plan_on("8xh100", STRAT_DDP, 0);
    struct overhead o;

    (void)state;
    assert_int_equal(overhead_in(&p, world, &o), 32 * MiB + 288 * MiB + 256 * MiB);
    assert_int_equal(o.by[OVERHEAD_ALLOCATED], 32 * MiB);
    assert_int_equal(o.by[OVERHEAD_OUTSIDE], 544 * MiB);
    assert_int_equal(o.by[OVERHEAD_CONTEXT], p.cluster.context);
}

/* Before SM90: a workspace of 8,519,680 B and no NVLS. */
static void one_ampere_node(void **state)
{
    struct plan     p = plan_on("8xa100", STRAT_FSDP, 0);
    struct overhead o;

    (void)state;
    assert_int_equal(overhead_in(&p, world, &o), 8519680 + 288 * MiB);
}

/* Across nodes 16 channels; each leaves a node through one of its 8 GPUs, so two of them
 * through this one, with a send buffer of 10 MiB instead of 2. */
static void several_nodes(void **state)
{
    struct cluster c;

    (void)state;
    assert_int_equal(cluster_load("4x8xh100", &c), 0);
    assert_int_equal(overhead_nccl(&c, 32, 8), (192 + 16 + 256) * MiB);
    assert_int_equal(overhead_nccl(&c, 4, 1), 16 * (10 + 10) * MiB);
}

/* Our own kernels work in 32 MiB of cuBLASLt's and what they cut themselves; for GPT-2's widths and 1024
 * tokens a strip of 4 MiB is the most (sums of columns: 4 * 3072 * 256, of norms: 8 * 768 * 512). */
static void our_kernels_on_a_gpu_have_their_own_workspace(void **state)
{
    struct plan     p = plan_on("8xh100", STRAT_FSDP, 0);
    struct overhead o;

    (void)state;
    p.kernels = KERNELS_DPX;
    p.seq = 1024;
    p.micro_batch = 1;
    p.model = (struct model){ .hidden = 768, .ffn = 3072, .heads = 12, .kv_heads = 12, .head_dim = 64,
                              .vocab = 50257 };
    overhead_in(&p, world, &o);
    assert_int_equal(o.by[OVERHEAD_ALLOCATED], 36 * MiB);
}

/* Channels of one peer of a message.  8xH100: 18 NVLinks, 36, as a power of two 64, but no more than the rings' 24,
 * as one 32.  A100: 12 links, 24 -> 32.  PCIe: 2.  Across nodes an adapter of 400 Gb/s a GPU: 50/14 -> 4; of 200: 2. */
static void channels_of_a_message(void **state)
{
    static const struct { const char *cluster; int64_t ranks, most, want; } rows[] = {
        { "8xh100", 4, 4, 32 }, { "8xa100", 4, 4, 32 }, { "8xl4", 4, 4, 2 }, { "4x8xh100", 4, 1, 4 },
        { "4x8xa100", 4, 1, 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mesh_lie l = { rows[i].ranks, rows[i].ranks / rows[i].most, rows[i].most, rows[i].most };
        struct cluster c;
        assert_int_equal(cluster_load(rows[i].cluster, &c), 0);
        if (overhead_peer_channels(&c, &l) != rows[i].want)
            fail_msg("%s: %lld channels", rows[i].cluster, (long long)overhead_peer_channels(&c, &l));
    }
}

/* A pipeline of 4 stages with no collective on its group.  On one node a stage between two others has 2 peers of 32
 * channels of 12 MiB, the first one half; stages on nodes of their own share 16 channels of 16 steps of 128 KiB each way. */
static void stages_that_exchange_messages(void **state)
{
    static const struct { const char *cluster; int64_t rank, mib; } rows[] = {
        { "4xh100", 1, 768 }, { "4xh100", 0, 384 }, { "4x1xh100", 1, 64 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan      p = plan_on(rows[i].cluster, STRAT_FSDP, 1);
        struct schedules s = { .rank = rows[i].rank, .world_size = 4 };
        struct overhead  o;
        p.parallel.pipeline = 4;
        p.parallel.tensor = p.parallel.context = 1;
        plan_groups(&p, &s.groups);
        sched_begin(&s, SCHED_STEADY);
        for (int peer = (int)s.rank - 1; peer <= (int)s.rank + 1; peer += 2)
            for (int way = 0; way < 2 && peer >= 0; way++)
                sched_message(&s, STREAM_GROUP, PHASE_FORWARD, way ? COLL_RECV : COLL_SEND, GROUP_PIPE, peer, way, DT_BF16, 8);
        sched_end(&s, SCHED_STEADY);
        overhead_of(&p, &s, &o);
        assert_int_equal(o.by[OVERHEAD_OUTSIDE], rows[i].mib * MiB);
        /* A norm over all stages needs rings as well. */
        sched_begin(&s, SCHED_STEADY);
        sched_coll(&s, STREAM_GROUP, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_PIPE, DT_FP32, RED_SUM, 1);
        sched_end(&s, SCHED_STEADY);
        overhead_of(&p, &s, &o);
        assert_true(o.by[OVERHEAD_OUTSIDE] > rows[i].mib * MiB);
        schedules_free(&s);
    }
}

static void a_communicator_of_one_has_no_buffers(void **state)
{
    struct plan     p = plan_on("h100", STRAT_DDP, 0);
    struct overhead o;

    (void)state;
    assert_int_equal(overhead_nccl(&p.cluster, 1, 1), 0);
    assert_int_equal(overhead_in(&p, world, &o), 32 * MiB);
}

/* Up to 2.14 forward's thread and backward's keep one each; 2.15 has one while a product runs. */
static void workspaces_are_kept_before_torch_2_15(void **state)
{
    struct plan     p = plan_on("h100", STRAT_FSDP, 0);
    struct overhead o;

    (void)state;
    p.dialect = DIALECT_TORCH;
    overhead_in(&p, 0, &o);
    assert_int_equal(o.by[OVERHEAD_ALLOCATED], 32 * MiB);
    strcpy(p.framework_version, "2.14.1");
    overhead_in(&p, 0, &o);
    assert_int_equal(o.by[OVERHEAD_ALLOCATED], 2 * 32 * MiB);
    p.dialect = DIALECT_DEEPSPEED;          /* the version is DeepSpeed's then */
    p.strategy = STRAT_ZERO3;
    strcpy(p.framework_version, "0.19.8");
    overhead_in(&p, 0, &o);
    assert_int_equal(o.by[OVERHEAD_ALLOCATED], 32 * MiB);
}

/* tests/gpu/h200/memory.tsv: what the driver counted of dpx's own runs is met within 0.6 % once the context, and NCCL where
 * there was a communicator, are added to what was predicted without them.  `zero` in "of-1" runs alone with NCCL; FSDP on
 * one rank has no collectives; ranks of more than one ran without NCCL. */
static void our_own_process_is_what_a_driver_counted(void **state)
{
    static const char *const file = "tests/gpu/h200/memory.tsv";
    struct cluster c;
    char line[256], name[64];
    long long driver, predicted;
    FILE *in = fopen(file, "r");
    int n = 0;

    (void)state;
    assert_int_equal(cluster_load("h200", &c), 0);
    assert_non_null(in);
    assert_non_null(fgets(line, sizeof line, in));
    while (fgets(line, sizeof line, in)) {
        assert_int_equal(sscanf(line, "%63s %*d %*d %lld %lld", name, &driver, &predicted), 3);
        bool alone = strstr(name, "of-1") != NULL;
        int64_t own = overhead_own_process(&c.gpu, strncmp(name, "fsdp", 4) || !alone, alone);
        assert_close((double)(predicted + own), (double)driver, .006);
        n++;
    }
    fclose(in);
    assert_int_equal(n, 11);
}

static void our_own_process_is_not_known_elsewhere(void **state)
{
    static const char *const clusters[] = { "8xa100", "8xb200", "8xl4", "8xv100", "8xmi300x" };
    struct cluster c;

    (void)state;
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        assert_int_equal(cluster_load(clusters[i], &c), 0);
        assert_int_equal(overhead_own_process(&c.gpu, 1, true), -1);
    }
    assert_int_equal(cluster_load("8xh100", &c), 0);
    assert_true(overhead_own_process(&c.gpu, 1, true) > overhead_own_process(&c.gpu, 1, false));
    assert_int_equal(overhead_own_process(&c.gpu, 0, true), overhead_own_process(&c.gpu, 1, false));
}

/* Hybrid sharding: the shard group inside a node, the replica group across, one rank each. */
static void hybrid_sharding_has_two_communicators(void **state)
{
    struct plan     p = plan_on("4x8xh100", STRAT_FSDP, 8);
    struct overhead o;

    (void)state;
    p.dialect = DIALECT_TORCH;
    overhead_in(&p, hybrid, &o);
    assert_int_equal(o.by[OVERHEAD_OUTSIDE],
                     overhead_nccl(&p.cluster, 8, 8) + overhead_nccl(&p.cluster, 4, 1));
    p.fsdp.reshard_after_forward = 4;
    overhead_in(&p, hybrid | 1u << GROUP_RESHARD, &o);
    assert_int_equal(o.by[OVERHEAD_OUTSIDE],
                     overhead_nccl(&p.cluster, 8, 8) + overhead_nccl(&p.cluster, 4, 1)
                     + overhead_nccl(&p.cluster, 4, 4));
}

/* 3 nodes of 8, shards of 6: 6 | 2+4 | 4+2 | 6.  Two of the four leave their node, and a rank of those has
 * buffers for the network: where 4 are on a node, 16 channels of 12 MiB, 16/4 sends with 8 MiB more and NVLS
 * for 4 heads; where 2 are, twice the sends and no NVLS, which is less.  Replicas are 0 6 | 12 | 18: all
 * 16 channels leave the emptiest node through one GPU. */
static void shards_that_straddle_nodes_have_network_buffers(void **state)
{
    struct plan     p = plan_on("3x8xh100", STRAT_FSDP, 6);
    struct overhead o;

    (void)state;
    p.dialect = DIALECT_TORCH;
    overhead_in(&p, hybrid, &o);
    assert_int_equal(o.item[1].bytes, overhead_nccl(&p.cluster, 6, 4));
    assert_int_equal(overhead_nccl(&p.cluster, 6, 4), 192 * MiB + 4 * 8 * MiB + 16 * 2 * 4 * MiB);
    assert_int_equal(o.item[2].bytes, (160 + 160) * MiB);
}

static void the_items_add_up_and_name_their_source(void **state)
{
    static const char *const clusters[] = { "8xv100", "4x8xa100", "2x8xh100", "16xgb200",
                                            "2x8xmi300x", "4xl4", "2xfrontier" };
    struct overhead o;

    (void)state;
    for (size_t i = 0; i < sizeof clusters / sizeof clusters[0]; i++) {
        struct plan p = plan_on(clusters[i], STRAT_ZERO3, 0);
        int64_t     by[NOVERHEAD] = { 0 };
        int64_t     sum = overhead_in(&p, world, &o);

        for (int k = 0; k < o.n; k++) {
            assert_true(o.item[k].bytes > 0 && o.item[k].source[0] && o.item[k].name[0]);
            by[o.item[k].kind] += o.item[k].bytes;
        }
        assert_memory_equal(by, o.by, sizeof by);
        assert_int_equal(sum, by[OVERHEAD_ALLOCATED] + by[OVERHEAD_OUTSIDE]);
        assert_int_equal(by[OVERHEAD_CONTEXT], p.cluster.context);
    }
}

/* 8 ranks' staging is two areas of 4 MiB for the world; the workspace is 7 MiB of tiles, 1 MiB
 * of scratchpad for one thread, 256 bytes. */
static void host_ranks_have_what_our_executor_takes(void **state)
{
    struct plan     p = plan_on("localhost:4", STRAT_DDP, 0);
    struct overhead o;

    (void)state;
    p.kernels = KERNELS_TORCH_SDPA;
    assert_int_equal(overhead_in(&p, world, &o), 0);
    p.kernels = KERNELS_DPX;
    p.seq = 128;
    p.micro_batch = 1;
    assert_int_equal(overhead_in(&p, world, &o), 2 * (4 << 20) + (8 << 20) + 256);
    assert_int_equal(o.n, 2);
    assert_int_equal(o.by[OVERHEAD_ALLOCATED], overhead_in(&p, world, &o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_hopper_node),
        cmocka_unit_test(one_ampere_node),
        cmocka_unit_test(several_nodes),
        cmocka_unit_test(our_kernels_on_a_gpu_have_their_own_workspace),
        cmocka_unit_test(a_communicator_of_one_has_no_buffers),
        cmocka_unit_test(channels_of_a_message),
        cmocka_unit_test(stages_that_exchange_messages),
        cmocka_unit_test(workspaces_are_kept_before_torch_2_15),
        cmocka_unit_test(our_own_process_is_what_a_driver_counted),
        cmocka_unit_test(our_own_process_is_not_known_elsewhere),
        cmocka_unit_test(hybrid_sharding_has_two_communicators),
        cmocka_unit_test(shards_that_straddle_nodes_have_network_buffers),
        cmocka_unit_test(the_items_add_up_and_name_their_source),
        cmocka_unit_test(host_ranks_have_what_our_executor_takes),
    };
    return cmocka_run_group_tests_name("model/overhead", tests, NULL, NULL);
}
