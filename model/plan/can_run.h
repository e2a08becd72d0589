/* can_run.h -- which plans the executor has kernels and collectives for. */
#ifndef DPX_CAN_RUN_H
#define DPX_CAN_RUN_H

#include "model/plan/plan.h"

/* 0, or -1 with what is missing named. */
int can_run(const struct plan *p);

/* 0, or -1 with an axis of the ranks that the executor does not run refused by its key, whatever else the plan asks for. */
int can_run_axes(const struct plan *p);

#endif
