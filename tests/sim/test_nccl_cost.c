/* test_nccl_cost.c -- NCCL's own tuning model, against values of its source. */
#include "tests/check.h"

#include <string.h>

#include "sim/price/nccl_cost.h"

#define US 1e-6
#define GB 1e9
#define MiB (INT64_C(1) << 20)
#define GiB (INT64_C(1) << 30)

static struct nccl_net net_of(const char *cluster, int64_t ranks, int64_t per_node)
{
    struct cluster  c;
    struct nccl_net n;

    assert_int_equal(cluster_load(cluster, &c), 0);
    nccl_net_of(&c, ranks, per_node, &n);
    return n;
}

static struct nccl_choice option(const struct nccl_net *n, enum coll_op op, enum nccl_algo a,
                                 enum nccl_proto p, int64_t bytes)
{
    struct nccl_choice c;

    assert_true(nccl_option(n, op, a, p, bytes, &c));
    return c;
}

static struct nccl_choice chosen(const struct nccl_net *n, enum coll_op op, int64_t bytes)
{
    struct nccl_choice c;

    nccl_choose(n, op, bytes, &c);
    return c;
}

static double total(const struct nccl_choice *c, int64_t bytes)
{
    return c->lat + c->byte * (double)bytes;
}

/* busbw = algbw * 2(p-1)/p. */
static double ar_busbw(const struct nccl_choice *c, double p)
{
    return 2 * (p - 1) / p / c->byte / GB;
}

/* What logs of these machines show: 12 channels of 20 GB/s, 12 of 30, 24 of 30. */
static void rings_of_one_node_run_at_the_speed_their_logs_show(void **state)
{
    static const struct { const char *cluster; double busbw; } rings[] = {
        { "8xa100", 240 }, { "8xh100", 360 }, { "8xh200", 360 }, { "8xb200", 720 }, { "8xa800", 160 },
    };

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct nccl_net n = net_of(rings[i].cluster, 8, 8);
        struct nccl_choice ar = option(&n, COLL_ALL_REDUCE, NCCL_RING, NCCL_SIMPLE, GiB);
        struct nccl_choice ag = option(&n, COLL_ALL_GATHER, NCCL_RING, NCCL_SIMPLE, GiB);
        assert_close(ar_busbw(&ar, 8), rings[i].busbw, 1e-9);
        assert_close(7. / 8 / ag.byte / GB, rings[i].busbw, 1e-9);
    }
}

/* 8 channels of 40 GB/s at 85 %, 7 of 8 useful, both directions: 476; measured 473 to 482. */
static void nvls_of_8_h100_has_a_busbw_of_476(void **state)
{
    struct nccl_net n = net_of("8xh100", 8, 8);
    struct nccl_choice c = option(&n, COLL_ALL_REDUCE, NCCL_NVLS, NCCL_SIMPLE, GiB);

    (void)state;
    assert_close(ar_busbw(&c, 8), 8 * 40 * .85 * 7 / 8 * 2, 1e-9);
    assert_close(ar_busbw(&c, 8), 476, 1e-9);
    assert_close(c.lat, 25 * US, 1e-9);
}

static void latencies_count_hops(void **state)
{
    struct nccl_net a = net_of("8xa100", 8, 8), h = net_of("4x8xh100", 32, 8), big = net_of("64x8xh100", 512, 8);
    struct nccl_choice c;

    (void)state;
    c = option(&a, COLL_ALL_REDUCE, NCCL_RING, NCCL_LL, 1024);
    assert_close(c.lat, (6.6 + 14 * .6) * US, 1e-9);
    c = option(&a, COLL_ALL_REDUCE, NCCL_TREE, NCCL_LL, 1024);
    assert_close(c.lat, (6.8 + 2 * 7 * .6) * US, 1e-9);
    /* 62 steps, 6 of them between nodes; out of step: 1.4. */
    c = option(&h, COLL_ALL_REDUCE, NCCL_RING, NCCL_SIMPLE, GiB);
    assert_close(c.lat, 1.4 * (8.4 + 56 * 3.4 + 6 * 14) * US, 1e-9);
    c = option(&h, COLL_ALL_REDUCE, NCCL_TREE, NCCL_LL128, GiB);
    assert_close(c.lat, (14 + 2 * (7 * 1.25 + 2 * 8.5)) * US, 1e-9);
    c = option(&h, COLL_ALL_REDUCE, NCCL_NVLS_TREE, NCCL_SIMPLE, GiB);
    assert_close(c.lat, (25 + 2 * 2 * 20.9) * US, 1e-9);
    /* A ring's latency grows by 4.1 to 4.7 us a rank on nodes of eight. */
    c = option(&big, COLL_ALL_GATHER, NCCL_RING, NCCL_SIMPLE, GiB);
    assert_true(c.lat / 512 > 4.1 * US && c.lat / 512 < 4.75 * US);
}

/* Logged on 8 H200 by NCCL_DEBUG: ring LL up to 1 MiB, NVLS from 2 MiB on; and the ring on
 * 4 GPUs, NVLS on 5 and more. */
static void nccl_chooses_what_h200_logs_show(void **state)
{
    struct nccl_net n = net_of("8xh200", 8, 8);
    struct nccl_choice c;

    (void)state;
    for (int64_t bytes = 32 * 1024; bytes <= MiB; bytes *= 2) {
        c = chosen(&n, COLL_ALL_REDUCE, bytes);
        assert_true(c.algo == NCCL_RING && c.proto == NCCL_LL);
    }
    for (int64_t bytes = 2 * MiB; bytes <= 16 * GiB; bytes *= 2)
        assert_true(chosen(&n, COLL_ALL_REDUCE, bytes).algo == NCCL_NVLS);
    for (int p = 4; p <= 8; p++) {
        n = net_of("8xh200", p, p);
        c = chosen(&n, COLL_ALL_REDUCE, 8 * GiB);
        assert_true(c.algo == (p == 4 ? NCCL_RING : NCCL_NVLS));
    }
    n = net_of("8xh200", 8, 8);
    assert_true(chosen(&n, COLL_ALL_GATHER, GiB).algo == NCCL_RING);
}

/* 4 nodes of 8 B200, 4 GiB: 2 * 31/32 * 4 GiB through 8 * 48 GB/s is 21.67 ms; measured 22.05
 * (stas00/ml-engineering).  One adapter alone would take 8 times as long. */
static void four_b200_nodes_all_reduce_4_gib_in_22_ms(void **state)
{
    struct nccl_net n = net_of("4x8xb200", 32, 8);
    struct nccl_choice c = option(&n, COLL_ALL_REDUCE, NCCL_RING, NCCL_SIMPLE, 4 * GiB);

    (void)state;
    assert_close(c.byte * 4 * (double)GiB, 2 * 31. / 32 * 4 * (double)GiB / 384e9, 1e-9);
    c = chosen(&n, COLL_ALL_REDUCE, 4 * GiB);
    assert_close(total(&c, 4 * GiB), 22.05e-3, .03);
}

/* One GPU of each node in the group: it has one adapter of eight, as the other seven groups. */
static void a_replica_group_gets_its_share_of_the_adapters(void **state)
{
    struct nccl_net rail = net_of("8x8xh100", 8, 1), flat = net_of("8x8xh100", 64, 8);
    struct nccl_choice c = option(&rail, COLL_ALL_REDUCE, NCCL_RING, NCCL_SIMPLE, GiB);

    (void)state;
    assert_close(ar_busbw(&c, 8), 48, 1e-9);
    c = option(&flat, COLL_ALL_REDUCE, NCCL_RING, NCCL_SIMPLE, GiB);
    assert_close(ar_busbw(&c, 64), 384, 1e-9);
    /* Only with one GPU a node may NCCL use PAT: 8 + 3 levels * 14/3.5 + 2.8 * 8. */
    c = option(&rail, COLL_ALL_GATHER, NCCL_PAT, NCCL_SIMPLE, MiB);
    assert_close(c.lat, (8 + 3 * 4 + 2.8 * 8) * US, 1e-9);
    assert_false(nccl_option(&flat, COLL_ALL_GATHER, NCCL_PAT, NCCL_SIMPLE, MiB, &c));
}

/* tuning.cc's table at powers of two: log2(4 MiB / 64) = 16, 512 MiB = 23. */
static void the_tree_is_corrected_by_size(void **state)
{
    struct nccl_net n = net_of("8x8xh100", 64, 8);
    struct nccl_choice at16 = option(&n, COLL_ALL_REDUCE, NCCL_TREE, NCCL_SIMPLE, 4 * MiB);
    struct nccl_choice at23 = option(&n, COLL_ALL_REDUCE, NCCL_TREE, NCCL_SIMPLE, 512 * MiB);
    struct nccl_choice more = option(&n, COLL_ALL_REDUCE, NCCL_TREE, NCCL_SIMPLE, 2048 * MiB);

    (void)state;
    assert_close(at16.byte / at23.byte, .9 / .7, 1e-9);
    assert_close(more.byte, at23.byte, 1e-9);
    /* 8 channels of at most 36 GB/s, both ways, .9 */
    assert_close(1 / at23.byte / GB, .5 * .9 * 8 * 36, 1e-9);
}

static void time_rises_with_bytes_and_with_a_stated_alpha(void **state)
{
    static const char *const clusters[] = { "8xh100", "16x8xh100", "8xa100", "4x8xa100", "8xb200", "2x8xb200",
                                            "8xv100", "4x4xl4", "2x8xmi250x", "8xmi300x" };

    (void)state;
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++)
        for (int op = 0; op < NCOLL; op++) {
            struct cluster c, far;
            struct nccl_net n, slow;
            double before = 0;

            assert_int_equal(cluster_load(clusters[i], &c), 0);
            c.alpha_intra = 2 * US;
            c.alpha_inter = 10 * US;
            far = c;
            far.alpha_intra = 4 * US;
            far.alpha_inter = 30 * US;
            nccl_net_of(&c, c.world_size, c.gpus_per_node, &n);
            nccl_net_of(&far, c.world_size, c.gpus_per_node, &slow);
            for (double bytes = 1; bytes < 1e11; bytes *= 1.3) {
                struct nccl_choice a = chosen(&n, (enum coll_op)op, (int64_t)bytes);
                struct nccl_choice b = chosen(&slow, (enum coll_op)op, (int64_t)bytes);
                double t = total(&a, (int64_t)bytes), u = total(&b, (int64_t)bytes);
                if (op == COLL_BARRIER)
                    t = a.lat, u = b.lat;
                if (!(t > 0) || t < before * (1 - 1e-12) || u < t || !isfinite(t))
                    fail_msg("%s on %s, %g bytes: %g after %g, far %g", coll_name((enum coll_op)op), clusters[i], bytes,
                             t, before, u);
                before = t;
            }
        }
}

static void what_cannot_run_is_not_offered(void **state)
{
    struct nccl_net one = net_of("8xh100", 1, 1), pcie = net_of("8xl4", 8, 8), amd = net_of("8xmi300x", 8, 8),
                    many = net_of("2x8xh100", 16, 8), a100 = net_of("8xa100", 8, 8);
    struct nccl_choice c;

    (void)state;
    assert_false(nccl_option(&one, COLL_ALL_REDUCE, NCCL_RING, NCCL_SIMPLE, MiB, &c));
    assert_false(nccl_option(&pcie, COLL_ALL_REDUCE, NCCL_RING, NCCL_LL128, MiB, &c));
    assert_false(nccl_option(&amd, COLL_ALL_REDUCE, NCCL_RING, NCCL_LL128, MiB, &c));
    assert_false(nccl_option(&amd, COLL_ALL_REDUCE, NCCL_NVLS, NCCL_SIMPLE, MiB, &c));
    assert_false(nccl_option(&a100, COLL_ALL_REDUCE, NCCL_NVLS, NCCL_SIMPLE, MiB, &c));
    assert_false(nccl_option(&many, COLL_ALL_REDUCE, NCCL_NVLS, NCCL_SIMPLE, MiB, &c));
    assert_false(nccl_option(&many, COLL_BROADCAST, NCCL_TREE, NCCL_SIMPLE, MiB, &c));
    c = chosen(&one, COLL_ALL_REDUCE, MiB);
    assert_close(total(&c, MiB), 0, 0);
}

static void thread_blocks_are_twice_the_channels(void **state)
{
    struct nccl_net a = net_of("8xa100", 8, 8), h = net_of("8xh100", 8, 8), b = net_of("4x8xb200", 32, 8);
    struct nccl_choice ring = { .algo = NCCL_RING }, nvls = { .algo = NCCL_NVLS }, tree = { .algo = NCCL_NVLS_TREE };

    (void)state;
    assert_int_equal(nccl_ctas(&a, &ring), 24);
    assert_int_equal(nccl_ctas(&h, &ring), 24);
    assert_int_equal(nccl_ctas(&h, &nvls), 16);
    assert_int_equal(nccl_ctas(&b, &tree), 32);
    assert_string_equal(nccl_algo_name(NCCL_NVLS), "nvls");
    assert_string_equal(nccl_proto_name(NCCL_LL128), "LL128");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_of_one_node_run_at_the_speed_their_logs_show),
        cmocka_unit_test(nvls_of_8_h100_has_a_busbw_of_476),
        cmocka_unit_test(latencies_count_hops),
        cmocka_unit_test(nccl_chooses_what_h200_logs_show),
        cmocka_unit_test(four_b200_nodes_all_reduce_4_gib_in_22_ms),
        cmocka_unit_test(a_replica_group_gets_its_share_of_the_adapters),
        cmocka_unit_test(the_tree_is_corrected_by_size),
        cmocka_unit_test(time_rises_with_bytes_and_with_a_stated_alpha),
        cmocka_unit_test(what_cannot_run_is_not_offered),
        cmocka_unit_test(thread_blocks_are_twice_the_channels),
    };
    return cmocka_run_group_tests_name("sim/nccl_cost", tests, NULL, NULL);
}
