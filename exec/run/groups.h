/* groups.h -- a communicator for each process group that a plan's schedules use (model/plan/plan_groups.h). */
#ifndef DPX_GROUPS_H
#define DPX_GROUPS_H

#include "exec/comm/comm.h"
#include "exec/device/device.h"

struct groups {
    struct comm *comm[PLAN_GROUPS];          /* by group; NULL: no entry uses it */
    void        *staging[PLAN_GROUPS];
};

/* The ranks of the world that are in `rank`'s instance of groups.group[g], in group order; returns how
 * many, 0 where it is in none.  `out` has room for world_size. */
int groups_members(const struct schedules *s, int g, int rank, int *out);

/* The library that carries the collectives.  null: none, they move nothing.  mpi: Open MPI; buffers of an
 * asynchronous device pass through the host.  nccl: NCCL, on a CUDA device. */
enum groups_kind { GROUPS_NULL, GROUPS_MPI, GROUPS_NCCL };

struct groups_args {
    enum groups_kind kind;
    struct device *device;              /* where the buffers are; it outlives the groups */
    const atomic_bool *stop;            /* comm_args */
    const atomic_int  *busy;            /* comm_args */
};

/* Every rank of the world must call it.  0, or -1 reported with nothing to close. */
int  groups_open(const struct schedules *s, const struct groups_args *a, struct groups *out);
void groups_close(struct groups *g);

/* Bytes of the host's staging of all groups, where MPI carries them. */
int64_t groups_staging(const struct schedules *s);

#endif
