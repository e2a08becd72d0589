/* step.h -- one steady step of a plan on the clock: a role for each stage of its pipeline, one for all ranks where it has
 * none.
 *
 *     struct step st;
 *     if (step_open(&plan, schedules, n, cache, &memo, &st) < 0)
 *         return -1;
 *     if (step_run(&st, NULL, lines, NULL, &makespan) == 0)
 *         step_parts(&st, lines, makespan, &line, &parts);
 *     step_close(&st);
 *
 * Each stage takes the whole step on the clock, T seconds until the last one is done:
 *
 *     T = work + messages + bubble                  of every stage
 *
 * work: it computes, runs its optimizer, runs or waits for collectives whose ranks are all there, or waits for its own
 * issuing thread and copies.  messages: it sends or receives, and nothing hides that.  bubble: another stage has not come
 * yet to a message or a collective, or is not done at the end; what this stage sends meanwhile is hidden.
 *
 * The *busiest* stage is the one with the most work.  The step's parts are that stage's.  What it works longer than the
 * mean of all stages is the *imbalance*, contained in its work: 0 with equal stages, and the most that moving layers
 * between stages can gain.  So T = mean work + imbalance + messages + bubble.  With p equal stages, m micro-steps of f
 * and b seconds, and messages that take no time, GPipe and 1F1B have work m (f + b) and bubble (p - 1)(f + b): a naive
 * pipeline (p = 4, m = 1) works 25 % of the time, GPipe with m = 4 works 4/7 (Huang et al. 2019; Narayanan et al. 2021). */
#ifndef DPX_STEP_H
#define DPX_STEP_H

#include "sim/clock/simulate.h"

struct step_role {
    const struct schedules *s;
    struct priced     prices;
    struct contention slow;
    struct crowd      crowd;
    struct clock_loops *loops;
    char              name[32];     /* "stage 1" */
};

/* A step other than predicted. */
struct step_view {
    unsigned parts;                 /* their entries take ... */
    bool     high;                  /* ... the high end of their interval, or the low one */
    double   slow;                  /* so many times what streams lose to each other; 0: nothing slows anything */
    double   issue;                 /* so many times the issuing thread's time */
};

/* One of each entry of a schedule, indexed like ops[]: zero from its first entry on, not set before.  free() it. */
void *step_room(const struct schedules *s, enum sched_id id, size_t size);

enum { STEP_KNOWN = 16 };

struct step {
    const struct plan *p;
    struct step_role  *role;
    int        n;
    enum basis basis;               /* the worst of any entry */
    bool       outside;             /* an entry is beyond what was measured */
    bool       crowded;             /* ranks share cores */
    bool       apart;               /* each view is run by itself (step_predict) */
    struct { struct step_view as; double s; } known[STEP_KNOWN];       /* what step_views() ran: nothing is run twice */
    int        nknown;
    struct timeline *lines;         /* of the run as predicted, and its seconds, where step_predict() was asked */
    double     makespan_s, free_s;  /* free_s: with nothing slowed down; 0: not known yet */
};

/* Prices the schedules of one rank of each stage (evaluation_roles), which stay the caller's.  0, or -1 with the reason
 * reported.  `cache` fits the plan (cost_cache_use), `memo` its cluster. */
int  step_open(const struct plan *p, const struct schedules *const *of, int n, struct cost_cache *cache,
               struct coll_memo *memo, struct step *out);
void step_close(struct step *st);

/* Entries whose times err apart: collectives, backward's kernels, everything else. */
enum { STEP_COLLECTIVES = 1, STEP_BACKWARD = 2, STEP_REST = 4, STEP_WORK = STEP_BACKWARD | STEP_REST };

/* The issuing thread at either end of its 90 % interval, as a share of its time.  Half: a bare operator takes 4.7 us on H100's host
 * where transformers' code is taken to need 12.8 (issue_cost.c).  Twice: of three published steps that wait for it one took 2.5 times
 * as long as predicted, the others 1.05 and 1.07 (sim/notebook.md: Llama 0.08B and 0.19B on GH200, Llama-3.2-1B on B200). */
#define STEP_ISSUE_LOW  .5
#define STEP_ISSUE_HIGH 2

/* Runs every stage from one start: `lines` has room for st->n.  `as` NULL: as predicted, and if nothing is kept with held memory.  `kept` NULL,
 * or for each stage every entry as it ran, for run_free(); none where there are more than a million in all.  0, or -1 with a deadlock reported. */
int step_run(const struct step *st, const struct step_view *as, struct timeline *lines, struct run *kept,
             double *makespan_s);

/* The same as predicted, for lines[].held_peak alone: it is known of more steps, and times differ by rounding. */
int step_held(const struct step *st, struct timeline *lines);

/* Are the entries few enough for step_run() to keep them? */
bool step_keeps(const struct step *st);

/* As predicted, once: step_parts() of it, and neither views nor held memory, which take as long again.  0, or -1 with a deadlock reported. */
int step_alone(const struct step *st, struct timeline *line, struct stage_parts *out);

/* Prices and runs the step of an evaluated plan, as predicted: step_parts() of it.  0, or -1 with the reason reported.  For a search,
 * which needs neither interval nor held memory. */
int step_time(const struct plan *p, const struct evaluation *e, struct cost_cache *cache, struct coll_memo *memo,
              struct timeline *line, struct stage_parts *out);

/* Its seconds, the wait for the slowest rank included; < 0: a deadlock, reported. */
double step_seconds(const struct step *st, const struct step_view *as);

/* The same of n views, on all cores: all of `out`, or -1 with a deadlock reported. */
int step_views(struct step *st, const struct step_view *views, int n, double *out);
/* Runs it as predicted, once: st->lines and st->makespan_s.  From that run follows what it takes in the views that intervals and ties ask
 * for (clock_lanes.h), where that is as good as running them: they are not run then.  0, or -1 with a deadlock reported. */
int  step_predict(struct step *st);
/* Until all is done if nothing slowed anything down; < 0: a deadlock, reported. */
double step_free_s(struct step *st);

/* The busiest stage's line, to the end of the step and with the wait for the slowest rank, and what each stage does. */
void step_parts(const struct step *st, const struct timeline *lines, double makespan_s, struct timeline *line,
                struct stage_parts *out);

#endif
