/* coll_algo.h -- collective algorithms, by counting messages.
 *
 *     struct coll_net net;
 *     coll_net_of(&cluster, ranks, per_node, &net);
 *     for (int i = 0; (a = coll_algo_at(i)); i++)
 *         if (coll_algo_cost(a, &net, bytes, &f))
 *             ... a->name, f.time_s, f.peak ...
 *
 * A message of n bytes takes alpha + n * beta; adding n received bytes to one's own takes
 * n * gamma.  Ranks send and receive at once through one port, and a node reaches the others
 * through its adapters.  Each formula stands, with its counting, at its function in
 * coll_algo.c; NCCL's own estimate of what it really runs is in nccl_cost.h.
 *
 * `bytes` is the full buffer: what is reduced, what an all-gather ends with, what a
 * reduce-scatter starts from, what a root deals out or collects. */
#ifndef DPX_COLL_ALGO_H
#define DPX_COLL_ALGO_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cluster/cluster.h"
#include "model/schedule/schedule.h"

/* One group of ranks; nodes are full but perhaps the last. */
struct coll_net {
    double ranks, per_node, nodes;
    double alpha_intra, alpha_inter;    /* seconds per message */
    double beta_intra;                  /* seconds per byte of a rank's own port */
    double nic;                         /* bytes/s of one adapter */
    double nics;                        /* adapters of a node that the group may use */
    double gamma;                       /* seconds to add one byte */
    bool   multicast;                   /* the switch inside a node replicates and adds */
};

struct coll_figures {
    double time_s;
    double steps;       /* messages one after the other on the longest path */
    double sent;        /* bytes that a rank sends: the busiest that is neither root nor server */
    double peak;        /* most bytes that enter, or leave, any one rank ("node" in the literature) */
    double total;       /* bytes sent by all */
};

struct coll_algo {
    enum coll_op op;
    const char  *name;
    const char  *latency, *bandwidth;   /* growth with the ranks N: of the alpha, of the beta term */
    bool (*cost)(const struct coll_net *n, double bytes, struct coll_figures *out);
    const char  *about;
};

/* The table; NULL after the last. */
const struct coll_algo *coll_algo_at(int i);

/* false where the algorithm does not apply to this network (no such switch, one node only).
 * A group of one costs nothing. */
bool coll_algo_cost(const struct coll_algo *a, const struct coll_net *n, double bytes,
                    struct coll_figures *out);

/* Alpha, beta and gamma of a cluster, as stated or from its datasheets. */
void coll_net_of(const struct cluster *c, int64_t ranks, int64_t per_node, struct coll_net *out);

/* Share of an all-to-all's buffer that a rank sends to other nodes: of those in the emptiest node, which
 * have most to send there (nodes of `per_node` ranks, full but perhaps the last).  0 in one node. */
double coll_leaving(int64_t ranks, int64_t per_node);

/* nccl-tests' factor from algbw = bytes/time to busbw: the bytes that every rank must at
 * least send, as a share of the buffer. */
double coll_bus_factor(enum coll_op op, int64_t ranks);

#endif
