/* comm_mpi.c -- the collectives over MPI: a communicator of its own for each group, so that
 * groups cannot see each other's messages, and the algorithm that the call asks for. */
#include "exec/comm/comm_internal.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static algorithm_fn *const algorithms[NCOLL_ALGO][NCOLL] = {
    [ALGO_RING] = {
        [COLL_ALL_REDUCE] = ring_all_reduce,     [COLL_ALL_GATHER] = ring_all_gather,
        [COLL_REDUCE_SCATTER] = ring_reduce_scatter,
        [COLL_BROADCAST] = ring_broadcast,       [COLL_REDUCE] = ring_reduce,
        [COLL_SCATTER] = server_scatter,         [COLL_GATHER] = server_gather,
        [COLL_ALL_TO_ALL] = exchange_in_rounds,
    },
    [ALGO_HALVING] = {
        [COLL_ALL_REDUCE] = halving_all_reduce,  [COLL_ALL_GATHER] = halving_all_gather,
        [COLL_REDUCE_SCATTER] = halving_reduce_scatter,
        [COLL_BROADCAST] = halving_broadcast,    [COLL_REDUCE] = halving_reduce,
        [COLL_SCATTER] = halving_scatter,        [COLL_GATHER] = halving_gather,
        [COLL_ALL_TO_ALL] = exchange_in_pairs,
    },
    [ALGO_DIRECT] = {
        [COLL_ALL_REDUCE] = direct_all_reduce,   [COLL_ALL_GATHER] = direct_all_gather,
        [COLL_REDUCE_SCATTER] = direct_reduce_scatter,
        [COLL_BROADCAST] = server_broadcast,     [COLL_REDUCE] = server_reduce,
        [COLL_SCATTER] = server_scatter,         [COLL_GATHER] = server_gather,
        [COLL_ALL_TO_ALL] = exchange_at_once,
    },
    [ALGO_SERVER] = {
        [COLL_ALL_REDUCE] = server_all_reduce,   [COLL_ALL_GATHER] = server_all_gather,
        [COLL_REDUCE_SCATTER] = server_reduce_scatter,
        [COLL_BROADCAST] = server_broadcast,     [COLL_REDUCE] = server_reduce,
        [COLL_SCATTER] = server_scatter,         [COLL_GATHER] = server_gather,
    },
};

/* A group of one: what it sends is what it receives. */
static void alone(const struct flow *f)
{
    struct part all = { 0, f->a->elems };
    bool scaled = comm_reduces(f->a->op) && f->a->red == RED_PREMUL_SUM;

    if (f->a->op != COLL_BARRIER)
        flow_copy(f, f->a->recv, scaled ? flow_contribution(f, all, f->a->recv) : f->a->send, all.elems);
}

static int run(struct mpi_comm *m, struct flow *f)
{
    enum coll_algo algo = comm_algo(f->a);

    if (coll_is_message(f->a->op))
        return message_call(m, f->a);
    if (f->n == 1) {
        alone(f);
        return 0;
    }
    if (algo == ALGO_LIBRARY)
        return library_call(m, f->a);
    if (f->a->op == COLL_BARRIER)
        return flow_barrier(f);
    return algorithms[algo][f->a->op](f);
}

static int mpi_call(struct comm *c, const struct coll_call *a)
{
    struct mpi_comm *m = c->self;
    struct flow f = { .m = m, .a = a, .rank = c->rank, .n = c->nranks, .size = dtype_bytes(a->dtype) };

    if (m->broken && flow_stopped(m))
        return -1;
    if (m->broken)
        return fail("%s: an earlier collective of this group was not finished", coll_name(a->op));
    if (run(m, &f) < 0)
        m->broken = true;
    return m->broken ? -1 : 0;
}

/* MPI_Comm_free() is collective: a group that failed cannot do it together. */
static void mpi_close(struct comm *c)
{
    struct mpi_comm *m = c->self;

    library_close(m);
    if (m->comm != MPI_COMM_NULL && !m->broken)
        (void)MPI_OK(MPI_Comm_free(&m->comm));
    free(m->requests);
    free(m->x);
    free(m->counts);
    free(m);
}

static const struct comm_ops mpi_ops = { .name = "mpi", .call = mpi_call, .close = mpi_close };

/* ---- opening ---- */

/* Members must agree on it, and groups that open at once in different threads differ in it. */
static int tag_of(const struct comm_args *a, const char *name)
{
    uint32_t hash = 2166136261u;                        /* FNV-1a */

    for (int i = 0; i < a->nranks; i++)
        hash = (hash ^ (uint32_t)a->ranks[i]) * 16777619u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return (int)(hash & 0x7fff);                        /* MPI_TAG_UB is at least 32767 */
}

/* The standard promises 32767. */
static int highest_tag(void)
{
    int *tags, has = 0;

    return MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tags, &has) == MPI_SUCCESS && has ? *tags : 32767;
}

static int create(struct mpi_comm *m, const struct comm_args *a, const char *name)
{
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    int rc = -1;

    if (MPI_OK(MPI_Comm_group(MPI_COMM_WORLD, &world)) < 0)
        goto out;
    if (MPI_OK(MPI_Group_incl(world, a->nranks, a->ranks, &group)) < 0)
        goto out;
    if (MPI_OK(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag_of(a, name), &m->comm)) < 0)
        goto out;
    if (MPI_OK(MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN)) < 0)
        goto out;
    if (MPI_OK(MPI_Comm_set_name(m->comm, name)) < 0)
        goto out;
    if (MPI_OK(MPI_Comm_rank(m->comm, &m->base.rank)) < 0)
        goto out;
    rc = library_open(m);
out:
    if (group != MPI_GROUP_NULL)
        MPI_Group_free(&group);
    if (world != MPI_GROUP_NULL)
        MPI_Group_free(&world);
    return rc;
}

int64_t comm_staging(int nranks)
{
    return nranks > 1 ? LANES * flow_area_bytes(COMM_PIECE, nranks) : 0;
}

static struct mpi_comm *allocate(const struct comm_args *a)
{
    struct mpi_comm *m = calloc(1, sizeof *m);
    size_t n = (size_t)a->nranks;

    if (!m)
        return NULL;
    *m = (struct mpi_comm){
        .base = { .ops = &mpi_ops, .nranks = a->nranks, .self = m },
        .comm = MPI_COMM_NULL, .tags = highest_tag(), .stop = a->stop, .busy = a->busy, .staging = a->staging,
        .piece = a->piece > 0 ? a->piece : COMM_PIECE,
        .library_most = a->library_most > 0 ? a->library_most : INT_MAX,
        .requests = malloc(LANES * 2 * n * sizeof *m->requests),
        .x = malloc(n * sizeof *m->x),
        .counts = malloc(n * sizeof *m->counts),
        .add_bf16 = MPI_OP_NULL, .max_bf16 = MPI_OP_NULL, .add_fp16 = MPI_OP_NULL, .max_fp16 = MPI_OP_NULL,
    };
    if (m->requests && m->x && m->counts)
        return m;
    mpi_close(&m->base);
    return NULL;
}

struct comm *comm_mpi_open(const struct comm_args *a)
{
    struct mpi_comm *m = allocate(a);
    char name[MPI_MAX_OBJECT_NAME];

    assert(a->nranks >= 1 && a->piece >= 0 && a->piece <= COMM_PIECE);
    if (!m) {
        fail("out of memory");
        return NULL;
    }
    snprintf(name, sizeof name, "dpx%s%s", a->name ? " " : "", a->name ? a->name : "");
    if (create(m, a, name) < 0) {
        mpi_close(&m->base);
        return NULL;
    }
    return &m->base;
}
