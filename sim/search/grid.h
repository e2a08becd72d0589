/* grid.h -- the search over tensor x context x pipeline x data ranks of a cluster (search_options.grid).
 *
 * Candidates: each strategy of dialects torch and paper that is asked for, over what tensor, context and pipeline leave of the world.
 * Tensor is a power of two up to a node's GPUs; context one from GRID_LONG tokens a sample on, else 1; pipeline any divisor with
 * a block for each stage, under 1F1B, interleaved with 2 chunks a rank, and ZBV; every micro-batch that divides; every recompute
 * asked for (none, full and op where none is).  All other knobs have their defaults.  What plan_check() refuses is no candidate.
 *
 * What cannot fit by a bound (bounds_bytes) is not lowered.  The others are evaluated in the order of a time that their
 * step takes at least (bounds_step_s), a wave at a time; once that is more than SEARCH_NEAR times the fastest step
 * found, whatever is left can neither be the fastest nor a tie with it.  A wave's plans are judged by what was found before
 * it: the answer is the same for any number of threads. */
#ifndef DPX_GRID_H
#define DPX_GRID_H

#include "sim/search/search.h"

enum { GRID_LONG = 32768, GRID_RECOMPUTE = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_FULL | 1u << RECOMPUTE_OP };

/* As search(). */
int grid_search(const struct search_options *o, struct search_result *out);

#endif
