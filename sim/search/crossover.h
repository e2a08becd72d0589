/* crossover.h -- how fast the network between nodes is where two plans take as long: by the clock, with that speed varied.
 *
 *     double at = crossover_find(&first, &second);        bytes/s and node, as cluster.inter; 0: none
 *
 * Measured collectives between nodes are those of the network as it is: at another speed what one takes beyond the least message of
 * its sweep changes in proportion, and that least one's time stays. */
#ifndef DPX_CROSSOVER_H
#define DPX_CROSSOVER_H

#include <stdbool.h>

#include "model/plan/plan.h"

/* A plan whose network's speed is varied. */
struct crossover_plan;
struct crossover_plan *crossover_open(const struct plan *p);       /* NULL with the reason reported */
void           crossover_close(struct crossover_plan *s);          /* accepts NULL */

/* By PyTorch's allocator, which is asked the first time; what it does again in every step counts from then on. */
bool           crossover_fits(struct crossover_plan *s);

/* Seconds of its step on a network of `by` times the speed; negative, reported, where it cannot be said.  By any thread. */
double crossover_step(struct crossover_plan *s, double by);
/* The same of n plans on all cores. */
void   crossover_steps(struct crossover_plan *const *of, int n, double by, double *out);

/* The speed as a share of the present one, at which a and b take as long: of several the nearest to it, up to 1024 times slower or
 * faster; within 0.1 %.  0: none.  *slower: on a slower network b takes less. */
double crossover_share(struct crossover_plan *a, struct crossover_plan *b, bool *slower);

/* The same of two plans of one cluster, in bytes/s and node; 0 also where one of them cannot be timed. */
double crossover_find(const struct plan *a, const struct plan *b, bool *slower);

#endif
