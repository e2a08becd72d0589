/* cudart_stub.c -- as much of the CUDA runtime and driver as PyTorch's allocator calls, without a GPU.
 *
 * Memory is a count against STUB_CAPACITY bytes and addresses that only rise; streams are numbers; an event has
 * completed once stub_complete() was called for its stream after it was recorded. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 64, GRAIN = 2 << 20 };

static size_t used;
static size_t next_address = GRAIN;
static long recorded[STREAMS], completed[STREAMS];

struct event { int stream; long number; };

static size_t capacity(void)
{
    const char *text = getenv("STUB_CAPACITY");

    return text ? strtoull(text, NULL, 10) : (size_t)80 << 30;
}

static size_t in_grains(size_t bytes) { return (bytes + GRAIN - 1) / GRAIN * GRAIN; }

/* Streams are their number in the bits that PyTorch leaves to pointers: 0 is the default stream. */
static int number(cudaStream_t s) { return (int)((size_t)s >> 8) % STREAMS; }

void stub_complete(int stream) { completed[stream] = recorded[stream]; }

void stub_complete_until(int stream, long event)
{
    if (event > completed[stream])
        completed[stream] = event;
}

/* ---- memory ---- */

/* Sizes lie before nothing: a table by address. */
static struct { size_t at, bytes; } segments[1 << 16];
static int nsegments;

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    if (in_grains(bytes) > capacity() - used)
        return cudaErrorMemoryAllocation;
    used += in_grains(bytes);
    *p = (void *)next_address;
    segments[nsegments].at = next_address;
    segments[nsegments++].bytes = in_grains(bytes);
    next_address += in_grains(bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    for (int i = 0; i < nsegments; i++)
        if (segments[i].at == (size_t)p) {
            used -= segments[i].bytes;
            segments[i] = segments[--nsegments];
            return cudaSuccess;
        }
    return p ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = capacity();
    *free_bytes = *total - used;
    return cudaSuccess;
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *d) { *d = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int d) { (void)d; return cudaSuccess; }
cudaError_t cudaInitDevice(int d, unsigned a, unsigned b) { (void)d, (void)a, (void)b; return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { (void)a, (void)b; *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) { *least = 0, *most = -1; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) { (void)a, (void)d; *v = 1; return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
    (void)d;
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stub");
    p->totalGlobalMem = capacity();
    p->major = 9;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t e) { (void)e; return "error of the stub"; }
const char *cudaGetErrorName(cudaError_t e) { (void)e; return "error of the stub"; }

/* ---- streams and events ---- */

cudaError_t cudaStreamSynchronize(cudaStream_t s) { stub_complete(number(s)); return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t s) { (void)s; return cudaSuccess; }

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *is)
{
    (void)s;
    *is = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m) { (void)m; return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof(struct event));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) { free(e); return cudaSuccess; }

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    struct event *at = (struct event *)e;

    at->stream = number(s);
    at->number = ++recorded[at->stream];
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
    (void)flags;
    return cudaEventRecord(e, s);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    const struct event *at = (const struct event *)e;

    return at->number <= completed[at->stream] ? cudaSuccess : cudaErrorNotReady;
}

/* Waiting for an event does not advance what later queries see of others. */
cudaError_t cudaEventSynchronize(cudaEvent_t e) { (void)e; return cudaSuccess; }

/* ---- the driver: expandable segments ---- */

static CUresult stub_reserve(CUdeviceptr *p, size_t bytes, size_t a, CUdeviceptr b, unsigned long long c)
{
    (void)a, (void)b, (void)c;
    *p = next_address;
    next_address += in_grains(bytes);
    return CUDA_SUCCESS;
}

/* The handle is its size. */
static CUresult stub_create(CUmemGenericAllocationHandle *h, size_t bytes, const CUmemAllocationProp *p, unsigned long long f)
{
    (void)p, (void)f;
    if (in_grains(bytes) > capacity() - used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    used += in_grains(bytes);
    *h = in_grains(bytes);
    return CUDA_SUCCESS;
}

static CUresult stub_release(CUmemGenericAllocationHandle h) { used -= (size_t)h; return CUDA_SUCCESS; }

/* Map, unmap, access, address free, and what is only looked up. */
static CUresult stub_nothing(void) { return CUDA_SUCCESS; }

static CUresult stub_capturing(CUstream s, CUstreamCaptureStatus *is)
{
    (void)s;
    *is = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static void *driver(const char *name)
{
    if (!strcmp(name, "cuMemAddressReserve"))
        return (void *)stub_reserve;
    if (!strcmp(name, "cuMemCreate"))
        return (void *)stub_create;
    if (!strcmp(name, "cuMemRelease"))
        return (void *)stub_release;
    if (!strcmp(name, "cuStreamIsCapturing"))
        return (void *)stub_capturing;
    return (void *)stub_nothing;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **p, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *r)
{
    (void)version, (void)flags;
    *p = driver(name);
    if (r)
        *r = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
