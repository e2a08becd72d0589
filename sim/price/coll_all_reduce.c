/* coll_all_reduce.c -- all-reduce, algorithm by algorithm.
 *
 * Sources, as the formulas name them: [PERF] nccl-tests doc/PERFORMANCE.md; [MPICH] the cost
 * formulas above MPICH's selectors, kept in simgrid smpi_mpich_selector.cpp; [MLE]
 * stas00/ml-engineering network/; [NCCL] nccl src/device and src/graph; the others are
 * counted here. */
#include "sim/price/coll_count.h"

#include <math.h>

/* Rank 0 serves and works: p-1 gradients come in at once through its port, p-1 results go
 * out.  2 alpha + 2(p-1) S beta + (p-1) S gamma.  A server of its own has p instead of p-1. */
static bool ar_server(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->time_s = coll_latency(n, 2, 2) + 2 * coll_move(n, (g - 1) * s, (p - g) * s, 1) + (p - 1) * s * n->gamma;
    f->steps = 2;
    f->sent = s;
    f->peak = (p - 1) * s;
    f->total = 2 * (p - 1) * s;
    return true;
}

/* The buffer cut over q of the ranks as servers, one a node (two where there is one node):
 * 2 alpha + 2(p-1)/q S beta + (p-1)/q S gamma.  q = p is the direct algorithm. */
static bool ar_sharded(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, q = n->nodes > 1 ? n->nodes : 2;

    f->time_s = coll_latency(n, 2, 2) + 2 * coll_move(n, (g - 1) * s / q, (p - g) * s / q, 1)
                + (p - 1) * s / q * n->gamma;
    f->steps = 2;
    f->sent = p > q ? s : 2 * (p - 1) / p * s;
    f->peak = (p - 1 + q - 1) / q * s;      /* as server for all, and as worker with the others */
    f->total = 2 * (p - 1) * s;
    return true;
}

/* The root receives from one after the other, then sends to one after the other (Open MPI's
 * basic_linear): 2(p-1)(alpha + S beta) + (p-1) S gamma. */
static bool ar_sequential(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->steps = 2 * (p - 1);
    f->time_s = coll_latency(n, f->steps, 2 * (p - g)) + 2 * coll_move(n, (g - 1) * s, 0, 1)
                + 2 * coll_move(n, 0, (p - g) * s, 1) + (p - 1) * s * n->gamma;
    f->sent = s;
    f->peak = (p - 1) * s;
    f->total = 2 * (p - 1) * s;
    return true;
}

/* Everybody sends everything to everybody, one message after the other, and adds:
 * (p-1)(alpha + S beta + S gamma). */
static bool ar_parallel(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->steps = p - 1;
    f->time_s = coll_latency(n, p - 1, p - g) + coll_move(n, (g - 1) * s, g * (p - g) * s, g) + (p - 1) * s * n->gamma;
    f->sent = f->peak = (p - 1) * s;
    f->total = p * (p - 1) * s;
    return true;
}

/* The same messages back again: an all-reduce is a reduce-scatter and an all-gather. */
static void twice(struct coll_figures *f)
{
    f->time_s *= 2;
    f->steps *= 2;
    f->sent *= 2;
    f->peak *= 2;
    f->total *= 2;
}

/* 2 alpha + 2(p-1)/p S beta + (p-1)/p S gamma: least volume in two messages, where every pair
 * has a wire (a switch).  [NCCL] sym RSxLD_AGxST. */
static bool ar_direct(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_direct_half(n, s, f);
    twice(f);
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

/* 2(p-1) alpha + 2(p-1)/p S beta + (p-1)/p S gamma. */
static bool ar_ring(const struct coll_net *n, double s, struct coll_figures *f)
{
    coll_ring_half(n, s, f);
    twice(f);
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

/* Everything to the partner at distance 1, 2, 4 ...: lg p (alpha + S beta + S gamma) [MPICH].
 * Where p is no power of two, each rank above it first gives its buffer to a partner and
 * gets the result at the end: two more messages. */
static bool ar_recursive_doubling(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;
    double rounds = floor(log2(p) + 1e-9), core = exp2(rounds), extra = p - core;
    double near = floor(log2(g) + 1e-9), far, folds = extra > 0 ? 2 : 0;

    near = near < rounds ? near : rounds;
    far = n->nodes > 1 ? rounds - near : 0;
    near = rounds - far;
    f->steps = rounds + folds;
    f->time_s = coll_latency(n, f->steps, far) + near * coll_move(n, s, 0, 1) + far * coll_move(n, 0, g * s, g)
                + folds * coll_move(n, s, s, 1) + (rounds + folds / 2) * s * n->gamma;
    f->sent = rounds * s + (extra > 0 ? s : 0);
    f->peak = f->sent;
    f->total = core * rounds * s + 2 * extra * s;
    return true;
}

/* Half of what is left to the partner at distance 1, 2, 4 ... and back again:
 * 2 lg p alpha + 2(p-1)/p S beta + (p-1)/p S gamma [MPICH].  The large messages go to near
 * ranks: a node sends no more than (k-1)/k S each way.  p no power of two: as above, two more
 * messages of S, and one more addition. */
static bool ar_rabenseifner(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;
    double rounds = floor(log2(p) + 1e-9), core = exp2(rounds), extra = p - core;
    double far = n->nodes > 1 ? coll_levels(n->nodes) : 0, folds = extra > 0 ? 2 : 0;
    double inside = n->nodes > 1 ? (g - 1) / g : (core - 1) / core;
    double outside = (core - 1) / core - inside;

    far = far < rounds ? far : rounds;
    f->steps = 2 * rounds + folds;
    f->time_s = coll_latency(n, f->steps, 2 * far) + 2 * coll_move(n, inside * s, 0, 1)
                + 2 * coll_move(n, 0, outside > 0 ? g * outside * s : 0, g) + folds * coll_move(n, s, s, 1)
                + ((core - 1) / core + folds / 2) * s * n->gamma;
    f->sent = 2 * (core - 1) / core * s + (extra > 0 ? s : 0);
    f->peak = f->sent;
    f->total = 2 * (core - 1) * s + 2 * extra * s;
    return true;
}

/* Up and down again: 2 ceil(lg p)(alpha + S beta) + ceil(lg p) S gamma [MPICH]. */
static bool ar_binomial(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, d = coll_levels(p);

    f->time_s = 2 * coll_binomial(n, s) + d * s * n->gamma;
    f->steps = 2 * d;
    f->sent = f->peak = d * s;          /* the root's first child: up once, down to d-1 of its own */
    f->total = 2 * (p - 1) * s;
    return true;
}

static bool ar_tree(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks;

    f->time_s = 2 * coll_binary_tree(n, s, &f->steps) + (p > 2 ? 2 : 1) * s * n->gamma;
    f->steps *= 2;
    f->sent = (p > 4 ? 3 : p > 3 ? 2 : 1) * s;      /* up once, down twice */
    f->peak = (p > 4 ? 3 : p > 2 ? 2 : 1) * s;
    f->total = 2 * (p - 1) * s;
    return true;
}

/* Two trees with half of the buffer each, every rank inner in one and leaf in the other: it
 * passes S up and S down, 2(ceil(lg p) + c - 1)(alpha + S/c beta), which the best c makes
 * 2 (sqrt((lg p - 1) alpha) + sqrt(S beta))^2 and a little.  [NCCL] tree; Sanders, Speck,
 * Traeff 2009. */
static bool ar_double_tree(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, whole = coll_move(n, s, s, n->per_node);

    f->time_s = 2 * coll_pipeline(n, coll_levels(p), coll_levels(n->nodes), whole, &f->steps) + s * n->gamma;
    f->steps *= 2;
    f->sent = f->peak = (p > 2 ? 2 : 1) * s;
    f->total = 2 * (p - 1) * s;
    return true;
}

static bool ar_hierarchical(const struct coll_net *n, double s, struct coll_figures *f)
{
    if (!coll_hierarchical_half(n, s, f))
        return false;
    twice(f);
    coll_add_reduction(n, coll_share(n) * s, f);
    return true;
}

/* The switch adds and replicates: a rank reads the sum of its part (the others' ports send
 * theirs, S in all) and writes its part once (S/p): 2 alpha + (S + S/p) beta.  [NCCL]
 * sym_kernels.cc: busBytes = nBytes/nRanks + nBytes. */
static bool ar_nvls(const struct coll_net *n, double s, struct coll_figures *f)
{
    if (!n->multicast || n->nodes > 1)
        return false;
    f->steps = 2;
    f->sent = f->peak = s + s / n->ranks;
    f->time_s = coll_latency(n, 2, 0) + coll_move(n, f->peak, 0, 1);
    f->total = n->ranks * f->sent;
    return true;
}

const struct coll_algo coll_all_reduce_algos[] = {
    { COLL_ALL_REDUCE, "parameter-server", "O(1)", "O(N)", ar_server, "rank 0 serves and works" },
    { COLL_ALL_REDUCE, "sharded-parameter-server", "O(1)", "O(N)", ar_sharded, "one server a node, at least 2" },
    { COLL_ALL_REDUCE, "naive-sequential", "O(N)", "O(N)", ar_sequential, "one after the other to a root and back" },
    { COLL_ALL_REDUCE, "parallel", "O(N)", "O(N)", ar_parallel, "everybody sends everything to everybody" },
    { COLL_ALL_REDUCE, "direct", "O(1)", "O(1)", ar_direct, "a part to each rank, sums back; needs a switch" },
    { COLL_ALL_REDUCE, "ring", "O(N)", "O(1)", ar_ring, "parts around a ring, twice" },
    { COLL_ALL_REDUCE, "recursive-doubling", "O(log N)", "O(log N)", ar_recursive_doubling,
      "everything, at twice the distance each time" },
    { COLL_ALL_REDUCE, "rabenseifner", "O(log N)", "O(1)", ar_rabenseifner, "recursive halving, then doubling" },
    { COLL_ALL_REDUCE, "binomial-tree", "O(log N)", "O(log N)", ar_binomial, "reduce, then broadcast" },
    { COLL_ALL_REDUCE, "pipelined-tree", "O(log N)", "O(1)", ar_tree, "binary tree, in chunks" },
    { COLL_ALL_REDUCE, "double-binary-tree", "O(log N)", "O(1)", ar_double_tree,
      "two trees, half of the buffer each" },
    { COLL_ALL_REDUCE, "hierarchical", "O(N)", "O(1)", ar_hierarchical, "inside the node, between nodes, inside again" },
    { COLL_ALL_REDUCE, "nvls", "O(1)", "O(1)", ar_nvls, "the switch adds and replicates" },
    { 0 }
};
