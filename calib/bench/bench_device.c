/* bench_device.c -- where things are timed: memory there, and times of what runs there.
 *
 * On the host a call that returns is done: a sample is the clock after it less the clock before it.
 *
 * An asynchronous device queues.  There, too, every repetition is a sample, between two events of the
 * device's own clock (half a microsecond): a mean over many calls between two waits would hide the
 * spread, which fits need, and a wait after each would time the wait.  Events have one danger: a
 * device that has nothing to do passes the first at once and then waits for the host to launch what
 * is timed.  So each batch is queued behind a *ballast*, zeros written to a large region for longer
 * than the host took to queue the last batch; in training the host is ahead as well. */
#include "calib/bench/bench.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/room.h"
#include "exec/device/lanes.h"
#ifdef DPX_CUDA
#include "exec/cuda/comm_nccl.h"
#include "exec/cuda/device_cuda.h"
#endif

/* Of one batch's: the host's queue would be full before that. */
static const double BALLAST_MOST = .02;

static bool async(const struct bench *b) { return device_async(b->device); }

/* ---- memory ---- */

static int zero(struct bench *b, void *p, int64_t bytes)
{
    return kernels_ops(b->k)->zero(b->k, bytes, p);
}

void *bench_map(struct bench *b, int64_t bytes)
{
    void *p = async(b) ? device_map(b->device, bytes) : bench_memory(bytes);

    if (p && async(b) && bytes > 0 && zero(b, p, bytes) < 0) {
        device_unmap(b->device, p, bytes);
        return NULL;
    }
    return p;
}

int64_t bench_operand(const struct bench *b, int64_t most)
{
    int64_t all = device_memory(b->device), part = all / 512 / 4096 * 4096;

    return all < 0 || part > most ? most : part;
}

void bench_unmap(struct bench *b, void *p, int64_t bytes)
{
    if (!p)
        return;
    if (async(b))
        device_drain(b->device, device_cuda_stream(b->device, STREAM_COMPUTE), b->stop);
    device_unmap(b->device, p, bytes);
}

int bench_put(struct bench *b, void *to, const void *host, int64_t bytes)
{
    return kernels_ops(b->k)->upload(b->k, bytes, to, host);
}

int bench_fill_on(struct bench *b, void *to, enum dtype t, int64_t n, double scale, double offset)
{
    int64_t e = dtype_bytes(t), piece = n < BENCH_FILLED ? n : BENCH_FILLED;
    char *host;
    int rc = 0;

    if (!async(b)) {
        bench_fill(to, t, n, scale, offset);
        return 0;
    }
    host = bench_memory(piece * e);
    if (!host)
        return -1;
    bench_fill(host, t, piece, scale, offset);
    for (int64_t i = 0; i < n && rc == 0; i += piece)
        rc = bench_put(b, (char *)to + i * e, host, (n - i < piece ? n - i : piece) * e);
    free(host);
    return rc;
}

/* ---- times ---- */

/* Of a device: its compute stream is busy for so long, so that the host can queue what comes next. */
static int bench_ballast(struct bench *b, double seconds)
{
    struct bench_timer *t = &b->timer;
    int n = (int)ceil(fmin(seconds, BALLAST_MOST) / fmax(t->ballast_s, 1e-6));

    for (int i = 0; i < n; i++)
        if (zero(b, t->ballast, t->ballast_bytes) < 0)
            return -1;
    return 0;
}

/* What `s` is given next comes after what COMPUTE was given. */
static int after_compute(struct bench *b, enum stream s)
{
    if (s == STREAM_COMPUTE)
        return 0;
    int64_t number = ++b->timer.marked[STREAM_COMPUTE];
    return device_mark(b->device, STREAM_COMPUTE, number) < 0 ? -1 : device_after(b->device, s, STREAM_COMPUTE, number);
}

static int begin_batch(struct bench *b)
{
    b->timer.held = 0;
    if (bench_ballast(b, 1.5 * b->timer.queueing_s) < 0)
        return -1;
    b->timer.began = lanes_now();
    return 0;
}

/* Each stream waits for the ballast once. */
static int hold(struct bench *b, enum stream s)
{
    if (b->timer.held & AFTER(s))
        return 0;
    b->timer.held |= (unsigned)AFTER(s);
    return after_compute(b, s);
}

int bench_begin(struct bench *b, enum stream s)
{
    struct bench_timer *t = &b->timer;

    t->from = lanes_now();
    if (!async(b))
        return 0;
    if ((t->n == 0 && begin_batch(b) < 0) || hold(b, s) < 0)
        return -1;
    t->stream[t->n] = s;
    t->number[t->n] = ++t->marked[s];
    return device_begin(b->device, s, t->number[t->n]);
}

int bench_end(struct bench *b, struct bench_span *to)
{
    struct bench_timer *t = &b->timer;
    int i = t->n;

    if (!async(b)) {
        *to = (struct bench_span){ t->from, lanes_now() };
        return 0;
    }
    t->to[i] = to;
    t->n++;
    if (device_mark(b->device, t->stream[i], t->number[i]) < 0)
        return -1;
    return t->n == BENCH_BATCH ? bench_settle(b) : 0;
}

int bench_settle(struct bench *b)
{
    struct bench_timer *t = &b->timer;
    int n = t->n;

    if (!async(b))
        return 0;
    t->n = 0;
    if (n > 0)
        t->queueing_s = lanes_now() - t->began;
    for (int i = 0; i < n; i++)
        if (device_wait(b->device, t->stream[i], t->number[i], b->stop) < 0 ||
            device_times(b->device, t->stream[i], t->number[i], &t->to[i]->from, &t->to[i]->to) < 0)
            return -1;
    return device_drain(b->device, device_cuda_stream(b->device, STREAM_COMPUTE), b->stop);
}

void bench_seconds(const struct bench_span *span, int n, double *s)
{
    for (int i = 0; i < n; i++)
        s[i] = span[i].to - span[i].from;
}

/* ---- opening ---- */

/* The host's time to queue a batch is not known yet: a millisecond. */
static int weigh_ballast(struct bench *b)
{
    struct bench_span span[3];

    b->timer.ballast_bytes = bench_operand(b, 64 << 20);
    b->timer.ballast = device_map(b->device, b->timer.ballast_bytes);
    if (!b->timer.ballast)
        return -1;
    b->timer.ballast_s = BALLAST_MOST;          /* one */
    b->timer.queueing_s = 1e-3;
    for (int i = 0; i < 3; i++)
        if (bench_begin(b, STREAM_COMPUTE) < 0 || zero(b, b->timer.ballast, b->timer.ballast_bytes) < 0 || bench_end(b, &span[i]) < 0)
            return -1;
    if (bench_settle(b) < 0)
        return -1;
    b->timer.ballast_s = span[2].to - span[2].from;
    return 0;
}

/* Ranks of a machine take its devices in turn, as dpxrun's do. */
struct device *bench_device_open(int local_rank)
{
    return device_cuda_need() < 0 ? NULL : device_cuda_open(local_rank % device_cuda_count());
}

int bench_timer_open(struct bench *b)
{
    if (!async(b))
        return 0;
    return device_anchor(b->device) < 0 ? -1 : weigh_ballast(b);
}

void bench_timer_close(struct bench *b)
{
    if (b->device && async(b))
        device_unmap(b->device, b->timer.ballast, b->timer.ballast_bytes);
}

/* ---- collectives ---- */

int bench_apart(struct bench *b)
{
    struct seat { char host[256], id[64]; } mine = { "", "" }, *all = room_new((size_t)b->nranks, sizeof *all);
    int apart = 1;

    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.id, sizeof mine.id, "%.63s", b->device->id);
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        apart = fail("MPI_Allgather of the ranks' devices failed");
    for (int i = 0; i < b->nranks && apart > 0; i++)
        for (int k = 0; k < i && apart > 0; k++)
            apart = strcmp(all[i].host, all[k].host) != 0 || strcmp(all[i].id, all[k].id) != 0;
    free(all);
    return apart;
}

#ifdef DPX_CUDA
/* The lowest rank of each group makes an id.  All ranks of the world are in one group each. */
static struct comm *open_nccl(struct bench *b, const struct comm_args *a)
{
    struct told { uint8_t id[COMM_NCCL_ID]; bool bad; } mine = { .bad = false }, *all = room_new((size_t)b->nranks, sizeof *all);
    struct comm *c = NULL;
    bool bad = false;

    if (b->rank == a->ranks[0])
        mine.bad = comm_nccl_id(mine.id) < 0;
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS)
        mine.bad = bad = fail("MPI_Allgather of NCCL's ids failed") < 0;
    for (int i = 0; i < b->nranks; i++)
        bad |= all[i].bad;
    if (!bad)
        c = comm_nccl_open(a, b->device, all[a->ranks[0]].id);
    else if (!mine.bad)
        fail("another rank has no id for its NCCL group");
    free(all);
    return c;
}
#else
static struct comm *open_nccl(struct bench *b, const struct comm_args *a)
{
    (void)b, (void)a;
    fail("this dpxcal was built without NCCL");
    return NULL;
}
#endif

struct comm *bench_comm(struct bench *b, const int *ranks, int n, const char *name, void **staging)
{
    struct comm_args a = { .ranks = ranks, .nranks = n, .stop = b->stop, .busy = &b->busy, .name = name };

    *staging = NULL;
    if (device_async(b->device))
        return open_nccl(b, &a);
    a.staging = *staging = bench_memory(comm_staging(n));
    return *staging ? comm_mpi_open(&a) : NULL;
}

/* ---- words ---- */

#ifdef DPX_CUDA
void bench_versions(struct bench *b, char *kernels, size_t kernels_size, char *comm, size_t comm_size)
{
    char cuda[96] = "";

    device_cuda_versions(b->device, cuda, sizeof cuda);
    snprintf(kernels, kernels_size, "%s, %s", kernels_ops(b->k)->name, cuda);
    snprintf(comm, comm_size, "%s", comm_nccl_version());
}
#else
void bench_versions(struct bench *b, char *kernels, size_t kernels_size, char *comm, size_t comm_size)
{
    snprintf(kernels, kernels_size, "%s", kernels_ops(b->k)->name);
    snprintf(comm, comm_size, "none");
}
#endif
