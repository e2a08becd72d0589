/* coll_algo.c -- the counting that all algorithms share, and the table of them. */
#include "sim/price/coll_count.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* Bytes/s out of a node when `flows` of its ranks send at once. */
static double node_rate(const struct coll_net *n, double flows)
{
    return n->nic * (flows < n->nics ? flows : n->nics);
}

/* Seconds to move what the busiest port inside a node and the busiest node carry; the two
 * are different wires, and run at once. */
double coll_move(const struct coll_net *n, double port, double crossing, double flows)
{
    double inside = n->per_node > 1 ? port * n->beta_intra : 0;
    double across = n->nodes > 1 && crossing > 0 ? crossing / node_rate(n, flows) : 0;

    return inside > across ? inside : across;
}

/* `steps` messages one after the other, `crossings` of them between nodes. */
double coll_latency(const struct coll_net *n, double steps, double crossings)
{
    if (n->nodes == 1)
        crossings = 0;
    if (n->per_node == 1)
        crossings = steps;
    return (steps - crossings) * n->alpha_intra + crossings * n->alpha_inter;
}

double coll_levels(double ranks)      /* of a binomial tree */
{
    return ceil(log2(ranks) - 1e-9);
}

/* A message cut into c chunks goes down a pipeline of d hops, dx of them between nodes.  The
 * whole of it takes `whole` seconds to pass one hop:
 *     d hops' latency and a chunk each, then c-1 more chunks behind the first,
 *     (d + c - 1)(alpha + whole/c),     least at c = sqrt((d-1) whole/alpha) */
double coll_pipeline(const struct coll_net *n, double d, double dx, double whole, double *steps)
{
    double alpha = n->nodes > 1 ? n->alpha_inter : n->alpha_intra;
    double c = alpha > 0 ? floor(sqrt((d - 1) * whole / alpha)) : 1e6;

    c = c < 1 ? 1 : c > 1e6 ? 1e6 : c;
    /* Of the two whole numbers around it the better one: rounding would let the time fall
     * as the message grows. */
    if (c < 1e6 && alpha + (d + c) / (c + 1) * whole < (d + c - 1) / c * whole)
        c++;
    *steps = d + c - 1;
    return coll_latency(n, d, dx) + (c - 1) * alpha + (d + c - 1) / c * whole;
}

double coll_share(const struct coll_net *n)
{
    return (n->ranks - 1) / n->ranks;
}

void coll_add_reduction(const struct coll_net *n, double bytes, struct coll_figures *f)
{
    f->time_s += bytes * n->gamma;
}

/* One half of the direct algorithm: rank i sends its part j to rank j, all at once. */
void coll_direct_half(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node;

    f->steps = 1;
    f->time_s = coll_latency(n, 1, 1) + coll_move(n, (g - 1) / p * s, g * (p - g) / p * s, g);
    f->sent = f->peak = (p - 1) / p * s;
    f->total = (p - 1) * s;
}

/* p-1 steps, S/p to the neighbour in each.  A chunk passes every hop but one, k-1 of them
 * between nodes.  Rings are laid so that together they leave a node through every adapter:
 * a node sends (p-1)/p S, as one GPU does.  [PERF] for the beta term. */
void coll_ring_half(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, inside = n->nodes > 1 ? (g - 1) / g : 1;

    f->steps = p - 1;
    f->time_s = coll_latency(n, p - 1, n->nodes - 1) + coll_move(n, coll_share(n) * s * inside, coll_share(n) * s, g);
    f->sent = f->peak = coll_share(n) * s;
    f->total = (p - 1) * s;
}

/* One half on two tiers: a ring inside the node over S, a ring between nodes over the S/g
 * that a rank is left with, each rank through its own adapter.
 * (g-1) alpha_i + (g-1)/g S beta_i + (k-1) alpha_x + (k-1)/k S/g beta_x [MLE]. */
bool coll_hierarchical_half(const struct coll_net *n, double s, struct coll_figures *f)
{
    double g = n->per_node, k = n->nodes;

    if (g < 2 || k < 2)
        return false;
    f->steps = g - 1 + k - 1;
    f->time_s = coll_latency(n, f->steps, k - 1) + coll_move(n, (g - 1) / g * s, 0, 1)
                + coll_move(n, 0, (k - 1) / k * s, g);
    f->sent = f->peak = coll_share(n) * s;
    f->total = (n->ranks - 1) * s;
    return true;
}

/* One way along a binomial tree: ceil(lg p) levels of S, between nodes first. */
double coll_binomial(const struct coll_net *n, double s)
{
    double d = coll_levels(n->ranks), far = coll_levels(n->nodes);

    far = far < d ? far : d;
    return coll_latency(n, d, far) + (d - far) * coll_move(n, s, 0, 1) + far * coll_move(n, 0, s, 1);
}

/* One way along a binary tree in c chunks.  An inner rank passes a chunk to each of two
 * children: two messages a step, 2(ceil(lg p) + c - 1)(alpha + S/c beta). */
double coll_binary_tree(const struct coll_net *n, double s, double *steps)
{
    double children = n->ranks > 2 ? 2 : 1, t;

    t = coll_pipeline(n, coll_levels(n->ranks), coll_levels(n->nodes), coll_move(n, s, s, 1), steps);
    *steps *= children;
    return t * children;
}

/* Twice as much in every message: ceil(lg p) alpha + (p-1)/p S beta; Bruck's where p is no
 * power of two [MPICH].  The last and largest messages are between nodes, all ranks at once. */
void coll_halving(const struct coll_net *n, double s, struct coll_figures *f)
{
    double p = n->ranks, g = n->per_node, d = coll_levels(p), far = coll_levels(n->nodes);

    far = far < d ? far : d;
    f->steps = d;
    f->time_s = coll_latency(n, d, far) + coll_move(n, (g - 1) / p * s, 0, 1) + coll_move(n, 0, g * (p - g) / p * s, g);
    f->sent = f->peak = coll_share(n) * s;
    f->total = (p - 1) * s;
}

const struct coll_algo *coll_algo_at(int i)
{
    static const struct coll_algo *const parts[] = { coll_all_reduce_algos, coll_shard_algos,
                                                     coll_rooted_algos, coll_exchange_algos };

    for (size_t k = 0; i >= 0 && k < sizeof parts / sizeof *parts; k++)
        for (const struct coll_algo *a = parts[k]; a->name; a++)
            if (i-- == 0)
                return a;
    return NULL;
}

bool coll_algo_cost(const struct coll_algo *a, const struct coll_net *n, double bytes,
                    struct coll_figures *out)
{
    assert(n->ranks >= 1 && n->per_node >= 1 && n->nodes >= 1 && bytes >= 0);
    *out = (struct coll_figures){ 0 };
    return n->ranks < 2 || a->cost(n, bytes, out);
}

void coll_net_of(const struct cluster *c, int64_t ranks, int64_t per_node, struct coll_net *out)
{
    double part = (double)per_node / (double)c->gpus_per_node;
    bool   nvlink = c->gpu.link > 0;

    part = part < 1 ? part : 1;
    *out = (struct coll_net){
        .ranks = (double)ranks, .per_node = (double)(per_node < ranks ? per_node : ranks),
        .nodes = ceil((double)ranks / (double)per_node),
        /* Not stated: NCCL's latencies of a Simple hop over NVLink, PCIe and the network; for
         * processes of one machine, a message through shared memory (of the order of 2 us). */
        .alpha_intra = c->alpha_intra > 0 ? c->alpha_intra : c->is_host ? 2e-6 : nvlink ? 3.4e-6 : 5.7e-6,
        .alpha_inter = c->alpha_inter > 0 ? c->alpha_inter : c->is_host ? 20e-6 : 14e-6,
        .beta_intra = c->intra > 0 ? 1 / c->intra : 0,
        .nics = (c->nics > 0 ? c->nics : 1) * part,
        .nic = c->inter > 0 ? c->inter / (c->nics > 0 ? c->nics : 1) : INFINITY,
        /* Reads two, writes one: three passes over memory.  A host core's copy bandwidth
         * stands in its `intra`. */
        .gamma = c->gpu.hbm > 0 ? 3 / c->gpu.hbm : c->intra > 0 ? 1 / c->intra : 0,
        .multicast = nvlink && c->gpu.sm_arch >= 90,
    };
}

double coll_leaving(int64_t ranks, int64_t per_node)
{
    int64_t nodes = (ranks + per_node - 1) / per_node, last = ranks - (nodes - 1) * per_node;

    return nodes > 1 ? (double)(ranks - last) / (double)ranks : 0;
}

double coll_bus_factor(enum coll_op op, int64_t ranks)
{
    double others = ranks > 1 ? (double)(ranks - 1) / (double)ranks : 0;

    switch (op) {
    case COLL_ALL_REDUCE:     return 2 * others;
    case COLL_ALL_GATHER:
    case COLL_REDUCE_SCATTER:
    case COLL_SCATTER:
    case COLL_GATHER:
    case COLL_ALL_TO_ALL:     return others;
    case COLL_BROADCAST:
    case COLL_REDUCE:
    case COLL_SEND:
    case COLL_RECV:           return ranks > 1 ? 1 : 0;
    case COLL_BARRIER:
    case NCOLL:               break;
    }
    return 0;
}
