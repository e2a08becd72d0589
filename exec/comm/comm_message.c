/* comm_message.c -- a send and the receive that matches it.
 *
 * A message has a tag of MPI's above those of the collectives, so it matches messages only; its pieces
 * follow each other on that tag, two in flight at once.  It uses no state of the comm that another call
 * changes, so any number of messages run at once, each in its own thread.  Sends are
 * synchronous: as with NCCL, none is done before the other rank receives. */
#include "exec/comm/comm_internal.h"

static int post(struct mpi_comm *m, const struct coll_call *a, int64_t at, int64_t elems, MPI_Request *r)
{
    int64_t size = dtype_bytes(a->dtype);
    int tag = LANES + a->tag, bytes = (int)(elems * size);

    if (a->op == COLL_SEND) {
        m->base.sent += bytes;
        return MPI_OK(MPI_Issend((const char *)a->send + at * size, bytes, MPI_BYTE, a->root, tag, m->comm, r));
    }
    m->base.received += bytes;
    return MPI_OK(MPI_Irecv((char *)a->recv + at * size, bytes, MPI_BYTE, a->root, tag, m->comm, r));
}

int message_call(struct mpi_comm *m, const struct coll_call *a)
{
    int64_t each = m->piece / dtype_bytes(a->dtype), npieces;
    MPI_Request under_way[LANES];

    if (a->tag > m->tags - LANES)
        return fail("%s: the tag %d is more than this MPI's %d", coll_name(a->op), a->tag, m->tags - LANES);
    each = each > 1 ? each : 1;
    npieces = ceil_div(a->elems, each);
    for (int64_t i = 0; i < npieces + LANES; i++) {
        MPI_Request *r = &under_way[i % LANES];
        int64_t left = a->elems - i * each;

        if (i >= LANES && i - LANES < npieces && flow_wait(m, r) < 0)
            return -1;
        if (i < npieces && post(m, a, i * each, left < each ? left : each, r) < 0)
            return -1;
    }
    return 0;
}
