/* test_coll_algo.c -- algorithms of collectives: steps, bytes and totals by counting transfers. */
#include "tests/check.h"

#include <string.h>

#include "sim/price/coll_algo.h"

#define US 1e-6
#define MB 1e6

/* 8 ranks, 10 us a message, 100 GB/s, 1 TB/s to add: 8 MB take 80 us on the wire, 8 us to add. */
static const struct coll_net eight = { .ranks = 8, .per_node = 8, .nodes = 1, .alpha_intra = 10 * US,
    .alpha_inter = 10 * US, .beta_intra = 1e-11, .nic = INFINITY, .nics = 1, .gamma = 1e-12, .multicast = true };
/* The same on two nodes with 4 adapters of 25 GB/s each, 30 us away. */
static const struct coll_net two_nodes = { .ranks = 8, .per_node = 4, .nodes = 2, .alpha_intra = 10 * US,
    .alpha_inter = 30 * US, .beta_intra = 1e-11, .nic = 25e9, .nics = 4, .gamma = 1e-12 };

static const struct coll_algo *find(enum coll_op op, const char *name)
{
    const struct coll_algo *a;

    for (int i = 0; (a = coll_algo_at(i)); i++)
        if (a->op == op && !strcmp(a->name, name))
            return a;
    fail_msg("no algorithm \"%s\"", name);
    return NULL;
}

static struct coll_figures cost(enum coll_op op, const char *name, const struct coll_net *n, double bytes)
{
    struct coll_figures f;

    assert_true(coll_algo_cost(find(op, name), n, bytes, &f));
    return f;
}

static double us(enum coll_op op, const char *name, const struct coll_net *n, double bytes)
{
    return cost(op, name, n, bytes).time_s / US;
}

static void all_reduce_of_8_MB_over_8_ranks_by_hand(void **state)
{
    enum coll_op ar = COLL_ALL_REDUCE;

    (void)state;
    /* messages * 10 + buffers over the busiest port * 80 + buffers added * 8 */
    assert_close(us(ar, "parameter-server", &eight, 8 * MB), 2 * 10 + 14 * 80 + 7 * 8, 1e-12);
    assert_close(us(ar, "sharded-parameter-server", &eight, 8 * MB), 2 * 10 + 7 * 80 + 3.5 * 8, 1e-12);
    assert_close(us(ar, "naive-sequential", &eight, 8 * MB), 14 * 10 + 14 * 80 + 7 * 8, 1e-12);
    assert_close(us(ar, "parallel", &eight, 8 * MB), 7 * 10 + 7 * 80 + 7 * 8, 1e-12);
    assert_close(us(ar, "direct", &eight, 8 * MB), 2 * 10 + 140 + 7, 1e-12);
    assert_close(us(ar, "ring", &eight, 8 * MB), 14 * 10 + 140 + 7, 1e-12);
    assert_close(us(ar, "recursive-doubling", &eight, 8 * MB), 3 * (10 + 80 + 8), 1e-12);
    assert_close(us(ar, "rabenseifner", &eight, 8 * MB), 6 * 10 + 140 + 7, 1e-12);
    assert_close(us(ar, "binomial-tree", &eight, 8 * MB), 6 * (10 + 80) + 3 * 8, 1e-12);
    assert_close(us(ar, "nvls", &eight, 8 * MB), 2 * 10 + 90, 1e-12);
    /* (3-1) * 80 / 10 = 16 = 4 * 4: four chunks of 20 us, 3 + 4 - 1 = 6 steps each way. */
    assert_close(us(ar, "double-binary-tree", &eight, 8 * MB), 2 * 6 * (10 + 20) + 8, 1e-12);
    assert_close(us(ar, "pipelined-tree", &eight, 8 * MB), 2 * 2 * 6 * (10 + 20) + 2 * 8, 1e-12);
}

/* Six ranks: two of them first hand their buffer to a partner, and get the result. */
static void ranks_that_are_no_power_of_two_pay_two_messages_more(void **state)
{
    struct coll_net six = eight;

    (void)state;
    six.ranks = six.per_node = 6;
    assert_close(us(COLL_ALL_REDUCE, "rabenseifner", &six, 8 * MB), 6 * 10 + (2 * .75 + 2) * 80 + 1.75 * 8, 1e-12);
    assert_close(us(COLL_ALL_REDUCE, "recursive-doubling", &six, 8 * MB), 4 * 10 + 4 * 80 + 3 * 8, 1e-12);
    assert_close(us(COLL_ALL_GATHER, "recursive-doubling", &six, 6 * MB), 3 * 10 + 50, 1e-12);
}

/* Half of an all-reduce: inside 3 messages and 3/4 of 80 us, across one of 30 us, and 4 MB
 * through 100 GB/s. */
static void two_tiers_by_hand(void **state)
{
    double half = 3 * 10 + 30 + 60 + 40;

    (void)state;
    assert_close(us(COLL_ALL_GATHER, "hierarchical", &two_nodes, 8 * MB), half, 1e-12);
    assert_close(us(COLL_ALL_REDUCE, "hierarchical", &two_nodes, 8 * MB), 2 * half + 7, 1e-12);
    /* Ring: six hops inside and one across; 7/8 of 8 MB through the node's 100 GB/s is 70 us,
     * more than the 52.5 us on its GPUs' links. */
    assert_close(us(COLL_ALL_GATHER, "ring", &two_nodes, 8 * MB), 6 * 10 + 30 + 70, 1e-12);
    /* A server's four remote workers share one adapter: 32 MB at 25 GB/s. */
    assert_close(us(COLL_ALL_REDUCE, "parameter-server", &two_nodes, 8 * MB), 2 * 30 + 2 * 1280 + 7 * 8, 1e-12);
}

static void rooted_operations_by_hand(void **state)
{
    (void)state;
    assert_close(us(COLL_BROADCAST, "naive-sequential", &eight, 8 * MB), 7 * (10 + 80), 1e-12);
    assert_close(us(COLL_BROADCAST, "binomial-tree", &eight, 8 * MB), 3 * (10 + 80), 1e-12);
    assert_close(us(COLL_BROADCAST, "scatter-all-gather", &eight, 8 * MB), (3 + 7) * 10 + 140, 1e-12);
    assert_close(us(COLL_BROADCAST, "nvls", &eight, 8 * MB), 10 + 80, 1e-12);
    assert_close(us(COLL_REDUCE, "binomial-tree", &eight, 8 * MB), 3 * (10 + 80 + 8), 1e-12);
    assert_close(us(COLL_REDUCE, "rabenseifner", &eight, 8 * MB), 6 * 10 + 140 + 7, 1e-12);
    assert_close(us(COLL_SCATTER, "linear", &eight, 8 * MB), 7 * 10 + 70, 1e-12);
    assert_close(us(COLL_GATHER, "binomial-tree", &eight, 8 * MB), 3 * 10 + 70, 1e-12);
    assert_close(us(COLL_BARRIER, "dissemination", &eight, 0), 30, 1e-12);
    /* (7-1) * 80 / 10 = 48: six or seven chunks; 12 * (10 + 80/6) = 280 against 13 * (10 + 80/7)
     * = 278.6. */
    assert_close(us(COLL_BROADCAST, "chain", &eight, 8 * MB), 13 * (10 + 80. / 7), 1e-12);
}

/* For 8 ranks, in buffers: messages in a row, what a worker sends, what passes the busiest
 * rank, what all send. */
static void traffic_by_hand(void **state)
{
    static const struct { enum coll_op op; const char *name; double steps, sent, peak, total; } rows[] = {
        { COLL_ALL_REDUCE, "parameter-server", 2, 1, 7, 14 },
        { COLL_ALL_REDUCE, "sharded-parameter-server", 2, 1, 4, 14 },
        { COLL_ALL_REDUCE, "naive-sequential", 14, 1, 7, 14 },
        { COLL_ALL_REDUCE, "parallel", 7, 7, 7, 56 },
        { COLL_ALL_REDUCE, "direct", 2, 1.75, 1.75, 14 },
        { COLL_ALL_REDUCE, "ring", 14, 1.75, 1.75, 14 },
        { COLL_ALL_REDUCE, "recursive-doubling", 3, 3, 3, 24 },
        { COLL_ALL_REDUCE, "rabenseifner", 6, 1.75, 1.75, 14 },
        { COLL_ALL_REDUCE, "binomial-tree", 6, 3, 3, 14 },
        { COLL_ALL_REDUCE, "nvls", 2, 1.125, 1.125, 9 },
        { COLL_ALL_GATHER, "ring", 7, .875, .875, 7 },
        { COLL_ALL_GATHER, "recursive-doubling", 3, .875, .875, 7 },
        { COLL_ALL_GATHER, "nvls", 1, .125, 1, 1 },
        { COLL_ALL_GATHER, "naive-sequential", 14, .125, 7, 7.875 },
        { COLL_REDUCE_SCATTER, "direct", 1, .875, .875, 7 },
        { COLL_REDUCE_SCATTER, "reduce-then-scatter", 6, 1.375, 3, 8.5 },
        { COLL_BROADCAST, "naive-sequential", 7, 0, 7, 7 },
        { COLL_BROADCAST, "binomial-tree", 3, 2, 3, 7 },
        { COLL_BROADCAST, "scatter-all-gather", 10, 1.25, 1.75, 8.5 },
        { COLL_REDUCE, "binomial-tree", 3, 1, 3, 7 },
        { COLL_SCATTER, "binomial-tree", 3, .375, .875, 1.5 },
        { COLL_GATHER, "linear", 7, .125, .875, .875 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct coll_figures f = cost(rows[i].op, rows[i].name, &eight, 8 * MB);
        assert_close(f.steps, rows[i].steps, 0);
        assert_close(f.sent, rows[i].sent * 8 * MB, 1e-12);
        assert_close(f.peak, rows[i].peak * 8 * MB, 1e-12);
        assert_close(f.total, rows[i].total * 8 * MB, 1e-12);
    }
}

static void all_reduce_is_reduce_scatter_then_all_gather(void **state)
{
    static const char *const pairs[][3] = {
        { "ring", "ring", "ring" }, { "direct", "direct", "direct" },
        { "hierarchical", "hierarchical", "hierarchical" },
    };

    (void)state;
    for (int i = 0; i < 3; i++)
        for (double bytes = 1; bytes < 1e10; bytes *= 7) {
            struct coll_figures ar = cost(COLL_ALL_REDUCE, pairs[i][0], &two_nodes, bytes);
            struct coll_figures rs = cost(COLL_REDUCE_SCATTER, pairs[i][1], &two_nodes, bytes);
            struct coll_figures ag = cost(COLL_ALL_GATHER, pairs[i][2], &two_nodes, bytes);
            assert_close(ar.time_s, rs.time_s + ag.time_s, 1e-12);
            assert_close(ar.sent, rs.sent + ag.sent, 1e-12);
            assert_close(ar.total, rs.total + ag.total, 1e-12);
            assert_close(ar.steps, rs.steps + ag.steps, 0);
        }
}

/* Nobody can do with less than nccl-tests' busbw factor, unless the switch adds. */
static void no_algorithm_moves_less_than_the_lower_bound(void **state)
{
    const struct coll_algo *a;

    (void)state;
    for (int i = 0; (a = coll_algo_at(i)); i++)
        for (int p = 2; p <= 70; p++)
            for (int g = 1; g <= p; g++) {
                struct coll_net n = two_nodes;
                struct coll_figures f;
                double least = coll_bus_factor(a->op, p) * 8 * MB * (1 - 1e-12);

                if (p % g)
                    continue;
                n.ranks = p;
                n.per_node = g;
                n.nodes = p / g;
                if (!coll_algo_cost(a, &n, 8 * MB, &f))
                    continue;
                if (f.peak < least || f.sent > f.peak * (1 + 1e-12) || f.total < f.peak * (1 - 1e-12)
                    || !(f.time_s > 0) || f.steps < 1)
                    fail_msg("%s of %d ranks, %d a node: peak %g, least %g, sent %g, total %g, time %g", a->name, p,
                             g, f.peak, least, f.sent, f.total, f.time_s);
            }
}

static void time_rises_with_bytes_and_with_alpha(void **state)
{
    const struct coll_algo *a;

    (void)state;
    for (int i = 0; (a = coll_algo_at(i)); i++)
        for (int k = 1; k <= 4; k++) {
            struct coll_net n = two_nodes, slow;
            double before = 0;

            n.nodes = k;
            n.ranks = 4 * k;
            n.multicast = true;
            slow = n;
            slow.alpha_intra *= 1.5;
            slow.alpha_inter *= 2;
            for (double bytes = 1; bytes < 1e11; bytes *= 1.3) {
                struct coll_figures f, s;
                if (!coll_algo_cost(a, &n, bytes, &f) || !coll_algo_cost(a, &slow, bytes, &s))
                    break;
                if (f.time_s < before * (1 - 1e-12) || s.time_s < f.time_s)
                    fail_msg("%s, %d nodes, %g bytes: %g after %g, slower %g", a->name, k, bytes, f.time_s, before,
                             s.time_s);
                before = f.time_s;
            }
        }
}

static void a_group_of_one_costs_nothing(void **state)
{
    const struct coll_algo *a;
    struct coll_net one = eight;

    (void)state;
    one.ranks = one.per_node = 1;
    for (int i = 0; (a = coll_algo_at(i)); i++) {
        struct coll_figures f;
        assert_true(coll_algo_cost(a, &one, 8 * MB, &f));
        assert_true(f.time_s == 0 && f.sent == 0 && f.peak == 0 && f.total == 0 && f.steps == 0);
    }
}

/* "O(N)" and "O(1)": a server's port carries every worker's gradient, a ring's does not; but a
 * ring passes 2(N-1) messages one after the other. */
static void a_server_grows_with_the_workers_a_ring_only_where_latency_binds(void **state)
{
    struct coll_net wire = eight, delay = eight;

    (void)state;
    wire.alpha_intra = wire.gamma = 0;
    delay.beta_intra = delay.gamma = 0;
    for (int p = 2; p <= 4096; p *= 2) {
        wire.ranks = wire.per_node = delay.ranks = delay.per_node = p;
        assert_close(us(COLL_ALL_REDUCE, "parameter-server", &wire, 8 * MB), 2 * (p - 1) * 80., 1e-12);
        assert_true(us(COLL_ALL_REDUCE, "ring", &wire, 8 * MB) < 2 * 80);
        assert_close(us(COLL_ALL_REDUCE, "ring", &delay, 8 * MB), 2 * (p - 1) * 10., 1e-12);
        assert_close(us(COLL_ALL_REDUCE, "rabenseifner", &delay, 8 * MB), 2 * log2(p) * 10, 1e-12);
        assert_close(us(COLL_ALL_REDUCE, "parameter-server", &delay, 8 * MB), 20, 1e-12);
    }
}

/* What grows as O(1) in the table must not grow, what grows as O(N) must. */
static void the_table_tells_the_truth_about_growth(void **state)
{
    const struct coll_algo *a;

    (void)state;
    for (int i = 0; (a = coll_algo_at(i)); i++) {
        struct coll_net small = eight, large = eight;
        struct coll_figures s, l;
        double growth;

        small.ranks = small.per_node = 64;
        large.ranks = large.per_node = 64 * 64;
        small.gamma = large.gamma = 0;
        if (a->op != COLL_BARRIER && coll_algo_cost(a, &small, 1e13, &s) && coll_algo_cost(a, &large, 1e13, &l)) {
            growth = l.time_s / s.time_s;
            if (!strcmp(a->bandwidth, "O(1)") ? growth > 1.1 : !strcmp(a->bandwidth, "O(N)") ? growth < 32
                : growth < 1.8 || growth > 2.1)
                fail_msg("%s: %s, but 64 times the ranks take %g times as long", a->name, a->bandwidth, growth);
        }
        if (coll_algo_cost(a, &small, 0, &s) && coll_algo_cost(a, &large, 0, &l)) {
            growth = l.time_s / s.time_s;
            if (!strcmp(a->latency, "O(1)") ? growth > 1.1 : !strcmp(a->latency, "O(N)") ? growth < 32
                : growth < 1.8 || growth > 2.1)
                fail_msg("%s: %s, but 64 times the ranks have %g times the latency", a->name, a->latency, growth);
        }
    }
}

static void a_cluster_gives_the_parameters(void **state)
{
    struct cluster c;
    struct coll_net n;

    (void)state;
    assert_int_equal(cluster_load("4x8xh100", &c), 0);
    coll_net_of(&c, 32, 8, &n);
    assert_close(n.nodes, 4, 0);
    assert_close(n.nic * n.nics, 400e9, 1e-12);
    assert_close(n.beta_intra, 1 / 450e9, 1e-12);
    assert_close(n.gamma, 3 / 3350e9, 1e-12);
    coll_net_of(&c, 4, 1, &n);          /* a replica group: one of eight that share the adapters */
    assert_close(n.nic * n.nics, 50e9, 1e-12);
    c.alpha_intra = 1e-6;
    coll_net_of(&c, 32, 8, &n);
    assert_close(n.alpha_intra, 1e-6, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_of_8_MB_over_8_ranks_by_hand),
        cmocka_unit_test(ranks_that_are_no_power_of_two_pay_two_messages_more),
        cmocka_unit_test(two_tiers_by_hand),
        cmocka_unit_test(rooted_operations_by_hand),
        cmocka_unit_test(traffic_by_hand),
        cmocka_unit_test(all_reduce_is_reduce_scatter_then_all_gather),
        cmocka_unit_test(no_algorithm_moves_less_than_the_lower_bound),
        cmocka_unit_test(time_rises_with_bytes_and_with_alpha),
        cmocka_unit_test(a_group_of_one_costs_nothing),
        cmocka_unit_test(a_server_grows_with_the_workers_a_ring_only_where_latency_binds),
        cmocka_unit_test(the_table_tells_the_truth_about_growth),
        cmocka_unit_test(a_cluster_gives_the_parameters),
    };
    return cmocka_run_group_tests_name("sim/coll_algo", tests, NULL, NULL);
}
