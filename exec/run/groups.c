#include "exec/run/groups.h"

#include <stdlib.h>
#include <string.h>

#ifdef DPX_CUDA
#include <mpi.h>

#include "base/room.h"
#include "exec/cuda/comm_nccl.h"
#endif
#include "base/fail.h"

int groups_members(const struct schedules *s, int g, int rank, int *out)
{
    const struct plan_group *of = &s->groups.group[g];
    int n = mesh_place(&of->of, rank) < 0 ? 0 : (int)of->ranks;

    for (int i = 0; i < n; i++)
        out[i] = (int)mesh_member(&of->of, rank, i);
    return n;
}

int64_t groups_staging(const struct schedules *s)
{
    int64_t bytes = 0;

    for (int g = 0; g < s->groups.n; g++)
        if (s->communicates & 1u << g)
            bytes += comm_staging((int)s->groups.group[g].ranks);
    return bytes;
}

static struct comm *open_null(int rank, const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return comm_null_open(i, n);
    fail("rank %d is not in its own group", rank);
    return NULL;
}

static struct comm *open_mpi(const struct groups_args *a, struct comm_args *c, void **staging)
{
    int64_t bytes = comm_staging(c->nranks);
    struct comm *comm;

    *staging = c->staging = malloc((size_t)bytes + 1);
    if (!*staging) {
        fail("no memory for %lld bytes of staging", (long long)bytes);
        return NULL;
    }
    memset(*staging, 0, (size_t)bytes);
    comm = comm_mpi_open(c);
    return comm && device_async(a->device) ? comm_staged_open(comm, a->device, a->stop) : comm;
}

#ifdef DPX_CUDA
struct told { uint8_t id[COMM_NCCL_ID]; bool bad; };

/* The lowest rank of each group makes an id.  Groups of one kind are disjoint, so that one exchange of the
 * world tells all; and if one rank could not, none begins to wait in NCCL for the others. */
static int group_id(int rank, int world, int lowest, uint8_t id[COMM_NCCL_ID])
{
    struct told mine = { .bad = false }, *all = room_new((size_t)world, sizeof *all);
    int rc = 0;

    if (rank == lowest)
        mine.bad = comm_nccl_id(mine.id) < 0;
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        rc = fail("MPI_Allgather failed while NCCL's ids were told");
    for (int r = 0; r < world && rc == 0; r++)
        if (all[r].bad)
            rc = r == rank ? -1 : fail("rank %d has no id for its NCCL group", r);
    if (rc == 0)
        memcpy(id, all[lowest].id, COMM_NCCL_ID);
    free(all);
    return rc;
}

static struct comm *open_nccl(const struct schedules *s, const struct groups_args *a, const struct comm_args *c)
{
    uint8_t id[COMM_NCCL_ID];

    if (group_id((int)s->rank, (int)s->world_size, c->ranks[0], id) < 0)
        return NULL;
    return comm_nccl_open(c, a->device, id);
}
#else
static struct comm *open_nccl(const struct schedules *s, const struct groups_args *a, const struct comm_args *c)
{
    (void)s, (void)a, (void)c;
    fail("this dpxrun was built without NCCL");
    return NULL;
}
#endif

static int open_one(const struct schedules *s, int g, const struct groups_args *a, int *ranks,
                    struct groups *out)
{
    int n = groups_members(s, g, (int)s->rank, ranks);
    struct comm_args c = { .ranks = ranks, .nranks = n, .stop = a->stop, .name = s->groups.group[g].name };

    switch (a->kind) {
    case GROUPS_NULL: out->comm[g] = open_null((int)s->rank, ranks, n); break;
    case GROUPS_MPI:  out->comm[g] = open_mpi(a, &c, &out->staging[g]); break;
    case GROUPS_NCCL: out->comm[g] = open_nccl(s, a, &c); break;
    }
    return out->comm[g] ? 0 : -1;
}

int groups_open(const struct schedules *s, const struct groups_args *a, struct groups *out)
{
    int *ranks = malloc((size_t)(s->world_size + 1) * sizeof *ranks);
    int rc = ranks ? 0 : fail("out of memory for process groups");

    memset(out, 0, sizeof *out);
    for (int g = 0; g < s->groups.n && rc == 0; g++)
        if (s->communicates & 1u << g)
            rc = open_one(s, g, a, ranks, out);
    free(ranks);
    if (rc < 0)
        groups_close(out);
    return rc;
}

void groups_close(struct groups *g)
{
    for (int i = 0; i < PLAN_GROUPS; i++) {
        comm_close(g->comm[i]);
        free(g->staging[i]);
    }
    memset(g, 0, sizeof *g);
}
