/* comm_staged.c -- collectives of device buffers, carried by a host's comm: the buffers pass through
 * pinned memory, a piece at a time.
 *
 * What is divided among ranks is cut within each rank's chunk: piece [at, at + m) of all n chunks
 * makes a smaller collective of n m elements.  The pieces are the same on all ranks.  An
 * all-reduce on a ring starts the sum of an element at another rank then than one call of the whole
 * would: the same bits on every rank and in every run, but not those of the host. */
#include "exec/comm/comm_internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "exec/device/device.h"

enum { STAGE = 32 << 20 };              /* bytes, both sides */
enum { MESSAGE_STAGE = 4 << 20, MOST_MESSAGES = 16 };   /* of each message under way */

struct staged {
    struct comm  base;                  /* its `self` is this */
    struct comm *inner;
    struct device *d;
    const atomic_bool *stop;
    char *stage;
    pthread_mutex_t lock;               /* of what follows */
    char *spare[MOST_MESSAGES], *all[MOST_MESSAGES];
    int   nspare, nall;
};

/* How many chunks this rank reads, and how many it writes. */
struct sides { int in, out; };

static struct sides sides_of(const struct coll_call *a, int rank, int n)
{
    bool root = rank == a->root;

    switch (a->op) {
    case COLL_ALL_GATHER:     return (struct sides){ 1, n };
    case COLL_REDUCE_SCATTER: return (struct sides){ n, 1 };
    case COLL_ALL_REDUCE:     return (struct sides){ 1, 1 };
    case COLL_BROADCAST:      return (struct sides){ root, !root || a->send != a->recv };
    case COLL_REDUCE:         return (struct sides){ 1, root };
    case COLL_SCATTER:        return (struct sides){ root ? n : 0, 1 };
    case COLL_GATHER:         return (struct sides){ 1, root ? n : 0 };
    case COLL_ALL_TO_ALL:     /* exchange(), message() */
    case COLL_SEND:
    case COLL_RECV:
    case COLL_BARRIER:
    case NCOLL:               break;
    }
    return (struct sides){ 0, 0 };
}

/* Where a piece is on the device, and on the host. */
struct passage {
    int64_t at, elems, chunk;           /* elements: within each chunk of so many */
    struct sides sides;
    char *in, *out;                     /* `sides` times `elems`, one after the other */
};

static int fetch(struct staged *g, const struct coll_call *a, const struct passage *p)
{
    int64_t size = dtype_bytes(a->dtype);

    for (int i = 0; i < p->sides.in; i++)
        if (device_fetch(g->d, a->stream, p->in + i * p->elems * size,
                         (const char *)a->send + (i * p->chunk + p->at) * size, p->elems * size) < 0)
            return -1;
    return device_drain(g->d, a->stream, g->stop);      /* what was stored before is stored, too */
}

static int store(struct staged *g, const struct coll_call *a, const struct passage *p)
{
    int64_t size = dtype_bytes(a->dtype);

    for (int i = 0; i < p->sides.out; i++)
        if (device_store(g->d, a->stream, (char *)a->recv + (i * p->chunk + p->at) * size,
                         p->out + i * p->elems * size, p->elems * size) < 0)
            return -1;
    return 0;
}

static int call_piece(struct staged *g, const struct coll_call *a, const struct passage *p)
{
    struct coll_call c = *a;

    c.elems = comm_divides(a->op) ? p->elems * g->base.nranks : p->elems;
    c.send = p->in;
    c.recv = p->out;
    if (fetch(g, a, p) < 0 || comm_call(g->inner, &c) < 0)
        return -1;
    return store(g, a, p);
}

static int call_pieces(struct staged *g, const struct coll_call *a)
{
    /* The algorithms divide what is not divided here: all pieces but the last into equal parts, so that
     * each rank sends as much as in one call. */
    int n = g->base.nranks, both = comm_divides(a->op) ? n + 1 : 2, unit = comm_divides(a->op) ? 64 : 64 * n;
    int64_t size = dtype_bytes(a->dtype), most = STAGE / both / size / unit * unit;
    struct passage p = { .chunk = comm_divides(a->op) ? a->elems / n : a->elems,
                       .sides = sides_of(a, g->base.rank, n), .in = g->stage };

    if (most < unit)
        return fail("%s: %d ranks are too many for %d MiB of staging", coll_name(a->op), n, STAGE >> 20);
    for (p.at = 0; p.at < p.chunk; p.at += most) {
        p.elems = p.chunk - p.at < most ? p.chunk - p.at : most;
        p.out = p.in + p.sides.in * p.elems * size;
        if (call_piece(g, a, &p) < 0)
            return -1;
    }
    return 0;
}

/* ---- all-to-all ---- */

/* Elements [at, at + most) of each part, packed on the host: `rows` receives how many those are. */
static int exchange_piece(struct staged *g, const struct coll_call *a, int64_t at, int64_t most, struct coll_part *rows)
{
    struct coll_call piece = *a;
    int64_t size = dtype_bytes(a->dtype), sent = 0, received = 0, n = g->base.nranks;
    char *in = g->stage, *out = in + n * most * size;

    piece.elems = 0;
    for (int i = 0; i < n; i++) {
        struct coll_part part = comm_part(a, (int)n, i), *row = &rows[i];
        row->sent = part.sent - at < most ? part.sent - at : most;
        row->received = part.received - at < most ? part.received - at : most;
        row->sent = row->sent > 0 ? row->sent : 0;
        row->received = row->received > 0 ? row->received : 0;
        if (device_fetch(g->d, a->stream, in + piece.elems * size, (const char *)a->send + (sent + at) * size,
                         row->sent * size) < 0)
            return -1;
        piece.elems += row->sent;
        sent += part.sent;
    }
    piece.send = in;
    piece.recv = out;
    piece.parts = a->parts ? rows : NULL;
    if (device_drain(g->d, a->stream, g->stop) < 0 || comm_call(g->inner, &piece) < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        if (device_store(g->d, a->stream, (char *)a->recv + (received + at) * size, out, rows[i].received * size) < 0)
            return -1;
        out += rows[i].received * size;
        received += comm_part(a, (int)n, i).received;
    }
    return 0;
}

/* As many pieces as this rank's longest part needs: another has more of them with others only. */
static int exchange(struct staged *g, const struct coll_call *a)
{
    int64_t n = g->base.nranks, most = STAGE / 2 / n / dtype_bytes(a->dtype), longest = 0;
    struct coll_part *rows;
    int rc = 0;

    if (most < 1)
        return fail("all_to_all: %d ranks are too many for %d MiB of staging", (int)n, STAGE >> 20);
    if (a->parts && a->algo == ALGO_LIBRARY)
        return fail("all_to_all of unequal parts of device memory by Open MPI's own call: expected another algorithm");
    rows = calloc((size_t)n, sizeof *rows);
    if (!rows)
        return fail("out of memory");
    for (int i = 0; i < n; i++) {
        struct coll_part part = comm_part(a, (int)n, i);
        longest = part.sent > longest ? part.sent : longest;
        longest = part.received > longest ? part.received : longest;
    }
    for (int64_t at = 0; at < longest && rc == 0; at += most)
        rc = exchange_piece(g, a, at, most, rows);
    free(rows);
    return rc;
}

/* ---- messages ---- */

static char *take_stage(struct staged *g)
{
    char *stage = NULL;

    pthread_mutex_lock(&g->lock);
    if (g->nspare > 0)
        stage = g->spare[--g->nspare];
    else if (g->nall == MOST_MESSAGES)
        fail("more than %d messages of a group at once", MOST_MESSAGES);
    else if ((stage = device_pin(g->d, MESSAGE_STAGE)))
        g->all[g->nall++] = stage;
    pthread_mutex_unlock(&g->lock);
    return stage;
}

static void give_stage(struct staged *g, char *stage)
{
    pthread_mutex_lock(&g->lock);
    g->spare[g->nspare++] = stage;
    pthread_mutex_unlock(&g->lock);
}

/* Pieces are messages of the same tag, which match in order. */
static int message(struct staged *g, const struct coll_call *a)
{
    int64_t size = dtype_bytes(a->dtype), most = MESSAGE_STAGE / size;
    bool sends = a->op == COLL_SEND;
    struct coll_call piece = *a;
    char *stage = take_stage(g);
    int rc = stage ? 0 : -1;

    piece.send = piece.recv = stage;
    for (int64_t at = 0; at < a->elems && rc == 0; at += most) {
        piece.elems = a->elems - at < most ? a->elems - at : most;
        if (sends)
            rc = device_fetch(g->d, a->stream, stage, (const char *)a->send + at * size, piece.elems * size);
        if (rc == 0 && (sends || at == 0))      /* what is overwritten may be read until now */
            rc = device_drain(g->d, a->stream, g->stop);
        if (rc == 0)
            rc = comm_call(g->inner, &piece);
        if (rc == 0 && !sends)
            rc = device_store(g->d, a->stream, (char *)a->recv + at * size, stage, piece.elems * size);
        if (rc == 0 && !sends)
            rc = device_drain(g->d, a->stream, g->stop);
    }
    if (stage)
        give_stage(g, stage);
    return rc;
}

static int staged_call(struct comm *c, const struct coll_call *a)
{
    struct staged *g = c->self;
    int rc;

    if (a->host)
        rc = comm_call(g->inner, a);
    else if (a->op == COLL_BARRIER)
        rc = device_drain(g->d, a->stream, g->stop) < 0 ? -1 : comm_call(g->inner, a);
    else if (coll_is_message(a->op))
        rc = message(g, a);
    else if (a->op == COLL_ALL_TO_ALL)
        rc = exchange(g, a);
    else
        rc = call_pieces(g, a);
    atomic_store(&c->sent, atomic_load(&g->inner->sent));
    atomic_store(&c->received, atomic_load(&g->inner->received));
    return rc;
}

static void staged_close(struct comm *c)
{
    struct staged *g = c->self;

    comm_close(g->inner);
    device_unpin(g->d, g->stage, STAGE);
    for (int i = 0; i < g->nall; i++)
        device_unpin(g->d, g->all[i], MESSAGE_STAGE);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static const struct comm_ops staged_ops = { .name = "staged", .call = staged_call, .close = staged_close };

struct comm *comm_staged_open(struct comm *inner, struct device *d, const atomic_bool *stop)
{
    struct staged *g = calloc(1, sizeof *g);

    if (!g) {
        fail("out of memory");
        comm_close(inner);
        return NULL;
    }
    g->base = (struct comm){ .ops = &staged_ops, .rank = inner->rank, .nranks = inner->nranks, .self = g };
    g->inner = inner;
    g->d = d;
    g->stop = stop;
    pthread_mutex_init(&g->lock, NULL);
    g->stage = device_pin(d, STAGE);
    if (g->stage)
        return &g->base;
    staged_close(&g->base);
    return NULL;
}
