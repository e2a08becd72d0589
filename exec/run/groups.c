/* groups.c -- communicators made for each group of the table, in one order on all ranks. */
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

/* The lowest rank of each group makes an id.  Groups of one kind are disjoint, so one exchange of the world
 * distributes all ids; if one rank has none, no rank begins to wait in NCCL for the others. */
static int group_id(int rank, int world, int lowest, uint8_t id[COMM_NCCL_ID])
{
    struct told mine = { .bad = false }, *all = room_new((size_t)world, sizeof *all);
    int rc = 0;

    if (rank == lowest)
        mine.bad = comm_nccl_id(mine.id) < 0;
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        rc = fail("MPI_Allgather failed while ranks exchanged NCCL's ids");
    for (int r = 0; r < world && rc == 0; r++)
        if (all[r].bad)
            rc = r == rank ? -1 : fail("rank %d has no id for its NCCL group", r);
    if (rc == 0)
        memcpy(id, all[lowest].id, COMM_NCCL_ID);
    free(all);
    return rc;
}

/* The sender makes the id of a pair. */
static int pair_id(bool sends, int peer, struct told *told)
{
    int rc = MPI_SUCCESS;

    if (sends)
        told->bad = comm_nccl_id(told->id) < 0;
    if (sends)
        rc = MPI_Send(told, sizeof *told, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    else
        rc = MPI_Recv(told, sizeof *told, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS)
        return fail("MPI failed while two ranks exchanged NCCL's id for their messages");
    return told->bad ? fail("rank %d has no id for NCCL", peer) : 0;
}

/* The ranks of group g that this one sends to (which[i]) and receives from (which[n + i]); false: none. */
static bool messages_of(const struct schedules *s, int g, int n, bool *which)
{
    bool any = false;

    for (int i = 0; i < s->nops; i++) {
        const struct op *o = &s->ops[i];
        if (o->kind != OP_COLL || o->u.coll.group != g || !coll_is_message((enum coll_op)o->u.coll.op))
            continue;
        which[(o->u.coll.op == COLL_RECV ? n : 0) + o->u.coll.peer] = true;
        any = true;
    }
    return any;
}

/* Opens pairs in one order on all ranks, which excludes cycles of waiting ranks. */
static int open_pairs(const struct groups_args *a, const struct comm_args *c, const bool *which, struct comm *pairs)
{
    int me = pairs->rank, n = c->nranks;

    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) {
            bool sends = from == me, mine = (sends && which[to]) || (to == me && which[n + from]);
            int peer = sends ? to : from, ranks[2] = { c->ranks[from], c->ranks[to] };
            struct comm_args pair = { .ranks = ranks, .nranks = 2, .stop = c->stop, .name = c->name };
            struct told told = { .bad = false };
            if (!mine || from == to)
                continue;
            if (pair_id(sends, c->ranks[peer], &told) < 0)
                return -1;
            struct comm *one = comm_nccl_open(&pair, a->device, told.id);
            if (!one)
                return -1;
            comm_nccl_pair(pairs, sends, peer, one);
        }
    return 0;
}

static struct comm *open_nccl(const struct schedules *s, int g, const struct groups_args *a,
                              const struct comm_args *c)
{
    uint8_t id[COMM_NCCL_ID];
    struct comm *comm;

    if (group_id((int)s->rank, (int)s->world_size, c->ranks[0], id) < 0)
        return NULL;
    comm = comm_nccl_open(c, a->device, id);
    bool *which = room_new(2 * (size_t)c->nranks, sizeof *which);
    if (comm && messages_of(s, g, c->nranks, which)) {
        comm = comm_nccl_pairs(comm);
        if (open_pairs(a, c, which, comm) < 0) {
            comm_close(comm);
            comm = NULL;
        }
    }
    free(which);
    return comm;
}
#else
static struct comm *open_nccl(const struct schedules *s, int g, const struct groups_args *a,
                              const struct comm_args *c)
{
    (void)s, (void)g, (void)a, (void)c;
    fail("this dpxrun was built without NCCL");
    return NULL;
}
#endif

static int open_one(const struct schedules *s, int g, const struct groups_args *a, int *ranks,
                    struct groups *out)
{
    int n = groups_members(s, g, (int)s->rank, ranks);
    struct comm_args c = { .ranks = ranks, .nranks = n, .stop = a->stop, .busy = a->busy, .name = s->groups.group[g].name };

    switch (a->kind) {
    case GROUPS_NULL: out->comm[g] = open_null((int)s->rank, ranks, n); break;
    case GROUPS_MPI:  out->comm[g] = open_mpi(a, &c, &out->staging[g]); break;
    case GROUPS_NCCL: out->comm[g] = open_nccl(s, g, a, &c); break;
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
