/* kineto_plan.h -- a plan's simulated step, measured as a trace's steps are. */
#ifndef DPX_KINETO_PLAN_H
#define DPX_KINETO_PLAN_H

#include "model/plan/plan.h"
#include "calib/trace/kineto_step.h"
#include "calib/trace/trace_read.h"

struct kineto_plan {
    const char *strategy, *dialect, *words;     /* words: both, as people say them */
    int64_t world_size;
    bool    host;                   /* its ranks are processes on cores */
    char    rank[64];               /* whose entries m is of, "rank 3, stage 1 of 2"; "": every rank's */
    double  low_s, high_s;          /* 90 % interval of the step */
    bool    whole;                  /* false: too many entries to keep; step, calls and bytes only */
    struct measures m;
};

/* Reads and simulates the plan, with what `db` (NULL: the usual database) knows of its machines, as the rank that the
 * trace is of.  0, or -1 with the reason reported: also where the trace is of another number of ranks, or does not say
 * its rank though the plan's ranks differ. */
int kineto_plan_load(const char *path, const char *db, const struct trace_info *trace, struct kineto_plan *out);

#endif
