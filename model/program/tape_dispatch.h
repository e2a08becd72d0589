/* tape_dispatch.h -- tokens on their way to the ranks that have their experts, and back.
 *
 * Among the ranks that share out a block's experts (GROUP_EXPERT) a rank sends each other as many rows.  What it receives is as much,
 * or more: the busiest rank's, as the plan says (parallel.expert_imbalance). */
#ifndef DPX_TAPE_DISPATCH_H
#define DPX_TAPE_DISPATCH_H

#include "model/program/tape.h"

/* x sent in parts; `numel` elements come in, a tensor of their own.  Back: the other way round. */
var  tape_dispatch(struct tape *t, const char *name, var x, int64_t numel);
/* Whole numbers, which have no gradient: as many from each rank. */
var  tape_dispatch_numbers(struct tape *t, const char *name, int64_t numel, enum dtype dt);

/* Numbers of `ranks` ranks, `numel` of each: of those that share out the experts, or that cut them too (a group's purpose). */
var  tape_gather_counts(struct tape *t, const char *name, int64_t numel, int64_t ranks, int group);

/* `numel` whole numbers, added up over the ranks of a group. */
void tape_sum_counts(struct tape *t, const char *name, int64_t numel, int group);

/* A whole number, of which all ranks take the largest. */
void tape_agree_on_most(struct tape *t, const char *name);

/* The issuing thread waits for what has been computed: it copies sizes from the device. */
void tape_await_host(struct tape *t, const char *name);

/* Backward of tape_dispatch(). */
void tape_run_dispatch(struct tape *t, const struct node *n, int out[TAPE_EDGES]);

#endif
