/* requests_turns.h -- models that take turns in one process, on one allocator.
 *
 *     struct requests_role *r = requests_role_new(&plan, &schedules, options, &target);      its weights are there
 *     requests_role_step(r);                          an optimizer step: the first one, then steady ones
 *     requests_role_move(r, CATEGORIES, false);       to host memory, its blocks given back; true: on the device again
 *     requests_forward(&plan, &schedules, options, &target);      a micro-step without gradients, of which nothing stays
 *     requests_role_free(r);
 *
 * A forward is the training schedule's own, of a plan with full recompute and one micro-step, up to its first backward: what training alone has
 * (category_is_of_training()) is left out, and what a block keeps for its backward goes behind it.  Weights are a role's: a forward makes none.
 *
 * Before and behind a forward the host has waited for the device, as it does to read what comes of one.  Workspaces of cuBLAS are a process's: where they are kept the first turn makes them. */
#ifndef DPX_REQUESTS_TURNS_H
#define DPX_REQUESTS_TURNS_H

#include "model/memory/requests.h"

/* Bits of categories that move together. */
enum { MOVES_WEIGHTS = 1 << CAT_PARAMS, MOVES_STATES = 1 << CAT_OPTIMIZER, MOVES_REST = (1 << NCAT) - 1 - MOVES_WEIGHTS - MOVES_STATES,
       MOVES_GRADIENTS = 1 << CAT_GRADS | 1 << CAT_UNSHARDED_GRADS | 1 << CAT_BUCKET };

struct requests_process { int workspace[2]; };      /* of forward and backward; -1: not yet made */
struct requests_role;

/* Without gradients and states where it `infers`.  The caller's pointers must outlive it. */
struct requests_role *requests_role_new(const struct plan *p, const struct schedules *s, struct request_options o, const struct request_target *t,
                                        struct requests_process *process, bool infers);
void requests_role_free(struct requests_role *r);
void requests_role_step(struct requests_role *r);
void requests_role_move(struct requests_role *r, unsigned categories, bool there);
/* Frees of what was never made, or -1: the target had no room. */
int64_t requests_role_wrong(const struct requests_role *r);

/* The same of the forward. */
int64_t requests_forward(const struct plan *p, const struct schedules *s, struct request_options o, const struct request_target *t,
                         struct requests_process *process);

#endif
