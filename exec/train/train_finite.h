/* train_finite.h -- a run whose loss or gradient norm is NaN or infinite ends, and says where that began.
 *
 * NaN propagates: every later step would be lost.  Checked are the global batch's loss and, where the schedule takes
 * one, the gradient norm of a step that was not skipped for overflow.  What is then named, on the host: weights
 * that were not finite before the step's update, the first in the model's order, if there are any; else the first
 * gradient in backward's order; on a GPU, the step and the rank whose own loss it was. */
#ifndef DPX_TRAIN_FINITE_H
#define DPX_TRAIN_FINITE_H

#include <mpi.h>

#include "exec/run/executor.h"
#include "exec/train/train.h"

/* Whether the run should end; the same on all ranks. */
bool train_diverged(const struct train_report *all);

/* Every rank must call it, after a step that has diverged.  0, or -1 with the reason reported on the one rank that
 * has what is to be said. */
int train_say_divergence(MPI_Comm control, const struct model *m, const struct exec_step *mine,
                         const struct train_report *all);

#endif
