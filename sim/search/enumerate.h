/* enumerate.h -- the candidates of a search, one after the other. */
#ifndef DPX_ENUMERATE_H
#define DPX_ENUMERATE_H

#include "sim/search/search.h"

/* Calls take() for every plan that the options allow and its dialect accepts.  The
 * plan shares the options' model and is gone after the call.  0, or what take()
 * returned when it was not 0, or -1 reported when every plan was refused. */
int enumerate(const struct search_options *o, int (*take)(const struct plan *p, void *arg), void *arg);

/* The same, but asks run() first for the plans of each cell, micro-batch and recompute, which differ in buckets, units,
 * prefetch and such: 1 leaves all of them out, 0 does not, -1 ends it.  What it is handed has passed no check. */
int enumerate_runs(const struct search_options *o, int (*run)(const struct plan *p, void *arg),
                   int (*take)(const struct plan *p, void *arg), void *arg);

/* The same for every plan that is `base` with less in device memory: the knobs from KNOB_SAVES on in all their values,
 * those of `base` aside; with `in_place` none that moves data elsewhere.  None may be left. */
int enumerate_saving(const struct search_options *o, const struct plan *base, bool in_place,
                     int (*take)(const struct plan *p, void *arg), void *arg);

/* The kernels of the search's plans in p's dialect. */
enum kernel_set enumerate_kernels(const struct search_options *o, const struct plan *p);

/* What a plan of defaults has besides: FSDP1 reduces as FSDP2 does, and one GPU's model is not wrapped in DDP, whose buckets would hold the
 * gradients a second time (but in a tool's config, which is what it is). */
void enumerate_as_trainers_do(struct plan *p, bool config);

/* Sets the loss of the options, if any.  0, or -1 reported: the plan's cell has its framework's own alone. */
int enumerate_choose_loss(const struct search_options *o, struct plan *p);

/* A cell that was asked for and has no candidate: why the first of its plans was refused.  How many there are. */
struct left_out { enum strategy strategy; enum dialect dialect; char why[256]; };
int enumerate_left_out(const struct search_options *o, struct left_out out[NSTRATEGY * NDIALECT]);

/* Do the knobs that move data (from KNOB_LATER on) have the same values?  And the plan with their defaults. */
bool        enumerate_same_place(const struct plan *a, const struct plan *b);
struct plan enumerate_in_place(const struct plan *p);

/* The plan with the defaults of what varies innermost (buckets, units, prefetch and such); itself where that is refused.
 * `refused`: it was. */
struct plan enumerate_usual(const struct plan *p, bool *refused);

#endif
