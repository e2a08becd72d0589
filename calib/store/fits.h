/* fits.h -- the laws that calibrations follow, kept in the database beside their samples.
 *
 *     fits_write(db, calibration, false);      (in the transaction that ends the calibration)
 *
 * One law for each thing that was timed at several sizes: seconds = fixed + per * x, x being bytes
 * or FLOPs, nearest in relative terms (least squares of fit / time - 1: plain least squares sees
 * nothing but the largest size).  Beside it how far the points lie from it, and between which sizes
 * they do.  The clock itself goes through the points and not along these lines (sim/README.md,
 * "Measured"); what that costs between points is `left_out`: a point is left out and asked of its
 * two neighbours.  So the table says in a few numbers what a machine does, and how far it is from
 * what anybody would have guessed. */
#ifndef DPX_FITS_H
#define DPX_FITS_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"

/* Shares are of the time that was measured.  left_out: NaN where fewer than three sizes differ. */
struct table_fit_line { double fixed_s, per_s, from, to, residual, worst, left_out; int points; };

/* n >= 1 points, x rising, times positive.  Neither part of the law is below 0. */
void fits_line(const double *x, const double *seconds, int n, struct table_fit_line *out);

/* What counts on the calibration's machine, in the groups to which it has added (`all`: in every
 * one), in place of fits of its own that are there.  Within a transaction of the caller's: 0, or -1
 * unreported. */
int fits_write(struct db *db, int64_t calibration, bool all);

/* Of a database whose schema had none: of each machine, after its newest calibration.  As above. */
int fits_write_older(struct db *db);

#endif
