/* coll_rooted.c -- broadcast, reduce, scatter, gather, and the barrier; sources are named as
 * in coll_all_reduce.c. */
#include "sim/price/coll_count.h"

/* (p-1)(alpha + S beta), one after the other [MLE]. */
static bool bc_sequential(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->steps = p - 1;
    f->time_s = coll_latency(n, p - 1, p - g) + coll_move(n, (g - 1) * s, 0, 1) + coll_move(n, 0, (p - g) * s, 1);
    f->sent = 0;
    f->peak = f->total = (p - 1) * s;
    return true;
}

static bool bc_binomial(const struct coll_net *n, double s, struct coll_figures *f)
{
    double d = coll_levels(n->ranks);

    f->steps = d;
    f->time_s = coll_binomial(n, s);         /* ceil(lg p)(alpha + S beta) [MPICH] */
    f->sent = (d - 1) * s;
    f->peak = d * s;
    f->total = (n->ranks - 1) * s;
    return true;
}

/* From rank to rank in c chunks: (p-2+c)(alpha + S/c beta), S beta for large S [MLE]. */
static bool bc_chain(const struct coll_net *n, double s, struct coll_figures *f)
{
    f->time_s = coll_pipeline(n, n->ranks - 1, n->nodes - 1, coll_move(n, s, s, n->per_node), &f->steps);
    f->sent = n->ranks > 2 ? s : 0;
    f->peak = s;
    f->total = (n->ranks - 1) * s;
    return true;
}

static bool bc_tree(const struct coll_net *n, double s, struct coll_figures *f)
{
    f->time_s = coll_binary_tree(n, s, &f->steps);
    f->sent = (n->ranks > 4 ? 2 : n->ranks > 3 ? 1 : 0) * s;
    f->peak = (n->ranks > 2 ? 2 : 1) * s;
    f->total = (n->ranks - 1) * s;
    return true;
}

/* Van de Geijn: the root deals out p parts, all gather them on a ring:
 * (ceil(lg p) + p-1) alpha + 2(p-1)/p S beta [MPICH]. */
static bool bc_scatter_gather(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, d = coll_levels(p);

    coll_ring_half(n, s, f);
    f->time_s += coll_latency(n, d, coll_levels(n->nodes)) + coll_move(n, (g - 1) / p * s, 0, 1)
                 + coll_move(n, 0, (p - g) / p * s, 1);
    f->steps += d;
    f->peak = 2 * coll_share(n) * s;
    f->sent = coll_share(n) * s + (p > 2 ? s / 2 - s / p : 0);   /* the first child deals out its half */
    f->total += d / 2 * s;
    return true;
}

static bool bc_nvls(const struct coll_net *n, double s, struct coll_figures *f)
{
    if (!n->multicast || n->nodes > 1)
        return false;
    f->steps = 1;
    f->time_s = coll_latency(n, 1, 0) + coll_move(n, s, 0, 1);
    f->sent = 0;
    f->peak = f->total = s;
    return true;
}

static bool rd_sequential(const struct coll_net *n, double s, struct coll_figures *f)
{
    bc_sequential(n, s, f);
    coll_add_reduction(n, (n->ranks - 1) * s, f);
    f->sent = s;
    return true;
}

static bool rd_binomial(const struct coll_net *n, double s, struct coll_figures *f)
{
    bc_binomial(n, s, f);
    coll_add_reduction(n, coll_levels(n->ranks) * s, f);
    f->sent = s;
    return true;
}

static bool rd_chain(const struct coll_net *n, double s, struct coll_figures *f)
{
    bc_chain(n, s, f);
    coll_add_reduction(n, s, f);
    f->sent = s;
    return true;
}

/* Reduce-scatter by halving, parts to the root by a binomial gather:
 * 2 ceil(lg p) alpha + 2(p-1)/p S beta + (p-1)/p S gamma [MPICH]. */
static bool rd_rabenseifner(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, d = coll_levels(p);

    coll_halving(n, s, f);
    coll_add_reduction(n, coll_share(n) * s, f);
    f->time_s += coll_latency(n, d, coll_levels(n->nodes)) + coll_move(n, (g - 1) / p * s, 0, 1)
                 + coll_move(n, 0, (p - g) / p * s, 1);
    f->steps += d;
    f->peak = 2 * coll_share(n) * s;
    f->sent = coll_share(n) * s + s / 2;     /* the last to the root brings half of the parts */
    f->total += d / 2 * s;
    return true;
}

/* ---- scatter, gather, barrier ---- */

/* The root's port, part by part: (p-1)(alpha + S/p beta). */
static bool sc_linear(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->steps = p - 1;
    f->time_s = coll_latency(n, p - 1, p - g) + coll_move(n, (g - 1) / p * s, 0, 1) + coll_move(n, 0, (p - g) / p * s, 1);
    f->sent = 0;
    f->peak = f->total = coll_share(n) * s;
    return true;
}

static bool ga_linear(const struct coll_net *n, double s, struct coll_figures *f)
{
    sc_linear(n, s, f);
    f->sent = s / n->ranks;
    return true;
}

/* Halves down a binomial tree: ceil(lg p) alpha + (p-1)/p S beta; a part passes lg p / 2
 * hops on average. */
static bool sc_binomial(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->steps = coll_levels(p);
    f->time_s = coll_latency(n, f->steps, coll_levels(n->nodes)) + coll_move(n, (g - 1) / p * s, 0, 1)
                + coll_move(n, 0, (p - g) / p * s, 1);
    f->sent = p > 2 ? s / 2 - s / p : 0;
    f->peak = coll_share(n) * s;
    f->total = f->steps / 2 * s;
    return true;
}

static bool ga_binomial(const struct coll_net *n, double s, struct coll_figures *f)
{
    sc_binomial(n, s, f);
    f->sent = s / 2;
    return true;
}

static bool ba_linear(const struct coll_net *n, double s, struct coll_figures *f)
{
    (void)s;
    f->steps = 2 * (n->ranks - 1);
    f->time_s = coll_latency(n, f->steps, 2 * (n->ranks - n->per_node));
    return true;
}

/* In round i a rank signals the one 2^i further on: ceil(lg p) alpha. */
static bool ba_dissemination(const struct coll_net *n, double s, struct coll_figures *f)
{
    (void)s;
    f->steps = coll_levels(n->ranks);
    f->time_s = coll_latency(n, f->steps, coll_levels(n->nodes));
    return true;
}

const struct coll_algo coll_rooted_algos[] = {
    { COLL_BROADCAST, "naive-sequential", "O(N)", "O(N)", bc_sequential, "from the root to one after the other" },
    { COLL_BROADCAST, "binomial-tree", "O(log N)", "O(log N)", bc_binomial, "each rank that has it passes it on" },
    { COLL_BROADCAST, "chain", "O(N)", "O(1)", bc_chain, "from rank to rank in chunks" },
    { COLL_BROADCAST, "pipelined-tree", "O(log N)", "O(1)", bc_tree, "binary tree, in chunks" },
    { COLL_BROADCAST, "scatter-all-gather", "O(N)", "O(1)", bc_scatter_gather, "parts dealt out, then a ring" },
    { COLL_BROADCAST, "nvls", "O(1)", "O(1)", bc_nvls, "the switch replicates" },
    { COLL_REDUCE, "naive-sequential", "O(N)", "O(N)", rd_sequential, "one after the other to the root" },
    { COLL_REDUCE, "binomial-tree", "O(log N)", "O(log N)", rd_binomial, "sums up a tree" },
    { COLL_REDUCE, "chain", "O(N)", "O(1)", rd_chain, "from rank to rank in chunks" },
    { COLL_REDUCE, "rabenseifner", "O(log N)", "O(1)", rd_rabenseifner, "recursive halving, then gather" },
    { COLL_SCATTER, "linear", "O(N)", "O(1)", sc_linear, "part by part from the root" },
    { COLL_SCATTER, "binomial-tree", "O(log N)", "O(1)", sc_binomial, "halves down a tree" },
    { COLL_GATHER, "linear", "O(N)", "O(1)", ga_linear, "part by part to the root" },
    { COLL_GATHER, "binomial-tree", "O(log N)", "O(1)", ga_binomial, "parts up a tree" },
    { COLL_BARRIER, "linear", "O(N)", "O(1)", ba_linear, "everybody to rank 0 and back" },
    { COLL_BARRIER, "dissemination", "O(log N)", "O(1)", ba_dissemination,
      "signals at twice the distance each time" },
    { 0 }
};
