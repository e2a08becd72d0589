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

/* The same script around a command line of dpxrun, run by srun as `tasks` of each node, or `once`.  `gpus`: the ranks are on GPUs, and
 * GPUs and a time are asked for; else they are processes on cores.  A node's memory is asked for whole. */
struct job_command { const char *line; bool gpus, once; int64_t nodes, ranks, tasks, steps; };    /* ranks, tasks: of a node */
int job_sbatch(const struct plan *p, const struct job_command *c, FILE *to);

/* 0, or -1 reported with nothing written. */
int job_export(const struct plan *p, const char *target, int64_t steps, FILE *to);

#endif
