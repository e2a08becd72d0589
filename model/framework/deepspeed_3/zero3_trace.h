/* zero3_trace.h -- the module hooks of one micro-step, in the order in which
 * DeepSpeed's stage 3 sees them; for lower_zero3*.c only.
 *
 * Every nn.Module that is called as a module has hooks, containers and modules
 * without parameters too: they advance the coordinator's step count.  The families'
 * trees are tables (zero3_tree.c); a model of no family has its modules in the order
 * of their roles, without containers. */
#ifndef DPX_ZERO3_TRACE_H
#define DPX_ZERO3_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/framework/deepspeed/lower_ds.h"

enum z3_kind {
    Z3_ENTER, Z3_LEAVE,             /* a pass of a piece begins, ends (not hooks) */
    Z3_FETCH,                       /* before a module's forward or backward */
    Z3_RELEASE,                     /* after it */
    Z3_GRAD,                        /* a gradient of the module is ready */
    Z3_ASK,                         /* a module asks for something of the weight of another, `tensor` */
};

struct z3_event {
    uint8_t kind, piece, pass;
    bool    backward;               /* FETCH, RELEASE: of backward, not of a recomputed forward */
    bool    late;                   /* FETCH: its kernels follow a recomputation */
    int     module;                 /* index into modules[] */
    int     tensor;                 /* GRAD, ASK */
    int     kernel;                 /* of a recorded module: before which of the pass's kernels; -1: the module's own tell */
    int     block;
};

enum { Z3_MOST_OWN = 30 };

struct z3_module {
    int first, n;                   /* its own tensors in model->tensors, up to Z3_MOST_OWN, */
    const int *own;                 /* or, where they do not follow each other, these */
    int all_first, all_n;           /* with all below it */
    int kernel_module;              /* as in struct kernel, or -1 */
    int more_modules;               /* of a leaf: so many that follow it are in it too */
    int bit;                        /* its mark on its tensors: 1, or 2 where they are another's */
    bool has_backward;              /* backward comes to it */
    bool external;                  /* they are its own from when it first asks for them, in the first forward of all */
};

/* Tensor k of n. */
static inline int z3_own_tensor(const struct z3_module *m, int k) { return m->own ? m->own[k] : m->first + k; }

struct z3_trace {
    struct z3_event  *events;
    int               nevents;
    int64_t           cap_events;
    int               backward;     /* the first event of backward */
    struct z3_module *modules;
    int               nmodules;
    int             **lists;        /* modules' `own` */
    int64_t           nlists, cap_lists;
    int               nsteps;       /* fetches */
    int               nuses;        /* their modules' own tensors, added up */
};

/* How many hooks a pass of each piece has (struct schedules). */
void z3_trace_hooks(const struct z3_trace *t, uint16_t hooks[NPIECE][NPASS][NPASS]);

/* 0, or -1 with the reason reported.  z3_trace_free() in any case. */
int  z3_trace_build(const struct ds *d, struct z3_trace *t);
/* The same of a recorded module (zero3_recorded.c); `t` is zeroed. */
int  z3_trace_recorded(const struct ds *d, struct z3_trace *t);
/* Appends an event. */
struct z3_event *z3_trace_event(struct z3_trace *t, enum z3_kind kind, int module, int block);
void z3_trace_free(struct z3_trace *t);

#endif
