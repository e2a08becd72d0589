/* requests.h -- a plan's schedules as requests to PyTorch's allocator, in the order in which the issuing thread
 * makes them.
 *
 * Init, the first and two steady steps; the second one only to the entry from which on it is as the first (requests_follow.c).  A buffer
 * is one request, or one for each of its parts; inside compute
 * entries come the kernels' own (struct move), with a workspace of cuBLAS around each product.  A request is
 * made on the stream of its entry; the issuing thread and process groups' streams allocate on compute's.
 *
 * FSDP1 and DeepSpeed's stage 3 record the streams that use a buffer when they free it (record_stream()).  Its
 * memory is free once those streams have reached the free, which the issuing thread sees at a later request.  The
 * issuing thread is taken to be as far ahead as the schedule allows, as where the device is the bottleneck: it
 * knows a stream to be where it last waited for that stream, or for another one that had waited for it.  On
 * streams that a wait does not name, work issued before the previous wait is taken as done.
 *
 * With CUDA graphs, what captured kernels allocate is in a pool of the graphs' own, which no other request and no retry touches; where
 * the capture comes behind the first step (Megatron-core) the cache is empty then.
 *
 * Only for kernels of PyTorch: those of dpx live in an arena. */
#ifndef DPX_REQUESTS_H
#define DPX_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/allocator/caching_allocator.h"
#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

/* The target of the requests.  allocate() returns a handle >= 0, or -1: the walk ends there. */
struct request_target {
    void *of;
    int  (*allocate)(void *of, int64_t bytes, int stream);
    void (*release)(void *of, int block);
    void (*record)(void *of, int block, int stream);
    void (*complete)(void *of, int stream, int64_t event);  /* caching_allocator_complete_until() */
    int64_t (*events)(void *of, int stream);                /* recorded on the stream so far */
    const struct caching_stats *stats;
    void (*empty)(void *of);                                /* caching_allocator_empty_cache() */
    void (*keep)(void *of, int stream);                     /* caching_allocator_keep() */
    /* NULL: allocate() and release(). */
    int  (*touch)(void *of, int64_t bytes, int stream);     /* caching_allocator_touch() */
    /* NULL: these two and touch(). */
    int  (*serve)(void *of, const struct caching_step *steps, int n, int stream, int *block, uint64_t *trail);      /* caching_allocator_serve() */
    /* NULL: each step is walked to its end; else what is left asks nothing of the device, and the target is left as it was there. */
    void (*watch)(void *of, const int *held, int n);        /* caching_allocator_watch() */
    bool (*follow)(void *of, const int *held, int n);       /* caching_allocator_follow() */
    bool (*met)(void *of);                                  /* caching_allocator_met() */
    /* caching_allocator_state(), _number(), _address() and _completed(): a walk leaves out iterations of a repeat that begin where one before
     * began.  NULL: it makes all requests. */
    int64_t (*state)(void *of, int64_t *out);
    int     (*number)(void *of, int block);
    int64_t (*address)(void *of, int block);
    int64_t (*completed)(void *of, int stream);
    void (*begin)(void *of);                                /* NULL: nothing is told; else a schedule begins, of `out`->sched */
};

struct request_report {
    int64_t requests;
    int64_t unmatched;              /* frees of tensors that do not exist: 0 in a correct walk */
    /* Of the last steady step: how often the cache was given back to the device, and how often memory was asked from and
     * given back to the device in all. */
    int64_t steady_retries, steady_calls;
    int64_t retries;                /* of all steps, of iterations that were left out too: the target counts those that were not */
    int64_t refused;                /* bytes of the request that failed; 0: none did */
    bool    out_of_memory;          /* at entry `op` of schedule `sched` */
    enum sched_id sched;
    int     op;
    int64_t iteration;              /* of the innermost repeat around the entry */
};

/* `emptied`: the script calls torch.cuda.empty_cache() between init and the first step.
 * Bytes of cuBLAS's workspace, `workspace`: allocated once for forward and once for backward (the autograd
 * engine has a thread and a handle of its own) where `kept`, else around each product.  0: none.  `statics`: graphs_static_bytes(); `logits`: loss_stays_bytes(), there from the first head on.
 * `proven`: no iteration is left out by a rule of measurement (requests_again.c). */
struct request_options { int64_t workspace; bool workspace_kept, emptied; int64_t statics, logits; bool proven; };

void requests_walk(const struct plan *p, const struct schedules *s, struct request_options o,
                   const struct request_target *t, struct request_report *out);

#endif
