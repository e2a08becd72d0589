/* jitter.h -- ranks differ: what waiting for the slowest of them adds to a step.
 *
 * GPUs of one type differ in speed, so every predicted step includes the wait for the slowest of N
 * (jitter_slowest_s).  --jitter replaces that wait in an estimate of its own.  Seconds throughout.
 *
 *     struct jitter j;
 *     if (jitter_parse("0.03,20e-6", &j) < 0)
 *         return 2;
 *     jitter_of(&j, world_size, &schedules, &run, &added);
 *     ... added.persistent_s + added.transient_s + added.events_s ...
 *
 * With E_N the mean of the largest of N standard normal draws:
 *   persistent   ranks differ in speed by sigma_p (a share of the step): all wait for
 *                the slowest, T * sigma_p * E_N
 *   transient    each compute entry varies by sigma_t seconds: between two points where
 *                compute waits for collectives, n entries vary by sqrt(n) sigma_t and
 *                the slowest rank is E_N of that late; what the collective was early
 *                by (its prefetch) absorbs it first.  DDP has one such point, FSDP one
 *                a unit
 *   events       a rank is held up by `delay` with probability lambda a step: N lambda
 *                delay, as all wait
 * The base is one rank at its mean speed, E_1 = 0. */
#ifndef DPX_JITTER_H
#define DPX_JITTER_H

#include <jansson.h>

#include "model/cluster/cluster.h"
#include "sim/clock/timeline.h"

struct jitter { double sigma_p, sigma_t, lambda, delay; };

struct jitter_added { double persistent_s, transient_s, events_s; };

/* SIGMA_P[,SIGMA_T[,LAMBDA,D]].  0, or -1 with the reason reported. */
int jitter_parse(const char *text, struct jitter *out);

/* Mean of the largest of n standard normal draws; 0 for one. */
double jitter_largest(int64_t n);

/* Seconds for which the ranks of a cluster wait for the slowest of them in a step that computes for
 * compute_s: compute_s * sigma * E_N, N the world size.  sigma: GPUs of one node of eight differ by 5 % and
 * more (stas00/ml-engineering, compute/accelerator), the range of eight normal draws is 2.85 sigma.
 * Larger figures are known: 8 % on average, 22 % at most within a type (arXiv 2208.11035).  0 on one rank and
 * on hosts, whose ranks share the cores. */
double jitter_slowest_s(const struct cluster *c, double compute_s);

/* C libraries differ in the last bits of exp() and erfc(), and an answer must not: 47 bits of it. */
double jitter_as_everywhere(double x);

/* Seconds that noise adds to the step that ran as `r`, on n ranks. */
void jitter_of(const struct jitter *j, int64_t n, const struct schedules *s, const struct run *r,
               struct jitter_added *out);

/* { "sigma_p", "sigma_t", "lambda", "delay_s", "persistent_s", "transient_s", "events_s",
 * "step_s": with all of them } (new reference). */
json_t *jitter_json(const struct jitter *j, const struct jitter_added *a, double step_s);

#endif
