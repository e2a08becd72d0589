/* crossover.c -- see crossover.h. */
#include "sim/search/crossover.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "model/memory/evaluate.h"
#include "model/schedule/measured.h"
#include "sim/clock/simulate.h"
#include "sim/clock/step.h"

struct crossover_plan {
    struct plan plan;               /* at the speed that was asked for last */
    double      inter;
    struct evaluation e;
    bool asked, fits;               /* PyTorch's allocator; what it said */
    const struct measured_device *measured;     /* as it is; NULL */
    struct measured_device        varied;
    struct measured_coll         *coll;         /* of it */
};

struct crossover_plan *crossover_open(const struct plan *p)
{
    struct crossover_plan *s = room_new(1, sizeof *s);

    s->plan = *p;
    s->inter = p->cluster.inter;
    s->measured = p->cluster.measured;
    if (evaluate_allocated(&s->plan, &s->e) < 0) {
        free(s);
        return NULL;
    }
    if (s->measured) {
        s->varied = *s->measured;
        s->coll = room_new((size_t)s->varied.ncoll + 1, sizeof *s->coll);
        s->varied.coll = s->coll;
        s->plan.cluster.measured = &s->varied;
    }
    return s;
}

void crossover_close(struct crossover_plan *s)
{
    if (!s)
        return;
    evaluation_free(&s->e);
    free(s->coll);
    free(s);
}

bool crossover_fits(struct crossover_plan *s)
{
    if (!s->asked)
        s->fits = evaluation_reserve_within(&s->plan, &s->e) == 0 && s->e.m.fits;
    s->asked = true;
    return s->fits;
}

/* Of one sweep: sizes of the same operation among the same ranks. */
static bool of_one_sweep(const struct measured_coll *a, const struct measured_coll *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->star == b->star && a->ranks == b->ranks && a->per_node == b->per_node;
}

static void vary(struct crossover_plan *s, double by)
{
    for (int i = 0, first = 0; i < s->varied.ncoll; i++) {
        const struct measured_coll *was = &s->measured->coll[i];
        if (!of_one_sweep(was, &s->measured->coll[first]))
            first = i;
        double least = s->measured->coll[first].s;
        s->coll[i] = *was;
        if (was->ranks > was->per_node && was->s > least)
            s->coll[i].s = least + (was->s - least) / by;
    }
}

double crossover_step(struct crossover_plan *s, double by)
{
    struct coll_memo memo = { 0 };
    struct stage_parts parts;
    struct timeline t;

    s->plan.cluster.inter = s->inter * by;
    if (s->measured)
        vary(s, by);
    struct cost_cache *cache = cost_cache_new(&s->plan);
    int rc = step_time(&s->plan, &s->e, cache, &memo, &t, &parts);
    cost_cache_free(cache);
    return rc < 0 ? -1 : t.step_s + simulate_retries_s(&s->e);
}

/* How much longer a takes than b; NaN where one cannot be timed. */
static double longer(struct crossover_plan *a, struct crossover_plan *b, double by)
{
    double x = crossover_step(a, by), y = crossover_step(b, by);

    return x < 0 || y < 0 ? NAN : x - y;
}

/* Between shares of which a takes longer at one and b at the other. */
static double halve(struct crossover_plan *a, struct crossover_plan *b, double low, double high, bool longer_low)
{
    while (high / low > 1.001) {
        double middle = sqrt(low * high);
        if ((longer(a, b, middle) > 0) == longer_low)
            low = middle;
        else
            high = middle;
    }
    return sqrt(low * high);
}

double crossover_share(struct crossover_plan *a, struct crossover_plan *b, bool *slower)
{
    enum { OCTAVES = 10 };
    double here = longer(a, b, 1), low = here, high = here;

    *slower = false;
    if (isnan(here))
        return 0;
    for (int k = 1; k <= OCTAVES; k++) {
        double far = ldexp(1, k), below = longer(a, b, 1 / far), above = longer(a, b, far);
        if (isnan(below) || isnan(above))
            return 0;
        if ((below > 0) != (low > 0)) {
            *slower = below > 0;
            return halve(a, b, 1 / far, 2 / far, below > 0);
        }
        if ((above > 0) != (high > 0)) {
            *slower = high > 0;
            return halve(a, b, far / 2, far, high > 0);
        }
        low = below;
        high = above;
    }
    return 0;
}

double crossover_find(const struct plan *a, const struct plan *b, bool *slower)
{
    struct crossover_plan *x = crossover_open(a), *y = x ? crossover_open(b) : NULL;
    if (x && y) {                   /* where it retries, a step takes longer */
        crossover_fits(x);
        crossover_fits(y);
    }
    double at = x && y ? crossover_share(x, y, slower) * a->cluster.inter : 0;

    crossover_close(x);
    crossover_close(y);
    return at;
}
