/* lower.h -- a plan becomes the schedules of one rank.
 *
 *     struct schedules s = { 0 };
 *     if (lower(&plan, rank, &s) < 0)
 *         return 2;
 *     ...
 *     schedules_free(&s);          (or lower() again: memory is reused)
 *
 * Which function makes a framework's schedules (model/plan/framework.h) is a row of lower.c. */
#ifndef DPX_LOWER_H
#define DPX_LOWER_H

#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

/* 0, or -1 with what plan_check() accepts and no lowering issues yet. */
int lower_check(const struct plan *p);

/* 0, or -1 with the reason reported.  The plan has passed plan_check(). */
int lower(const struct plan *p, int64_t rank, struct schedules *out);

/* The same with a program that program_build() made for this plan or one with the same
 * model, kernels, seq, micro_batch, precision, dropout and recompute; `g` is kept by
 * reference until `out` is lowered again or freed. */
int lower_using(const struct plan *p, int64_t rank, const struct program *g, struct schedules *out);

/* The same, unless `out`, which holds nothing or schedules of this plan by this program, is this rank's already. */
int lower_unless(const struct plan *p, int64_t rank, const struct program *g, struct schedules *out);

/* One rank of every kind that can differ, the fullest candidates among them:
 * rank 0 always; where a partition is uneven, the rank that holds most.
 * Returns how many; -1 reported. */
enum { LOWER_KINDS = 4 };
int lower_ranks(const struct plan *p, int64_t ranks[LOWER_KINDS]);

#endif
