/* show.h -- what the database knows of machines: how much, how old, how noisy; and what a model
 * still misses. */
#ifndef DPX_SHOW_H
#define DPX_SHOW_H

#include "calib/store/db.h"
#include "model/plan/plan.h"

/* Every calibrated machine, a line for each sort of thing that was timed.  0, or -1 reported. */
int show_machines(struct db *db);

/* The newest fits of every machine (fits.h), a line each.  0, or -1 reported. */
int show_fits(struct db *db);

/* The kernels of a plan's block program that were never timed on this host with so many ranks.
 * How many, or -1 reported. */
int show_missing(struct db *db, const struct plan *p, int64_t ranks);

#endif
