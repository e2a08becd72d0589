/* test_coll_cost.c -- what a collective costs on a cluster, its interval and what it rests on. */
#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "sim/price/coll_cost.h"

#define US 1e-6
#define MiB (INT64_C(1) << 20)
#define GiB (INT64_C(1) << 30)

static struct cluster cluster(const char *spec)
{
    struct cluster c;

    assert_int_equal(cluster_load(spec, &c), 0);
    return c;
}

static struct cost cost_of(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node, int64_t bytes)
{
    struct cost t;

    assert_int_equal(coll_cost(c, op, ranks, per_node, bytes, &t), 0);
    return t;
}

static void every_cost_is_sound_on_every_machine(void **state)
{
    (void)state;
    for (int i = 0; gpu_at(i); i++)
        for (int nodes = 1; nodes <= 4; nodes *= 2)
            for (int op = 0; op < NCOLL; op++) {
                struct cluster c;
                struct cost before = { 0 }, slow, star;
                cluster_of_gpu(&c, gpu_at(i), nodes, gpu_at(i)->node_gpus);
                for (double bytes = 0; bytes < 1e11; bytes = bytes * 1.4 + 1) {
                    struct cost t = cost_of(&c, (enum coll_op)op, c.world_size, c.gpus_per_node, (int64_t)bytes);
                    if (!(t.s > 0) || !isfinite(t.high_s) || !(0 < t.low_s && t.low_s <= t.s && t.s <= t.high_s)
                        || t.s < before.s * (1 - 1e-12) || t.high_s < before.high_s * (1 - 1e-12))
                        fail_msg("%s %s on %d nodes, %g bytes: %g in [%g, %g] after %g", c.gpu.name,
                                 coll_name((enum coll_op)op), nodes, bytes, t.s, t.low_s, t.high_s, before.s);
                    before = t;
                }
                c.alpha_intra = c.alpha_inter = 1;
                slow = cost_of(&c, (enum coll_op)op, c.world_size, c.gpus_per_node, (int64_t)1e11);
                assert_true(slow.s > before.s);
                if (op == COLL_ALL_TO_ALL || coll_is_message((enum coll_op)op))
                    continue;               /* have no root */
                assert_int_equal(coll_star_cost(&c, (enum coll_op)op, c.world_size, c.gpus_per_node, 1, &star), 0);
                assert_true(star.s >= (double)(c.world_size - 1) && star.low_s <= star.s && star.s <= star.high_s);
            }
}

static void one_rank_costs_nothing(void **state)
{
    struct cluster c = cluster("8xh100"), host = cluster("localhost:4");
    struct cost t;

    (void)state;
    t = cost_of(&c, COLL_ALL_REDUCE, 1, 1, GiB);
    assert_true(t.s == 0 && t.low_s == 0 && t.high_s == 0);
    t = cost_of(&host, COLL_ALL_GATHER, 1, 1, GiB);
    assert_true(t.s == 0);
    assert_int_equal(coll_star_cost(&c, COLL_REDUCE, 1, 1, GiB, &t), 0);
    assert_true(t.s == 0);
    assert_int_equal(basis_worst(t.basis, BASIS_PUBLISHED), BASIS_PUBLISHED);
}

/* Published figures that the fit has to keep (sources in data/collectives_published.csv). */
static void well_known_measurements_are_met(void **state)
{
    struct cluster a100 = cluster("8xa100"), h200 = cluster("8xh200"), h100 = cluster("64x8xh100"),
                   b200 = cluster("4x8xb200");
    struct cost t;

    (void)state;
    t = cost_of(&a100, COLL_ALL_REDUCE, 8, 8, GiB);
    assert_close(t.s, 8203.9 * US, .03);
    assert_int_equal(t.basis, BASIS_PUBLISHED);
    t = cost_of(&a100, COLL_ALL_REDUCE, 8, 8, 64 * MiB);
    assert_close(t.s, 684.6 * US, .10);
    t = cost_of(&h200, COLL_ALL_REDUCE, 8, 8, 64 * MiB);        /* busbw 346.51 */
    assert_close(t.s, 64 * (double)MiB * 7 / 4 / 346.51e9, .03);
    t = cost_of(&h200, COLL_ALL_GATHER, 8, 8, 16 * GiB);        /* busbw 361.4 */
    assert_close(t.s, 16 * (double)GiB * 7 / 8 / 361.4e9, .03);
    t = cost_of(&h100, COLL_ALL_REDUCE, 512, 8, 256 * MiB);     /* busbw 246.5 */
    assert_close(t.s, 256 * (double)MiB * 2 * 511 / 512 / 246.5e9, .10);
    t = cost_of(&b200, COLL_ALL_REDUCE, 32, 8, 4 * GiB);
    assert_close(t.s, 22.05e-3, .05);
}

/* Nobody published these: the basis says so, and the interval is wider. */
static void what_nobody_measured_is_marked_and_wide(void **state)
{
    struct cluster h100 = cluster("8x8xh100"), amd = cluster("8xmi250x"), l4 = cluster("8xl4"),
                   host = cluster("localhost:4");
    struct cost known = cost_of(&h100, COLL_ALL_REDUCE, 64, 8, 256 * MiB);
    struct cost ag = cost_of(&h100, COLL_ALL_GATHER, 64, 8, 256 * MiB);
    struct cost rail = cost_of(&h100, COLL_ALL_REDUCE, 8, 1, 256 * MiB);

    (void)state;
    assert_int_equal(known.basis, BASIS_PUBLISHED);
    assert_int_equal(ag.basis, BASIS_DATASHEET);
    assert_int_equal(rail.basis, BASIS_DATASHEET);
    assert_true(ag.high_s / ag.low_s > known.high_s / known.low_s);
    assert_int_equal(cost_of(&amd, COLL_ALL_REDUCE, 8, 8, MiB).basis, BASIS_DATASHEET);
    assert_int_equal(cost_of(&l4, COLL_ALL_REDUCE, 8, 8, MiB).basis, BASIS_DATASHEET);
    assert_int_equal(cost_of(&host, COLL_ALL_REDUCE, 4, 4, MiB).basis, BASIS_DATASHEET);
    /* MI300X, 8 GPUs, 4 GiB: 312.9 GB/s; two GPUs have one link of seven, 47.7 (ml-engineering). */
    amd = cluster("8xmi300x");
    assert_close(cost_of(&amd, COLL_ALL_REDUCE, 8, 8, 4 * GiB).s, 4 * (double)GiB * 7 / 4 / 312.9e9, .1);
    assert_close(cost_of(&amd, COLL_ALL_REDUCE, 2, 2, 4 * GiB).s, 4 * (double)GiB / 47.7e9, .1);
}

/* Relative width: small messages against large, many nodes against one. */
static void the_interval_narrows_as_messages_grow(void **state)
{
    static const char *const clusters[] = { "8xh100", "4x8xh100", "8xa100", "8xl4", "8xmi250x" };

    (void)state;
    for (int i = 0; i < 5; i++) {
        struct cluster c = cluster(clusters[i]);
        struct cost small = cost_of(&c, COLL_ALL_GATHER, c.world_size, 8, 64 * 1024);
        struct cost large = cost_of(&c, COLL_ALL_GATHER, c.world_size, 8, GiB);
        assert_true(small.high_s / small.low_s > large.high_s / large.low_s);
    }
}

/* Ring on the host: 2(p-1) messages of S/p at 5 GB/s, and 3/4 S added at the same pace. */
static void a_host_uses_the_algorithms_of_mpi(void **state)
{
    struct cluster c = cluster("localhost:4");
    struct cost t;
    double s = 1e9;

    (void)state;
    c.intra = 5e9;
    t = cost_of(&c, COLL_ALL_GATHER, 4, 4, (int64_t)s);
    assert_close(t.s, 2 * 2e-6 + .75 * s / 5e9, 1e-9);          /* recursive doubling: two messages */
    t = cost_of(&c, COLL_ALL_REDUCE, 4, 4, (int64_t)s);
    assert_close(t.s, 4 * 2e-6 + 1.5 * s / 5e9 + .75 * s / 5e9, 1e-9);
    t = cost_of(&c, COLL_BARRIER, 4, 4, 0);
    assert_close(t.s, 2 * 2e-6, 1e-9);
}

static void a_star_grows_with_its_ranks(void **state)
{
    struct cluster c = cluster("localhost:9");
    struct cost one, eight, part;

    (void)state;
    assert_int_equal(coll_star_cost(&c, COLL_BROADCAST, 2, 2, GiB, &one), 0);
    assert_int_equal(coll_star_cost(&c, COLL_BROADCAST, 9, 9, GiB, &eight), 0);
    assert_int_equal(coll_star_cost(&c, COLL_SCATTER, 9, 9, 9 * GiB, &part), 0);
    assert_close(eight.s, 8 * one.s, 1e-12);
    assert_close(part.s, eight.s, 1e-12);
}

/* 0 ranks: there is no such group. */
static void shape(const char *spec, int64_t shard, enum group g, int64_t ranks, int64_t per_node)
{
    struct plan p = { .shard_group = shard };
    struct plan_groups groups;
    int64_t r, n;

    p.cluster = cluster(spec);
    p.strategy = STRAT_FSDP;
    p.dialect = DIALECT_TORCH;
    p.fsdp.reshard_after_forward = 4;
    plan_groups(&p, &groups);
    if (ranks == 0) {
        assert_int_equal(plan_groups_find(&groups, g), -1);
        return;
    }
    coll_group_shape(&p, &groups, plan_groups_find(&groups, g), &r, &n);
    assert_int_equal(r, ranks);
    assert_int_equal(n, per_node);
}

static void groups_lie_on_nodes_as_ranks_are_numbered(void **state)
{
    (void)state;
    shape("4x8xh100", 32, GROUP_DATA, 32, 8);
    shape("4x8xh100", 32, GROUP_SHARD, 0, 0);       /* flat: the world's */
    shape("4x8xh100", 0, GROUP_SHARD, 0, 0);
    shape("4x8xh100", 32, GROUP_REPLICA, 0, 0);
    shape("4x8xh100", 8, GROUP_SHARD, 8, 8);
    shape("4x8xh100", 8, GROUP_REPLICA, 4, 1);      /* ranks 0, 8, 16, 24 */
    shape("4x8xh100", 16, GROUP_SHARD, 16, 8);
    shape("4x8xh100", 16, GROUP_REPLICA, 2, 1);
    shape("4x8xh100", 4, GROUP_SHARD, 4, 4);
    shape("4x8xh100", 4, GROUP_REPLICA, 8, 2);      /* ranks 0, 4 | 8, 12 | ... */
    shape("4x8xh100", 1, GROUP_REPLICA, 32, 8);
    shape("4x8xh100", 32, GROUP_RESHARD, 4, 4);
    shape("8xh100", 2, GROUP_SHARD, 2, 2);
    shape("8xh100", 2, GROUP_REPLICA, 4, 4);
    shape("1xh100", 1, GROUP_DATA, 1, 1);
    shape("2x6xh100", 4, GROUP_SHARD, 4, 2);        /* ranks 4, 5 | 6, 7 straddle two nodes */
    shape("3x8xh100", 6, GROUP_SHARD, 6, 4);        /* 6 | 2+4 | 4+2 | 6 */
    shape("2x6xh100", 4, GROUP_REPLICA, 3, 2);      /* ranks 0, 4 | 8 */
    shape("2x6xh100", 12, GROUP_DATA, 12, 6);
}

static void impossible_groups_are_refused(void **state)
{
    struct cluster c = cluster("2x8xh100"), dark = c;
    struct cost t;
    char why[200];

    (void)state;
    fail_capture(why, sizeof why);
    assert_int_equal(coll_cost(&c, COLL_ALL_REDUCE, 24, 8, MiB, &t), -1);
    assert_non_null(strstr(why, "2 nodes of 8"));
    assert_int_equal(coll_cost(&c, COLL_ALL_REDUCE, 16, 16, MiB, &t), -1);
    assert_int_equal(coll_cost(&c, COLL_ALL_REDUCE, 0, 1, MiB, &t), -1);
    assert_int_equal(coll_cost(&c, COLL_ALL_REDUCE, 8, 8, -1, &t), -1);
    dark.inter = 0;
    assert_int_equal(coll_cost(&dark, COLL_ALL_REDUCE, 16, 8, MiB, &t), -1);
    assert_non_null(strstr(why, "inter-node"));
    assert_int_equal(coll_cost(&dark, COLL_ALL_REDUCE, 8, 8, MiB, &t), 0);
    fail_capture(NULL, 0);
}

/* ---- measured points ---- */

/* A sweep of the model itself, `factor` times as slow. */
static struct coll_points sweep(const struct cluster *c, int64_t ranks, int n, double factor)
{
    struct coll_points p = { .op = COLL_ALL_GATHER, .ranks = ranks, .per_node = ranks, .n = n };

    for (int i = 0; i < n; i++) {
        p.bytes[i] = 1024 * pow(4, i);
        p.seconds[i] = factor * cost_of(c, p.op, ranks, ranks, (int64_t)p.bytes[i]).s;
    }
    assert_int_equal(coll_points_prepare(&p), 0);
    return p;
}

static struct cost measured(const struct cluster *c, const struct coll_points *p, int n, int64_t ranks, double bytes)
{
    struct cost t;

    assert_int_equal(coll_cost_measured(c, p, n, COLL_ALL_GATHER, ranks, ranks, (int64_t)bytes, &t), 0);
    return t;
}

static void measured_points_come_back(void **state)
{
    struct cluster c = cluster("8xh100");
    struct coll_points p = sweep(&c, 8, 10, 3);
    double before = 0;

    (void)state;
    for (int i = 0; i < p.n; i++) {
        struct cost t = measured(&c, &p, 1, 8, p.bytes[i]);
        assert_close(t.s, p.seconds[i], 1e-9);
        assert_close(t.high_s / t.s, exp(.05), 1e-9);
        assert_int_equal(t.basis, BASIS_MEASURED);
    }
    for (double bytes = 1; bytes < 1e9; bytes *= 1.2) {
        struct cost t = measured(&c, &p, 1, 8, bytes);
        assert_true(t.s >= before * (1 - 1e-12));
        before = t.s;
    }
    assert_close(measured(&c, &p, 1, 8, 10).s, p.seconds[0], 1e-9);
}

/* The model's own curve is a straight line at large sizes, and so is what lies beyond. */
static void beyond_the_largest_size_the_line_goes_on(void **state)
{
    struct cluster c = cluster("8xh100");
    struct coll_points p = sweep(&c, 8, 12, 3);
    struct cost t = measured(&c, &p, 1, 8, 4 * p.bytes[11]);
    double last = p.seconds[11], slope = (last - p.seconds[9]) / (p.bytes[11] - p.bytes[9]);

    (void)state;
    assert_close(t.s, last + slope * 3 * p.bytes[11], 1e-6);      /* by the last and the third last point */
    assert_true(t.high_s / t.s > exp(.2));
}

/* The same factor everywhere is the factor at every other rank count; two sweeps are weighed
 * by the logarithm of the ranks: half way between 2 and 8 stands 4. */
static void other_rank_counts_go_by_the_ratio_of_the_models(void **state)
{
    struct cluster c = cluster("8xh100");
    struct coll_points p[2] = { sweep(&c, 2, 10, 2), sweep(&c, 8, 10, 8) };
    double bytes = p[0].bytes[7];
    double model = cost_of(&c, COLL_ALL_GATHER, 4, 4, (int64_t)bytes).s;
    struct cost between = measured(&c, p, 2, 4, bytes), beyond = measured(&c, p, 1, 4, bytes), none;

    (void)state;
    assert_close(between.s, 4 * model, 1e-9);
    assert_close(between.high_s / between.s, exp(.10), 1e-9);
    assert_close(beyond.s, 2 * model, 1e-9);
    assert_close(beyond.high_s / beyond.s, exp(.05 + .16), 1e-9);
    /* Another operation, and the other tier, are not what was measured. */
    assert_int_equal(coll_cost_measured(&c, p, 2, COLL_REDUCE_SCATTER, 4, 4, MiB, &none), 0);
    assert_close(none.s, cost_of(&c, COLL_REDUCE_SCATTER, 4, 4, MiB).s, 0);
    c = cluster("2x8xh100");
    assert_int_equal(coll_cost_measured(&c, p, 2, COLL_ALL_GATHER, 16, 8, MiB, &none), 0);
    assert_true(none.basis != BASIS_MEASURED);
}

/* Three points: the model keeps its shape and is moved through them. */
static void few_points_correct_the_model(void **state)
{
    struct cluster c = cluster("8xh100");
    struct coll_points p = sweep(&c, 8, 3, 2.5);

    (void)state;
    for (double bytes = 64; bytes < 1e9; bytes *= 3)
        assert_close(measured(&c, &p, 1, 8, bytes).s, 2.5 * cost_of(&c, COLL_ALL_GATHER, 8, 8, (int64_t)bytes).s, 1e-9);
}

static void bad_sweeps_are_refused(void **state)
{
    struct coll_points none = { .n = 0 }, back = { .n = 2, .bytes = { 2, 1 }, .seconds = { 1, 1 } },
                       zero = { .n = 1, .bytes = { 1 } }, nan = { .n = 1, .bytes = { 1 }, .seconds = { NAN } },
                       falls = { .n = 2, .bytes = { 1, 2 }, .seconds = { 4, 1 } };
    char why[200];

    (void)state;
    fail_capture(why, sizeof why);
    assert_int_equal(coll_points_prepare(&none), -1);
    assert_int_equal(coll_points_prepare(&back), -1);
    assert_non_null(strstr(why, "point 2"));
    assert_int_equal(coll_points_prepare(&zero), -1);
    assert_int_equal(coll_points_prepare(&nan), -1);
    fail_capture(NULL, 0);
    assert_int_equal(coll_points_prepare(&falls), 0);
    assert_close(exp(falls.y[0]), 2, 1e-12);        /* levelled to the geometric mean */
    assert_close(exp(falls.y[1]), 2, 1e-12);
}

/* A message has its sender's port, out of a node its share of the adapters: 8 GPUs send at once.  The
 * rate alone: 4 GiB less 2 GiB. */
static double rate(const struct cluster *c, enum coll_op op, int64_t ranks, int64_t per_node)
{
    return 2 * GiB / (cost_of(c, op, ranks, per_node, 4 * GiB).s - cost_of(c, op, ranks, per_node, 2 * GiB).s);
}

static void a_message_takes_the_wire_between_its_two_ranks(void **state)
{
    struct cluster c = cluster("2x8xh100"), host = cluster("localhost:4");

    (void)state;
    for (int op = COLL_SEND; op <= COLL_RECV; op++) {
        double within = rate(&c, op, 2, 2), across = rate(&c, op, 2, 1);
        assert_true(within > 0.7 * c.intra && within < c.intra);
        assert_true(across > 0.85 * c.inter / 8 && across < c.inter / 8);
        /* On a host alpha + S beta, as stated or assumed there. */
        assert_close(rate(&host, op, 2, 2), host.intra, 1e-9);
    }
    assert_close(cost_of(&c, COLL_SEND, 2, 1, GiB).s, cost_of(&c, COLL_RECV, 2, 1, GiB).s, 0);
}

/* All parts but its own: (p-1)/p of the buffer in one node; over two nodes half of it leaves, through an
 * eighth of the adapters, and takes longer than the rest. */
static void an_all_to_all_takes_the_slower_wire(void **state)
{
    struct cluster c = cluster("2x8xh100");

    (void)state;
    assert_close(rate(&c, COLL_ALL_TO_ALL, 8, 8), rate(&c, COLL_SEND, 2, 2) * 8 / 7, 0.05);
    assert_close(rate(&c, COLL_ALL_TO_ALL, 16, 8), rate(&c, COLL_SEND, 2, 1) * 2, 0.05);
}

/* Equal parts of S: 7 S/8 within a node of 8, S/2 across two of them; and back. */
static void unequal_parts_cost_as_the_busier_wire(void **state)
{
    (void)state;
    assert_int_equal(coll_equal_bytes(8, 8, 7000, 0), 8000);
    assert_int_equal(coll_equal_bytes(16, 8, 7000, 8000), 16000);
    assert_int_equal(coll_equal_bytes(16, 8, 14000, 8000), 32000);
    /* 5 ranks, 4 in a node: the fifth sends 4/5 of its buffer away. */
    assert_int_equal(coll_equal_bytes(5, 4, 0, 4000), 5000);
    assert_int_equal(coll_equal_bytes(4, 1, 0, 3000), 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cost_is_sound_on_every_machine),
        cmocka_unit_test(one_rank_costs_nothing),
        cmocka_unit_test(a_message_takes_the_wire_between_its_two_ranks),
        cmocka_unit_test(an_all_to_all_takes_the_slower_wire),
        cmocka_unit_test(unequal_parts_cost_as_the_busier_wire),
        cmocka_unit_test(well_known_measurements_are_met),
        cmocka_unit_test(what_nobody_measured_is_marked_and_wide),
        cmocka_unit_test(the_interval_narrows_as_messages_grow),
        cmocka_unit_test(a_host_uses_the_algorithms_of_mpi),
        cmocka_unit_test(a_star_grows_with_its_ranks),
        cmocka_unit_test(groups_lie_on_nodes_as_ranks_are_numbered),
        cmocka_unit_test(impossible_groups_are_refused),
        cmocka_unit_test(measured_points_come_back),
        cmocka_unit_test(beyond_the_largest_size_the_line_goes_on),
        cmocka_unit_test(other_rank_counts_go_by_the_ratio_of_the_models),
        cmocka_unit_test(few_points_correct_the_model),
        cmocka_unit_test(bad_sweeps_are_refused),
    };
    return cmocka_run_group_tests_name("sim/coll_cost", tests, NULL, NULL);
}
