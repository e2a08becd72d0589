/* device.c -- dispatch, and the host's device: memory of the system's, and nothing to wait for. */
#include "exec/device/device.h"

#include <assert.h>
#include <stdlib.h>

#include "base/fail.h"
#include "exec/device/pages.h"

/* ---- the host ---- */

static void *host_map(struct device *d, int64_t bytes)
{
    void *p = pages_allocate(bytes);

    (void)d;
    if (!p)
        fail("no memory for %lld bytes", (long long)bytes);
    return p;
}

static void host_unmap(struct device *d, void *p, int64_t bytes)
{
    (void)d, (void)bytes;
    free(p);
}

static const struct device_ops host_ops = { .kind = "cpu", .map = host_map, .unmap = host_unmap,
                                            .pin = host_map, .unpin = host_unmap };

struct device *device_host(void)
{
    static struct device host = { .ops = &host_ops, .name = "this machine" };

    return &host;
}

/* ---- CUDA, where it is not ---- */

#ifdef DPX_CUDA
bool device_cuda_built(void) { return true; }
#else
bool device_cuda_built(void) { return false; }
int  device_cuda_count(void) { return 0; }
int  device_cuda_need(void) { return fail("this dpxrun was built without CUDA"); }

struct device *device_cuda_open(int ordinal)
{
    (void)ordinal;
    fail("this dpxrun was built without CUDA");
    return NULL;
}
#endif

/* ---- dispatch ---- */

void device_close(struct device *d)
{
    if (d && d->ops->close)
        d->ops->close(d);
}

void *device_map(struct device *d, int64_t bytes) { return d->ops->map(d, bytes); }
void *device_pin(struct device *d, int64_t bytes) { return d->ops->pin(d, bytes); }

void device_unmap(struct device *d, void *p, int64_t bytes)
{
    if (p)
        d->ops->unmap(d, p, bytes);
}

void device_unpin(struct device *d, void *p, int64_t bytes)
{
    if (p)
        d->ops->unpin(d, p, bytes);
}

int64_t device_used(struct device *d) { return d->ops->used ? d->ops->used(d) : -1; }
int64_t device_process_used(struct device *d) { return d->ops->process_used ? d->ops->process_used(d) : -1; }
int64_t device_memory(struct device *d) { return d->ops->memory ? d->ops->memory(d) : -1; }
int device_enter(struct device *d)    { return d->async ? d->ops->enter(d) : 0; }
int device_anchor(struct device *d)   { return d->async ? d->ops->anchor(d) : 0; }

int device_mark(struct device *d, enum stream s, int64_t number)
{
    d->marked[s] = number;
    return d->async ? d->ops->mark(d, s, number) : 0;
}

int device_after(struct device *d, enum stream s, enum stream of, int64_t number)
{
    return d->async ? d->ops->after(d, s, of, number) : 0;
}

int device_wait(struct device *d, enum stream of, int64_t number, const atomic_bool *stop)
{
    return d->async ? d->ops->wait(d, of, number, stop) : 0;
}

int device_begin(struct device *d, enum stream s, int64_t number)
{
    return d->async ? d->ops->begin(d, s, number) : 0;
}

int device_times(struct device *d, enum stream s, int64_t number, double *start, double *end)
{
    assert(d->async);
    return d->ops->times(d, s, number, start, end);
}

struct CUstream_st *device_cuda_stream(struct device *d, enum stream s)
{
    return d->async ? d->ops->stream(d, s) : NULL;
}

int device_fetch(struct device *d, struct CUstream_st *s, void *host, const void *from, int64_t bytes)
{
    assert(d->async);
    return d->ops->fetch(d, s, host, from, bytes);
}

int device_store(struct device *d, struct CUstream_st *s, void *to, const void *host, int64_t bytes)
{
    assert(d->async);
    return d->ops->store(d, s, to, host, bytes);
}

int device_drain(struct device *d, struct CUstream_st *s, const atomic_bool *stop)
{
    return d->async ? d->ops->drain(d, s, stop) : 0;
}
