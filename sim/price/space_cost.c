/* space_cost.c -- prices of copies, host threads and files; constants with their sources. */
#include "sim/price/space_cost.h"

#include <string.h>

#include "base/fail.h"
#include "model/schedule/measured.h"

/* PCIe as copied from pinned memory: 55.4 of 63 GB/s (H200, nvbandwidth), 26.4 of 31 (A100, napkin-math). */
#define PCIE 0.87
/* Pageable memory goes through the driver's staging buffer: 5-6 GB/s on DGX-1 where pinned memory has 11-12
 * (rapidsai/dask-cuda#98).  The staging buffer is taken to stay in the CPU's cache. */
#define PAGEABLE 2
/* Of the DRAM's bandwidth, the most that readers and writers reach together: four GPUs of two Grace copy 740 of 1024
 * GB/s to host memory at once, and half as much each way in both directions (nvbandwidth all_to_host_memcpy_ce on a
 * GB300 tray, Oracle's GPU guide); GraceAdam (SuperOffload) streams 368 of 512. */
#define DRAM 0.72
/* What of it optimizers on the host's threads reach: DeepSpeed's CPU Adam does 8e9 parameters in 0.769 s on GH200, 28
 * bytes each, where Grace has 512 GB/s: 291 of them; a native AdamW 171e9 in 12.8 s on 8 H200, 374 of 614
 * (PrimeIntellect-ai/prime-rl#3248). */
#define DRAM_THREADS 0.57
/* Elements/s of AdamW on one such thread: 536.9e6 in 1.93 s on a node of H100, PyTorch's loop over tensors of 4 MiB that
 * stay in its cache (ISEEKYAN/Megatron-LM#188).  A vectorised single pass of 28 bytes is taken to be as fast; copies and
 * casts, by bytes, too. */
#define THREAD       278e6
#define THREAD_BYTES (28 * THREAD)
/* A disk of this machine without a description: a SATA drive's 6 Gbit/s with 8b/10b (Serial ATA revision 3.0). */
#define HOST_DISK 0.6e9

bool space_cost_over_link(const struct plan *p, const struct schedules *s, const struct op *o)
{
    enum space from, to;

    return !p->cluster.is_host && sched_crosses(s, o, &from, &to) && (from == SPACE_DEVICE || to == SPACE_DEVICE);
}

bool space_cost_is_file(const struct op *o)
{
    return o->kind == OP_COPY && (o->stream == STREAM_DISK_READ || o->stream == STREAM_DISK_WRITE);
}

static bool is_host_work(const struct plan *p, const struct op *o)
{
    return o->stream == STREAM_HOST && !p->cluster.is_host && (o->kind == OP_COPY || o->kind == OP_OPTIMIZER);
}

static double copied(const struct op *o)
{
    return (double)(o->u.copy.reads > o->u.copy.writes ? o->u.copy.reads : o->u.copy.writes);
}

static double ranks(const struct plan *p) { return (double)p->cluster.gpus_per_node; }

static bool is_staged(const struct schedules *s, const struct op *o)
{
    enum space from, to;

    return sched_crosses(s, o, &from, &to) && (from == SPACE_HOST || to == SPACE_HOST);
}

/* Ranks' host memory lies on their own sockets: a rank alone on two has half the DRAM.  DeepSpeed's CPU Adam of a rank
 * alone on DGX-2 takes 6.5 s for 1e10 elements, unscaling and casts included, 42 bytes each: 65 of 256 GB/s (its
 * ZeRO-Offload tutorial's log). */
static double dram(const struct plan *p)
{
    const struct cluster_node *n = &p->cluster.node;

    return n->sockets > ranks(p) ? n->dram * ranks(p) / n->sockets : n->dram;
}

/* Of a GPU's link to host memory, what is this GPU's while the node's others copy as well. */
double space_cost_link_rate(const struct plan *p)
{
    const struct cluster *c = &p->cluster;
    double share = c->node.links > 0 ? (double)c->node.links / ranks(p) : 1;

    return PCIE * c->gpu.pcie * (share < 1 ? share : 1);
}

/* Bytes that the entry of one rank reads and writes in DRAM. */
static double in_dram(const struct plan *p, const struct op *o)
{
    if (o->kind == OP_OPTIMIZER)
        return (double)o->u.optimizer.bytes * (double)o->u.optimizer.elems;
    return is_host_work(p, o) ? (double)(o->u.copy.reads + o->u.copy.writes) : copied(o);
}

/* Rates of DRAM and of its threads are of other machines: half to twice. */
static struct cost half_to_twice(double t) { return (struct cost){ t, t / 2, 2 * t, BASIS_DATASHEET, false, 0 }; }

/* The ranks divide the node's DRAM, and its cores unless the plan says how many threads each has. */
static void by_threads(const struct plan *p, const struct op *o, struct cost *out)
{
    double threads = p->host_threads > 0 ? (double)p->host_threads : p->cluster.node.cores / ranks(p);
    double alone = o->kind == OP_OPTIMIZER ? (double)o->u.optimizer.elems / THREAD : in_dram(p, o) / THREAD_BYTES;
    double t = in_dram(p, o) * ranks(p) / (DRAM_THREADS * dram(p));

    *out = half_to_twice(threads > 0 && alone / threads > t ? alone / threads : t);
}

/* Through the driver's own pinned buffer, of what takes t from pinned memory. */
static struct cost staged(double t) { return (struct cost){ PAGEABLE * t, t, 2 * PAGEABLE * t, BASIS_PUBLISHED, false, 0 }; }

static struct cost pinned(double t) { return (struct cost){ t, t / 1.2, t * 1.5, BASIS_PUBLISHED, false, 0 }; }

static void over_link(const struct plan *p, const struct schedules *s, const struct op *o, struct cost *out)
{
    double t = copied(o) / space_cost_link_rate(p);

    *out = is_staged(s, o) ? staged(t) : pinned(t);
}

/* Pages are found and zeroed by the one thread that copies: Module.to("cpu") went at 2.8 GB/s on H200 (sgl-project/sglang pull 32032), where staged copies
 * have 27.7.  "Roughly at 5 GB/s for host memory allocation" on DGX-1 (rapidsai/dask-cuda pull 98). */
#define FIRST_TOUCH 3.1e9

struct cost space_cost_touched(int64_t bytes)
{
    struct cost c = half_to_twice((double)bytes / FIRST_TOUCH);

    c.basis = BASIS_PUBLISHED;
    return c;
}

struct cost space_cost_pinned(const struct plan *p, int64_t bytes) { return pinned((double)bytes / space_cost_link_rate(p)); }

struct cost space_cost_moved(const struct plan *p, int64_t bytes) { return staged((double)bytes / space_cost_link_rate(p)); }

/* Files, and copies of all GPUs together, are no faster than DRAM. */
static void within_dram(const struct plan *p, const struct op *o, struct cost *out)
{
    double least = p->cluster.node.dram > 0 ? in_dram(p, o) * ranks(p) / (DRAM * dram(p)) : 0;

    if (least > out->s)
        *out = half_to_twice(least);
}

static double disk_rate(const struct plan *p, const struct op *o)
{
    const struct cluster_node *n = &p->cluster.node;
    double rate = o->stream == STREAM_DISK_READ ? n->disk_read : n->disk_write;

    return rate > 0 || !p->cluster.is_host ? rate : HOST_DISK;
}

bool space_cost(const struct plan *p, const struct schedules *s, const struct op *o, struct cost *out)
{
    if (is_host_work(p, o)) {
        by_threads(p, o, out);
        return true;
    }
    if (space_cost_is_file(o))
        *out = half_to_twice(copied(o) * ranks(p) / disk_rate(p, o));
    else if (p->cluster.gpu.pcie > 0 && space_cost_over_link(p, s, o))
        over_link(p, s, o, out);
    else
        return false;
    within_dram(p, o, out);
    return true;
}

struct shares space_cost_shares(const struct plan *p, const struct schedules *s, const struct op *o, double seconds)
{
    struct shares of = { { 0 } };
    bool link = space_cost_over_link(p, s, o);
    enum space from, to;

    if (p->cluster.is_host || !(seconds > 0) || !(link || space_cost_is_file(o) || is_host_work(p, o)))
        return of;
    if (link && p->cluster.gpu.pcie > 0) {
        sched_crosses(s, o, &from, &to);
        of.of[from == SPACE_DEVICE ? SHARED_DOWN : SHARED_UP] = copied(o) / space_cost_link_rate(p) / seconds;
    }
    if (p->cluster.node.dram > 0)
        of.of[SHARED_DRAM] = in_dram(p, o) * ranks(p) / (DRAM * dram(p)) / seconds;
    for (int i = 0; i < NSHARED; i++)       /* a measured time may be shorter than the datasheet's */
        of.of[i] = of.of[i] < 1 ? of.of[i] : 1;
    return of;
}

/* What was measured here is priced by that: of the executor's own kernels alone (op_cost.c). */
static bool is_measured(const struct plan *p, const struct op *o)
{
    const struct measured_device *m = p->kernels == KERNELS_DPX ? p->cluster.measured : NULL;
    enum measured_pass pass = o->kind == OP_OPTIMIZER            ? MP_HOST_ADAMW
                              : o->stream == STREAM_DISK_READ ? MP_DISK_READ
                                                              : MP_DISK_WRITE;

    for (int i = 0; m && i < m->nbytes; i++)
        if (m->bytes[i].pass == pass)
            return true;
    return false;
}

static int needs(const struct plan *p, double rate, const char *what, const char *key, const char *set)
{
    if (rate > 0)
        return 0;
    return fail("cluster '%s': %s is not known: give \"%s in a cluster file (eval, sweep: --set cluster.%s)", p->cluster.name, what, key, set);
}

int space_cost_known(const struct plan *p, const struct schedules *s, enum sched_id id)
{
    const struct cluster_node *n = &p->cluster.node;

    for (int i = s->begin[id]; i < s->end[id] && s->spaces; i++) {
        const struct op *o = &s->ops[i];
        bool file = space_cost_is_file(o) && !is_measured(p, o) && !p->cluster.is_host;
        if (file && o->stream == STREAM_DISK_READ &&
            needs(p, n->disk_read, "how fast a node's disks are read", "node\": {\"disk_read_gb_per_s\": ...}", "node.disk_read_gb_per_s=N") < 0)
            return -1;
        if (file && o->stream == STREAM_DISK_WRITE &&
            needs(p, n->disk_write, "how fast a node's disks are written", "node\": {\"disk_write_gb_per_s\": ...}", "node.disk_write_gb_per_s=N") < 0)
            return -1;
        if (is_host_work(p, o) && !(o->kind == OP_OPTIMIZER && is_measured(p, o)) &&
            needs(p, n->dram, "the bandwidth of a node's host memory", "node\": {\"dram_gb_per_s\": ...}", "node.dram_gb_per_s=N") < 0)
            return -1;
        if (space_cost_over_link(p, s, o) &&
            needs(p, p->cluster.gpu.pcie, "the GPU's link to host memory", "gpu\": {\"pcie_gb_per_s\": ...}", "gpu.pcie_gb_per_s=N") < 0)
            return -1;
    }
    return 0;
}
