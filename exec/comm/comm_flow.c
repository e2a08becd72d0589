/* comm_flow.c -- messages in pieces, two on their way at once, and waiting for them.
 *
 * Piece i is always in lane i % LANES, and a lane's messages carry its number as their tag.
 * A lane goes through its steps one after the other, on all ranks in the same order, so that
 * messages match in the order they are posted in, whatever the other lane does.
 *
 * A thread that waits tests and sleeps in turn: one that blocked in MPI would poll, and take the core
 * from its own rank's compute.  While that rank computes nothing, a sleep would only make the answer late: the
 * thread tests and yields the core to the ranks that share it. */
#include "exec/comm/comm_internal.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* While messages keep coming the next is microseconds away; a peer that computes is
 * milliseconds away.  So: a few tests at once, then sleeps that grow.  A rank that computes nothing tests POLLS times
 * first: by then the peer is taken to be away. */
enum { SPINS = 50, POLLS = 20000, SLEEP_FIRST_NS = 20000, SLEEP_LAST_NS = 200000 };

struct pace { int spins; long ns; };

static const struct pace brisk = { 0, SLEEP_FIRST_NS };

int comm_mpi_ok(int status, const char *call)
{
    char why[MPI_MAX_ERROR_STRING];
    int len;

    if (status == MPI_SUCCESS)
        return 0;
    MPI_Error_string(status, why, &len);
    return fail("%.*s: %s", (int)strcspn(call, "("), call, why);
}

bool flow_stopped(const struct mpi_comm *m)
{
    return m->stop && atomic_load_explicit(m->stop, memory_order_relaxed);
}

static bool core_is_free(const struct mpi_comm *m)
{
    return m->busy && atomic_load_explicit(m->busy, memory_order_relaxed) == 0;
}

/* Nothing has come: waits a little.  -1 when stopped. */
static int pause_a_little(const struct mpi_comm *m, struct pace *p)
{
    struct timespec ts = { 0, p->ns };

    if (flow_stopped(m))
        return -1;
    if (p->spins < SPINS || (p->spins < POLLS && core_is_free(m))) {
        if (p->spins++ >= SPINS)
            sched_yield();
        return 0;
    }
    nanosleep(&ts, NULL);
    p->ns = p->ns * 3 / 2 < SLEEP_LAST_NS ? p->ns * 3 / 2 : SLEEP_LAST_NS;
    return 0;
}

int flow_wait(struct mpi_comm *m, MPI_Request *r)
{
    struct pace pace = brisk;
    int done = 0;

    for (;;) {
        if (MPI_OK(MPI_Test(r, &done, MPI_STATUS_IGNORE)) < 0)
            return -1;
        if (done)
            return 0;
        if (pause_a_little(m, &pace) < 0)
            return -1;
    }
}

/* ---- the engine ---- */

/* The lane's next step, or its next piece, or nothing more to do. */
static void advance(struct flow *f, struct lane *l)
{
    l->nrequests = 0;
    while (f->rc == 0 && l->piece < f->npieces) {
        if (f->step(f, l)) {
            l->step++;
            return;
        }
        l->piece += LANES;
        l->step = 0;
    }
    l->busy = false;
}

/* Whether the lane's step was done, and the next one begun. */
static bool move_on(struct flow *f, struct lane *l)
{
    int done = 0;

    if (MPI_OK(MPI_Testall(l->nrequests, l->requests, &done, MPI_STATUSES_IGNORE)) < 0)
        f->rc = -1;
    if (f->rc < 0 || !done)
        return false;
    advance(f, l);
    return true;
}

static void start(struct flow *f)
{
    for (int i = 0; i < LANES; i++) {
        f->lane[i] = (struct lane){
            .piece = i, .busy = true,
            .area = f->m->staging + i * flow_area_bytes(f->m->piece, f->n),
            .requests = f->m->requests + i * 2 * f->n };
        advance(f, &f->lane[i]);
    }
}

static void finish(struct flow *f)
{
    struct pace pace = brisk;
    bool busy = true;

    while (busy && f->rc == 0) {
        bool moved = false;

        busy = false;
        for (int i = 0; i < LANES; i++)
            if (f->lane[i].busy) {
                moved |= move_on(f, &f->lane[i]);
                busy |= f->lane[i].busy;
            }
        if (moved)
            pace = brisk;
        else if (busy && pause_a_little(f->m, &pace) < 0)
            f->rc = -1;
    }
}

int64_t flow_area_bytes(int64_t piece, int nranks)
{
    int64_t least = 2 * 8 * (int64_t)nranks;        /* an element for and from each rank */

    return round_up(piece > least ? piece : least, 64);
}

int64_t flow_longest(const struct flow *f)
{
    int64_t longest = f->m->piece / f->size;

    return longest > 1 ? longest : 1;
}

int flow_run_pieces(struct flow *f, step_fn *step, int64_t q, int64_t npieces)
{
    f->q = q;
    f->npieces = npieces;
    f->step = step;
    start(f);
    finish(f);
    return f->rc;
}

int flow_run(struct flow *f, step_fn *step, int64_t elems, int parts)
{
    int64_t longest = flow_longest(f), fit = flow_area_bytes(f->m->piece, f->n) / (parts * f->size), n;

    assert(parts <= 2 * f->n);
    longest = longest < fit ? longest : fit;
    longest = longest > 1 ? longest : 1;
    n = ceil_div(elems, longest);
    return flow_run_pieces(f, step, n ? ceil_div(elems, n) : 0, n);
}

/* ---- what step functions call ---- */

struct part flow_piece(const struct flow *f, const struct lane *l, struct part p)
{
    int64_t skip = l->piece * f->q, left = p.elems - skip;

    if (left < 0)
        return (struct part){ p.at + p.elems, 0 };
    return (struct part){ p.at + skip, left < f->q ? left : f->q };
}

struct part flow_chunk(const struct flow *f, const struct lane *l, int c)
{
    return flow_piece(f, l, comm_chunk(f->a->elems, f->n, c));
}

static void posted(struct flow *f, struct lane *l, int rc)
{
    if (rc < 0)
        f->rc = -1;
    else
        l->nrequests++;
}

static void send_bytes(struct flow *f, struct lane *l, const void *from, int64_t bytes, int to)
{
    int tag = (int)(l->piece % LANES);

    assert(l->nrequests < 2 * f->n && bytes <= COMM_PIECE);
    posted(f, l, MPI_OK(MPI_Isend(from, (int)bytes, MPI_BYTE, to, tag, f->m->comm,
                                  &l->requests[l->nrequests])));
    f->m->base.sent += bytes;
}

static void recv_bytes(struct flow *f, struct lane *l, void *into, int64_t bytes, int from)
{
    int tag = (int)(l->piece % LANES);

    assert(l->nrequests < 2 * f->n && bytes <= COMM_PIECE);
    posted(f, l, MPI_OK(MPI_Irecv(into, (int)bytes, MPI_BYTE, from, tag, f->m->comm,
                                  &l->requests[l->nrequests])));
    f->m->base.received += bytes;
}

void flow_send(struct flow *f, struct lane *l, const void *from, int64_t elems, int to)
{
    if (elems > 0 && f->rc == 0)
        send_bytes(f, l, from, elems * f->size, to);
}

void flow_recv(struct flow *f, struct lane *l, void *into, int64_t elems, int from)
{
    if (elems > 0 && f->rc == 0)
        recv_bytes(f, l, into, elems * f->size, from);
}

void *flow_area(const struct flow *f, const struct lane *l, int k)
{
    return l->area + k * f->q * f->size;
}

const void *flow_mine(const struct flow *f, int64_t i)
{
    return (const char *)f->a->send + i * f->size;
}

void *flow_into(const struct flow *f, int64_t i)
{
    return (char *)f->a->recv + i * f->size;
}

static double own_scale(const struct flow *f)
{
    return f->a->red == RED_PREMUL_SUM ? f->a->premul : 1;
}

const void *flow_contribution(const struct flow *f, struct part p, void *scratch)
{
    const void *mine = flow_mine(f, p.at);

    if (f->a->red != RED_PREMUL_SUM)
        return mine;
    reduce_scale(f->a->dtype, scratch, mine, f->a->premul, p.elems);
    return scratch;
}

void flow_add(const struct flow *f, void *dst, const void *received, struct part p)
{
    reduce_add(f->a->dtype, f->a->red, dst, received, flow_mine(f, p.at), own_scale(f), p.elems);
}

void flow_average(const struct flow *f, void *sum, int64_t elems)
{
    if (f->a->red == RED_AVG)
        reduce_divide(f->a->dtype, sum, f->n, elems);
}

void flow_copy(const struct flow *f, void *to, const void *from, int64_t elems)
{
    if (to != from && elems > 0)
        memcpy(to, from, (size_t)(elems * f->size));
}

/* ---- the barrier: dissemination, ceil(lg n) rounds ---- */

static bool barrier_step(struct flow *f, struct lane *l)
{
    int far = 1 << l->step;

    if (far >= f->n)
        return false;
    send_bytes(f, l, NULL, 0, (f->rank + far) % f->n);
    if (f->rc == 0)
        recv_bytes(f, l, NULL, 0, (f->rank - far + f->n) % f->n);
    return true;
}

int flow_barrier(struct flow *f)
{
    return flow_run(f, barrier_step, 1, 1);
}
