/* comm_library.c -- Open MPI's own calls, as they are: a black box to measure.
 *
 * The blocking calls, for only they obey Open MPI's coll_tuned_*_algorithm options.  A
 * nonblocking barrier stands before each: while a rank is late the others sleep and can be
 * stopped, and only when all have come do they block.  MPI_Reduce_scatter, since
 * MPI_Reduce_scatter_block moves twice the bytes.
 *
 * The library multiplies nothing and takes no aliased buffers but MPI_IN_PLACE: where it must, a
 * reduction goes through the staging in columns.  Averages are divided after it. */
#include "exec/comm_internal.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

static MPI_Datatype type_of(enum dtype t)
{
    switch (t) {
    case DT_FP32:  return MPI_FLOAT;
    case DT_FP64:  return MPI_DOUBLE;
    case DT_BF16:  return MPI_UINT16_T;
    case DT_INT32: return MPI_INT32_T;
    case DT_INT64: return MPI_INT64_T;
    case DT_UINT8: return MPI_UINT8_T;
    case DT_FP16:
    case NDTYPE:   break;
    }
    assert(!"no collective of this dtype");
    return MPI_DATATYPE_NULL;
}

static MPI_Op op_of(const struct mpi_comm *m, const struct coll_call *a)
{
    bool max = a->red == RED_MAX;

    if (a->dtype == DT_BF16)
        return max ? m->max_bf16 : m->add_bf16;
    return max ? MPI_MAX : MPI_SUM;
}

static void add_bf16(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    reduce_add(DT_BF16, RED_SUM, inout, in, inout, 1, *len);
}

static void max_bf16(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    reduce_add(DT_BF16, RED_MAX, inout, in, inout, 1, *len);
}

int library_open(struct mpi_comm *m)
{
    if (MPI_OK(MPI_Op_create(add_bf16, 1, &m->add_bf16)) < 0)
        return -1;
    return MPI_OK(MPI_Op_create(max_bf16, 1, &m->max_bf16));
}

void library_close(struct mpi_comm *m)
{
    if (m->add_bf16 != MPI_OP_NULL)
        MPI_Op_free(&m->add_bf16);
    if (m->max_bf16 != MPI_OP_NULL)
        MPI_Op_free(&m->max_bf16);
}

/* Element i of a buffer. */
static void *at(const struct coll_call *a, const void *base, int64_t i)
{
    return (char *)(uintptr_t)base + i * dtype_bytes(a->dtype);
}

static void multiply(const struct coll_call *a, void *dst, int64_t from, int64_t n)
{
    size_t bytes = (size_t)(n * dtype_bytes(a->dtype));

    if (a->red == RED_PREMUL_SUM)
        reduce_scale(a->dtype, dst, at(a, a->send, from), a->premul, n);
    else
        memcpy(dst, at(a, a->send, from), bytes);
}

/* ---- reductions ---- */

static int all_reduce(struct mpi_comm *m, const struct coll_call *a)
{
    const void *from = a->send;

    if (a->red == RED_PREMUL_SUM)
        multiply(a, a->recv, 0, a->elems);
    if (a->red == RED_PREMUL_SUM || a->send == a->recv)
        from = MPI_IN_PLACE;
    return MPI_OK(MPI_Allreduce(from, a->recv, (int)a->elems, type_of(a->dtype), op_of(m, a), m->comm));
}

static int64_t staging_elems(const struct mpi_comm *m, const struct coll_call *a)
{
    return LANES * flow_area_bytes(m->piece, m->base.nranks) / dtype_bytes(a->dtype);
}

static int reduce_multiplied(struct mpi_comm *m, const struct coll_call *a)
{
    int64_t most = staging_elems(m, a);
    bool root = m->base.rank == a->root;

    for (int64_t i = 0; i < a->elems; i += most) {
        int64_t n = a->elems - i < most ? a->elems - i : most;

        multiply(a, m->staging, i, n);
        if (MPI_OK(MPI_Reduce(m->staging, root ? at(a, a->recv, i) : NULL, (int)n, type_of(a->dtype),
                              op_of(m, a), a->root, m->comm)) < 0)
            return -1;
    }
    return 0;
}

static int reduce(struct mpi_comm *m, const struct coll_call *a)
{
    bool root = m->base.rank == a->root;
    const void *from = root && a->send == a->recv ? MPI_IN_PLACE : a->send;

    if (a->red == RED_PREMUL_SUM)
        return reduce_multiplied(m, a);
    return MPI_OK(MPI_Reduce(from, root ? a->recv : NULL, (int)a->elems, type_of(a->dtype), op_of(m, a),
                             a->root, m->comm));
}

/* `each` elements of every rank's part, from n of them side by side in `from`. */
static int scatter_sums(struct mpi_comm *m, const struct coll_call *a, const void *from, void *into,
                        int64_t each)
{
    for (int i = 0; i < m->base.nranks; i++)
        m->counts[i] = (int)each;
    return MPI_OK(MPI_Reduce_scatter(from, into, m->counts, type_of(a->dtype), op_of(m, a), m->comm));
}

/* A column is the same piece of every rank's part. */
static int reduce_scatter_columns(struct mpi_comm *m, const struct coll_call *a, int64_t each)
{
    int n = m->base.nranks;
    int64_t most = staging_elems(m, a) / n;

    for (int64_t i = 0; i < each; i += most) {
        int64_t len = each - i < most ? each - i : most;

        for (int c = 0; c < n; c++)
            multiply(a, at(a, m->staging, c * len), c * each + i, len);
        if (scatter_sums(m, a, m->staging, at(a, a->recv, i), len) < 0)
            return -1;
    }
    return 0;
}

static int reduce_scatter(struct mpi_comm *m, const struct coll_call *a)
{
    int64_t each = a->elems / m->base.nranks;

    if (a->red == RED_PREMUL_SUM || a->recv == at(a, a->send, m->base.rank * each))
        return reduce_scatter_columns(m, a, each);
    return scatter_sums(m, a, a->send, a->recv, each);
}

/* ---- the others ---- */

static int broadcast(struct mpi_comm *m, const struct coll_call *a)
{
    if (m->base.rank == a->root && a->send != a->recv && a->elems > 0)
        memcpy(a->recv, a->send, (size_t)(a->elems * dtype_bytes(a->dtype)));
    return MPI_OK(MPI_Bcast(a->recv, (int)a->elems, type_of(a->dtype), a->root, m->comm));
}

static int all_gather(struct mpi_comm *m, const struct coll_call *a, int each)
{
    const void *from = a->send == at(a, a->recv, m->base.rank * (int64_t)each) ? MPI_IN_PLACE : a->send;

    return MPI_OK(MPI_Allgather(from, each, type_of(a->dtype), a->recv, each, type_of(a->dtype), m->comm));
}

static int scatter(struct mpi_comm *m, const struct coll_call *a, int each)
{
    bool here = m->base.rank == a->root && a->recv == at(a, a->send, a->root * (int64_t)each);

    return MPI_OK(MPI_Scatter(a->send, each, type_of(a->dtype), here ? MPI_IN_PLACE : a->recv, each,
                              type_of(a->dtype), a->root, m->comm));
}

static int gather(struct mpi_comm *m, const struct coll_call *a, int each)
{
    bool here = m->base.rank == a->root && a->send == at(a, a->recv, a->root * (int64_t)each);

    return MPI_OK(MPI_Gather(here ? MPI_IN_PLACE : a->send, each, type_of(a->dtype), a->recv, each,
                             type_of(a->dtype), a->root, m->comm));
}

static int call(struct mpi_comm *m, const struct coll_call *a)
{
    int each = (int)(a->elems / m->base.nranks);

    switch (a->op) {
    case COLL_ALL_REDUCE:     return all_reduce(m, a);
    case COLL_REDUCE_SCATTER: return reduce_scatter(m, a);
    case COLL_REDUCE:         return reduce(m, a);
    case COLL_BROADCAST:      return broadcast(m, a);
    case COLL_ALL_GATHER:     return all_gather(m, a, each);
    case COLL_SCATTER:        return scatter(m, a, each);
    case COLL_GATHER:         return gather(m, a, each);
    case COLL_BARRIER:
    case NCOLL:               break;
    }
    return 0;
}

static int all_here(struct mpi_comm *m)
{
    MPI_Request here;

    if (MPI_OK(MPI_Ibarrier(m->comm, &here)) < 0)
        return -1;
    return flow_wait(m, &here);
}

int library_call(struct mpi_comm *m, const struct coll_call *a)
{
    bool sums_here = a->op != COLL_REDUCE || m->base.rank == a->root;
    int64_t sums = a->op == COLL_REDUCE_SCATTER ? a->elems / m->base.nranks : a->elems;

    if (a->op != COLL_BARRIER && a->elems > INT_MAX)
        return fail("%s of %" PRId64 " elements: Open MPI's calls count to %d", coll_name(a->op), a->elems,
                    INT_MAX);
    if (all_here(m) < 0 || call(m, a) < 0)
        return -1;
    if (comm_reduces(a->op) && a->red == RED_AVG && sums_here)
        reduce_divide(a->dtype, a->recv, m->base.nranks, sums);
    return 0;
}
