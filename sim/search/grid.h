/* grid.h -- the search over tensor x context x pipeline x data ranks of a cluster (enum grid_use).
 *
 * Candidates: each strategy of the dialects that have them and are asked for, over what tensor, context and pipeline leave of the world.
 * Tensor is a power of two up to a node's GPUs; context one from GRID_LONG tokens a sample on, else 1; pipeline any divisor with
 * a block for each stage, under 1F1B, interleaved with 2 chunks a rank, and ZBV; every micro-batch that divides; every recompute
 * asked for (none, full and op where none is; of a mixture under Megatron-LM modules that cost little, too); of a mixture every number of ranks that divides its experts.  All other knobs have their defaults.  What plan_check() refuses is no candidate.
 *
 * What cannot fit by a bound (bounds_bytes) is not lowered.  The others are evaluated in the order of a time that their
 * step takes at least (bounds_step_s), a wave at a time; once that is more than SEARCH_NEAR times the fastest step
 * found, whatever is left can neither be the fastest nor a tie with it.  A wave's plans are judged by what was found before
 * it: the answer is the same for any number of threads.  No thread waits for a wave's end: it goes on with the next plan, and what turns out
 * not to be wanted is as if it had not been evaluated. */
#ifndef DPX_GRID_H
#define DPX_GRID_H

#include "sim/search/search.h"

enum { GRID_LONG = 32768, GRID_RECOMPUTE = 1u << RECOMPUTE_NONE | 1u << RECOMPUTE_FULL | 1u << RECOMPUTE_OP };
/* Layers times micro-steps of the longest step that GRID_BESIDE looks at: a pipeline's passes are entries of their own, and an
 * evaluation of so many takes about a second. */
enum { GRID_PASSES = 16384 };

/* As search(). */
int grid_search(const struct search_options *o, struct search_result *out);

/* Where data parallelism alone has no plan (rc 0: *out, of which none fits; < 0: `why`, and nothing in *out): the grid's answer takes its
 * place if it has one that fits, or where there was none at all.  0, or -1 with `why` reported. */
int grid_search_next(const struct search_options *o, int rc, const char *why, struct search_result *out);

/* Beside data parallelism alone: dialects torch and megatron, and of a mixture deepspeed's.  grid_new() is for the thread that go_on() knows;
 * the candidates may be enumerated by any thread, beside anything else.  0, or -1 reported. */
struct grid *grid_new(const struct search_options *o);
int  grid_take_cells(struct grid *g);
void grid_is_unwanted(struct grid *g);         /* by any thread: then that ends at once, with -1 */
/* Looks at those that may be as fast as *best_s for all that SEARCH_NEAR says; then that is the fastest of both that fits and does not wait.
 * 0, or -1 reported. */
int  grid_beside(struct grid *g, double *best_s);
/* Those that were evaluated; and were they stopped by go_on()? */
const struct found *grid_found(const struct grid *g, int64_t *n);
bool grid_stopped(const struct grid *g);
/* Adds those of which all is known to the answer of data parallelism, so that their ranking is one; frees the grid, as grid_drop() does. */
void grid_join(struct grid *g, struct search_result *out);
void grid_drop(struct grid *g);

/* Whether that is done where nothing else was asked: on GPUs, with kernels of PyTorch, where such a dialect is among what may run. */
bool grid_is_usual(const struct search_options *o);

#endif
