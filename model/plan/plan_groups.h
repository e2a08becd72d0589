/* plan_groups.h -- the process groups of a plan, on its mesh.
 *
 * A rank has five digits, from slow to fast: its stage (pipe), replica, shard, context, tensor: torchtitan's order
 * (distributed/parallel_dims.py).  Ranks that share one copy of the states, FSDP's group, vary by shard and
 * context; a replica group has the ranks that hold the same shard; a reshard group is a run inside a shard group
 * (PyTorch's init_device_mesh() and DeepSpeed's groups.py place ranks the same way).
 * Schedules carry the table; ledger, clock, overheads and communicators read it. */
#ifndef DPX_PLAN_GROUPS_H
#define DPX_PLAN_GROUPS_H

#include "model/cluster/mesh.h"
#include "model/plan/plan.h"

/* The purpose of a group, by which lowerings ask for it; all other code reads the table.
 * GROUP_DATA: the ranks that have the same tensors, over which gradients are averaged; GROUP_ROOT_RESHARD: FSDP2's root,
 * where it reshards to another number of ranks than its units; GROUP_SECONDARY: ranks that keep a second copy of the parameters
 * together, DeepSpeed's hpZ; GROUP_NODE and GROUP_ACROSS: the ranks of a node, and those with equal places on the nodes, of its qgZ;
 * GROUP_TIED: the pipeline's first and last rank, where each has the embedding; GROUP_MODEL, GROUP_WORLD: Megatron-LM's ranks that
 * compute one copy of the model together, and all of them, where neither is another group; GROUP_STAGE: those of a stage of its pipeline, over
 * which the largest numbers of 8-bit floats are reduced (get_amax_reduction_group()), and the tokens of experts counted; GROUP_CONTEXT_A2A, GROUP_CONTEXT_P2P: of its
 * hierarchical context parallelism the ranks that exchange heads, and those that pass keys on; GROUP_EXPERT: ranks that share out the
 * experts of a block; GROUP_EXPERT_DATA: those that have the same of them, over which their gradients are reduced;
 * GROUP_EXPERT_TENSOR: both the former and the tensor-parallel ranks, where these cut experts; GROUP_INSTANCE: of several instances of
 * Megatron-LM's distributed optimizer the ranks of one, with all that compute its copies. */
enum group { GROUP_DATA, GROUP_SHARD, GROUP_REPLICA, GROUP_RESHARD, GROUP_ROOT_RESHARD, GROUP_SECONDARY, GROUP_NODE, GROUP_ACROSS, GROUP_TENSOR,
             GROUP_CONTEXT, GROUP_PIPE, GROUP_TIED, GROUP_MODEL, GROUP_WORLD, GROUP_STAGE, GROUP_CONTEXT_A2A, GROUP_CONTEXT_P2P,
             GROUP_EXPERT, GROUP_EXPERT_DATA, GROUP_EXPERT_TENSOR, GROUP_INSTANCE, NGROUP };

/* Which ranks form an instance, in terms of the mesh. */
struct group_rule {
    unsigned axes;              /* MESH_AXIS bits: those that vary within it */
    int64_t  run;               /* of those, runs of so many ranks (mesh_inner); 0: all */
    int64_t  over;              /* of those, the ranks at equal places of runs of so many (mesh_outer); 0: all */
    int      nplaces;           /* of those, the ranks at these places (mesh_some); 0: all */
    int64_t  place[MESH_PLACES];
};

struct plan_group {
    enum group        is;
    const char       *name;     /* in JSON, databases and reports; static */
    int64_t           ranks;    /* of an instance */
    struct mesh_group of;
};

/* The axes over which FSDP shards: context-parallel ranks have the same tensors. */
enum { PLAN_SHARDED = MESH_AXIS(AXIS_SHARD) | MESH_AXIS(AXIS_CONTEXT) };

/* The groups that a plan's framework makes.  An entry's `u.coll.group` is an index of `group`. */
enum { PLAN_GROUPS = 21 };
struct plan_groups {
    int               n;
    struct plan_group group[PLAN_GROUPS];
};

/* The axes of the plan's ranks; those that it does not cut along have size 1. */
struct mesh plan_mesh(const struct plan *p);

/* Which of the plan_batch_ranks() a rank is: ranks that share it take the same samples. */
int64_t plan_batch_rank(const struct plan *p, int64_t rank);

/* The table of a plan; GROUP_DATA is the first, named "world" where it is all ranks. */
void plan_groups(const struct plan *p, struct plan_groups *out);

/* The axes of the ranks that a block's experts are shared out over, run by run of parallel.expert (MESH_AXIS bits). */
unsigned plan_expert_axes(const struct plan *p);

/* Appends a group of a mesh to a table, for schedules written by hand; returns its index. */
int plan_groups_add(struct plan_groups *groups, const struct mesh *m, enum group is, struct group_rule rule);

/* Index of the group that is for this; -1: the plan has none. */
int plan_groups_find(const struct plan_groups *groups, enum group is);

/* How the slowest instance of group[g] lies on the plan's nodes: what a synchronous step waits for. */
struct mesh_lie plan_groups_slowest(const struct plan *p, const struct plan_groups *groups, int g);

/* Appends the group of a shard and that of its replicas, where there are such. */
void plan_groups_hybrid(const struct mesh *m, bool shards, bool replicas, struct plan_groups *out);

#endif
