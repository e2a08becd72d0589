/* zero3_coordinator.h -- which parameters stage 3 gathers, waits for and releases
 * at each module; for lower_zero3*.c only.
 *
 * Source: deepspeed/runtime/zero/partitioned_param_coordinator.py of 0.19.6.  The
 * coordinator knows nothing of buffers or streams: it tells its caller through
 * `calls`.  Its state at the start of a micro-step is which parameters are there,
 * and from the first complete micro-step on the answers of __params_to_release,
 * which DeepSpeed caches for ever. */
#ifndef DPX_ZERO3_COORDINATOR_H
#define DPX_ZERO3_COORDINATOR_H

#include "model/framework/deepspeed_3/zero3_trace.h"

enum z3_status { Z3_ABSENT, Z3_INFLIGHT, Z3_AVAILABLE };
enum z3_mode   { Z3_INVALID, Z3_RECORD, Z3_COMPLETE };

struct z3_calls {
    void *arg;
    void (*gather)(void *arg, const int *tensors, int n);   /* ascending; all absent before */
    void (*gather_now)(void *arg, int tensor);              /* absent, and needed at once */
    void (*await)(void *arg, int tensor);                   /* one in flight is needed */
    void (*ready)(void *arg, int module);                   /* all of a module's were awaited */
    void (*release)(void *arg, int tensor);
    /* Where partitions are on disk, else NULL: not in host memory, nor on its way there; buffers that are free; they are
     * read ahead. */
    bool (*absent)(void *arg, int tensor);
    int  (*buffers)(void *arg);
    void (*read)(void *arg, const int *tensors, int n);
};

struct z3_coord {
    const struct model    *m;
    const struct z3_trace *t;
    struct z3_calls calls;
    int64_t   max_live, prefetch, max_reuse;    /* elements */
    enum z3_mode mode;
    int       step;
    int64_t   available;            /* as DeepSpeed counts: from 0 at each micro-step */
    int64_t   flying;               /* elements that are being gathered */
    uint8_t  *status, *active, *persistent;     /* per tensor */
    int      *recent;               /* step for which it was last fetched */
    int      *queue_tensor, *queue_step, head;  /* uses of a whole micro-step, in order */
    int64_t  *before;               /* per step: elements used by the steps before it, but leaves' */
    int      *fetched;              /* per step: its module */
    int      *use_first, *use_next, *uses;      /* per tensor: its steps, ascending */
    uint32_t *cache;                /* per event: 1 + own tensors that its release frees */
    int      *open, nopen;          /* modules fetched in backward, not released */
    int      *again, nagain, owner; /* frozen parameters that a recomputation fetched, and the module that releases them, too */
    int      *batch;
};

/* 0, or -1 with the reason reported.  z3_coord_free() in any case. */
int  z3_coord_init(struct z3_coord *c, const struct local_model *local, const struct z3_trace *t,
                   struct z3_calls calls, int64_t prefetch);
void z3_coord_free(struct z3_coord *c);

/* A micro-step begins: reset_step.  Returns the mode before. */
enum z3_mode z3_coord_begin(struct z3_coord *c);
void z3_coord_fetch(struct z3_coord *c, const struct z3_event *e);
void z3_coord_release(struct z3_coord *c, const struct z3_event *e);
void z3_coord_ask(struct z3_coord *c, const struct z3_event *e);
/* After backward: release_backward_leftovers. */
void z3_coord_end(struct z3_coord *c);
/* The step begins: everything is partitioned, persistent parameters too. */
void z3_coord_release_all(struct z3_coord *c);

#endif
