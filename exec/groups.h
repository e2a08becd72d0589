/* groups.h -- the process groups of a plan: which ranks, and a communicator for each.
 *
 * A shard group is a run of neighbours; a replica group has one rank of each shard group, those at
 * the same place in theirs; a reshard group is a run of neighbours inside a shard group.  World
 * is all.  (PyTorch's init_device_mesh and DeepSpeed's groups.py put ranks the same way.) */
#ifndef DPX_GROUPS_H
#define DPX_GROUPS_H

#include "exec/comm.h"

struct groups {
    struct comm *comm[NGROUP];          /* NULL: the plan has no such group */
    void        *staging[NGROUP];
};

/* The ranks of the world that are in `rank`'s group, in group order; returns how many, 0 where the
 * plan has no such group.  `out` has room for world_size. */
int groups_members(const struct schedules *s, enum group g, int rank, int *out);

/* `null`: communicators that move nothing.  Every rank of the world must call it.  0, or -1 reported
 * with nothing to close. */
int  groups_open(const struct schedules *s, bool null, const atomic_bool *stop, struct groups *out);
void groups_close(struct groups *g);

/* Bytes of staging of all groups. */
int64_t groups_staging(const struct schedules *s);

#endif
