/* test_coll_published.c -- the collective model against published measurements.
 *
 * Prints, by machine and size class: the mean absolute error of NCCL's own model and of
 * coll_cost(), coll_cost's signed bias, and how many of the measurements lie in its 90 %
 * interval.  data/collectives_published.csv names the public source of every row.
 *
 * The sweeps are those that the fits of coll_cost.c were made from, all but the rows marked
 * "JAX" and the Alps cluster between nodes: this shows what four constants a machine leave.  How
 * a machine that no fit has seen fares is in test_left_out.c. */
#include "tests/check.h"

#include <stdio.h>
#include <string.h>

#include "sim/price/coll_cost.h"
#include "sim/price/nccl_cost.h"
#include "tests/sim/coll_rows.h"

enum { MAX_ROWS = 1000 };
static struct coll_row rows[MAX_ROWS];
static int nrows;

static int load(void **state)
{
    (void)state;
    nrows = coll_rows_read(rows, MAX_ROWS);
    return nrows < 0 ? -1 : 0;
}

struct errors { int n, inside; double prior, model, bias; };

/* Rows that `keep` keeps with sizes in [from, to), summed up. */
static struct errors judge(bool (*keep)(const struct coll_row *), double from, double to)
{
    struct errors e = { 0 };

    for (int i = 0; i < nrows; i++) {
        const struct coll_row *r = &rows[i];
        struct cluster c;
        struct nccl_net net;
        struct nccl_choice o;
        struct cost cost;

        if (!keep(r) || (double)r->bytes < from || (double)r->bytes >= to)
            continue;
        assert_int_equal(coll_rows_cluster(r, &c), 0);
        nccl_net_of(&c, r->ranks, r->per_node, &net);
        nccl_choose(&net, r->op, r->bytes, &o);
        assert_int_equal(coll_cost(&c, r->op, r->ranks, r->per_node, r->bytes, &cost), 0);
        e.n++;
        e.prior += fabs((o.lat + o.byte * (double)r->bytes) / r->seconds - 1);
        e.model += fabs(cost.s / r->seconds - 1);
        e.bias += cost.s / r->seconds - 1;
        e.inside += cost.low_s <= r->seconds && r->seconds <= cost.high_s;
    }
    return e;
}

static bool is(const struct coll_row *r, const char *gpu, bool across)
{
    return strstr(r->cluster, gpu) && (r->ranks > r->per_node) == across;
}

static bool a100(const struct coll_row *r)   { return is(r, "a100", false); }
static bool h200(const struct coll_row *r)   { return is(r, "h200", false) && r->op == COLL_ALL_REDUCE; }
static bool h100(const struct coll_row *r)   { return is(r, "8xh100", false) && r->op == COLL_ALL_REDUCE; }
static bool alps1(const struct coll_row *r)  { return is(r, "4xh100", false); }
static bool shard(enum coll_op op)      { return op == COLL_ALL_GATHER || op == COLL_REDUCE_SCATTER; }
static bool shards(const struct coll_row *r) { return is(r, "h200", false) && shard(r->op); }
static bool h_shards(const struct coll_row *r) { return is(r, "8xh100", false) && shard(r->op); }
static bool b_shards(const struct coll_row *r) { return is(r, "b200", false) && shard(r->op); }
static bool rooted(const struct coll_row *r) { return r->op == COLL_BROADCAST || r->op == COLL_REDUCE; }
static bool b200(const struct coll_row *r)   { return is(r, "b200", false) && r->op == COLL_ALL_REDUCE; }
static bool flux(const struct coll_row *r)   { return !strcmp(r->how, "torch between products"); }
static bool jax(const struct coll_row *r)    { return !strcmp(r->how, "JAX"); }
static bool slide(const struct coll_row *r)  { return !strncmp(r->how, "NVIDIA slide", 12); }
static bool many(const struct coll_row *r)   { return is(r, "8xh100", true) || is(r, "h200", true); }
static bool h_many(const struct coll_row *r) { return many(r) && !jax(r) && !slide(r) && !shard(r->op); }
static bool s_many(const struct coll_row *r) { return many(r) && !jax(r) && shard(r->op); }
static bool a_many(const struct coll_row *r) { return is(r, "a100", true); }
static bool b_many(const struct coll_row *r) { return is(r, "b200", true); }
static bool alps(const struct coll_row *r)   { return is(r, "4xh100", true); }

static const struct { const char *name; bool (*keep)(const struct coll_row *); bool fitted; } machines[] = {
    { "A100, 1 node, all-reduce", a100, true },
    { "H200, 1 node, all-reduce", h200, true },
    { "H100, 1 node, all-reduce, profiler", h100, false },
    { "GH200 x4, 1 node, all-reduce", alps1, true },
    { "H200, 1 node, all-gather, reduce-scatter", shards, true },
    { "H100, 1 node, all-gather, reduce-scatter", h_shards, true },
    { "H200, 1 node, broadcast, reduce", rooted, true },
    { "B200, 1 node, all-reduce", b200, true },
    { "B200, 1 node, all-gather, reduce-scatter", b_shards, true },
    { "A100, 4-128 nodes, all-reduce", a_many, true },
    { "H100/H200, 4-512 nodes, nccl-tests", h_many, true },
    { "H100, 4-1024 nodes, NVIDIA's slide", slide, true },
    { "B200, 4 nodes, all-reduce", b_many, true },
    { "H100, 4-128 nodes, reduce-scatter", s_many, true },
    { "A800, H800, between products (not fitted)", flux, false },
    { "H100, 2 nodes, JAX (not fitted)", jax, false },
    { "GH200, 4-64 nodes, Slingshot (not fitted)", alps, false },
};
enum { NMACHINES = sizeof machines / sizeof *machines };

#define MiB 1048576.
static const struct { const char *name; double from, to; } classes[] = {
    { "< 1 MiB", 0, MiB }, { "1-16 MiB", MiB, 16 * MiB }, { "16-256 MiB", 16 * MiB, 256 * MiB },
    { ">= 256 MiB", 256 * MiB, 1e18 },
};
enum { NCLASSES = sizeof classes / sizeof *classes };

static void large_messages_are_within_seven_percent(void **state)
{
    (void)state;
    printf("%-43s %-10s %4s %7s %7s %7s %7s\n", "machine", "bytes", "rows", "NCCL", "ours", "bias", "inside");
    for (int m = 0; m < NMACHINES; m++)
        for (int k = 0; k < NCLASSES; k++) {
            struct errors e = judge(machines[m].keep, classes[k].from, classes[k].to);
            if (!e.n)
                continue;
            printf("%-43s %-10s %4d %6.1f%% %6.1f%% %+6.1f%% %6.0f%%\n", machines[m].name, classes[k].name, e.n,
                   100 * e.prior / e.n, 100 * e.model / e.n, 100 * e.bias / e.n, 100. * e.inside / e.n);
            if (machines[m].fitted && k == NCLASSES - 1 && e.model / e.n > .07)
                fail_msg("%s, %s: %.1f %%", machines[m].name, classes[k].name, 100 * e.model / e.n);
        }
}

static bool all_fitted(const struct coll_row *r)
{
    for (int m = 0; m < NMACHINES; m++)
        if (machines[m].fitted && machines[m].keep(r))
            return true;
    return false;
}

/* The interval is meant to hold nine of ten. */
static void nine_of_ten_measurements_lie_in_the_interval(void **state)
{
    struct errors e = judge(all_fitted, 0, 1e18);

    (void)state;
    printf("all fitted: %d rows, NCCL %.1f%%, ours %.1f%%, inside %.1f%%\n", e.n, 100 * e.prior / e.n,
           100 * e.model / e.n, 100. * e.inside / e.n);
    assert_true(e.inside >= .85 * e.n && e.inside <= .97 * e.n);
    assert_true(e.model < .5 * e.prior);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_messages_are_within_seven_percent),
        cmocka_unit_test(nine_of_ten_measurements_lie_in_the_interval),
    };
    return cmocka_run_group_tests_name("sim/coll_published", tests, load, NULL);
}
