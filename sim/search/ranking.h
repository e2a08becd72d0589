/* ranking.h -- from plans by time to an answer: distinct ideas, and which of them are a tie.
 *
 *     struct ranked ideas[10];
 *     int64_t tied, n = ranking(&result, ideas, 10, &tied);
 *
 * An idea is a strategy in a dialect with its micro-batch, recompute, shard group and what it keeps elsewhere than in
 * device memory; plans that differ only in
 * buckets, units, prefetch and such are its variants.  An idea is a tie with the fastest where their difference is within
 * the prediction's error (ties.h) and below 5 %.  Where the fastest is tight, the fastest with room, if at most 5 % slower, is what others
 * with room are compared with as well, the same way: it would be the answer, and a plainer plan that is as fast has the better claim.  An
 * idea whose fastest plan is tight is then stood for by its fastest plan with room, if that is such a tie.
 *
 * Ties come first: those with room before tight ones, deprecated
 * wrappers behind, then by the number of departures from their framework's defaults, but that a tight one which is nearer to them than
 * the first is the second; then the others by time.  A plan
 * that waits for memory, which its step time leaves out, comes after all that do not.  PyTorch's allocator is
 * replayed for every idea of the answer; a plan that it refuses is not in it.  All ideas that may be a tie are looked
 * at, so that the first does not depend on how many are asked for. */
#ifndef DPX_RANKING_H
#define DPX_RANKING_H

#include "sim/price/cost.h"
#include "sim/search/search.h"
#include "sim/search/ties.h"

struct ranked {
    const struct found *found;  /* of the idea's variants that are a tie with its fastest (or its fastest with room), the one nearest to
                                 * the defaults */
    int64_t variants;           /* other plans of this idea that fit, where not replayed by what is allocated */
    int     departures;         /* options that are not their framework's default */
    bool    tied;               /* with the fastest, or with the fastest that has room; both themselves are.  None that waits is */
    bool    by_room;            /* with the latter alone: the fastest of all, which is tight, is faster */
    bool    tight;              /* as `eval` says it */
    bool    waits;              /* for memory */
    double  step_s;             /* the step, with what the allocator's retries take (`found` lacks them until looked_at) */
    double  low_s, high_s;      /* 90 % interval of the step */
    double  unsure_s;           /* half of the 90 % interval of this step less that of the first of the answer */
    enum basis basis;
    double  views[TIES_VIEWS];  /* its step as ties.h moves the sources of error */
};

/* At most n ideas of the fitting plans; returns how many, or -1 with the reason reported.  `tied`: how many of all
 * ideas are a tie.  Whether those of the answer wait for memory is then known of r->found, too. */
int64_t ranking(const struct search_result *r, struct ranked *out, int64_t n, int64_t *tied);

/* The same of other plans that were found, beside the first of an answer: verdict, interval, and the error of the difference.  Of n places
 * those are filled whose `found` is NULL; it stays so where a plan does not fit after all.  0, or -1 with the reason reported. */
int ranking_beside(const struct ranked *first, const struct found *const *f, int64_t n, struct ranked *out);

/* Are they variants of one idea? */
bool ranking_same_idea(const struct plan *a, const struct plan *b);

/* Options of a plan that are not what its framework does when asked for nothing; recompute and sharing
 * states within a part of the ranks count, the split of the batch and the reduction's precision do not. */
int ranking_departures(const struct plan *p);

/* What the framework says of a choice that it has deprecated, as words; NULL. */
const char *ranking_deprecated(const struct plan *p);

#endif
