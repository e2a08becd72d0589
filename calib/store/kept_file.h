/* kept_file.h -- the fits of one type of GPU as a file: what fit_read() makes of a calibration for each precision of plans that it
 * has kernels of, for dpx's own kernels, without what the host and its disks took (they were another machine's).
 *
 * Text, a line for each row, with the names of the columns at its head; `dpxcal fit` writes it from an export.  Numbers are written so
 * that they are read back bit for bit. */
#ifndef DPX_KEPT_FILE_H
#define DPX_KEPT_FILE_H

#include <stdbool.h>

#include "base/dtype.h"
#include "calib/store/db.h"
#include "model/schedule/measured.h"

/* The number in the first line. */
enum { KEPT_FORMAT = 1 };

enum { KEPT_ARRAYS = 4 };               /* of a struct measured_device */
struct kept_fits {
    int   n;
    struct measured_device of[NDTYPE];
    int   nowned;
    void *owned[NDTYPE * KEPT_ARRAYS];  /* the arrays of fits that were read */
};

/* The fits of the one GPU that the database has calibrations of, ranks of one number: with others, which one is meant is not known.
 * 0, or -1 with the reason reported and nothing to free. */
int  kept_fit(struct db *db, struct kept_fits *out);
/* 0, or -1 with the reason reported and no file. */
int  kept_write(const struct kept_fits *fits, const char *path);
/* As kept_fit(), of a file. */
int  kept_load(const char *path, struct kept_fits *out);
void kept_fits_free(struct kept_fits *fits);

#endif
