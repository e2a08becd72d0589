/* simulate.h -- seconds of a plan: its schedule's entries priced and run on the clock with contention,
 * the wait for the slowest rank added; and the usual ratios.
 *
 *     struct timing t;
 *     simulate(&plan, &evaluation.schedules, cache, &t);
 *     ... t.line.step_s, t.mfu ...
 *
 * Low and high bound a 90 % interval.  Work, collectives, what streams lose to each other and the wait for the
 * slowest rank err apart, and squares add; of the first two every entry is at its own end at once, as entries
 * repeat one another (within one, op_cost.c).  What a measured machine drifts by is added. */
#ifndef DPX_SIMULATE_H
#define DPX_SIMULATE_H

#include <jansson.h>

#include "model/memory/evaluate.h"
#include "model/plan/plan.h"
#include "sim/clock/clock.h"
#include "sim/price/kernel_cost.h"

struct timing {
    struct timeline line;           /* with contention */
    double free_s;                  /* step time if nothing slowed anything down */
    double low_s, high_s;
    enum basis basis;
    bool   outside;                 /* an entry is beyond what was measured */
    double tokens_per_s;            /* of the whole world */
    double tflops_per_gpu, mfu, hfu;
    int64_t held_bytes;             /* most held: by the clock in a steady step, as allocated in init and
                                     * first, and in a step of too many entries to keep; -1: not asked for */
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
    const double *streams;
    enum basis basis;
    bool       outside;
};

/* 0, or -1 with the reason reported.  `cache` fits the plan (cost_cache_use), `memo` its
 * cluster. */
int  simulate_price(const struct plan *p, const struct schedules *s, enum sched_id id, struct cost_cache *cache,
           struct coll_memo *memo, struct priced *out);
void simulate_priced_free(struct priced *p);

/* Adds to the clock's step the wait for the slowest rank (jitter_slowest_s). */
void simulate_slowest(const struct plan *p, struct timeline *t);

/* Entries whose times err apart: collectives, backward's kernels, everything else. */
enum { SIMULATE_COLLECTIVES = 1, SIMULATE_BACKWARD = 2, SIMULATE_REST = 4, SIMULATE_WORK = SIMULATE_BACKWARD | SIMULATE_REST };

/* Seconds of a steady step in which the entries of `parts` take `ends` (indexed like ops[]: prices->low.work or
 * high.work) and the others their middle. */
double simulate_step_with(const struct plan *p, const struct schedules *s, const struct priced *prices,
                          const struct contention *slow, const double *ends, unsigned parts);

/* Slow-downs of this cluster and these groups; those that were measured are in `prices` (may be NULL), to
 * which *out then points. */
void simulate_contention(const struct plan *p, const struct schedules *s, const struct priced *prices, struct contention *out);

/* Time of one steady step. */
int simulate(const struct plan *p, const struct schedules *s, struct cost_cache *cache, struct timing *out);

/* The same for an evaluated plan, with a cost cache of its own and held memory (all
 * overhead included); `kept` (may be NULL) receives every entry, for run_free(). */
int simulate_plan(const struct plan *p, const struct evaluation *e, struct timing *out, struct run *kept);

/* Puts time and held memory into a document of evaluation_json(). */
void simulate_timing_into(json_t *doc, const struct plan *p, const struct evaluation *e, const struct timing *t);

/* Whether streams that run ahead would hold more than there is, though what is allocated in
 * order of issue fits.  PyTorch's allocator does not fail then: before it gives up it waits for
 * the events of blocks that other streams still use, and tries again (CUDACachingAllocator.cpp,
 * release_cached_blocks, synchronize_and_free_events).  The step time leaves that wait out. */
bool simulate_waits_for_memory(const struct evaluation *e, const struct timing *t);

/* The `time` object of eval and search (new reference). */
json_t *simulate_timing_json(const struct plan *p, const struct schedules *s, const struct timing *t);

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
