/* simulate.h -- seconds of a plan: its schedule's entries priced and run on the clock with contention,
 * the wait for the slowest rank added; and the usual ratios.
 *
 *     struct timing t;
 *     if (simulate_plan(&plan, &evaluation, &t, NULL) < 0) ...
 *     ... t.line.step_s, t.mfu ...
 *
 * Low and high bound a 90 % interval.  Work, collectives, what streams lose to each other, the issuing thread and the wait for the
 * slowest rank err apart, and squares of their ratios' logarithms add; of the first two every entry is at its own end at once, as entries
 * repeat one another (within one, op_cost.c).  What a measured machine drifts by is added. */
#ifndef DPX_SIMULATE_H
#define DPX_SIMULATE_H

#include <jansson.h>

#include "model/memory/evaluate.h"
#include "model/plan/plan.h"
#include "sim/clock/clock.h"
#include "sim/price/kernel_cost.h"

/* Parts of a pipeline's step, stage by stage (step.h): seconds on the clock. */
struct stage_part {
    double  work_s, messages_s, bubble_s;
    int64_t held_bytes;
};
struct stage_parts {
    int    n, busiest;              /* stages; 1 where there is no pipeline */
    double imbalance_s;             /* the busiest one's work less the mean */
    struct stage_part stage[EVALUATION_STAGES];
};

struct timing {
    struct timeline line;           /* with contention; of a pipeline its busiest stage's (step.h) */
    struct stage_parts stages;
    double free_s;                  /* step time if nothing slowed anything down */
    double retry_s;                 /* of the step: PyTorch's allocator gives its cache back to the device and asks again */
    double low_s, high_s;
    enum basis basis;
    bool   outside;                 /* an entry is beyond what was measured */
    double tokens_per_s;            /* of the whole world */
    double tflops_per_gpu, mfu, hfu;
    int64_t held_bytes;             /* most held by any stage, all overhead included: by the clock in a steady step, as
                                     * allocated in init and first, and in a step of too many entries to keep */
};

/* Costs of collectives already met on one cluster: a search meets the same again and
 * again.  Start with { 0 }. */
struct coll_memo {
    struct { int64_t bytes, ranks, per_node; int op; struct cost cost; } met[256];
};

/* Durations of the entries of one schedule, indexed like ops[]; they belong to it. */
struct priced {
    struct durations middle, low, high;
    double    *store;
    struct beside *beside;          /* contention.h's; NULL where nothing was measured */
    struct shares *shares;          /* contention.h's; NULL where all is in device memory */
    struct op_held *held;           /* contention.h's; NULL where collectives hold no multiprocessors, or it was measured */
    const double *streams;
    enum basis basis;
    bool       outside;
};

/* 0, or -1 with the reason reported.  `cache` fits the plan (cost_cache_use), `memo` its
 * cluster. */
int  simulate_price(const struct plan *p, const struct schedules *s, enum sched_id id, struct cost_cache *cache,
           struct coll_memo *memo, struct priced *out);
void simulate_priced_free(struct priced *p);

/* Seconds of a steady step in which PyTorch's allocator frees and takes memory of the device, all streams at rest. */
double simulate_retry_s(const struct reserved *r);
double simulate_retries_s(const struct evaluation *e);     /* of a pipeline the stage that does it longest */

/* Adds to the clock's step the wait for the slowest rank (jitter_slowest_s). */
void simulate_slowest(const struct plan *p, struct timeline *t);

/* Slow-downs of this cluster and these groups; those that were measured are in `prices` (may be NULL), to
 * which *out then points. */
void simulate_contention(const struct plan *p, const struct schedules *s, const struct priced *prices, struct contention *out);

/* One steady step of an evaluated plan; `kept` (may be NULL) receives every entry of e->schedules, for run_free(): of a
 * pipeline its fullest stage's.  0, or -1 with the reason reported. */
int simulate_plan(const struct plan *p, const struct evaluation *e, struct timing *out, struct run *kept);

/* The same; `kept` has room for every stage (evaluation_roles). */
int simulate_stages(const struct plan *p, const struct evaluation *e, struct timing *out, struct run *kept);

/* The same of a step that is open (step.h); `kept` may be NULL. */
struct step;
int simulate_step(struct step *st, const struct evaluation *e, struct timing *out, struct run *kept);
/* The same without held memory, for which every entry of every stage would have to be kept. */
int simulate_interval(struct step *st, const struct evaluation *e, struct timing *out);

/* Puts time and held memory into a document of evaluation_json(). */
void simulate_timing_into(json_t *doc, const struct plan *p, const struct evaluation *e, const struct timing *t);

/* Whether streams that run ahead would hold more than there is, though what is allocated in
 * order of issue fits.  PyTorch's allocator does not fail then: before it gives up it waits for
 * the events of blocks that other streams still use, and tries again (CUDACachingAllocator.cpp,
 * release_cached_blocks, synchronize_and_free_events).  The step time leaves that wait out. */
bool simulate_waits_for_memory(const struct evaluation *e, const struct timing *t);
/* The same by one run of the step, where nothing else of it is asked.  0, or -1 with the reason reported and
 * *waits false. */
int  simulate_waits(const struct plan *p, const struct evaluation *e, bool *waits);

/* Held memory, by the clock: from the moment an entry that allocates starts on its
 * stream until the last use is done.  The most bytes that a steady step holds on top of
 * what it finds, and the position in `r` of the entry at which it does. */
int64_t held_peak(const struct schedules *s, const struct run *r, int64_t *at);
/* The same in the spaces `in` (ledger.h). */
int64_t held_peak_in(const struct schedules *s, unsigned in, const struct run *r, int64_t *at);

/* The whole curve: bytes on top of what the step finds, after each change.  *out is
 * the caller's to free(); returns the number of points. */
struct held_point { double t; int64_t bytes, at; };
int64_t held_curve(const struct schedules *s, const struct run *r, struct held_point **out);
int64_t held_curve_in(const struct schedules *s, unsigned in, const struct run *r, struct held_point **out);

#endif
