/* job_export.h -- a plan as a job: an sbatch script, Kubeflow's MPIJob or TrainJob, that starts the framework's launcher, or dpxrun.
 *
 *     if (job_export_has("sbatch"))
 *         return job_export(&p, "sbatch", steps, stdout);
 *
 * Nodes, GPUs of a node and, where the plan keeps something there, host memory come from the plan; the time from so many optimizer steps at
 * the slow end of the prediction (steps 0: none is asked for).  Scripts start TRAIN, the user's training; plans of dialect paper are run by dpxrun. */
#ifndef DPX_JOB_EXPORT_H
#define DPX_JOB_EXPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "model/plan/plan.h"

bool job_export_has(const char *target);

/* 0, or -1 reported with nothing written. */
int job_export(const struct plan *p, const char *target, int64_t steps, FILE *to);

#endif
