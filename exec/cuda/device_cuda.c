/* device_cuda.c -- device.h for one CUDA device: a non-blocking stream for each of ours, an event for
 * each mark in a ring, and waits of the host that poll, so that they can be stopped. */
#include "exec/cuda/device_cuda.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "base/fail.h"
#include "exec/cuda/kernels_cuda.h"
#include "exec/cuda/loaded.h"
#include "exec/cuda/nvml.h"
#include "exec/device/lanes.h"

/* A mark's event is without times, which makes it cheaper to record and to wait for; a task that is
 * timed has two with times instead. */
struct mark {
    cudaEvent_t plain, start, end;      /* made when they are first needed */
    int64_t     number;                 /* that was marked last in this place; 0: none */
    int64_t     timed;                  /* that was begun last */
};

struct cuda {
    struct device base;                 /* its `self` is this */
    int           ordinal;
    int           sm;                   /* 90: compute capability 9.0 */
    cudaStream_t  stream[NSTREAM];      /* NULL: the host's own streams have none */
    struct mark  *mark[NSTREAM];        /* DEVICE_MARKS of them: number % DEVICE_MARKS */
    cudaEvent_t   anchor;
    double        anchored;             /* lanes_now() when `anchor` was passed */
    struct nvml  *nvml;                 /* opened when first asked; NULL: none */
    pthread_mutex_t lock;               /* of what follows */
    bool          asked_nvml;
    char          why[256];             /* device_cuda_break() */
    atomic_bool   broken;
};

static struct cuda *cuda_of(struct device *d) { return d->self; }

int cuda_ok(int status, const char *call)
{
    if (status == cudaSuccess)
        return 0;
    return fail("%.*s: %s", (int)strcspn(call, "("), call, cudaGetErrorString((cudaError_t)status));
}

static int cuda_enter(struct device *d)
{
    return CUDA_OK(cudaSetDevice(cuda_of(d)->ordinal));
}

/* ---- waiting ---- */

/* A kernel is microseconds away, a collective may be seconds: a few tests at once, then sleeps that
 * grow.  (A blocking wait of CUDA's cannot be ended.) */
enum { SPINS = 50, SLEEP_FIRST_NS = 10000, SLEEP_LAST_NS = 100000 };

static void pause_a_little(int *spins, long *ns)
{
    struct timespec ts = { 0, *ns };

    if ((*spins)++ < SPINS) {
        sched_yield();
        return;
    }
    nanosleep(&ts, NULL);
    *ns = *ns * 3 / 2 < SLEEP_LAST_NS ? *ns * 3 / 2 : SLEEP_LAST_NS;
}

static bool is_set(const atomic_bool *flag)
{
    return flag && atomic_load_explicit(flag, memory_order_relaxed);
}

static int broken(struct cuda *c)
{
    pthread_mutex_lock(&c->lock);
    int rc = fail("%s", c->why);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

enum waited { WAITED = 0, WAIT_FAILED = -1, WAIT_STOPPED = 1 };

/* For an event, or for all of a stream.  That it is not ready is kept as the thread's last error, which
 * the next launch would take for its own. */
static enum waited wait_for(struct cuda *c, cudaEvent_t e, cudaStream_t s, const atomic_bool *stop)
{
    int spins = 0;
    long ns = SLEEP_FIRST_NS;

    for (;;) {
        cudaError_t status = e ? cudaEventQuery(e) : cudaStreamQuery(s);
        if (atomic_load(&c->broken))
            return broken(c);
        if (status == cudaSuccess)
            return WAITED;
        if (status != cudaErrorNotReady)
            return fail("%s: %s", c->base.name, cudaGetErrorString(status));
        cudaGetLastError();             /* "not ready" is no error that a later launch should report */
        if (is_set(stop))
            return WAIT_STOPPED;
        pause_a_little(&spins, &ns);
    }
}

void device_cuda_break(struct device *d, const char *why)
{
    struct cuda *c = cuda_of(d);

    pthread_mutex_lock(&c->lock);
    if (!c->why[0])
        snprintf(c->why, sizeof c->why, "%s", why);
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->broken, true);
}

/* ---- memory ---- */

static void *cuda_map(struct device *d, int64_t bytes)
{
    size_t room = 0, total = 0;
    void *p = NULL;
    cudaError_t status = cudaMalloc(&p, (size_t)(bytes > 0 ? bytes : 1));

    if (status == cudaSuccess)
        return p;
    if (status != cudaErrorMemoryAllocation || cudaMemGetInfo(&room, &total) != cudaSuccess)
        CUDA_OK(status);
    else
        fail("no memory for %lld bytes on %s: %zu of %zu are free", (long long)bytes, d->name, room, total);
    cudaGetLastError();                 /* it has been reported: no later call shall report it again */
    return NULL;
}

static void cuda_unmap(struct device *d, void *p, int64_t bytes)
{
    (void)d, (void)bytes;
    CUDA_OK(cudaFree(p));
}

/* Portable: whichever thread and device copies from it. */
static void *cuda_pin(struct device *d, int64_t bytes)
{
    void *p = NULL;

    (void)d;
    return CUDA_OK(cudaHostAlloc(&p, (size_t)(bytes > 0 ? bytes : 1), cudaHostAllocPortable)) == 0 ? p : NULL;
}

static void cuda_unpin(struct device *d, void *p, int64_t bytes)
{
    (void)d, (void)bytes;
    CUDA_OK(cudaFreeHost(p));
}

static int64_t cuda_used(struct device *d)
{
    size_t room, total;

    (void)d;
    return CUDA_OK(cudaMemGetInfo(&room, &total)) < 0 ? -1 : (int64_t)(total - room);
}

static int64_t cuda_memory(struct device *d)
{
    size_t room, total;

    (void)d;
    return CUDA_OK(cudaMemGetInfo(&room, &total)) < 0 ? -1 : (int64_t)total;
}

/* -1: there is no NVML, or it does not know the process (in a container it may see another pid). */
static int64_t cuda_process_used(struct device *d)
{
    struct cuda *c = cuda_of(d);

    pthread_mutex_lock(&c->lock);
    if (!c->asked_nvml)
        c->nvml = nvml_open(d->id);
    c->asked_nvml = true;
    int64_t bytes = c->nvml ? nvml_process_used(c->nvml) : -1;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

/* ---- order ---- */

static struct mark *mark_of(struct cuda *c, enum stream s, int64_t number)
{
    assert(number > 0);
    return &c->mark[s][number % DEVICE_MARKS];
}

static int need_event(cudaEvent_t *e, unsigned flags)
{
    return *e ? 0 : CUDA_OK(cudaEventCreateWithFlags(e, flags));
}

static cudaEvent_t event_of(const struct mark *m)
{
    return m->timed == m->number ? m->end : m->plain;
}

static int cuda_begin(struct device *d, enum stream s, int64_t number)
{
    struct cuda *c = cuda_of(d);
    struct mark *m = mark_of(c, s, number);

    if (need_event(&m->start, cudaEventDefault) < 0 || need_event(&m->end, cudaEventDefault) < 0)
        return -1;
    m->timed = number;
    return CUDA_OK(cudaEventRecord(m->start, c->stream[s]));
}

/* Numbers may begin again at 1, with new lanes on an old device. */
static int cuda_mark(struct device *d, enum stream s, int64_t number)
{
    struct cuda *c = cuda_of(d);
    struct mark *m = mark_of(c, s, number);

    if (m->timed != number && need_event(&m->plain, cudaEventDisableTiming) < 0)
        return -1;
    m->number = number;
    return CUDA_OK(cudaEventRecord(event_of(m), c->stream[s]));
}

static int cuda_after(struct device *d, enum stream s, enum stream of, int64_t number)
{
    struct cuda *c = cuda_of(d);
    const struct mark *m = mark_of(c, of, number);

    if (s == of)                        /* a stream is a FIFO */
        return 0;
    assert(m->number >= number);        /* taken again by then: a later moment will do */
    return CUDA_OK(cudaStreamWaitEvent(c->stream[s], event_of(m), 0));
}

static int cuda_wait(struct device *d, enum stream of, int64_t number, const atomic_bool *stop)
{
    struct cuda *c = cuda_of(d);
    const struct mark *m = mark_of(c, of, number);

    assert(m->number >= number);
    return wait_for(c, event_of(m), NULL, stop) == WAIT_FAILED ? -1 : 0;
}

/* ---- times ---- */

/* Passed by the device between two readings of the host's clock, `slack` apart. */
static int pass(struct cuda *c, cudaEvent_t e, double *when, double *slack)
{
    double before = lanes_now();

    if (CUDA_OK(cudaEventRecord(e, c->stream[STREAM_COMPUTE])) < 0 || CUDA_OK(cudaEventSynchronize(e)) < 0)
        return -1;
    double after = lanes_now();
    *when = (before + after) / 2;
    *slack = after - before;
    return 0;
}

/* Of a few tries the closest. */
static int cuda_anchor(struct device *d)
{
    enum { TRIES = 5 };
    struct cuda *c = cuda_of(d);
    cudaEvent_t tried = NULL, kept;
    double when = 0, slack = 0, best = 0;
    int rc = need_event(&c->anchor, cudaEventDefault) < 0 ? -1 : need_event(&tried, cudaEventDefault);

    for (int i = 0; i < TRIES && rc == 0; i++) {
        rc = pass(c, tried, &when, &slack);
        if (rc == 0 && (i == 0 || slack < best)) {
            kept = tried, tried = c->anchor, c->anchor = kept;
            c->anchored = when;
            best = slack;
        }
    }
    if (tried)
        cudaEventDestroy(tried);
    return rc;
}

/* Milliseconds of CUDA's, in fp32: within a second of the anchor, 60 ns. */
static int cuda_times(struct device *d, enum stream s, int64_t number, double *start, double *end)
{
    struct cuda *c = cuda_of(d);
    const struct mark *m = mark_of(c, s, number);
    float from, to;

    assert(m->timed == number && m->number == number);
    if (CUDA_OK(cudaEventElapsedTime(&from, c->anchor, m->start)) < 0 ||
        CUDA_OK(cudaEventElapsedTime(&to, m->start, m->end)) < 0)
        return -1;
    *start = c->anchored + 1e-3 * (double)from;
    *end = *start + 1e-3 * (double)to;
    return 0;
}

/* ---- for collectives ---- */

static struct CUstream_st *cuda_stream(struct device *d, enum stream s)
{
    return cuda_of(d)->stream[s];
}

static int cuda_fetch(struct device *d, struct CUstream_st *s, void *host, const void *from, int64_t bytes)
{
    (void)d;
    return CUDA_OK(cudaMemcpyAsync(host, from, (size_t)bytes, cudaMemcpyDeviceToHost, s));
}

static int cuda_store(struct device *d, struct CUstream_st *s, void *to, const void *host, int64_t bytes)
{
    (void)d;
    return CUDA_OK(cudaMemcpyAsync(to, host, (size_t)bytes, cudaMemcpyHostToDevice, s));
}

static int cuda_drain(struct device *d, struct CUstream_st *s, const atomic_bool *stop)
{
    return wait_for(cuda_of(d), NULL, s, stop) == WAITED ? 0 : -1;
}

/* ---- opening ---- */

static void destroy_event(cudaEvent_t e)
{
    if (e)
        cudaEventDestroy(e);
}

static void cuda_close(struct device *d)
{
    struct cuda *c = cuda_of(d);

    cuda_enter(d);
    for (int s = 0; s < NSTREAM; s++) {
        for (int i = 0; c->mark[s] && i < DEVICE_MARKS; i++) {
            destroy_event(c->mark[s][i].plain);
            destroy_event(c->mark[s][i].start);
            destroy_event(c->mark[s][i].end);
        }
        free(c->mark[s]);
        if (c->stream[s])
            cudaStreamDestroy(c->stream[s]);
    }
    destroy_event(c->anchor);
    nvml_close(c->nvml);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static const struct device_ops cuda_ops = {
    .kind = "cuda", .map = cuda_map, .unmap = cuda_unmap, .pin = cuda_pin, .unpin = cuda_unpin,
    .enter = cuda_enter, .mark = cuda_mark, .after = cuda_after, .wait = cuda_wait,
    .anchor = cuda_anchor, .begin = cuda_begin, .times = cuda_times,
    .stream = cuda_stream, .fetch = cuda_fetch, .store = cuda_store, .drain = cuda_drain,
    .used = cuda_used, .process_used = cuda_process_used, .memory = cuda_memory,
    .kernels = kernels_cuda_open, .close = cuda_close,
};

/* What others wait for goes first where blocks of both are ready: as PyTorch's FSDP has it. */
static bool is_urgent(enum stream s)
{
    return s == STREAM_COPY_IN || s == STREAM_GATHER || s == STREAM_REDUCE || s == STREAM_ALL_REDUCE ||
           s == STREAM_GROUP;
}

static int open_streams(struct cuda *c)
{
    int least, greatest;

    if (CUDA_OK(cudaDeviceGetStreamPriorityRange(&least, &greatest)) < 0)
        return -1;
    for (int s = 0; s < NSTREAM; s++) {
        int priority = is_urgent((enum stream)s) ? greatest : least;
        if (stream_is_host((enum stream)s))
            continue;
        c->mark[s] = calloc(DEVICE_MARKS, sizeof *c->mark[s]);
        if (!c->mark[s])
            return fail("out of memory for the marks of a stream");
        if (CUDA_OK(cudaStreamCreateWithPriority(&c->stream[s], cudaStreamNonBlocking, priority)) < 0)
            return -1;
    }
    return 0;
}

/* "GPU-" and 16 bytes, as nvidia-smi -L prints it. */
static void write_uuid(char *to, size_t size, const unsigned char b[16])
{
    snprintf(to, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static int describe(struct cuda *c)
{
    struct cudaDeviceProp p;

    if (CUDA_OK(cudaGetDeviceProperties(&p, c->ordinal)) < 0)
        return -1;
    c->sm = 10 * p.major + p.minor;
    snprintf(c->base.name, sizeof c->base.name, "%.*s", (int)sizeof c->base.name - 1, p.name);
    write_uuid(c->base.id, sizeof c->base.id, (const unsigned char *)p.uuid.bytes);
    if (c->sm < 80)
        return fail("%s is sm_%d: dpx needs sm_80 (A100) or later", c->base.name, c->sm);
    return 0;
}

/* Kernels are loaded when the device is opened, not at their first launch: that would wait for the device,
 * where a collective may be waiting for this very launch. */
static void load_eagerly(void)
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int device_cuda_count(void)
{
    int n = 0;

    load_eagerly();
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return n;
}

int device_cuda_need(void)
{
    const char *library = loaded_is_here(LOADED_CUBLASLT) ? "" : "; nor is cuBLASLt on this machine (DPX_CUBLASLT= names its file)";
    int n = 0;

    load_eagerly();
    cudaError_t status = cudaGetDeviceCount(&n);
    if (status == cudaSuccess && n > 0)
        return loaded_need(LOADED_CUBLASLT);
    cudaGetLastError();
    if (!loaded_driver_is_here())
        return fail("--device cuda: NVIDIA's driver is not on this machine: there is no libcuda.so.1, so no CUDA device%s", library);
    return fail("--device cuda: no CUDA device is seen here (%s; nvidia-smi lists what the driver has)%s",
                status == cudaSuccess ? "the driver shows none" : cudaGetErrorString(status), library);
}

/* Why there is none, as the driver has it: no driver, an old one, CUDA_VISIBLE_DEVICES empty. */
static int check_ordinal(int ordinal)
{
    int n = 0;

    load_eagerly();
    cudaError_t status = cudaGetDeviceCount(&n);

    if (status != cudaSuccess)
        return fail("there is no CUDA device here: %s", cudaGetErrorString(status));
    if (ordinal < 0 || ordinal >= n)
        return fail("there is no CUDA device %d: this process sees %d", ordinal, n);
    return 0;
}

struct device *device_cuda_open(int ordinal)
{
    struct cuda *c;

    if (check_ordinal(ordinal) < 0)
        return NULL;
    if (!(c = calloc(1, sizeof *c))) {
        fail("out of memory for a device");
        return NULL;
    }
    c->base = (struct device){ .ops = &cuda_ops, .async = true, .self = c };
    c->ordinal = ordinal;
    pthread_mutex_init(&c->lock, NULL);
    if (cuda_enter(&c->base) == 0 && describe(c) == 0 && open_streams(c) == 0)
        return &c->base;
    cuda_close(&c->base);
    return NULL;
}

void device_cuda_runtime(char *into, size_t size)
{
    int v = 0;

    cudaRuntimeGetVersion(&v);
    snprintf(into, size, "CUDA %d.%d", v / 1000, v % 1000 / 10);
}

void device_cuda_versions(struct device *d, char *into, size_t size)
{
    char runtime[32];
    int driver = 0;

    cudaDriverGetVersion(&driver);
    device_cuda_runtime(runtime, sizeof runtime);
    snprintf(into, size, "%s, driver %d.%d, sm_%d", runtime, driver / 1000, driver % 1000 / 10, cuda_of(d)->sm);
}
