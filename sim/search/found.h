/* found.h -- what both searches (search.c, grid.c) say of a plan: against which limit it counts, and its times. */
#ifndef DPX_FOUND_H
#define DPX_FOUND_H

#include "sim/clock/timeline.h"
#include "sim/search/search.h"

/* Device memory that the verdict compares with, bytes.  The headroom is for what is not modelled: what PyTorch reserves may
 * need it. */
int64_t found_limit(const struct plan *p);

/* How much more than there is that would be, as a share of it; where a context alone takes all, in bytes. */
double found_short_by(int64_t needed, int64_t there);

/* The same of the memory that a plan is shortest of; device memory, of which there is `device`, or another. */
double found_over(const struct memory_verdict *m, int64_t device);

/* Keeps the times of a step whose schedules have so many groups. */
void found_keep_times(struct found *f, const struct timeline *t, int ngroups);
/* Of all[from .. i) one that fits and is as all[i], by what found_drop_duplicates() compares: it takes as long, and one of the two is dropped
 * there.  NULL: none is. */
const struct found *found_twin(const struct found *all, int64_t from, int64_t i);
void found_same_times(struct found *f, const struct found *as);

/* Of n plans ranked by time those that come to the top and were not looked at, as if they all fitted: the fastest few (behind the first of
 * them those within so many seconds), and unless only these are asked for the fastest of each strategy and dialect and, of a `front`, the first that save memory.  Their places in
 * `out`, which has room for n; how many. */
int64_t found_at_the_top(const struct found *ranked, int64_t n, bool fastest_only, bool front, double within_s, int64_t *out);

/* The order of what they lack, then as enumerated.  For qsort(). */
int found_by_lack(const void *a, const void *b);

/* Leaves those that could be planned, and were not too slow; once stopped those that were looked at, or left out by a bound, `fit` of
 * which fit.  How many. */
int64_t found_drop_refused(struct found *f, int64_t n);
int64_t found_keep_assessed(struct found *f, int64_t n, int64_t *fit);

/* Sorts plans by their schedules and drops all but the first of equal ones; how many are left. */
int64_t found_drop_duplicates(struct found *f, int64_t n);

/* What PyTorch's allocator says of a plan of data parallelism alone, by its schedules: whether it fits after all, and what it reserves.
 * 0, or -1 reported. */
int     found_replay(struct found *f, const struct schedules *s, const struct memory_verdict *m);

/* Whether a plan that fits, of which PyTorch's allocator was asked, waits for memory: `waits` and `waits_known`.  0, or -1 reported. */
int     found_learn_waits(struct found *f);
/* The same of a plan that evaluate_using() or evaluate_allocated() has evaluated. */
int     found_waits(struct found *f, struct evaluation *e);
/* All that a ranking asks of such a plan, of which PyTorch's allocator was asked: `seen`, `waits` and `waits_known`.  `st`: its step, run as
 * predicted.  0, or -1 reported. */
int     found_see(struct found *f, struct evaluation *e, struct step *st);

#endif
