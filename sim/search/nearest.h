/* nearest.h -- of plans that do not fit, the one that lacks least of what decides. */
#ifndef DPX_NEAREST_H
#define DPX_NEAREST_H

#include "sim/search/search.h"

/* Of n plans, none of which fits, by what they lack (found_by_rank()): brings the nearest to the front.
 *
 * Some lack bytes for what is allocated; others hold that, and PyTorch's allocator refuses them all the same.  Of these it is asked, on
 * larger devices, how much more it would take: the request that failed says less than that.  Where there are such plans, the nearest of
 * the others is asked about as well.  Of two that lack the same, one that more GPUs help comes first.  0, or -1 with the reason reported. */
int nearest_first(const struct search_options *o, struct found *f, int64_t n);

#endif
