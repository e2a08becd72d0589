/* nccl_cost.c -- NCCL's model of its own collectives, and the networks it sees.
 *
 * All figures without another source: NVIDIA/nccl src/graph/tuning.cc, topo.h, search.cc and
 * enqueue.cc at 5067397c (2.30).  They are microseconds and GB/s there, and here until the
 * last line. */
#include "sim/price/nccl_cost.h"

#include <assert.h>
#include <math.h>

#include "sim/price/coll_algo.h"

#define US 1e-6
#define GB 1e9

/* baseLat */
static const double base_us[NNCCL_ALGO][NNCCL_PROTO] = {
    [NCCL_TREE] = { 6.8, 14.0, 8.4 }, [NCCL_RING] = { 6.6, 14.0, 8.4 }, [NCCL_PAT] = { 8, 8, 8 },
    [NCCL_SEND] = { 6.6, 14.0, 8.4 },
};

/* hwLat: NVLink, PCI, network. */
enum { HOP_NVLINK, HOP_PCI, HOP_NET, NHOP };
static const double hop_us[NHOP][NNCCL_ALGO][NNCCL_PROTO] = {
    [HOP_NVLINK] = { [NCCL_TREE] = { .6, 1.25, 4.0 }, [NCCL_RING] = { .6, 1.9, 3.4 },
                     [NCCL_NVLS] = { 0, 0, 25 }, [NCCL_NVLS_TREE] = { 0, 0, 25 },
                     [NCCL_PAT] = { 0, 0, 4.0 }, [NCCL_SEND] = { .6, 1.9, 3.4 } },
    [HOP_PCI]    = { [NCCL_TREE] = { 1.0, 1.9, 4.0 }, [NCCL_RING] = { 1.0, 2.5, 5.7 },
                     [NCCL_PAT] = { 0, 0, 4.0 }, [NCCL_SEND] = { 1.0, 2.5, 5.7 } },
    [HOP_NET]    = { [NCCL_TREE] = { 5.0, 8.5, 14 }, [NCCL_RING] = { 2.7, 4.0, 14.0 },
                     [NCCL_NVLS] = { 0, 0, 18 }, [NCCL_NVLS_TREE] = { 0, 0, 20.9 },
                     [NCCL_PAT] = { 0, 0, 14 }, [NCCL_SEND] = { 2.7, 4.0, 14.0 } },
};

/* Caps in GB/s, by architecture and by 1, 2, or more nodes.  Across nodes the LL cap is the
 * host processor's, and an Intel host is taken: its row is the Volta one. */
static const double ll_max[NARCH][3] = {
    { 39, 39, 20.4 }, { 87.7, 39, 20.4 }, { 141, 39, 20.4 }, { 282, 39, 20.4 } };
static const double ring_ll128[NARCH][3] = {
    { 20, 20, 20 }, { 20, 20, 20 }, { 36.7, 36.7, 36.7 }, { 40, 40, 40 } };
static const double tree_ll128[NARCH][3] = {
    { 20, 20, 20 }, { 20, 20, 20 }, { 36.7, 36.7, 29 }, { 55.6, 31.67, 20 } };
static const double tree_max[NARCH][3] = {
    { 26.5, 18.5, 10 }, { 24, 23.6, 17.8 }, { 38.7, 41.4, 36 }, { 70, 42.8, 24 } };
static const double nvls_tree_max[NARCH][3] = {
    { 26.5, 18.5, 10 }, { 24, 23.6, 17.8 }, { 0, 57.7, 45.5 }, { 0, 96, 80 } };
static const double nvls_efficiency[NARCH] = { 0, 0, .85, .74 };

/* treeCorrectionFactor: by protocol and log2(bytes / 64). */
enum { NCORR = 24 };
static const double tree_corr[NNCCL_PROTO][NCORR] = {
    { 1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1 },
    { 1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1 },
    { .9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9 },
};

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* NCCL takes the entry of the power of two below, so that its time falls at each boundary
 * where the factor rises.  Between the entries we interpolate: a plan's time must not fall
 * because its bucket grew by a byte. */
static double correction(enum nccl_proto p, double bytes)
{
    double at = bytes > 64 ? log2(bytes / 64) : 0;
    int    i = (int)at;

    if (i >= NCORR - 1)
        return tree_corr[p][NCORR - 1];
    return tree_corr[p][i] + (at - i) * (tree_corr[p][i + 1] - tree_corr[p][i]);
}

/* ---- the network ---- */

static enum nccl_arch arch_of(int sm)
{
    return sm >= 100 ? ARCH_BLACKWELL : sm >= 90 ? ARCH_HOPPER : sm >= 80 ? ARCH_AMPERE
         : sm > 0 ? ARCH_VOLTA : ARCH_AMPERE;   /* RCCL keeps NCCL's tables: the middle one */
}

/* What of a datasheet's link a collective gets.  NVLink: topo.h's bytes/s per link over the
 * datasheet's 25 GB/s (20.6 on sm90, 20 before, 40.1 of 50 on sm100).  PCIe: 24 of 31 and 48 of 63
 * GB/s ("peak busbw" of a slide quoted in stas00/ml-engineering network/README).  xGMI: 313 of
 * 448 GB/s on 8 MI300X, the same page. */
static double link_efficiency(const struct cluster *c)
{
    int sm = c->gpu.sm_arch;

    if (c->gpu.link <= 0)
        return .77;
    return sm == 0 ? .70 : sm >= 100 ? .802 : sm >= 90 ? .824 : .80;
}

/* Bytes/s that one GPU of a group of g in a node can send to the others. */
static double intra_rate(const struct cluster *c, int64_t g)
{
    double rate = c->intra * link_efficiency(c);
    int    mesh = c->gpu.node_gpus;

    /* MI300X: the datasheet's rate is seven links together, one to each other GPU. */
    if (c->gpu.sm_arch == 0 && mesh > 2 && c->gpu.link > 100 * GB && g > 1 && g < mesh)
        rate *= (double)(g - 1) / (mesh - 1);
    return rate;
}

/* Channels of a ring inside a node, as logs show them: 12 on NVLink up to Hopper, 24 on
 * Blackwell, 2 over PCIe; each at the largest step of the search's ladder that fits. */
static struct nccl_graph ring_intra(const struct nccl_net *n, double rate)
{
    double step = !n->nvlink || !n->nvswitch ? 0 : n->arch >= ARCH_HOPPER ? 30 * GB : 20 * GB;
    double nch = !n->nvlink ? 2 : n->arch >= ARCH_BLACKWELL ? 24 : 12;

    if (step > 0 && rate >= step)
        return (struct nccl_graph){ floor(rate / step * (1 + 1e-9)), step };
    return (struct nccl_graph){ nch, rate / nch };
}

/* NVLS: one channel per GPU of the group, at the largest step of which all together leave a
 * tenth of the links free.  With 5, 6, 7, 8 H200 this gives 60, 50, 40, 40 GB/s, and with 4
 * too little to beat the ring, as is measured (stas00/ml-engineering network/README, SHARP). */
static struct nccl_graph nvls_intra(const struct nccl_net *n, double rate)
{
    static const double hopper[] = { 60, 50, 40, 30, 24, 20, 15, 12, 0 };
    static const double blackwell[] = { 90, 80, 70, 60, 50, 45, 40, 30, 20, 0 };
    double nch = (double)(n->per_node < 8 ? n->per_node : 8);
    double room = (n->arch == ARCH_BLACKWELL ? 1 : .9) * rate * (1 + 1e-9);
    const double *ladder = n->arch == ARCH_BLACKWELL ? blackwell : hopper;

    while (*ladder > 0 && nch * *ladder * GB > room)
        ladder++;
    return (struct nccl_graph){ nch, *ladder * GB };
}

void nccl_net_of(const struct cluster *c, int64_t ranks, int64_t per_node, struct nccl_net *out)
{
    int64_t g = per_node;
    double  rate = intra_rate(c, g), share = (double)g / (double)c->gpus_per_node;
    /* 48 of 50 GB/s of an adapter of 400 Gb/s: topo.h's 12 GB/s per 100 Gb/s. */
    double  nics = .96 * c->inter * least(share, 1);
    double  adapters = c->nics > 0 ? c->nics * least(share, 1) : 1;
    double  node;

    assert(ranks >= 1 && per_node >= 1);
    *out = (struct nccl_net){ .ranks = ranks, .per_node = g, .nodes = (ranks + g - 1) / g,
                              .arch = arch_of(c->gpu.sm_arch), .sm_arch = c->gpu.sm_arch };
    out->nvlink = c->gpu.link > 0;
    out->nvswitch = out->nvlink && c->gpu.sm_arch >= 80;
    /* Stated latencies are those of a Simple hop; the others follow in proportion. */
    out->hop_intra = c->alpha_intra > 0
        ? c->alpha_intra / (hop_us[out->nvlink ? HOP_NVLINK : HOP_PCI][NCCL_RING][NCCL_SIMPLE] * US) : 1;
    out->hop_inter = c->alpha_inter > 0 ? c->alpha_inter / (hop_us[HOP_NET][NCCL_RING][NCCL_SIMPLE] * US) : 1;
    out->port_intra = rate;
    out->port_inter = c->inter > 0 ? .96 * c->inter / (c->nics > 0 ? c->nics : 1) : rate;

    out->out_each = least(out->port_inter, nics / (double)g);
    if (out->nodes == 1) {
        out->ring = out->tree = ring_intra(out, rate);
        if (c->nccl.nvls != NVLS_OFF && out->nvswitch && out->arch >= ARCH_HOPPER)
            out->nvls = nvls_intra(out, rate);
        out->nvls_inter = out->nvls.bw;
        return;
    }
    /* Rings leave a node through all its adapters; inside, each of a node's g-1 hops carries
     * every ring, so that the links limit a node's rate to g/(g-1) of a GPU's. */
    node = nics;
    if (g > 1)
        node = least(node, rate * (double)g / (double)(g - 1));
    adapters = adapters < 1 ? 1 : adapters;
    while (node / adapters > 48 * GB && out->arch < ARCH_BLACKWELL)     /* top of the ladder */
        adapters *= 2;
    if (adapters < 2)
        adapters = 2;                   /* NCCL doubles the channels of a single path */
    out->ring = (struct nccl_graph){ adapters, node / adapters };
    out->tree = out->ring;
    /* Between two nodes a tree uses each direction for its own half. */
    if (out->nodes == 2)
        out->tree.bw = (g > 1 ? least(2 * node, rate) : node) / adapters;
    if (c->nccl.nvls != NVLS_OFF && out->nvswitch && out->arch >= ARCH_HOPPER && g > 1)
        out->nvls = nvls_intra(out, rate);
    out->nvls_inter = out->nvls.nch > 0 ? nics / out->nvls.nch : 0;
}

/* ---- the model ---- */

static int nodes_column(const struct nccl_net *n)
{
    return n->nodes <= 2 ? (int)n->nodes - 1 : 2;
}

static bool may_run(const struct nccl_net *n, enum coll_op op, enum nccl_algo a, enum nccl_proto p)
{
    bool shards = op == COLL_ALL_GATHER || op == COLL_REDUCE_SCATTER;

    if (op == COLL_SCATTER || op == COLL_GATHER || op == COLL_ALL_TO_ALL || coll_is_message(op))
        return a == NCCL_SEND && p == NCCL_SIMPLE;
    /* LL128 relies on 128-byte stores staying whole, which only NVLink promises. */
    if (p == NCCL_LL128 && (!n->nvlink || n->sm_arch == 0 || (n->nodes > 1 && n->sm_arch < 80)))
        return false;
    switch (a) {
    case NCCL_RING:      return true;
    case NCCL_TREE:      return op == COLL_ALL_REDUCE;
    case NCCL_NVLS:      return p == NCCL_SIMPLE && n->nodes == 1 && n->nvls.nch >= 2 && n->nvls.bw > 0
                                && (op == COLL_ALL_REDUCE || shards);
    case NCCL_NVLS_TREE: return p == NCCL_SIMPLE && n->nodes > 1 && n->nvls.nch >= 2 && n->nvls.bw > 0
                                && op == COLL_ALL_REDUCE;
    case NCCL_PAT:       return p == NCCL_SIMPLE && shards && n->nodes > 1 && n->per_node == 1;
    case NCCL_SEND:
    case NNCCL_ALGO:     break;
    }
    return false;
}

/* Ring steps of a collective; the bandwidth of a ring is p/steps of its links'. */
static double ring_steps(enum coll_op op, double p)
{
    return op == COLL_ALL_REDUCE ? 2 * (p - 1)
         : op == COLL_BROADCAST || op == COLL_REDUCE ? p : p - 1;
}

/* Bytes/s of the full buffer. */
static double rate_of(const struct nccl_net *n, enum coll_op op, enum nccl_algo a, enum nccl_proto proto)
{
    int    col = nodes_column(n);
    double p = (double)n->ranks, g = (double)n->per_node, bus;

    if (a == NCCL_TREE) {
        bus = least(.92 * n->tree.nch * n->tree.bw, n->tree.nch * tree_max[n->arch][col] * GB);
        if (proto == NCCL_LL)
            bus = least(bus / 3.8, ll_max[n->arch][col] * GB);
        if (proto == NCCL_LL128)
            bus = least(bus * (n->nodes == 1 ? 7. / 9 : 120. / 128),
                        n->tree.nch * tree_ll128[n->arch][col] * GB);
        return bus * .5;
    }
    if (a == NCCL_NVLS || a == NCCL_NVLS_TREE) {
        double intra = n->nvls.bw * nvls_efficiency[n->arch] * (n->nvls.nch - 1) / n->nvls.nch;
        double bw = intra * (op == COLL_ALL_REDUCE ? 2 : (g - 1) / g);

        if (a == NCCL_NVLS_TREE)
            bw = least(least(bw, n->nvls_inter * (n->nodes == 2 ? 2 : 1)), nvls_tree_max[n->arch][col] * GB);
        return n->nvls.nch * bw * p / ring_steps(op, p);
    }
    bus = n->ring.nch * n->ring.bw;
    if (a == NCCL_PAT)
        return bus * .75;
    if (proto == NCCL_LL)
        bus = least(ll_max[n->arch][col] * GB, .5 * bus);
    if (proto == NCCL_LL128)
        bus = least(.92 * bus, n->ring.nch * ring_ll128[n->arch][col] * GB);
    return bus * p / ring_steps(op, p);
}

static double latency_of(const struct nccl_net *n, enum coll_op op, enum nccl_algo a, enum nccl_proto proto)
{
    double p = (double)n->ranks, k = (double)n->nodes, levels = floor(log2(k));
    double intra = hop_us[n->nvlink ? HOP_NVLINK : HOP_PCI][a][proto] * n->hop_intra;
    /* With one GPU a node there is no other kind of hop, and all take the tree's. */
    double inter = hop_us[HOP_NET][n->per_node == 1 ? NCCL_TREE : a][proto] * n->hop_inter;
    double host = n->nodes > 1 ? (proto == NCCL_SIMPLE ? 3 : 1) : 0;   /* an Intel host's, 1 us */
    double crossings = n->nodes == 1 ? 0 : k - 1;

    switch (a) {
    case NCCL_TREE:
        return base_us[a][proto] + 2 * ((p / k - 1) * intra + levels * inter);
    case NCCL_NVLS:
        return intra;
    case NCCL_NVLS_TREE:
        return intra + 2 * levels * inter;
    case NCCL_PAT:
        return base_us[a][proto] + levels * inter / 3.5 + 2.8 * p;
    case NCCL_SEND:
        return base_us[a][proto] + (n->nodes > 1 ? inter : intra);
    case NCCL_RING:
    case NNCCL_ALGO:
        break;
    }
    /* Broadcast and reduce stream through; behind a switch every channel has the same order
     * of ranks and NCCL counts one hop. */
    if ((op == COLL_BROADCAST || op == COLL_REDUCE) && n->nvswitch && n->nodes == 1)
        return base_us[a][proto] + intra;
    if (op == COLL_ALL_REDUCE)
        crossings *= 2;
    return base_us[a][proto] + (ring_steps(op, p) - crossings) * fmax(intra, host) + crossings * inter;
}

/* Bytes/s of what is sent from rank to rank, of the full buffer.  A message has its sender's port, and
 * out of a node the sender's share of the adapters, for the other GPUs send as well.  An all-to-all
 * sends to all ranks at once (nccl-tests alltoall.cu), to those of the node and to the others on
 * different wires: the slower counts.  A scatter or gather goes through the root's own link, for all
 * but its own part. */
static double sending(const struct nccl_net *n, enum coll_op op)
{
    double p = (double)n->ranks, others = (double)(n->ranks - 1) / p;

    if (op == COLL_ALL_TO_ALL) {
        double out = coll_leaving(n->ranks, n->per_node), in = ((double)n->per_node - 1) / p;
        return 1 / fmax(in / n->port_intra, out > 0 ? out / n->out_each : 0);
    }
    if (coll_is_message(op))
        return n->nodes > 1 ? n->out_each : n->port_intra;
    return (n->nodes > 1 ? least(n->port_intra, n->port_inter) : n->port_intra) / others;
}

bool nccl_option(const struct nccl_net *n, enum coll_op op, enum nccl_algo a, enum nccl_proto p,
                 int64_t bytes, struct nccl_choice *out)
{
    double lat, rate;

    if (op == COLL_BARRIER) {           /* PyTorch's: an all-reduce of one element */
        op = COLL_ALL_REDUCE;
        bytes = 4;
    }
    if (n->ranks < 2 || !may_run(n, op, a, p))
        return false;
    lat = latency_of(n, op, a, p) * US;
    rate = a == NCCL_SEND ? sending(n, op) : rate_of(n, op, a, p);
    if (a == NCCL_TREE || (a == NCCL_NVLS_TREE && n->arch == ARCH_BLACKWELL))
        rate *= correction(p, (double)bytes);
    /* A ring between nodes does not stay in step (tuning.cc: 1.4, before Ampere 1.9). */
    if (a == NCCL_RING && p == NCCL_SIMPLE && op == COLL_ALL_REDUCE && n->nodes > 1
        && (double)bytes >= 64 * n->ring.nch * (double)n->ranks)
        lat *= n->sm_arch >= 80 ? 1.4 : 1.9;
    *out = (struct nccl_choice){ a, p, lat, 1 / rate };
    return true;
}

void nccl_choose(const struct nccl_net *n, enum coll_op op, int64_t bytes, struct nccl_choice *out)
{
    double best = INFINITY;

    *out = (struct nccl_choice){ NCCL_RING, NCCL_SIMPLE, 0, 0 };
    for (int a = 0; a < NNCCL_ALGO; a++)
        for (int p = 0; p < NNCCL_PROTO; p++) {
            struct nccl_choice c;
            double t;

            if (!nccl_option(n, op, (enum nccl_algo)a, (enum nccl_proto)p, bytes, &c))
                continue;
            t = c.lat + c.byte * (double)(op == COLL_BARRIER ? 4 : bytes);
            if (t < best) {
                best = t;
                *out = c;
            }
        }
}

/* connect.cc and nvls.cc: twice the channels of the search; NVLS has its own count. */
int nccl_ctas(const struct nccl_net *n, const struct nccl_choice *c)
{
    double nch = c->algo == NCCL_TREE ? n->tree.nch : n->ring.nch;

    if (c->algo == NCCL_NVLS || c->algo == NCCL_NVLS_TREE)
        return n->arch == ARCH_BLACKWELL ? (n->nodes > 1 ? 32 : 24) : 16;
    return (int)least(n->nodes == 1 && n->arch >= ARCH_BLACKWELL ? nch : 2 * nch, 64);
}

const char *nccl_algo_name(enum nccl_algo a)
{
    static const char *const names[NNCCL_ALGO] = { "tree", "ring", "nvls", "nvls-tree", "pat", "send/recv" };

    return a < NNCCL_ALGO ? names[a] : "?";
}

const char *nccl_proto_name(enum nccl_proto p)
{
    static const char *const names[NNCCL_PROTO] = { "LL", "LL128", "Simple" };

    return p < NNCCL_PROTO ? names[p] : "?";
}
