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

/* Device memory of the fullest rank, bytes: when a micro-step's forward ends, it has the parameters and optimizer states that
 * it keeps all the time, what all blocks keep for backward, and the head's own.  Of P stages the fullest has a P-th of
 * all at least.  What is kept elsewhere, or may be, counts nothing. */
int64_t bounds_bytes(const struct plan *p, const struct program *g);

/* Of that, what is the same in all plans with the same program, bytes. */
int64_t bounds_activations(const struct plan *p, const struct program *g);

/* Host memory of a node, bytes: what blocks keep for backward where that waits in host memory. */
int64_t bounds_host_bytes(const struct plan *p, const struct program *g);

#endif
