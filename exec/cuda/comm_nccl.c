/* comm_nccl.c -- a group's NCCL communicator: opening, one call, watching over it, giving it up.
 * What is not about communicators (ids, who shares a device) is in comm_nccl_setup.c.
 *
 * `nccl` is used under the lock alone, for the watcher may abort and so free it at any time. */
#include "exec/cuda/comm_nccl.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "exec/comm/comm_internal.h"
#include "exec/cuda/device_cuda.h"
#include "exec/cuda/loaded.h"
#include "exec/device/lanes.h"
#include "exec/kernels/half.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "dpx needs NCCL 2.18 or later (non-blocking communicators that can be aborted)"
#endif

enum { AREA = COMM_NCCL_SCRATCH / 2 };      /* what goes in, what comes out */

/* The watcher looks so often; after `stop` kernels get so long to end by themselves. */
enum { WATCH_MS = 50 };
static const double GRACE_S = 1, FAREWELL_S = 5;

struct nccl_comm {
    struct comm        base;                /* its `self` is this */
    struct device     *device;
    const atomic_bool *stop;
    char               name[64];
    char              *scratch, *pinned;    /* COMM_NCCL_SCRATCH each */

    pthread_mutex_t lock;                   /* of all below */
    pthread_cond_t  change;
    ncclComm_t      nccl;                   /* NULL: not yet, or no longer */
    struct CUstream_st *last;               /* the stream that was given work last */
    char            why[300];               /* it was given up */
    bool            closing, watched;
    pthread_t       watcher;
};

static bool stopped(const struct nccl_comm *c)
{
    return c->stop && atomic_load_explicit(c->stop, memory_order_relaxed);
}

/* ---- giving up: under the lock ---- */

static bool is_error(ncclResult_t r) { return r != ncclSuccess && r != ncclInProgress; }

/* NCCL's own words say more than the name of the error, where it has any. */
static void note_error(struct nccl_comm *c, ncclResult_t r)
{
    const char *more = ncclGetLastError(c->nccl);

    if (!c->why[0])
        snprintf(c->why, sizeof c->why, "NCCL, %s: %s%s%.180s", c->name, ncclGetErrorString(r),
                 more && *more ? ": " : "", more ? more : "");
    c->why[strcspn(c->why, "\n")] = '\0';
}

static void abort_it(struct nccl_comm *c)
{
    ncclComm_t nccl = c->nccl;

    c->nccl = NULL;
    if (nccl)
        ncclCommAbort(nccl);
}

/* Whatever waits for its kernels must not take their end for success. */
static void give_up(struct nccl_comm *c, ncclResult_t r)
{
    note_error(c, r);
    device_cuda_break(c->device, c->why);
    abort_it(c);
}

/* ---- waiting until what was asked for is launched (or opened, or finished) ---- */

static void pause_a_little(long *ns)
{
    struct timespec ts = { 0, *ns };

    nanosleep(&ts, NULL);
    *ns = *ns * 3 / 2 < 200000 ? *ns * 3 / 2 : 200000;
}

static int gone(const struct nccl_comm *c)
{
    if (c->why[0])
        return fail("%s", c->why);
    return stopped(c) ? -1 : fail("NCCL, %s: it was given up", c->name);
}

/* 1: not yet. */
static int settled(struct nccl_comm *c)
{
    ncclResult_t state = ncclSuccess, asked;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    if (!c->nccl) {
        rc = gone(c);
    } else if (is_error(asked = ncclCommGetAsyncError(c->nccl, &state)) || is_error(state)) {
        give_up(c, is_error(asked) ? asked : state);
        rc = gone(c);
    } else if (state == ncclInProgress) {
        rc = 1;
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static int settle(struct nccl_comm *c)
{
    long ns = 5000;
    int rc;

    while ((rc = settled(c)) == 1) {
        if (stopped(c))
            return -1;
        pause_a_little(&ns);
    }
    return rc;
}

/* ---- one call ---- */

static ncclDataType_t type_of(enum dtype t)
{
    switch (t) {
    case DT_FP32:  return ncclFloat32;
    case DT_FP64:  return ncclFloat64;
    case DT_BF16:  return ncclBfloat16;
    case DT_FP16:  return ncclFloat16;
    case DT_INT32: return ncclInt32;
    case DT_INT64: return ncclInt64;
    case DT_UINT8: return ncclUint8;
    case DT_INT8:  return ncclInt8;
    case DT_FP8:   return ncclUint8;            /* moved alone, never reduced */
    default:       break;
    }
    assert(!"comm_call() lets no other through");
    return ncclUint8;
}

/* What multiplies each contribution first is an operation of its own, and destroyed after the call. */
static ncclResult_t make_op(struct nccl_comm *c, const struct coll_call *a, ncclRedOp_t *op)
{
    float wide = (float)a->premul;
    uint16_t narrow = a->dtype == DT_FP16 ? half_to_fp16(wide) : half_to_bf16(wide);
    double widest = a->premul;
    void *scalar = dtype_bytes(a->dtype) == 2 ? (void *)&narrow : a->dtype == DT_FP64 ? (void *)&widest : (void *)&wide;

    *op = a->red == RED_AVG ? ncclAvg : a->red == RED_MAX ? ncclMax : a->red == RED_MIN ? ncclMin : ncclSum;
    if (a->red != RED_PREMUL_SUM || !comm_reduces(a->op))
        return ncclSuccess;
    return ncclRedOpCreatePreMulSum(op, scalar, type_of(a->dtype), ncclScalarHostImmediate, c->nccl);
}

static char *part_of(const struct coll_call *a, const void *x, int64_t each, int i)
{
    return (char *)(uintptr_t)x + i * each * dtype_bytes(a->dtype);
}

/* The root's own part does not go through NCCL; with a buffer in place it stays where it is. */
static ncclResult_t keep_own(const struct nccl_comm *c, const struct coll_call *a, int64_t each)
{
    bool scatters = a->op == COLL_SCATTER;
    const void *from = scatters ? part_of(a, a->send, each, a->root) : a->send;
    void *to = scatters ? a->recv : part_of(a, a->recv, each, a->root);

    if (c->base.rank != a->root || from == to)
        return ncclSuccess;
    return cudaMemcpyAsync(to, from, (size_t)(each * dtype_bytes(a->dtype)), cudaMemcpyDeviceToDevice,
                           a->stream) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* NCCL has neither, before 2.28: sends and receives that are launched as one. */
static ncclResult_t star(struct nccl_comm *c, const struct coll_call *a)
{
    int64_t each = a->elems / c->base.nranks;
    size_t n = (size_t)each;
    ncclDataType_t t = type_of(a->dtype);
    bool scatters = a->op == COLL_SCATTER, root = c->base.rank == a->root;
    ncclResult_t r = keep_own(c, a, each), ended;

    if (r != ncclSuccess || (r = ncclGroupStart()) != ncclSuccess)
        return r;
    for (int i = 0; root && i < c->base.nranks && !is_error(r); i++)
        if (i != a->root)
            r = scatters ? ncclSend(part_of(a, a->send, each, i), n, t, i, c->nccl, a->stream)
                         : ncclRecv(part_of(a, a->recv, each, i), n, t, i, c->nccl, a->stream);
    if (!root)
        r = scatters ? ncclRecv(a->recv, n, t, a->root, c->nccl, a->stream)
                     : ncclSend(a->send, n, t, a->root, c->nccl, a->stream);
    ended = ncclGroupEnd();
    return is_error(r) ? r : ended;
}

/* A rank's own part does not go through NCCL; those of the others are launched as one. */
static ncclResult_t exchange(struct nccl_comm *c, const struct coll_call *a)
{
    ncclDataType_t t = type_of(a->dtype);
    int64_t size = dtype_bytes(a->dtype), sent = 0, received = 0;
    ncclResult_t r = ncclGroupStart(), ended;

    if (r != ncclSuccess)
        return r;
    for (int i = 0; i < c->base.nranks && !is_error(r); i++) {
        struct coll_part p = comm_part(a, c->base.nranks, i);
        const char *from = (const char *)a->send + sent * size;
        char *to = (char *)a->recv + received * size;
        if (i == c->base.rank && p.sent > 0)
            r = cudaMemcpyAsync(to, from, (size_t)(p.sent * size), cudaMemcpyDeviceToDevice, a->stream) == cudaSuccess
                ? ncclSuccess : ncclUnhandledCudaError;
        if (i != c->base.rank && p.sent > 0)
            r = ncclSend(from, (size_t)p.sent, t, i, c->nccl, a->stream);
        if (i != c->base.rank && p.received > 0 && !is_error(r))
            r = ncclRecv(to, (size_t)p.received, t, i, c->nccl, a->stream);
        sent += p.sent;
        received += p.received;
    }
    ended = ncclGroupEnd();
    return is_error(r) ? r : ended;
}

static ncclResult_t launch(struct nccl_comm *c, const struct coll_call *a, ncclRedOp_t op)
{
    size_t all = (size_t)a->elems, each = (size_t)(a->elems / c->base.nranks);
    ncclDataType_t t = type_of(a->dtype);

    switch (a->op) {
    case COLL_ALL_GATHER:     return ncclAllGather(a->send, a->recv, each, t, c->nccl, a->stream);
    case COLL_REDUCE_SCATTER: return ncclReduceScatter(a->send, a->recv, each, t, op, c->nccl, a->stream);
    case COLL_ALL_REDUCE:     return ncclAllReduce(a->send, a->recv, all, t, op, c->nccl, a->stream);
    case COLL_BROADCAST:      return ncclBroadcast(a->send, a->recv, all, t, a->root, c->nccl, a->stream);
    case COLL_REDUCE:         return ncclReduce(a->send, a->recv, all, t, op, a->root, c->nccl, a->stream);
    case COLL_SCATTER:
    case COLL_GATHER:         return star(c, a);
    case COLL_ALL_TO_ALL:     return exchange(c, a);
    case COLL_SEND:           return ncclSend(a->send, all, t, a->root, c->nccl, a->stream);
    case COLL_RECV:           return ncclRecv(a->recv, all, t, a->root, c->nccl, a->stream);
    case COLL_BARRIER:
    case NCOLL:               break;
    }
    return ncclInvalidArgument;
}

/* On its stream when it returns: only then may a mark be made there. */
static int submit(struct nccl_comm *c, const struct coll_call *a)
{
    ncclRedOp_t op = ncclSum;
    ncclResult_t r = ncclSuccess;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    if (!c->nccl) {
        rc = gone(c);
    } else if (is_error(r = make_op(c, a, &op)) || is_error(r = launch(c, a, op))) {
        give_up(c, r);
        rc = gone(c);
    }
    c->last = a->stream;
    pthread_mutex_unlock(&c->lock);
    if (rc == 0 && r == ncclInProgress)
        rc = settle(c);
    pthread_mutex_lock(&c->lock);
    if (c->nccl && op >= ncclNumOps)
        ncclRedOpDestroy(op, c->nccl);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ---- host memory: piece by piece through the scratch ---- */

/* How many parts this rank gives and gets.  A part is elems/n where the buffer divides, else all. */
struct parts { int in, out; int64_t each; };

static struct parts parts_of(const struct nccl_comm *c, const struct coll_call *a)
{
    int n = c->base.nranks, root = c->base.rank == a->root;
    int64_t each = comm_divides(a->op) ? a->elems / n : a->elems;

    switch (a->op) {
    case COLL_ALL_GATHER:     return (struct parts){ 1, n, each };
    case COLL_REDUCE_SCATTER: return (struct parts){ n, 1, each };
    case COLL_SCATTER:        return (struct parts){ root ? n : 0, 1, each };
    case COLL_ALL_TO_ALL:     return (struct parts){ n, n, each };
    case COLL_GATHER:         return (struct parts){ 1, root ? n : 0, each };
    case COLL_BROADCAST:      return (struct parts){ root ? 1 : 0, 1, each };
    case COLL_REDUCE:         return (struct parts){ 1, root ? 1 : 0, each };
    case COLL_SEND:           return (struct parts){ 1, 0, each };
    case COLL_RECV:           return (struct parts){ 0, 1, each };
    default:                  return (struct parts){ 1, 1, each };
    }
}

/* Elements [at, at + m) of every part. */
static int staged_piece(struct nccl_comm *c, const struct coll_call *a, const struct parts *p, int64_t at, int64_t m)
{
    int64_t size = dtype_bytes(a->dtype);
    struct coll_call piece = *a;
    struct device *d = c->device;

    piece.elems = comm_divides(a->op) ? m * c->base.nranks : m;
    piece.send = c->scratch;
    piece.recv = c->scratch + AREA;
    for (int i = 0; i < p->in; i++)
        memcpy(c->pinned + i * m * size, part_of(a, a->send, p->each, i) + at * size, (size_t)(m * size));
    if (device_store(d, a->stream, c->scratch, c->pinned, p->in * m * size) < 0 || submit(c, &piece) < 0 ||
        device_fetch(d, a->stream, c->pinned + AREA, c->scratch + AREA, p->out * m * size) < 0 ||
        device_drain(d, a->stream, c->stop) < 0)
        return -1;
    for (int i = 0; i < p->out; i++)
        memcpy(part_of(a, a->recv, p->each, i) + at * size, c->pinned + AREA + i * m * size, (size_t)(m * size));
    return 0;
}

static int staged(struct nccl_comm *c, const struct coll_call *a)
{
    struct parts p = parts_of(c, a);
    int64_t most = AREA / dtype_bytes(a->dtype) / (comm_divides(a->op) ? c->base.nranks : 1);

    if (a->parts)
        return fail("%s of host memory by NCCL: expected equal parts", coll_name(a->op));
    if (most < 1)
        return fail("%s of host memory: %d ranks are too many for the scratch", coll_name(a->op), c->base.nranks);
    for (int64_t at = 0; at < p.each; at += most)
        if (staged_piece(c, a, &p, at, p.each - at < most ? p.each - at : most) < 0)
            return -1;
    return 0;
}

/* NCCL has no barrier: a sum of one element, whatever that is. */
static struct coll_call barrier_call(const struct nccl_comm *c, const struct coll_call *a)
{
    return (struct coll_call){ .op = COLL_ALL_REDUCE, .dtype = DT_FP32, .red = RED_SUM, .elems = 1,
                               .send = c->scratch, .recv = c->scratch, .stream = a->stream };
}

/* Without a stream: the one that has no lane, for the issuing thread. */
static int nccl_call(struct comm *base, const struct coll_call *a)
{
    struct nccl_comm *c = base->self;
    struct coll_call call = a->op == COLL_BARRIER ? barrier_call(c, a) : *a;

    if (!call.stream)
        call.stream = device_cuda_stream(c->device, STREAM_ISSUE);
    if (device_enter(c->device) < 0)
        return -1;
    if (call.elems == 0 && !call.parts)
        return 0;
    if (call.host)
        return staged(c, &call);
    if (submit(c, &call) < 0)
        return -1;
    return a->op == COLL_BARRIER && a->host ? device_drain(c->device, call.stream, c->stop) : 0;
}

/* ---- the watcher ---- */

static void sleep_watching(struct nccl_comm *c)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WATCH_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&c->change, &c->lock, &until);
}

static bool is_busy(const struct nccl_comm *c)
{
    bool busy = c->last && cudaStreamQuery(c->last) == cudaErrorNotReady;

    if (busy)
        cudaGetLastError();             /* no launch's of this thread */
    return busy;
}

/* Ends when there is nothing left to watch over. */
static void *watch(void *arg)
{
    struct nccl_comm *c = arg;
    double since = 0;

    device_enter(c->device);
    pthread_mutex_lock(&c->lock);
    while (!c->closing && c->nccl) {
        ncclResult_t state = ncclSuccess, asked = ncclCommGetAsyncError(c->nccl, &state);
        if (is_error(asked) || is_error(state)) {
            give_up(c, is_error(asked) ? asked : state);
            break;
        }
        if (stopped(c) && since == 0)
            since = lanes_now();
        if (stopped(c) && (state == ncclInProgress || is_busy(c)) && lanes_now() - since > GRACE_S)
            abort_it(c);
        else
            sleep_watching(c);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void end_watch(struct nccl_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->change);
    pthread_mutex_unlock(&c->lock);
    if (c->watched)
        pthread_join(c->watcher, NULL);
}

/* ---- closing ---- */

/* What is in flight ends first, if it does: its peers may need it. */
static void say_farewell(struct nccl_comm *c)
{
    double until = lanes_now() + FAREWELL_S;
    ncclResult_t state = ncclInProgress;
    long ns = 5000;

    if (!c->nccl)
        return;
    if ((stopped(c) && is_busy(c)) || is_error(ncclCommFinalize(c->nccl))) {
        abort_it(c);
        return;
    }
    while (ncclCommGetAsyncError(c->nccl, &state) == ncclSuccess && state == ncclInProgress && lanes_now() < until)
        pause_a_little(&ns);
    if (state != ncclSuccess)
        abort_it(c);
    else
        ncclCommDestroy(c->nccl);
    c->nccl = NULL;
}

static void nccl_close(struct comm *base)
{
    struct nccl_comm *c = base->self;

    device_enter(c->device);
    end_watch(c);
    say_farewell(c);
    device_unmap(c->device, c->scratch, COMM_NCCL_SCRATCH);
    device_unpin(c->device, c->pinned, COMM_NCCL_SCRATCH);
    pthread_cond_destroy(&c->change);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const struct comm_ops nccl_ops = { .name = "nccl", .call = nccl_call, .close = nccl_close };

/* ---- opening ---- */

static int connect_ranks(struct nccl_comm *c, const uint8_t id[COMM_NCCL_ID])
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId key;
    ncclResult_t r;

    if (loaded_need(LOADED_NCCL) < 0)
        return -1;
    static_assert(sizeof key.internal == COMM_NCCL_ID, "an id is what NCCL takes for one");
    memcpy(key.internal, id, COMM_NCCL_ID);
    config.blocking = 0;
    pthread_mutex_lock(&c->lock);
    r = ncclCommInitRankConfig(&c->nccl, c->base.nranks, key, c->base.rank, &config);
    if (is_error(r))
        note_error(c, r);
    pthread_mutex_unlock(&c->lock);
    if (is_error(r))
        return gone(c);
    if (settle(c) == 0)
        return 0;
    pthread_mutex_lock(&c->lock);
    abort_it(c);
    pthread_mutex_unlock(&c->lock);
    return -1;
}

static int open_scratch(struct nccl_comm *c)
{
    c->scratch = device_map(c->device, COMM_NCCL_SCRATCH);
    c->pinned = device_pin(c->device, COMM_NCCL_SCRATCH);
    return c->scratch && c->pinned ? 0 : -1;
}

static int start_watch(struct nccl_comm *c)
{
    c->watched = pthread_create(&c->watcher, NULL, watch, c) == 0;
    return c->watched ? 0 : fail("cannot start a thread that watches over NCCL");
}

static struct nccl_comm *allocate(const struct comm_args *a, int rank, struct device *d)
{
    struct nccl_comm *c = calloc(1, sizeof *c);

    if (!c) {
        fail("out of memory");
        return NULL;
    }
    c->base = (struct comm){ .ops = &nccl_ops, .rank = rank, .nranks = a->nranks, .self = c };
    c->device = d;
    c->stop = a->stop;
    snprintf(c->name, sizeof c->name, "%s", a->name ? a->name : "a group");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->change, NULL);
    return c;
}

struct comm *comm_nccl_open_as(const struct comm_args *a, int rank, struct device *d, const uint8_t id[COMM_NCCL_ID])
{
    struct nccl_comm *c = allocate(a, rank, d);

    assert(rank >= 0 && rank < a->nranks);
    if (!c)
        return NULL;
    if (device_enter(d) == 0 && open_scratch(c) == 0 && connect_ranks(c, id) == 0 && start_watch(c) == 0)
        return &c->base;
    nccl_close(&c->base);
    return NULL;
}

struct comm *comm_nccl_open(const struct comm_args *a, struct device *d, const uint8_t id[COMM_NCCL_ID])
{
    int world = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    for (int i = 0; i < a->nranks; i++)
        if (a->ranks[i] == world)
            return comm_nccl_open_as(a, i, d, id);
    fail("rank %d is not in its own group", world);
    return NULL;
}
