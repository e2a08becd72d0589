/* show.h -- what the database knows of machines: how much, how old, how noisy; and what a model
 * still misses. */
#ifndef DPX_SHOW_H
#define DPX_SHOW_H

#include <jansson.h>

#include "calib/store/db.h"
#include "model/plan/plan.h"

/* Every calibrated machine, a line for each sort of thing that was timed.  0, or -1 reported. */
int show_machines(struct db *db);

/* The newest fits of every machine (fits.h), a line each.  0, or -1 reported. */
int show_fits(struct db *db);

/* The same as documents (new references), figures in SI units and bytes; NULL reported.
 * {"dpx", "database", "machines": [{"host", "device", "cpu", "cores", "calibrations", "not_ended", "comm", "kernels", "series": [...], "probe",
 * "busy": how many times as long as when it was quiet}]} and {"dpx", "database", "fits": [...]}. */
json_t *show_machines_json(struct db *db);
json_t *show_fits_json(struct db *db);

/* The kernels of a plan's block program that were never timed on this host with so many ranks: printed, or (`into` not NULL)
 * appended to that array.  How many, or -1 reported. */
int show_missing(struct db *db, const struct plan *p, int64_t ranks, json_t *into);

/* {"name", "m", "n", "k"} of a product, {"name", "bytes"} of another (new reference). */
struct kernel;
json_t *show_kernel_json(const struct kernel *k);

#endif
