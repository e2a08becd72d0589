/* ties.c -- see ties.h. */
#include "sim/search/ties.h"

#include <math.h>
#include <stdlib.h>

#include "base/room.h"
#include "sim/clock/clock.h"

#define REPEATS .01

static double issued_at(const struct plan *p, const struct schedules *s, const struct priced *prices,
                        const struct contention *slow, double factor)
{
    int from = s->begin[SCHED_STEADY], to = s->end[SCHED_STEADY];
    double *issue = room_new((size_t)to + 1, sizeof *issue);
    struct durations d = { prices->middle.work, issue };
    struct timeline t;

    for (int i = from; i < to; i++)
        issue[i] = factor * prices->middle.issue[i];
    clock_one(s, SCHED_STEADY, &d, slow, &t, NULL);
    simulate_slowest(p, &t);
    free(issue);
    return t.step_s;
}

/* A slow-down's excess over 1, times `part`. */
static void scale(double *slow, double part)
{
    *slow = 1 + part * (*slow - 1);
}

static double slowed_at(const struct plan *p, const struct schedules *s, const struct priced *prices,
                        const struct contention *slow, double part)
{
    struct contention c = *slow;
    int n = s->end[SCHED_STEADY];
    struct beside *beside = slow->beside ? room_new((size_t)n + 1, sizeof *beside) : NULL;
    struct timeline t;

    for (int op = 0; op < NCOLL; op++) {
        scale(&c.compute_slow[op], part);
        scale(&c.comm_slow[op], part);
    }
    scale(&c.copy_slow, part);
    for (int i = beside ? s->begin[SCHED_STEADY] : n; i < n; i++) {
        beside[i] = slow->beside[i];
        for (int k = 0; k < 2; k++) {
            scale(&beside[i].compute[k], part);
            scale(&beside[i].comm[k], part);
        }
    }
    c.beside = beside;
    clock_one(s, SCHED_STEADY, &prices->middle, &c, &t, NULL);
    simulate_slowest(p, &t);
    free(beside);
    return t.step_s;
}

int ties_views(const struct plan *p, const struct schedules *s, struct cost_cache *cache, struct coll_memo *memo,
               double step_s[TIES_VIEWS])
{
    struct contention slow;
    struct priced prices;

    cost_cache_use(cache, p);
    if (simulate_price(p, s, SCHED_STEADY, cache, memo, &prices) < 0)
        return -1;
    simulate_contention(p, s, &prices, &slow);
    step_s[0] = slowed_at(p, s, &prices, &slow, 1);
    step_s[1] = simulate_step_with(p, s, &prices, &slow, prices.low.work, SIMULATE_COLLECTIVES);
    step_s[2] = simulate_step_with(p, s, &prices, &slow, prices.high.work, SIMULATE_COLLECTIVES);
    step_s[3] = simulate_step_with(p, s, &prices, &slow, prices.low.work, SIMULATE_WORK);
    step_s[4] = simulate_step_with(p, s, &prices, &slow, prices.high.work, SIMULATE_WORK);
    step_s[5] = slowed_at(p, s, &prices, &slow, .5);
    step_s[6] = slowed_at(p, s, &prices, &slow, 1.5);
    step_s[7] = issued_at(p, s, &prices, &slow, .5);
    step_s[8] = issued_at(p, s, &prices, &slow, 2);
    simulate_priced_free(&prices);
    return 0;
}

double ties_unsure_s(const double a[TIES_VIEWS], const double b[TIES_VIEWS])
{
    double middle = b[0] - a[0], repeats = REPEATS * fmin(a[0], b[0]), sum = repeats * repeats;

    for (int v = 1; v < TIES_VIEWS; v += 2) {
        double low = b[v] - a[v] - middle, high = b[v + 1] - a[v + 1] - middle;
        double most = fmax(fabs(low), fabs(high));
        sum += most * most;
    }
    return sqrt(sum);
}
