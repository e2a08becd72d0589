/* search_bill.h -- search --goal bill: the plans that fit by what the whole training takes, checkpoints and interruptions included.
 *
 *     struct search_bill_row *row;
 *     int64_t n;
 *     if (search_bill(&asked, &result, &ranked[0], 10, &row, &n) < 0)
 *         return 2;
 *     ... row[0].found, row[0].bill.time.total_s ...            (the first to end, which on the same GPUs is the cheapest)
 *     free(row);
 *
 * Each plan has its own checkpoint: how many bytes, who writes them, and so how long all stand (saved.h), and its own best interval.  A
 * plan that is slower in a step and saves in a third of the time can come first.  Means by renewal (goodput.h); bill has the intervals.
 * Plans that the search left out because their step is far from the fastest are not looked at. */
#ifndef DPX_SEARCH_BILL_H
#define DPX_SEARCH_BILL_H

#include "sim/plan/bill.h"
#include "sim/search/ranking.h"
#include "sim/search/search.h"

struct search_bill_row { const struct found *found; struct bill bill; double unsure_s; };       /* unsure_s: of its step less the first idea's */

/* What --goal bill needs, and neither it nor the cluster has.  0, or -1 reported. */
int search_bill_check(const struct bill_asked *a, const struct cluster *c);
/* At most `top` plans that fit without waiting for memory, the first to end first.  `first`: the answer by the step; it comes first where
 * no other ends sooner by more than the error of the difference of their steps.  A row's bill shares the plan: it is not freed.  0, or -1
 * reported. */
int search_bill(const struct bill_asked *a, const struct search_result *r, const struct ranked *first, int64_t top,
                struct search_bill_row **row, int64_t *n);
/* Whether a plan that was left out by a bound of time (SEARCH_NEAR) could end sooner than the first, if it lost nothing. */
bool search_bill_unsure(const struct search_result *r, const struct search_bill_row *row, int64_t n);
json_t *search_bill_json(const struct search_bill_row *row, int64_t n);

#endif
