/* overhead.c -- the context, NCCL's buffers and cuBLAS's workspaces, each with its source. */
#include "model/memory/overhead.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/plan/environment.h"
#include "model/plan/graphs.h"
#include "model/plan/loss_check.h"
#include "model/program/workspace.h"

#define KiB ((int64_t)1 << 10)
#define MiB ((int64_t)1 << 20)

/* A connection's buffers: LL + LL128 + Simple (NCCL_BUFFSIZE), and what is allocated for
 * them, rounded up to the 2 MiB that CUDA maps between processes. */
#define NCCL_LL          (512 * KiB)
#define NCCL_LL128       (4800 * KiB)
#define NCCL_SIMPLE      (4 * MiB)
#define NCCL_GRAIN       (2 * MiB)
#define NCCL_HEADER      NCCL_GRAIN     /* of a sender that writes into its receiver's buffers */

/* What sends and receives over the network share: 16 steps of a chunk for each channel and direction. */
#define NCCL_SHARED      (16 * 128 * KiB)
/* Of the network, by one channel. */
#define NCCL_NET_RATE    14e9
/* Peers that one batch of messages has room for. */
#define NCCL_BATCH       8

/* dpx's own process on one H200, driver 580, CUDA 13.0, 26 November 2026 (tests/gpu/h200/memory.tsv: driver less what is
 * predicted without these).  Without NCCL, six runs as a rank of 2 or 8: 368 to 397 MiB, median 380.  With a communicator
 * of one rank, which has no buffers, four runs: 946 to 977, median 959.  What a second communicator adds is not known. */
#define OWN_CONTEXT_HOPPER (380 * MiB)
#define OWN_NCCL_HOPPER    (579 * MiB)

#define SOURCE_MESSAGES  "NCCL 2.30 src/graph/paths.cc, src/transport/p2p.cc, net.cc"
#define SOURCE_NCCL      "NCCL 2.30 src/init.cc, src/transport; channels as its logs show"
#define SOURCE_TRANSIENT "PyTorch 2.15, CublasHandlePool.cpp: allocated around every product"
#define SOURCE_WORKSPACE "PyTorch CublasHandlePool.cpp: one per handle, a handle per thread"

static void add(struct overhead *o, enum overhead_kind kind, int64_t bytes, const char *source,
                const char *name)
{
    struct overhead_item *item;

    if (bytes <= 0)
        return;
    assert(o->n < OVERHEAD_ITEMS);
    item = &o->item[o->n++];
    snprintf(item->name, sizeof item->name, "%s", name);
    item->bytes = bytes;
    item->kind = kind;
    item->source = source;
    o->by[kind] += bytes;
}

/* Ring channels, "N coll channels" in public logs of NCCL_DEBUG=INFO: 12 on V100 with six
 * links, 24 on one node of 8xA100 or 8xH100, 16 across nodes of 8xH100, 32 on Blackwell, 4
 * over PCIe.  Not seen, so assumed: 16 across nodes of A100, 32 for RCCL on AMD. */
static int64_t channels(const struct gpu *g, int crosses_nodes)
{
    if (!(g->link > 0))
        return 4;
    if (g->sm_arch == 0 || g->sm_arch >= 100)
        return 32;
    if (g->sm_arch < 80)
        return 12;
    return crosses_nodes ? 16 : 24;
}

/* NVLink SHARP: every channel has a send and a receive buffer of 8 steps of 128 KiB for
 * each head, the heads being the node's ranks (at most 32); 256 MiB on 8xH100.  16
 * channels on SM90, 24 seen on Blackwell; none where the node has no more than two GPUs
 * (ncclNvlsInit). */
static int64_t nvls(const struct cluster *c, int64_t local)
{
    const struct gpu *g = &c->gpu;
    int64_t heads = local < 32 ? local : 32;

    if (c->nccl.nvls == NVLS_OFF || g->sm_arch < 90 || !(g->link > 0) || local <= 2)
        return 0;
    return (g->sm_arch >= 100 ? 24 : 16) * 2 * (8 * 128 * KiB) * heads;
}

static int64_t simple(const struct cluster *c) { return c->nccl.buffsize ? c->nccl.buffsize : NCCL_SIMPLE; }

/* What a connection's receiver has. */
static int64_t receiver(const struct cluster *c) { return round_up(NCCL_LL + NCCL_LL128 + simple(c), NCCL_GRAIN); }

int64_t overhead_nccl(const struct cluster *c, int64_t ranks, int64_t local)
{
    int64_t receive = receiver(c);
    int64_t net_send = round_up(NCCL_LL128 + simple(c), NCCL_GRAIN);   /* LL stays on the host */
    int64_t n, bytes;

    if (ranks < 2)
        return 0;
    n = channels(&c->gpu, ranks > local);
    /* In a ring a rank receives once a channel and sends once. */
    bytes = n * (receive + NCCL_HEADER);
    /* Every channel leaves each node once, from one of its GPUs, and a send through the
     * network has a whole buffer of its own (GPUDirect RDMA). */
    if (ranks > local)
        bytes += ceil_div(n, local) * (net_send - NCCL_HEADER);
    return bytes + nvls(c, local);
}

int64_t overhead_own_process(const struct gpu *g, uint32_t communicates, bool nccl)
{
    if (g->sm_arch != 90)
        return -1;
    return OWN_CONTEXT_HOPPER + (nccl && communicates ? OWN_NCCL_HOPPER : 0);
}

int64_t overhead_workspace(const struct plan *p)
{
    const struct gpu *g = &p->cluster.gpu;

    if (environment_workspace(p) >= 0)
        return environment_workspace(p);
    if (g->sm_arch >= 90)
        return 32 * MiB;
    if (g->sm_arch > 0)
        return 2 * 4096 * KiB + 8 * 16 * KiB;       /* ":4096:2:16:8" */
    return (strncmp(g->name, "mi3", 3) ? 32 : 128) * MiB;     /* gfx94x: 128 MiB */
}

/* TORCH_CUBLAS_WORKSPACE_CACHE, off by default, is a name that 2.14.1 does not know.  Other dialects run on the
 * newest PyTorch. */
bool overhead_keeps_workspaces(const struct plan *p) { return plan_torch_before(p, 2015); }

/* Of the fullest rank: on the fullest node of the group, or on its emptiest. */
static void communicator(struct overhead *o, const struct cluster *c, const char *group,
                         const struct mesh_lie *l)
{
    int64_t full = overhead_nccl(c, l->ranks, l->most), thin = overhead_nccl(c, l->ranks, l->least);
    char name[64];

    snprintf(name, sizeof name, "NCCL buffers, %s of %" PRId64, group, l->ranks);
    add(o, OVERHEAD_OUTSIDE, full > thin ? full : thin, SOURCE_NCCL, name);
}

static void group_text(const struct plan_group *g, char *to, size_t size)
{
    snprintf(to, size, "%s%s", g->name, g->is == GROUP_DATA ? "" : " group");
}

/* A communicator for every process group that the plan communicates in.  DeepSpeed and torch create more
 * groups than they use; one without a collective has no buffers. */
static void communicators(const struct plan *p, const struct plan_groups *groups, uint32_t communicates,
                          struct overhead *o)
{
    char name[32];

    for (int g = 0; g < groups->n; g++)
        if (communicates >> g & 1) {
            struct mesh_lie l = plan_groups_slowest(p, groups, g);
            group_text(&groups->group[g], name, sizeof name);
            communicator(o, &p->cluster, name, &l);
        }
}

/* get_symm_mem_workspace() of torch 2.15: two parts of a product's result (_pipelined_produce_and_all2all()), behind them 32 x 72
 * signals of 4 bytes (CUDASymmetricMemoryTypes.hpp), by the driver's granularity for memory of its own. */
static void symmetric_memory(const struct plan *p, struct overhead *o)
{
    int64_t whole = p->micro_batch * plan_rank_seq(p) * p->model.hidden * dtype_bytes(plan_recipe(p).used);

    if (p->parallel.async_tensor)
        add(o, OVERHEAD_OUTSIDE, round_up(2 * whole / p->parallel.tensor + 32 * 72 * 4, 2 * MiB),
            "torch/distributed/_symmetric_memory", "symmetric memory, tensor group");
}

static void graphs(const struct plan *p, struct overhead *o)
{
    int64_t bytes = graphs_static_bytes(p);

    if (bytes > 0)
        add(o, OVERHEAD_ALLOCATED, bytes, "megatron/core/transformer/cuda_graphs.py, torch/_inductor/cudagraph_trees.py", "CUDA graphs' inputs");
}

static void logits(const struct plan *p, struct overhead *o)
{
    int64_t bytes = loss_stays_bytes(p);

    if (bytes > 0)
        add(o, OVERHEAD_ALLOCATED, bytes, "the training script", "logits that the training loop keeps");
}

static void staging(struct overhead *o, const char *group, int64_t ranks)
{
    char name[64];

    snprintf(name, sizeof name, "staging, %s of %" PRId64, group, ranks);
    add(o, OVERHEAD_ALLOCATED, workspace_staging(ranks), "exec/comm/comm.h", name);
}

/* Ranks on the host, run by our own executor; of PyTorch's there nothing is known.  One thread is
 * assumed: each further one takes a MiB more of workspace. */
static int64_t on_host(const struct plan *p, const struct plan_groups *groups, uint32_t communicates,
                       struct overhead *o)
{
    char name[32];

    if (p->kernels != KERNELS_DPX)
        return 0;
    add(o, OVERHEAD_ALLOCATED, workspace_kernels(p, 1), "exec/kernels/kernels.h", "kernels' workspace");
    for (int g = 0; g < groups->n; g++)
        if (communicates >> g & 1) {
            group_text(&groups->group[g], name, sizeof name);
            staging(o, name, groups->group[g].ranks);
        }
    return o->by[OVERHEAD_ALLOCATED];
}

int64_t overhead_bytes(const struct plan *p, const struct plan_groups *groups, uint32_t communicates,
                       struct overhead *out)
{
    const struct cluster *c = &p->cluster;

    memset(out, 0, sizeof *out);
    if (c->is_host)
        return on_host(p, groups, communicates, out);
    /* PyTorch's backward runs in a thread of its own, which has its own cuBLAS handle. */
    if (p->kernels == KERNELS_DPX)
        add(out, OVERHEAD_ALLOCATED, workspace_device(p), "exec/cuda/kernels_cuda.h", "workspace of the kernels");
    else if (overhead_keeps_workspaces(p))
        add(out, OVERHEAD_ALLOCATED, 2 * overhead_workspace(p), SOURCE_WORKSPACE, "BLAS workspaces, 2 handles");
    else
        add(out, OVERHEAD_ALLOCATED, overhead_workspace(p), SOURCE_TRANSIENT, "BLAS workspace of one product");
    communicators(p, groups, communicates, out);
    symmetric_memory(p, out);
    graphs(p, out);
    logits(p, out);
    if (c->context == c->gpu.reserved + c->gpu.context) {
        add(out, OVERHEAD_CONTEXT, c->gpu.reserved, c->gpu.source, "reserved by the driver");
        add(out, OVERHEAD_CONTEXT, c->gpu.context, "measured elsewhere: model/memory/README.md",
            "context and loaded kernels");
    } else {
        add(out, OVERHEAD_CONTEXT, c->context, "the cluster's context_bytes", "context");
    }
    return out->by[OVERHEAD_ALLOCATED] + out->by[OVERHEAD_OUTSIDE];
}

/* ---- messages ---- */

static int64_t power_of_two(int64_t n)
{
    int64_t up = 1;

    while (up < n)
        up *= 2;
    return up;
}

/* ncclTopoGetNchannels(): two for each NVLink to the peer (25 GB/s each, Blackwell's 50), two over PCIe; over the network
 * one for each adapter of a GPU, and as many as its rate asks for.  ncclTopoComputeP2pChannels(): the fewest of any
 * peer, and fewer where a batch with all of them would not fit. */
int64_t overhead_peer_channels(const struct cluster *c, const struct mesh_lie *l)
{
    const struct gpu *g = &c->gpu;
    bool nvlink = g->link > 0 && g->sm_arch > 0, leaves = l->ranks > l->most;
    int64_t all = power_of_two(channels(g, leaves)), links = (int64_t)(g->link / (g->sm_arch >= 100 ? 50e9 : 25e9));
    int64_t local = nvlink ? 2 * (links > 1 ? links : 1) : 2;

    if (!leaves)
        return power_of_two(local) < all ? power_of_two(local) : all;
    int64_t each = c->nics > c->gpus_per_node ? c->nics / c->gpus_per_node : 1;
    int64_t asked = c->nics > 0 ? (int64_t)(c->inter / c->nics * (double)each / NCCL_NET_RATE + 1 - 1e-9) : 2;
    int64_t n = power_of_two(asked > each ? asked : each);
    while (n > 1 && n * ceil_div(l->ranks, NCCL_BATCH) > all)
        n /= 2;
    return l->most > 1 && power_of_two(local) < n ? power_of_two(local) : n;
}

/* What a rank does with a peer. */
struct partner { int group, peer; bool sends, receives; };
enum { PARTNERS = 16 };

/* Partners of the messages among all entries; returns how many.  `rings`: bit g, group g has collectives, too. */
static int partners_of(const struct schedules *s, struct partner of[PARTNERS], uint32_t *rings)
{
    int n = 0;

    *rings = 0;
    for (int i = 0; i < s->nops; i++) {
        const struct op *o = &s->ops[i];
        int k = 0;
        if (o->kind != OP_COLL)
            continue;
        if (!coll_is_message((enum coll_op)o->u.coll.op)) {
            *rings |= 1u << o->u.coll.group;
            continue;
        }
        while (k < n && !(of[k].group == o->u.coll.group && of[k].peer == o->u.coll.peer))
            k++;
        assert(k < PARTNERS);
        if (k == n)
            of[n++] = (struct partner){ .group = o->u.coll.group, .peer = o->u.coll.peer };
        of[k].sends |= o->u.coll.op == COLL_SEND;
        of[k].receives |= o->u.coll.op == COLL_RECV;
    }
    return n;
}

/* A peer on the node: a buffer for each channel to receive into, and a header to send by.  Those beyond share. */
static void messages(const struct plan *p, const struct schedules *s, const struct partner *of, int n, int group,
                     struct overhead *o)
{
    struct mesh_lie l = plan_groups_slowest(p, &s->groups, group);
    int64_t each = overhead_peer_channels(&p->cluster, &l), per_node = p->cluster.gpus_per_node, bytes = 0, peers = 0;
    bool sends = false, receives = false;
    char name[64];

    for (int k = 0; k < n; k++) {
        if (of[k].group != group)
            continue;
        int64_t peer = mesh_member(&s->groups.group[group].of, s->rank, of[k].peer);
        peers++;
        if (peer / per_node == s->rank / per_node) {
            bytes += each * ((of[k].receives ? receiver(&p->cluster) : 0) +
                             (of[k].sends ? NCCL_HEADER : 0));
        } else {
            sends |= of[k].sends;
            receives |= of[k].receives;
        }
    }
    bytes += (sends + receives) * power_of_two(channels(&p->cluster.gpu, true)) * NCCL_SHARED;
    snprintf(name, sizeof name, "NCCL messages, %s, %d peer%s", s->groups.group[group].name, (int)peers,
             peers == 1 ? "" : "s");
    add(o, OVERHEAD_OUTSIDE, peers ? bytes : 0, SOURCE_MESSAGES, name);
}

int64_t overhead_of(const struct plan *p, const struct schedules *s, struct overhead *out)
{
    struct partner of[PARTNERS];
    uint32_t rings;
    int n;

    if (p->parallel.pipeline < 2 || p->cluster.is_host)
        return overhead_bytes(p, &s->groups, s->communicates, out);
    n = partners_of(s, of, &rings);
    overhead_bytes(p, &s->groups, rings, out);
    for (int g = 0; g < s->groups.n; g++)
        messages(p, s, of, n, g, out);
    return out->by[OVERHEAD_ALLOCATED] + out->by[OVERHEAD_OUTSIDE];
}
