/* order_check.h -- before the first step: do all ranks issue the same collectives, in the same order?
 *
 * A rank that issues another collective than its group waits for ever, or adds gradients to weights.  So the
 * members of each group compare a hash of their collectives (op, dtype, elements, root, of all three schedules),
 * and each pair of ranks compares what one sends with what the other receives, in order, in messages and in all-to-alls of
 * unequal parts. */
#ifndef DPX_ORDER_CHECK_H
#define DPX_ORDER_CHECK_H

#include <mpi.h>

#include "model/schedule/schedule.h"

/* 0, or -1 on every rank with the ranks that differ reported by rank 0.  MPI_COMM_NULL: 0. */
int order_check(const struct schedules *s, MPI_Comm control);

#endif
