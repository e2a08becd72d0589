/* exact_sum.h -- sums of squares without rounding: the same whatever the order and the shards.
 *
 * The square of an fp32 number is an integer of at most 48 bits times a power of two between
 * 2^-298 and 2^208.  It is added into limbs of 32 bits each, limb i counting 2^(32 i - 320); an
 * int64 leaves room for 2^31 of them before carries must be passed on.  (Kulisch's long
 * accumulator; Demmel and Nguyen, "Fast reproducible floating-point summation", 2013, for why.) */
#ifndef DPX_EXACT_SUM_H
#define DPX_EXACT_SUM_H

#include "base/dtype.h"
#include "model/schedule/schedule.h"

struct exact_sum { int64_t limb[NORM_LIMBS]; };     /* the last: how many were not finite */

/* Adds x[i]^2; x of fp32 or bf16. */
void exact_add_squares(struct exact_sum *s, int64_t n, const void *x, enum dtype t);

/* Passes carries on; must be called before sums of several ranks are added limb by limb. */
void exact_carry(struct exact_sum *s);

/* The sum, rounded once; NaN if something was not finite. */
double exact_value(const struct exact_sum *s);

#endif
