/* portable.h -- calibrations as a JSON file that another machine can take in.
 *
 * One document: the machine that was measured, with what, and each series with all of its samples
 * in the words of the database's tables.  Taken in, it stays a calibration of the machine where
 * it was made, unless a cluster is named; one that is there already is left as it is. */
#ifndef DPX_PORTABLE_H
#define DPX_PORTABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"

/* "dpx_calibrations" of a file. */
enum { PORTABLE_FORMAT = 1 };

/* Calibration number `id`, 0: all.  How many, or -1 with the reason reported and no file; *refused:
 * there is no such calibration, or the path cannot be written. */
int portable_export(struct db *db, int64_t id, const char *path, bool *refused);
/* How many were new, *known those that were there; all of the file or nothing, -1 reported;
 * *refused: the file is at fault, not the database. */
int portable_import(struct db *db, const char *path, int *known, bool *refused);
/* As calibrations of `cluster`; NULL: of the hosts that measured them. */
int portable_import_as(struct db *db, const char *path, const char *cluster, int *known, bool *refused);

#endif
