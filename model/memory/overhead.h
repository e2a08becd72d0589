/* overhead.h -- what a rank holds that no schedule allocates.
 *
 *     struct overhead o;
 *     int64_t extra = overhead_bytes(&plan, &schedules.groups, schedules.communicates, &o);
 *     for (int i = 0; i < o.n; i++)
 *         ... o.item[i].name, o.item[i].bytes, o.item[i].source ...
 *
 * Three kinds, kept apart because they are seen by different meters:
 * - allocated: by the framework's own allocator (cuBLAS workspaces), so counted by
 *   torch.cuda.max_memory_allocated;
 * - outside: by libraries that call the driver themselves (NCCL), so counted by
 *   nvidia-smi only, but taken from the same memory;
 * - context: already subtracted in cluster_available(); listed to explain it.
 *
 * Counted from constants of the libraries' sources for an assumed number of channels;
 * README.md has the derivation.  Where it matters, NCCL_DEBUG=INFO knows better. */
#ifndef DPX_OVERHEAD_H
#define DPX_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "model/plan/plan_groups.h"
#include "model/schedule/schedule.h"

enum overhead_kind { OVERHEAD_ALLOCATED, OVERHEAD_OUTSIDE, OVERHEAD_CONTEXT, NOVERHEAD };

struct overhead_item {
    char               name[64];    /* "NCCL buffers, world of 32" */
    int64_t            bytes;
    enum overhead_kind kind;
    const char        *source;      /* static */
};

/* A communicator and its messages a group, workspaces, symmetric memory, CUDA graphs' inputs, and two parts of the context. */
enum { OVERHEAD_ITEMS = 2 * PLAN_GROUPS + 6 };

struct overhead {
    struct overhead_item item[OVERHEAD_ITEMS];
    int                  n;
    int64_t              by[NOVERHEAD];
};

/* Fills `out` and returns by[OVERHEAD_ALLOCATED] + by[OVERHEAD_OUTSIDE]: what must fit
 * into cluster_available() beside the schedule's own bytes.  Bit g of `communicates`: the schedules have a
 * collective of groups->group[g] (struct schedules). */
int64_t overhead_bytes(const struct plan *p, const struct plan_groups *groups, uint32_t communicates,
                       struct overhead *out);

/* The same for a rank's schedules, its sends and receives included (a pipeline's): a group with nothing but messages has
 * no rings, and each peer of a message its own buffers. */
int64_t overhead_of(const struct plan *p, const struct schedules *s, struct overhead *out);

/* Channels that NCCL gives to each peer of messages in a group that lies so. */
int64_t overhead_peer_channels(const struct cluster *c, const struct mesh_lie *l);

/* Device memory NCCL holds for one communicator of `ranks` ranks, `local` of them in each
 * node; 0 for a communicator of one. */
int64_t overhead_nccl(const struct cluster *c, int64_t ranks, int64_t local);

/* What the driver counts of a process of dpx's own beside what dpx allocates: its CUDA context with kernels, and with `nccl`
 * what NCCL takes of itself where a bit of `communicates` is set, buffers between ranks (overhead_nccl()) not included.
 * -1: not known; measured on Hopper alone. */
int64_t overhead_own_process(const struct gpu *g, uint32_t communicates, bool nccl);

/* Workspace of one cuBLAS (hipBLAS) handle in the plan's PyTorch: CUBLAS_WORKSPACE_CONFIG's, or the GPU's own. */
int64_t overhead_workspace(const struct plan *p);
/* Does the plan's PyTorch keep it?  From 2.15 on it is allocated around every product. */
bool overhead_keeps_workspaces(const struct plan *p);

#endif
