/* shown.h -- what a walk of a plan's requests through the allocator shows, each of them made or most left out. */
#ifndef DPX_TESTS_SHOWN_H
#define DPX_TESTS_SHOWN_H

#include "tests/model/plans.h"
#include "model/memory/reserved.h"

/* Every micro-step, every step to its end, each request and release by itself. */
static inline struct request_target every_step(struct request_target t)
{
    t.touch = NULL;
    t.serve = NULL;
    t.state = NULL;
    t.watch = NULL;
    return t;
}

/* What is shown of a walk: counters and peaks. */
struct shown { struct request_report r; int64_t peak[5], idle, retries, ooms; };     /* `retries`: of iterations that are left out, too */

/* Segments whose addresses fall, or rise; or pages. */
enum device { FALLS, RISES, PAGES, NDEVICE };

/* *made: retries of the iterations that were not left out. */
static inline struct shown shown_with(const struct plan *p, const struct schedules *s, int64_t capacity, enum device device, bool every, int64_t *made)
{
    struct caching_options o = caching_allocator_defaults();
    o.expandable_segments = device == PAGES;
    o.addresses_rise = device == RISES;
    struct caching_allocator *a = caching_allocator_new(capacity, &o);
    const struct caching_stats *c = caching_allocator_stats(a);
    struct request_target t = every ? every_step(reserved_target(a)) : reserved_target(a);
    struct shown x;

    memset(&x, 0, sizeof x);
    requests_walk(p, s, reserved_options(p), &t, &x.r);
    if (!x.r.out_of_memory)
        x.r.op = 0, x.r.iteration = 0;
    const int64_t peaks[] = { c->allocated.peak, c->active.peak, c->reserved.peak, c->requested.peak, c->inactive_split.peak };
    memcpy(x.peak, peaks, sizeof peaks);
    x.idle = c->idle_at_peak;
    x.retries = x.r.retries;
    x.ooms = c->ooms;
    *made = c->retries;
    assert_true(caching_allocator_check(a));
    caching_allocator_delete(a);
    return x;
}

static inline struct shown shown_of(const struct plan *p, const struct schedules *s, int64_t capacity, enum device device, bool every)
{
    int64_t made;

    return shown_with(p, s, capacity, device, every, &made);
}

static inline bool same_shown(const struct shown *x, const struct shown *y)
{
    return !memcmp(x->peak, y->peak, sizeof x->peak) && x->idle == y->idle && x->retries == y->retries && x->ooms == y->ooms &&
           x->r.requests == y->r.requests && x->r.unmatched == y->r.unmatched && x->r.steady_retries == y->r.steady_retries &&
           x->r.steady_calls == y->r.steady_calls && x->r.refused == y->r.refused &&
           x->r.out_of_memory == y->r.out_of_memory && x->r.sched == y->r.sched && x->r.op == y->r.op && x->r.iteration == y->r.iteration;
}

#endif
