/* nccl_cost.h -- how long NCCL thinks a collective takes, and which algorithm it would run.
 *
 *     struct nccl_net net;
 *     struct nccl_choice c;
 *     nccl_net_of(&cluster, ranks, per_node, &net);
 *     nccl_choose(&net, COLL_ALL_REDUCE, bytes, &c);      c.algo, c.proto, c.lat + c.byte * bytes
 *
 * This is NCCL's own model (src/graph/tuning.cc, 2.30): a latency counted in hops and a
 * bandwidth that the topology search found, for each algorithm and protocol; the least time
 * is run.  The search itself is replaced by what it finds on the usual machines, and speeds
 * scale with the cluster's own links.  sim/README.md has the derivation and how far it is
 * from published measurements.
 *
 * `bytes` is always the full buffer, as nccl-tests prints it. */
#ifndef DPX_NCCL_COST_H
#define DPX_NCCL_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cluster/cluster.h"
#include "model/schedule/schedule.h"

enum nccl_algo  { NCCL_TREE, NCCL_RING, NCCL_NVLS, NCCL_NVLS_TREE, NCCL_PAT, NCCL_SEND, NNCCL_ALGO };
enum nccl_proto { NCCL_LL, NCCL_LL128, NCCL_SIMPLE, NNCCL_PROTO };
enum nccl_arch  { ARCH_VOLTA, ARCH_AMPERE, ARCH_HOPPER, ARCH_BLACKWELL, NARCH };

/* Channels and bytes/s per channel of one search result. */
struct nccl_graph { double nch, bw; };

/* What the topology search would have found for one group of ranks. */
struct nccl_net {
    int64_t ranks, per_node, nodes;
    enum nccl_arch arch;
    int     sm_arch;            /* compute capability x10; 0: not NVIDIA's (RCCL) */
    bool    nvlink;             /* GPUs of a node reach each other without PCIe */
    bool    nvswitch;           /* and all at full speed, with multicast from Hopper on */
    struct nccl_graph ring, tree, nvls;
    double  nvls_inter;         /* bytes/s per channel between nodes */
    double  port_intra, port_inter;     /* one rank alone to one other: bytes/s */
    double  out_each;           /* bytes/s of each rank out of its node when all of it send */
    double  hop_intra, hop_inter;       /* factors on NCCL's hop latencies, 1 unless the cluster states its own */
};

struct nccl_choice {
    enum nccl_algo  algo;
    enum nccl_proto proto;
    double lat;                 /* seconds, whatever the size */
    double byte;                /* seconds per byte, at this size */
};

/* The search result for a group of `ranks`, `per_node` of them in a node.  The node's
 * adapters are shared evenly by its GPUs, as when every GPU is in such a group. */
void nccl_net_of(const struct cluster *c, int64_t ranks, int64_t per_node, struct nccl_net *out);

/* One algorithm and protocol: false where NCCL would not run it. */
bool nccl_option(const struct nccl_net *n, enum coll_op op, enum nccl_algo a, enum nccl_proto p,
                 int64_t bytes, struct nccl_choice *out);

/* The fastest by NCCL's model; lat = byte = 0 for a group of one. */
void nccl_choose(const struct nccl_net *n, enum coll_op op, int64_t bytes, struct nccl_choice *out);

/* Thread blocks, so SMs, that the collective occupies while it runs. */
int nccl_ctas(const struct nccl_net *n, const struct nccl_choice *c);

const char *nccl_algo_name(enum nccl_algo a);
const char *nccl_proto_name(enum nccl_proto p);

#endif
