/* bounds.h -- what a plan holds at least, by arithmetic on its kernels: no schedule is made.
 *
 *     if (bounds_bytes(&plan, &program) > available)
 *         ... it does not fit ...
 *
 * The search leaves out what a bound refuses; a bound above the truth would make its answer wrong, and
 * tests/sim/test_bounds.c compares both. */
#ifndef DPX_BOUNDS_H
#define DPX_BOUNDS_H

#include "model/program/program.h"
#include "sim/price/kernel_cost.h"

/* Device memory of the fullest rank, bytes: when the last micro-step's forward ends, it has the parameters and optimizer states that
 * it keeps all the time, gradients (bounds_keeps_grads), what all blocks keep for backward, and the head's own.  Of a pipeline that of the first stage's
 * blocks, for as many micro-steps as its schedule has in flight.  Blocks' parameters count whole where FSDP leaves them so behind a forward, and
 * gradients where it reduces them in the last micro-step alone.
 * What is kept elsewhere, or may be, counts nothing. */
int64_t bounds_bytes(const struct plan *p, const struct program *g);

/* Of that, what schedules allocate; and what no schedule does (model/memory/overhead.h), as far as it is known that the plan has it. */
int64_t bounds_held(const struct plan *p, const struct program *g);
int64_t bounds_overhead(const struct plan *p);

/* Are gradients there when a forward ends?  Megatron-LM's buffer always is; others' after a step's first micro-step, at least as much as
 * the rank has optimizer states for. */
bool bounds_keeps_grads(const struct plan *p);

/* Of that, parameters, gradients and optimizer states, which need no program. */
int64_t bounds_states(const struct plan *p);

/* Of that, what is the same in all plans with the same program, bytes. */
int64_t bounds_activations(const struct plan *p, const struct program *g);

/* Host memory of a node, bytes: what blocks keep for backward where that waits in host memory. */
int64_t bounds_host_bytes(const struct plan *p, const struct program *g);

/* Is that more than a node has, where that is known? */
bool bounds_host_is_short(const struct plan *p, const struct program *g);

/* What a steady step takes, seconds: the kernels of one stage's blocks and the collectives between them that they wait for, m times,
 * and of the embedding and the head where it has them; before a stage's first forward the stages ahead of it do theirs, and
 * after its last backward theirs (where backward is in two halves this may be as good as over by then, and counts nothing).
 * Of all stages the one of which this is most; and the wait for the slowest rank that the least busy stage's kernels make.
 * Other collectives, the optimizer and waits come on top.  `cache` fits the plan. */
double bounds_step_s(const struct plan *p, const struct program *g, struct cost_cache *cache);

#endif
