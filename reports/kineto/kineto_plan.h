/* kineto_plan.h -- a plan's simulated step, measured as a trace's steps are. */
#ifndef DPX_KINETO_PLAN_H
#define DPX_KINETO_PLAN_H

#include "model/plan/plan.h"
#include "calib/trace/kineto_step.h"

struct kineto_plan {
    const char *strategy, *dialect;
    int64_t world_size;
    double  low_s, high_s;          /* 90 % interval of the step */
    bool    whole;                  /* false: too many entries to keep; step, calls and bytes only */
    struct measures m;
};

/* Reads and simulates the plan, with what `db` (NULL: the usual database) knows of its machines.
 * 0, or -1 with the reason reported. */
int kineto_plan_load(const char *path, const char *db, struct kineto_plan *out);

#endif
