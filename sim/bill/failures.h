/* failures.h -- how often a job is interrupted: rates that runs have published, by name.
 *
 * A rate is of one GPU with its share of node, network, storage and software: everything that ended the job.  A job of n GPUs is
 * interrupted n times as often, at any moment alike (a Poisson process): Kokolis et al. find that of jobs of 8 to 4,096 GPUs. */
#ifndef DPX_FAILURES_H
#define DPX_FAILURES_H

struct failure_rate {
    const char *name;               /* "llama3" */
    const char *run;                /* "Llama 3 405B on 16,384 H100, 54 days: 419 unexpected interruptions" */
    double interruptions, gpus, days;
    double hardware;                /* share of them that took a node away; below 0: not stated */
    const char *source;
};

/* NULL after the last. */
const struct failure_rate *failure_rate_at(int i);
const struct failure_rate *failure_rate_find(const char *name);

/* Seconds between interruptions, divided by one GPU: of a job of n GPUs the n-th part. */
double failure_rate_mtbf(const struct failure_rate *r);

#endif
