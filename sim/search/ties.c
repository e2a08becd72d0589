/* ties.c -- see ties.h. */
#include "sim/search/ties.h"

#include <math.h>

#define REPEATS .01

static const struct step_view views[TIES_VIEWS] = {
    { .slow = 1, .issue = 1 },
    { STEP_COLLECTIVES, false, 1, 1 }, { STEP_COLLECTIVES, true, 1, 1 },
    { STEP_WORK, false, 1, 1 },        { STEP_WORK, true, 1, 1 },
    { .slow = .5, .issue = 1 },        { .slow = 1.5, .issue = 1 },
    { .slow = 1, .issue = STEP_ISSUE_LOW }, { .slow = 1, .issue = STEP_ISSUE_HIGH },
};

int ties_views(const struct plan *p, const struct evaluation *e, struct cost_cache *cache, struct coll_memo *memo,
               double step_s[TIES_VIEWS])
{
    const struct schedules *of[EVALUATION_STAGES];
    struct step st;

    cost_cache_use(cache, p);
    if (step_open(p, of, evaluation_roles(e, of), cache, memo, &st) < 0)
        return -1;
    int rc = ties_views_of(&st, step_s);
    step_close(&st);
    return rc;
}

int ties_views_of(struct step *st, double step_s[TIES_VIEWS])
{
    return step_predict(st) < 0 ? -1 : step_views(st, views, TIES_VIEWS, step_s);
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
