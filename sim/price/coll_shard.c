/* coll_shard.c -- all-gather and reduce-scatter, the halves of an all-reduce; sources are
 * named as in coll_all_reduce.c. */
#include "sim/price/coll_count.h"

static bool ag_ring(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_ring_half(n, s, f);                 /* (p-1) alpha + (p-1)/p S beta */
    return true;
}

static bool ag_direct(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_direct_half(n, s, f);               /* alpha + (p-1)/p S beta */
    return true;
}

static bool ag_doubling(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_halving(n, s, f);
    return true;
}

static bool ag_hierarchical(const struct coll_net *n, double s, struct coll_figures *f)
{
    return coll_hierarchical_half(n, s, f);
}

/* The switch replicates: a rank sends S/p and receives S: alpha + S beta. */
static bool ag_nvls(const struct coll_net *n, double s, struct coll_figures *f)
{
    if (!n->multicast || n->nodes > 1)
        return false;
    f->steps = 1;
    f->time_s = coll_latency(n, 1, 0) + coll_move(n, s, 0, 1);
    f->sent = s / n->ranks;
    f->peak = s;
    f->total = s;
    return true;
}

/* The root collects p-1 parts and sends everything to each:
 * (p-1)(alpha + S/p beta) + (p-1)(alpha + S beta). */
static bool ag_sequential(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, both = s + s / p;

    f->steps = 2 * (p - 1);
    f->time_s = coll_latency(n, f->steps, 2 * (p - g)) + coll_move(n, (g - 1) * both, 0, 1)
                + coll_move(n, 0, (p - g) * both, 1);
    f->sent = s / p;
    f->peak = (p - 1) * s;
    f->total = (p - 1) * both;
    return true;
}

static bool rs_ring(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_ring_half(n, s, f);
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

static bool rs_direct(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_direct_half(n, s, f);
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

/* Recursive halving, the all-gather's messages backwards [MPICH]. */
static bool rs_halving(const struct coll_net *n, double s, struct coll_figures *f)
{
    ag_doubling(n, s, f);
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

static bool rs_hierarchical(const struct coll_net *n, double s, struct coll_figures *f)
{
    if (!coll_hierarchical_half(n, s, f))
        return false;
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

/* The switch adds: every port sends S in all, a rank receives its S/p. */
static bool rs_nvls(const struct coll_net *n, double s, struct coll_figures *f)
{
    if (!ag_nvls(n, s, f))
        return false;
    f->sent = s;
    f->total = n->ranks * s;
    return true;
}

/* Everything to the root by a binomial tree, parts back by another: 2 ceil(lg p) alpha +
 * ceil(lg p) S (beta + gamma) + (p-1)/p S beta. */
static bool rs_reduce_scatter(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, d = coll_levels(p);

    f->steps = 2 * d;
    f->time_s = coll_binomial(n, s) + d * s * n->gamma + coll_latency(n, d, coll_levels(n->nodes))
                + coll_move(n, (n->per_node - 1) / p * s, 0, 1) + coll_move(n, 0, (p - n->per_node) / p * s, 1);
    f->sent = s + (p > 2 ? s / 2 - s / p : 0);      /* up; the first child's subtree down */
    f->peak = d * s;
    f->total = (p - 1) * s + d / 2 * s;
    return true;
}

const struct coll_algo coll_shard_algos[] = {
    { COLL_ALL_GATHER, "naive-sequential", "O(N)", "O(N)", ag_sequential, "to a root, and everything to each" },
    { COLL_ALL_GATHER, "direct", "O(1)", "O(1)", ag_direct, "one's part to each rank at once" },
    { COLL_ALL_GATHER, "ring", "O(N)", "O(1)", ag_ring, "parts around a ring" },
    { COLL_ALL_GATHER, "recursive-doubling", "O(log N)", "O(1)", ag_doubling, "or Bruck's, for any number of ranks" },
    { COLL_ALL_GATHER, "hierarchical", "O(N)", "O(1)", ag_hierarchical, "between nodes, then inside" },
    { COLL_ALL_GATHER, "nvls", "O(1)", "O(1)", ag_nvls, "the switch replicates" },
    { COLL_REDUCE_SCATTER, "reduce-then-scatter", "O(log N)", "O(log N)", rs_reduce_scatter, "two binomial trees" },
    { COLL_REDUCE_SCATTER, "direct", "O(1)", "O(1)", rs_direct, "a part to each rank at once" },
    { COLL_REDUCE_SCATTER, "ring", "O(N)", "O(1)", rs_ring, "parts around a ring" },
    { COLL_REDUCE_SCATTER, "recursive-halving", "O(log N)", "O(1)", rs_halving, "half of what is left each time" },
    { COLL_REDUCE_SCATTER, "hierarchical", "O(N)", "O(1)", rs_hierarchical, "inside the node, then between" },
    { COLL_REDUCE_SCATTER, "nvls", "O(1)", "O(1)", rs_nvls, "the switch adds" },
    { 0 }
};
