/* worth.h -- which plans in device memory an answer needs: those that may be among the ideas that are shown, the fastest of its strategy and
 * dialect, or on the front of memory against time.  What else there is a bound of time leaves out.
 *
 *     while ((m = worth_replays(found, n, at)) > 0)
 *         ... ask PyTorch's allocator about them ...
 *     double limit = worth_ideas_s(found, n, grid, ngrid, ideas);         not above: looked at by time (by_time.h)
 *     while ((m = worth_more(found, n, MOST, at)) > 0)
 *         ... look at them ... */
#ifndef DPX_WORTH_H
#define DPX_WORTH_H

#include "sim/search/search.h"

/* The step of the `ideas`th of distinct ideas among those that fit for all that is known; INFINITY: there are fewer. */
double worth_ideas_s(const struct found *f, int64_t n, const struct found *grid, int64_t ngrid, int64_t ideas);

/* The fastest of each strategy and dialect that the allocator may refuse, so that it is not known whether others are slower than one that
 * fits.  Their places in `out`, which has room for WORTH_CELLS; how many. */
enum { WORTH_CELLS = NSTRATEGY * NDIALECT };
int64_t worth_replays(const struct found *all, int64_t n, int64_t *out);

/* Of those that were not assessed, whose bound_s is known and whose `needed` is a bound, some that may be the fastest of a strategy and dialect,
 * or on the front (of what its framework has not deprecated); the smallest bounds of memory first.  Their places in `out`; how many. */
int64_t worth_more(const struct found *all, int64_t n, int64_t most, int64_t *out);

/* Does a plan of that strategy and dialect fit that keeps all in device memory? */
bool worth_is_in_place(const struct found *all, int64_t n, const struct plan *p);

#endif
