/* plan_groups.h -- the process groups of a plan, on its mesh.
 *
 * The data-parallel ranks lie on two axes, replica outside shard: a shard group is a run of
 * neighbours, a replica group has the ranks that hold the same shard, a reshard group is a run inside
 * a shard group (PyTorch's init_device_mesh() and DeepSpeed's groups.py place ranks the same way).
 * The schedules, the clock, the overheads and the communicators all ask here. */
#ifndef DPX_PLAN_GROUPS_H
#define DPX_PLAN_GROUPS_H

#include "model/cluster/mesh.h"
#include "model/plan/plan.h"

/* GROUP_ROOT_RESHARD: of FSDP2's root, where it reshards to another number of ranks than its units. */
enum group { GROUP_WORLD, GROUP_SHARD, GROUP_REPLICA, GROUP_RESHARD, GROUP_ROOT_RESHARD, NGROUP };

struct plan_groups {
    bool              has[NGROUP];      /* does the plan's framework make such a group? */
    struct mesh_group of[NGROUP];
};

/* A group that the plan does not have (`has`) is filled in all the same: a shard group of all, replicas
 * of one, a reshard group as the shard group. */
void plan_groups(const struct plan *p, struct plan_groups *out);

/* How the slowest instance of a group lies on the cluster's nodes: what a synchronous step waits for. */
struct mesh_lie plan_group_slowest(const struct plan *p, const struct plan_groups *groups, enum group g);

#endif
