/* device.h -- where the arena lies and kernels compute: the host, or one CUDA device.
 *
 *     struct device *d = device_cuda_open(0);              (or device_host())
 *     void *p = device_map(d, bytes);
 *     struct kernels *k = kernels_open_on(d, STREAM_COMPUTE, ...);     ... queues and returns
 *     device_mark(d, STREAM_COMPUTE, 1);                   task 1 is all that was queued so far
 *     device_after(d, STREAM_REDUCE, STREAM_COMPUTE, 1);   what REDUCE is given next comes after it
 *     device_wait(d, STREAM_COMPUTE, 1, &stop);            the host waits for it
 *     device_close(d);
 *
 * On the host a call that returns is done.  An *asynchronous* device has a FIFO for each
 * stream: kernels, copies and collectives are queued there and calls return at once.  Order between
 * streams, and between a stream and the host, is made by marks alone: task `number` (1, 2, ... on each
 * stream, as lanes.h counts) is what was queued up to its mark.  The last DEVICE_MARKS marks of a
 * stream are kept, mark n in place n % DEVICE_MARKS: a wait for an older one waits for the
 * mark that replaced it, which is later and already made.  Numbers of a stream only grow, also from
 * lanes to the next that are opened on the device (marked[]); some may be left out.
 *
 * Each stream is given work by one thread at a time; other threads may wait for it.  A device is a
 * file that ends in a table, as a comm is; the host's table is empty but for its memory. */
#ifndef DPX_DEVICE_H
#define DPX_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "model/schedule/schedule.h"

struct device;
struct kernels;
struct CUstream_st;                     /* cudaStream_t points to one */

enum { DEVICE_MARKS = 4096 };           /* twice the tasks that a lane can have in its queue */

/* All return 0, or -1 (NULL) with the reason reported.  A device that is not asynchronous needs
 * map and unmap alone. */
struct device_ops {
    const char *kind;                   /* "cpu", "cuda": what JSON calls it */
    void *(*map)(struct device *d, int64_t bytes);          /* aligned to 256 at least; contents undefined */
    void  (*unmap)(struct device *d, void *p, int64_t bytes);
    void *(*pin)(struct device *d, int64_t bytes);          /* host memory that copies are fast from */
    void  (*unpin)(struct device *d, void *p, int64_t bytes);
    int   (*enter)(struct device *d);                       /* the calling thread will use the device */

    int   (*mark)(struct device *d, enum stream s, int64_t number);
    int   (*after)(struct device *d, enum stream s, enum stream of, int64_t number);
    int   (*wait)(struct device *d, enum stream of, int64_t number, const atomic_bool *stop);

    int   (*anchor)(struct device *d);
    int   (*begin)(struct device *d, enum stream s, int64_t number);
    int   (*times)(struct device *d, enum stream s, int64_t number, double *start, double *end);

    struct CUstream_st *(*stream)(struct device *d, enum stream s);
    int   (*fetch)(struct device *d, struct CUstream_st *s, void *host, const void *from, int64_t bytes);
    int   (*store)(struct device *d, struct CUstream_st *s, void *to, const void *host, int64_t bytes);
    int   (*drain)(struct device *d, struct CUstream_st *s, const atomic_bool *stop);

    int64_t (*used)(struct device *d);
    int64_t (*process_used)(struct device *d);
    int64_t (*memory)(struct device *d);
    struct kernels *(*kernels)(struct device *d, enum stream s, int threads, void *workspace, int64_t bytes,
                               bool reference);
    void  (*close)(struct device *d);
};

struct device {
    const struct device_ops *ops;
    bool  async;
    char  name[96];                     /* "NVIDIA H200", "this machine" */
    char  id[64];                       /* the same in every process of a machine: PCI bus id or UUID */
    int64_t marked[NSTREAM];            /* the last mark; kept by device_mark() */
    void *self;                         /* the backend's */
};

struct device *device_host(void);                   /* static; device_close() leaves it */
/* exec/cuda/device_cuda.c; without CUDA: NULL, and fail() says so.  The calling thread has entered it. */
struct device *device_cuda_open(int ordinal);
/* Devices that this process sees; 0 without a driver or without CUDA built in, and nothing is said. */
int            device_cuda_count(void);
/* 0: there is one, and the library of its matrix products; else -1 reported, each thing that is not there by its name. */
int            device_cuda_need(void);
bool           device_cuda_built(void);
void           device_close(struct device *d);      /* accepts NULL */

static inline bool        device_async(const struct device *d) { return d->async; }
static inline const char *device_name(const struct device *d)  { return d->name; }

/* ---- memory ---- */

void *device_map(struct device *d, int64_t bytes);
void  device_unmap(struct device *d, void *p, int64_t bytes);       /* accepts NULL */
void *device_pin(struct device *d, int64_t bytes);
void  device_unpin(struct device *d, void *p, int64_t bytes);       /* accepts NULL */
/* Bytes in use on the device, by whomever, as its driver reports; -1: not known (the host). */
int64_t device_used(struct device *d);
/* Of these, this process's; -1: not known. */
int64_t device_process_used(struct device *d);
/* Bytes that it has in all; -1: not known (the host). */
int64_t device_memory(struct device *d);

/* ---- kernels ---- */

/* kernels_open() for a stream of a device: on the host that; on an asynchronous device the workspace
 * is device memory, of workspace_device() bytes for the compute stream (model/program/workspace.h), NULL and 0
 * for the others.  kernels_open.c. */
struct kernels *kernels_open_on(struct device *d, enum stream s, int threads, void *workspace, int64_t bytes,
                                bool reference);

/* ---- order ---- */

/* Every thread that uses an asynchronous device begins with it (cudaSetDevice). */
int device_enter(struct device *d);
/* What was queued on s so far is task `number`. */
int device_mark(struct device *d, enum stream s, int64_t number);
/* s waits, on the device, for that mark of another stream, which was made before. */
int device_after(struct device *d, enum stream s, enum stream of, int64_t number);
/* The calling thread waits for the mark, which was made.  0 as well when `stop` was set before that. */
int device_wait(struct device *d, enum stream of, int64_t number, const atomic_bool *stop);

/* ---- times: only while tasks are recorded ---- */

/* Nothing is queued: from now on times are read against the host's clock of this moment. */
int device_anchor(struct device *d);
/* Task `number` begins with what is queued on s next, when it begins. */
int device_begin(struct device *d, enum stream s, int64_t number);
/* After device_wait(): when it ran, in seconds of the clock of lanes_now(). */
int device_times(struct device *d, enum stream s, int64_t number, double *start, double *end);

/* ---- for collectives ---- */

/* NULL on the host.  NCCL's calls are queued on it. */
struct CUstream_st *device_cuda_stream(struct device *d, enum stream s);
/* Queued: host memory from device_pin() is written (read) when device_drain() has returned. */
int device_fetch(struct device *d, struct CUstream_st *s, void *host, const void *from, int64_t bytes);
int device_store(struct device *d, struct CUstream_st *s, void *to, const void *host, int64_t bytes);
/* Waits for all that is queued on s.  -1 when `stop` (may be NULL) is set before that. */
int device_drain(struct device *d, struct CUstream_st *s, const atomic_bool *stop);

#endif
