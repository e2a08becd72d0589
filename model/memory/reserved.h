/* reserved.h -- what PyTorch's allocator reserves for a plan: its schedules' requests (requests.h) through the
 * replay of the allocator (model/allocator), on a device with the plan's memory.
 *
 *     struct reserved r;
 *     reserved_of(&plan, &schedules, &overhead, NULL, &r);
 *     if (r.known)
 *         ... r.reserved_peak, r.retries ...
 *
 * Known for kernels of PyTorch on GPUs; dpx's own live in an arena, and ranks on the host have no such
 * allocator. */
#ifndef DPX_RESERVED_H
#define DPX_RESERVED_H

#include <jansson.h>

#include "model/memory/overhead.h"
#include "model/memory/requests.h"

struct reserved {
    bool    known;
    int64_t limit;              /* bytes the allocator may reserve: memory less context and NCCL */
    int64_t without_headroom;   /* the same less the headroom */
    bool    out_of_memory;      /* within the limit; the figures below are then those of a device with room */
    int64_t refused;            /* bytes of the request that failed */
    int64_t then_allocated, then_reserved;      /* within the limit, when it failed: the cache was given back before */
    enum sched_id sched;        /* where: at entry `op` */
    int     op;
    int64_t iteration;
    int64_t allocated_peak, active_peak, reserved_peak;
    int64_t idle;               /* of reserved_peak, what was not active then */
    int64_t inactive_split;     /* most bytes free in segments that are in use */
    int64_t retries;            /* times that the cache was given back to the device: a synchronisation each */
    int64_t steady_retries, steady_calls;       /* of a steady step (requests.h); not of one that runs out of memory */
    int64_t requests;
    int64_t driver;             /* what nvidia-smi shows for the process: reserved, NCCL, context */
};

/* Kernels of PyTorch on GPUs?  Not of the paper's pipelines: what these kernels free of what a stage sent is not followed. */
bool reserved_is_known(const struct plan *p);

/* `conf`: the allocator's options; NULL: those of torch by default.  0; -1, reported, where the walk frees what was never made: an error of
 * dpx, and no figure is known. */
int  reserved_of(const struct plan *p, const struct schedules *s, const struct overhead *o,
                 const struct caching_options *conf, struct reserved *out);
/* The same without a second replay on a device with room: where a request fails, the figures are those up to
 * that request. */
int  reserved_within(const struct plan *p, const struct schedules *s, const struct overhead *o,
                     const struct caching_options *conf, struct reserved *out);

/* What a rank's allocator is left with between two steps: bytes of tensors that persist, bytes reserved, and bytes that stay reserved once
 * torch.cuda.empty_cache() was called (segments that hold something).  Of a device with room, so that nothing was given back on the way. */
struct reserved_left { bool known; int64_t live, kept, emptied; };
/* 0, or -1 as reserved_of(). */
int  reserved_left_of(const struct plan *p, const struct schedules *s, const struct caching_options *conf, struct reserved_left *out);

/* fits; tight: only within the headroom, or with the cache given back to the device on the way; does not fit.
 * Where nothing is known of reserved memory `fits`, what is allocated, decides. */
enum verdict { VERDICT_FITS, VERDICT_TIGHT, VERDICT_DOES_NOT_FIT };
enum verdict reserved_verdict(const struct reserved *r, bool fits);
const char  *verdict_name(enum verdict v);

/* Adds active_peak_bytes, reserved_peak_bytes, driver_bytes and allocator (null where not known) to the `memory`
 * object of a plan. */
void reserved_into(json_t *memory, const struct reserved *r);

/* The workspace of cuBLAS that the plan's PyTorch takes from the allocator. */
struct request_options reserved_options(const struct plan *p);

/* The replay as the target of a walk. */
struct request_target reserved_target(struct caching_allocator *a);

#endif
