/* ties.h -- how sure the difference of two predicted steps is.
 *
 *     double a[TIES_VIEWS], b[TIES_VIEWS];
 *     ties_views(&p, &schedules_p, cache, &memo, a) ... ties_views(&q, &schedules_q, cache, &memo, b)
 *     if (fabs(b[0] - a[0]) <= ties_unsure_s(a, b))
 *         ... the clock cannot tell which is faster ...
 *
 * Two plans on one machine share most errors: if products are 10 % slower than published, they are so in both.
 * So each source of error is moved to either end of its 90 % interval in both plans at once, and what counts
 * is how far their *difference* moves.  Sources are unrelated: squares add. */
#ifndef DPX_TIES_H
#define DPX_TIES_H

#include "sim/clock/simulate.h"

/* The step as predicted; with collectives at their low and their high end; all other work; what streams take
 * from each other, half and one and a half times; the issuing thread, half and twice its time. */
enum { TIES_VIEWS = 9 };

/* Seconds of one steady step in each view.  0, or -1 with the reason reported.  `cache` and `memo` as
 * simulate_price() wants them. */
int ties_views(const struct plan *p, const struct schedules *s, struct cost_cache *cache, struct coll_memo *memo,
               double step_s[TIES_VIEWS]);

/* Half of the 90 % interval of b's step less a's, seconds: the sources' parts, and what repeats of one run on one
 * cluster differ by, 1 % of the shorter step (1 to 3 %: published benchmarks that state it; GPUs of one
 * type differ by 5 %, stas00/ml-engineering). */
double ties_unsure_s(const double a[TIES_VIEWS], const double b[TIES_VIEWS]);

#endif
