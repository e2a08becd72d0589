/* comm_library.c -- Open MPI's own calls, as they are: a black box to measure.
 *
 * The blocking calls, for only they obey Open MPI's coll_tuned_*_algorithm options.  A
 * nonblocking barrier stands before each: while a rank is late the others sleep and can be
 * stopped, and only when all have come do they block.  MPI_Reduce_scatter, since
 * MPI_Reduce_scatter_block moves twice the bytes.
 *
 * The library multiplies nothing and takes no aliased buffers but MPI_IN_PLACE: where it must, a
 * reduction goes through the staging in columns.  Averages are divided after it.
 *
 * MPI counts in int, and not all of Open MPI's algorithms go further in bytes: what is longer than
 * `library_most` bytes, 2^31 - 1, goes in several calls. */
#include "exec/comm/comm_internal.h"

#include <assert.h>
#include <string.h>

static MPI_Datatype type_of(enum dtype t)
{
    switch (t) {
    case DT_FP32:  return MPI_FLOAT;
    case DT_FP64:  return MPI_DOUBLE;
    case DT_BF16: case DT_FP16:
        return MPI_UINT16_T;
    case DT_INT32: return MPI_INT32_T;
    case DT_INT64: return MPI_INT64_T;
    case DT_INT8: case DT_FP8:          /* moved alone, never reduced */
    case DT_UINT8: return MPI_UINT8_T;
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
    if (a->dtype == DT_FP16)
        return max ? m->max_fp16 : m->add_fp16;
    return max ? MPI_MAX : a->red == RED_MIN ? MPI_MIN : MPI_SUM;
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

static void add_fp16(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    reduce_add(DT_FP16, RED_SUM, inout, in, inout, 1, *len);
}

static void max_fp16(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    reduce_add(DT_FP16, RED_MAX, inout, in, inout, 1, *len);
}

int library_open(struct mpi_comm *m)
{
    if (MPI_OK(MPI_Op_create(add_bf16, 1, &m->add_bf16)) < 0 || MPI_OK(MPI_Op_create(add_fp16, 1, &m->add_fp16)) < 0
        || MPI_OK(MPI_Op_create(max_fp16, 1, &m->max_fp16)) < 0)
        return -1;
    return MPI_OK(MPI_Op_create(max_bf16, 1, &m->max_bf16));
}

void library_close(struct mpi_comm *m)
{
    if (m->add_bf16 != MPI_OP_NULL)
        MPI_Op_free(&m->add_bf16);
    if (m->max_bf16 != MPI_OP_NULL)
        MPI_Op_free(&m->max_bf16);
    if (m->add_fp16 != MPI_OP_NULL)
        MPI_Op_free(&m->add_fp16);
    if (m->max_fp16 != MPI_OP_NULL)
        MPI_Op_free(&m->max_fp16);
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

/* ---- pieces ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Elements that one call may have, of all ranks together; at least one each. */
static int64_t most_elems(const struct mpi_comm *m, const struct coll_call *a)
{
    int64_t most = m->library_most / dtype_bytes(a->dtype);

    return most > m->base.nranks ? most : m->base.nranks;
}

/* Elements [from, from + n) of the buffer or, of a collective that divides it, of each rank's part. */
typedef int piece_fn(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n);

/* An empty buffer is a call too. */
static int in_pieces(struct mpi_comm *m, const struct coll_call *a, piece_fn *piece)
{
    int parts = comm_divides(a->op) ? m->base.nranks : 1;
    int64_t all = a->elems / parts, most = most_elems(m, a) / parts, from = 0;

    do {
        int64_t n = least(all - from, most);
        if (piece(m, a, from, (int)n) < 0)
            return -1;
        from += n;
    } while (from < all);
    return 0;
}

/* The n elements of a piece; `each` apart where there is one of every rank.  Free with done_with(). */
static int column_type(const struct coll_call *a, int n, int64_t each, MPI_Datatype *type)
{
    MPI_Datatype flat = MPI_DATATYPE_NULL;
    int rc = MPI_OK(MPI_Type_contiguous(n, type_of(a->dtype), &flat));

    if (rc == 0)
        rc = MPI_OK(MPI_Type_create_resized(flat, 0, (MPI_Aint)(each * dtype_bytes(a->dtype)), type));
    if (rc == 0)
        rc = MPI_OK(MPI_Type_commit(type));
    if (flat != MPI_DATATYPE_NULL)
        MPI_Type_free(&flat);
    return rc;
}

/* MPI's description of a rank's part of the whole buffer: elements, or a column of them. */
struct column { MPI_Datatype type; int count; bool made; };

static int column_of(const struct mpi_comm *m, const struct coll_call *a, int n, struct column *c)
{
    int64_t each = a->elems / m->base.nranks;

    *c = (struct column){ type_of(a->dtype), n, n < each };
    if (!c->made)
        return 0;
    c->count = 1;
    c->type = MPI_DATATYPE_NULL;
    return column_type(a, n, each, &c->type);
}

static void done_with(struct column *c)
{
    if (c->made && c->type != MPI_DATATYPE_NULL)
        MPI_Type_free(&c->type);
}

/* ---- reductions ---- */

static int all_reduce(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    const void *send = at(a, a->send, from);

    if (a->red == RED_PREMUL_SUM)
        multiply(a, at(a, a->recv, from), from, n);
    if (a->red == RED_PREMUL_SUM || a->send == a->recv)
        send = MPI_IN_PLACE;
    return MPI_OK(MPI_Allreduce(send, at(a, a->recv, from), n, type_of(a->dtype), op_of(m, a), m->comm));
}

static int64_t staging_elems(const struct mpi_comm *m, const struct coll_call *a)
{
    return least(LANES * flow_area_bytes(m->piece, m->base.nranks) / dtype_bytes(a->dtype), most_elems(m, a));
}

static int reduce_multiplied(struct mpi_comm *m, const struct coll_call *a)
{
    int64_t most = staging_elems(m, a);
    bool root = m->base.rank == a->root;

    for (int64_t i = 0; i < a->elems; i += most) {
        int64_t n = least(a->elems - i, most);

        multiply(a, m->staging, i, n);
        if (MPI_OK(MPI_Reduce(m->staging, root ? at(a, a->recv, i) : NULL, (int)n, type_of(a->dtype),
                              op_of(m, a), a->root, m->comm)) < 0)
            return -1;
    }
    return 0;
}

static int reduce(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    bool root = m->base.rank == a->root;
    const void *send = root && a->send == a->recv ? MPI_IN_PLACE : at(a, a->send, from);

    return MPI_OK(MPI_Reduce(send, root ? at(a, a->recv, from) : NULL, n, type_of(a->dtype), op_of(m, a),
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
        int64_t len = least(each - i, most);

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

    if (a->red == RED_PREMUL_SUM || a->recv == at(a, a->send, m->base.rank * each) || a->elems > most_elems(m, a))
        return reduce_scatter_columns(m, a, each);
    return scatter_sums(m, a, a->send, a->recv, each);
}

/* ---- the others ---- */

static int broadcast(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    if (m->base.rank == a->root && a->send != a->recv && n > 0)
        memcpy(at(a, a->recv, from), at(a, a->send, from), (size_t)(n * dtype_bytes(a->dtype)));
    return MPI_OK(MPI_Bcast(at(a, a->recv, from), n, type_of(a->dtype), a->root, m->comm));
}

static int all_gather(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    bool here = a->send == at(a, a->recv, m->base.rank * (a->elems / m->base.nranks));
    struct column c;
    int rc = column_of(m, a, n, &c);

    if (rc == 0)
        rc = MPI_OK(MPI_Allgather(here ? MPI_IN_PLACE : at(a, a->send, from), n, type_of(a->dtype),
                                  at(a, a->recv, from), c.count, c.type, m->comm));
    done_with(&c);
    return rc;
}

static int scatter(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    bool root = m->base.rank == a->root;
    bool here = root && a->recv == at(a, a->send, a->root * (a->elems / m->base.nranks));
    struct column c;
    int rc = column_of(m, a, n, &c);

    if (rc == 0)
        rc = MPI_OK(MPI_Scatter(root ? at(a, a->send, from) : NULL, c.count, c.type,
                                here ? MPI_IN_PLACE : at(a, a->recv, from), n, type_of(a->dtype), a->root, m->comm));
    done_with(&c);
    return rc;
}

static int gather(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    bool root = m->base.rank == a->root;
    bool here = root && a->send == at(a, a->recv, a->root * (a->elems / m->base.nranks));
    struct column c;
    int rc = column_of(m, a, n, &c);

    if (rc == 0)
        rc = MPI_OK(MPI_Gather(here ? MPI_IN_PLACE : at(a, a->send, from), n, type_of(a->dtype),
                               root ? at(a, a->recv, from) : NULL, c.count, c.type, a->root, m->comm));
    done_with(&c);
    return rc;
}

/* Equal parts: a column is the same piece of every rank's. */
static int exchange_equal(struct mpi_comm *m, const struct coll_call *a, int64_t from, int n)
{
    struct column c;
    int rc = column_of(m, a, n, &c);

    if (rc == 0)
        rc = MPI_OK(MPI_Alltoall(at(a, a->send, from), c.count, c.type, at(a, a->recv, from), c.count, c.type, m->comm));
    done_with(&c);
    return rc;
}

/* Ranks know their own parts only, so that they could not agree on pieces. */
static int exchange(struct mpi_comm *m, const struct coll_call *a)
{
    int n = m->base.nranks, *counts, rc = 0;
    int64_t sent = 0, received = 0;

    if (!a->parts)
        return in_pieces(m, a, exchange_equal);
    counts = malloc(4 * (size_t)n * sizeof *counts);
    if (!counts)
        return fail("out of memory");
    for (int i = 0; i < n && rc == 0; i++) {
        struct coll_part p = a->parts[i];
        if (sent + p.sent > most_elems(m, a) || received + p.received > most_elems(m, a)) {
            rc = fail("all_to_all of unequal parts by Open MPI's own call: more than %" PRId64 " elements on a rank; "
                      "expected another algorithm", most_elems(m, a));
            break;
        }
        counts[i] = (int)p.sent;
        counts[n + i] = (int)sent;
        counts[2 * n + i] = (int)p.received;
        counts[3 * n + i] = (int)received;
        sent += p.sent;
        received += p.received;
    }
    if (rc == 0)
        rc = MPI_OK(MPI_Alltoallv(a->send, counts, counts + n, type_of(a->dtype), a->recv, counts + 2 * n,
                                  counts + 3 * n, type_of(a->dtype), m->comm));
    free(counts);
    return rc;
}

static int call(struct mpi_comm *m, const struct coll_call *a)
{
    switch (a->op) {
    case COLL_ALL_REDUCE:     return in_pieces(m, a, all_reduce);
    case COLL_REDUCE_SCATTER: return reduce_scatter(m, a);
    case COLL_REDUCE:         return a->red == RED_PREMUL_SUM ? reduce_multiplied(m, a) : in_pieces(m, a, reduce);
    case COLL_BROADCAST:      return in_pieces(m, a, broadcast);
    case COLL_ALL_GATHER:     return in_pieces(m, a, all_gather);
    case COLL_SCATTER:        return in_pieces(m, a, scatter);
    case COLL_GATHER:         return in_pieces(m, a, gather);
    case COLL_ALL_TO_ALL:     return exchange(m, a);
    case COLL_SEND:
    case COLL_RECV:           /* messages are MPI's own by any algorithm */
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

    if (all_here(m) < 0 || call(m, a) < 0)
        return -1;
    if (comm_reduces(a->op) && a->red == RED_AVG && sums_here)
        reduce_divide(a->dtype, a->recv, m->base.nranks, sums);
    return 0;
}
