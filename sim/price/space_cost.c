/* space_cost.c -- prices of copies, host threads and files; constants with their sources. */
#include "sim/price/space_cost.h"

#include <string.h>

#include "base/fail.h"

/* PCIe as copied from pinned memory: 55.4 of 63 GB/s (H200, nvbandwidth), 26.4 of 31 (A100, napkin-math). */
#define PCIE 0.87
/* Pageable memory goes through the driver's staging buffer, in half the time at best: "about half", and no measurement
 * was found. */
#define PAGEABLE 2
/* Of the DRAM's bandwidth, what the host's threads reach: DeepSpeed's CPU Adam does 8e9 parameters in 0.769 s on GH200,
 * 28 bytes each, where Grace has 512 GB/s: 291 of them. */
#define DRAM 0.57
/* The CPU's AdamW reads p, g, m, v and writes p, m, v, all fp32. */
#define ADAMW_BYTES 28

bool space_cost_over_link(const struct plan *p, const struct schedules *s, const struct op *o)
{
    enum space from, to;

    return !p->cluster.is_host && sched_crosses(s, o, &from, &to) && (from == SPACE_DEVICE || to == SPACE_DEVICE);
}

static bool is_file(const struct op *o)
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

static void over_link(const struct plan *p, const struct schedules *s, const struct op *o, struct cost *out)
{
    enum space from, to;
    double t = copied(o) / (p->cluster.gpu.pcie * PCIE);

    sched_crosses(s, o, &from, &to);
    if (from == SPACE_HOST || to == SPACE_HOST)
        *out = (struct cost){ PAGEABLE * t, t, 2 * PAGEABLE * t, BASIS_DATASHEET, false, 0 };
    else
        *out = (struct cost){ t, t / 1.2, t * 1.5, BASIS_PUBLISHED, false, 0 };
}

/* Rates of disks and DRAM are datasheets', and the ranks' effect on each other is not known: half to twice. */
static void of_node(double bytes, double rate, const struct plan *p, struct cost *out)
{
    double t = bytes * (double)p->cluster.gpus_per_node / rate;

    *out = (struct cost){ t, t / 2, 2 * t, BASIS_DATASHEET, false, 0 };
}

bool space_cost(const struct plan *p, const struct schedules *s, const struct op *o, struct cost *out)
{
    const struct cluster_node *n = &p->cluster.node;

    if (is_file(o))
        of_node(copied(o), o->stream == STREAM_DISK_READ ? n->disk_read : n->disk_write, p, out);
    else if (is_host_work(p, o))
        of_node(o->kind == OP_OPTIMIZER ? ADAMW_BYTES * (double)o->u.optimizer.elems :
                (double)(o->u.copy.reads + o->u.copy.writes), DRAM * n->dram, p, out);
    else if (p->cluster.gpu.pcie > 0 && space_cost_over_link(p, s, o))
        over_link(p, s, o, out);
    else
        return false;
    return true;
}

static int needs(const struct plan *p, double rate, const char *what, const char *key)
{
    if (rate > 0)
        return 0;
    return fail("cluster '%s': %s is not known: give \"%s in a cluster file", p->cluster.name, what, key);
}

int space_cost_known(const struct plan *p, const struct schedules *s, enum sched_id id)
{
    const struct cluster_node *n = &p->cluster.node;

    for (int i = s->begin[id]; i < s->end[id] && s->spaces; i++) {
        const struct op *o = &s->ops[i];
        if (is_file(o) && o->stream == STREAM_DISK_READ &&
            needs(p, n->disk_read, "how fast a node's disks are read", "node\": {\"disk_read_gb_per_s\": ...}") < 0)
            return -1;
        if (is_file(o) && o->stream == STREAM_DISK_WRITE &&
            needs(p, n->disk_write, "how fast a node's disks are written", "node\": {\"disk_write_gb_per_s\": ...}") < 0)
            return -1;
        if (is_host_work(p, o) &&
            needs(p, n->dram, "the bandwidth of a node's host memory", "node\": {\"dram_gb_per_s\": ...}") < 0)
            return -1;
        if (space_cost_over_link(p, s, o) &&
            needs(p, p->cluster.gpu.pcie, "the GPU's link to host memory", "gpu\": {\"pcie_gb_per_s\": ...}") < 0)
            return -1;
    }
    return 0;
}
