/* goodput.h -- a run of weeks: useful steps, checkpoints, interruptions, work that is done again.
 *
 *     struct long_run r = { .steps = 1e6, .step_s = 5, .blocked_s = 2, .behind_s = 30, .recover_s = 900, .mtbf_s = 3 * 3600 };
 *     r.every = goodput_best_every(&r);
 *     struct run_time t;
 *     goodput_expect(&r, &t);
 *
 * Interruptions come at any moment alike (a Poisson process of mean `mtbf_s`), during a restart as well, which then begins anew.  A
 * checkpoint is taken every `every` steps; all ranks stand for `blocked_s`, and it counts `behind_s` later, when it is written: an
 * interruption before that goes back to the one before.
 *
 * With w = every * step_s + blocked_s (where the one before is still being written, as long as that), l = 1 / mtbf_s, the time until one
 * more checkpoint counts is on average
 *
 *     E(every) = e^(l recover_s) / l * (e^(l w) - 1) * e^(l behind_s)
 *
 * by renewal: from one restart to the next pass e^(l recover_s)/l seconds, in which sum over i of e^(-l (i w + behind_s)) checkpoints come
 * to count.  Without `behind_s` this is Daly's complete model (FGCS 22, 2006, equation 20), whose small-l limits are Young's
 * sqrt(2 blocked_s mtbf_s) and Daly's estimate.  It knows no memory that is lost: goodput_simulate() does.
 *
 * Of a pass of restarts, e^(l recover_s)/l - 1/l seconds, warming up is what reaches the last warm_s: (e^(l warm_s) - 1) / l.  The first
 * start adds warm_s, in which nothing is taken to fail.
 *
 * A job that is preempted (a spot machine, a job of higher priority) loses the same work and begins again, so l = 1 / mtbf_s +
 * 1 / preempted_s.  Before that it waits `queue_s`: nothing runs and nothing fails meanwhile, so that is queue_s / preempted_s of the time
 * in which it runs, and is not paid for.  A job whose failures go through the queue as well (Slurm's requeue) waits queue_s at each of them. */
#ifndef DPX_GOODPUT_H
#define DPX_GOODPUT_H

#include <stdbool.h>
#include <stdint.h>

struct long_run {
    int64_t steps, every;           /* of the run; between two checkpoints */
    double  step_s;
    double  blocked_s, behind_s;    /* of a checkpoint */
    double  recover_s;              /* until steps go on: found, replaced, started, loaded, warm */
    double  warm_s;                 /* its last part, which the first start has too: compile, first step, data */
    double  mtbf_s;                 /* of the whole job; infinite: nothing fails */
    double  preempted_s, queue_s;   /* the whole job is taken away every so often, 0: never; until it has its GPUs again */
    bool    requeued;               /* a failed job waits as long */
    int64_t disk_each;              /* checkpoints lie in the memory of another node, and each so many-th on disk as well; 0: all on disk */
    double  memory_lost;            /* share of interruptions that take what lies in memory: both nodes, or the whole job's */
};

/* Seconds; they add up to total_s. */
struct run_time {
    double total_s;
    double useful_s, blocked_s, lost_s, restarts_s;
    double warm_s;                  /* of the first start and of restarts; restarts_s is without */
    double queued_s;                /* without GPUs */
    double waiting_s;               /* of a simulated run: for a node to be repaired, or with fewer of them */
    double interruptions;
};

/* What ends a stretch of work, a second: failures and preemptions. */
double goodput_rate(const struct long_run *r);

/* The mean.  total_s is infinite where no checkpoint would ever come to count. */
void goodput_expect(const struct long_run *r, struct run_time *out);

/* The number of steps between checkpoints for which the mean is least; with no failures all of them. */
int64_t goodput_best_every(const struct long_run *r);

/* The greatest number of steps between checkpoints, `every` of the run or more, for which the mean is at most `most` times that of the run. */
int64_t goodput_longest_every(const struct long_run *r, double most);

/* Young's (CACM 17, 1974) and Daly's (FGCS 22, equation 37) estimates of the seconds of work between checkpoints. */
double goodput_young_s(double blocked_s, double mtbf_s);
double goodput_daly_s(double blocked_s, double mtbf_s);

/* Nodes that replace those that failed. */
struct reserve {
    int64_t nodes;                  /* that train */
    int64_t spares;                 /* that stand by; below 0: there is always one */
    double  hardware;               /* share of interruptions that take a node away */
    double  repair_s;               /* until it is back */
    double  steady;                 /* share of failures that come as often on fewer nodes: the network's */
    bool    shrink;                 /* without a spare go on with fewer nodes, each step as much longer, rather than wait; what comes
                                     * back joins at the next restart */
};

/* The run itself, `runs` times with a seed of its own each: means of all parts, and the 5th, 50th and 95th percentile of total_s.
 * 0, or -1: a run does not end within `most_s`. */
int goodput_simulate(const struct long_run *r, const struct reserve *reserve, int runs, double most_s, struct run_time *mean, double percentile[3]);

#endif
