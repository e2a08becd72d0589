/* ties.h -- the error of the difference of two predicted steps.
 *
 *     double a[TIES_VIEWS], b[TIES_VIEWS];
 *     ties_views(&p, &evaluation_p, cache, &memo, a) ... ties_views(&q, &evaluation_q, cache, &memo, b)
 *     if (fabs(b[0] - a[0]) <= ties_unsure_s(a, b))
 *         ... a tie: the difference is within its error ...
 *
 * Two plans on one machine share most errors: products that are 10 % slower than published are so in both.
 * Each source of error is therefore moved to either end of its 90 % interval in both plans at once, and its part
 * is how far their *difference* moves.  Sources are independent: squares add. */
#ifndef DPX_TIES_H
#define DPX_TIES_H

#include "sim/clock/step.h"

/* The step as predicted; with collectives at their low and their high end; with all other work so; with the
 * slow-downs between streams at half and one and a half times; with the issuing thread at half and twice its
 * time. */
enum { TIES_VIEWS = 9 };

/* Seconds of one steady step of an evaluated plan in each view.  0, or -1 with the reason reported.  `cache` and `memo` as
 * simulate_price() wants them. */
int ties_views(const struct plan *p, const struct evaluation *e, struct cost_cache *cache, struct coll_memo *memo,
               double step_s[TIES_VIEWS]);

/* The same of a step that is open. */
int ties_views_of(struct step *st, double step_s[TIES_VIEWS]);

/* Half of the 90 % interval of b's step less a's, seconds: the sources' parts, and the difference between repeats
 * of one run on one cluster, 1 % of the shorter step (published benchmarks that state it: 1 to 3 %). */
double ties_unsure_s(const double a[TIES_VIEWS], const double b[TIES_VIEWS]);

#endif
