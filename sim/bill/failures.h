/* failures.h -- how often a job is interrupted, and by what: rates that a cluster states, and rates that runs have published.
 *
 *     struct failures f = { .gpu_s = 60000 * 3600.0, .node_s = 20000 * 3600.0 };
 *     double by[FAILURE_CAUSES];
 *     double mtbf_s = 1 / failures_per_s(&f, 64, 8, by);
 *
 * Each rate is a mean time between interruptions, and rates add: a job of n GPUs on m nodes is interrupted n / gpu_s + m / node_s +
 * 1 / network_s times a second.  `all_s` is of one GPU with its share of node, network, storage and software, as published rates are.
 * Interruptions come at any moment alike (a Poisson process): Kokolis et al. find that of jobs of 8 to 4,096 GPUs. */
#ifndef DPX_FAILURES_H
#define DPX_FAILURES_H

#include <stdbool.h>
#include <stdint.h>

enum failure_cause { FAILED_GPU, FAILED_NODE, FAILED_NETWORK, FAILED_OTHER, FAILED_ANY, FAILURE_CAUSES };

/* "GPUs and their memory", "network", "cause not stated" ... */
const char *failure_cause_words(enum failure_cause cause);
/* "gpu", "node", "network", "other", "any". */
const char *failure_cause_name(enum failure_cause cause);

struct failure_rate {
    const char *name;               /* "llama3" */
    const char *run;                /* "Llama 3 405B on 16,384 H100, 54 days: 419 unexpected interruptions" */
    double interruptions, gpus, days;
    double hardware;                /* share of them that took a node away; below 0: not stated */
    const char *source;
    double by[FAILURE_CAUSES];      /* interruptions by cause; they add up to all of them */
};

/* NULL after the last. */
const struct failure_rate *failure_rate_at(int i);
const struct failure_rate *failure_rate_find(const char *name);

/* Seconds between interruptions, divided by one GPU: of a job of n GPUs the n-th part. */
double failure_rate_mtbf(const struct failure_rate *r);

/* What interrupts a job: mean seconds between interruptions; 0: not stated. */
struct failures {
    const struct failure_rate *published;   /* all_s is its, and so are the causes; or NULL */
    double all_s;                   /* one GPU with its share of everything; then the others are not stated */
    double gpu_s, node_s;           /* one GPU; one node without its GPUs, with its links */
    double network_s;               /* what nodes share, of whatever number of nodes; a job on one node does not use it */
};

/* Interruptions a second of a job; by[] has those of each cause. */
double failures_per_s(const struct failures *f, int64_t gpus, int64_t nodes, double by[FAILURE_CAUSES]);

/* Of a job's interruptions the share that takes a node away: as published, else those of GPUs and nodes; where no cause is stated all. */
double failures_take_node(const struct failures *f, const double by[FAILURE_CAUSES]);

#endif
