/* import.h -- sweeps of nccl-tests as a calibration. */
#ifndef DPX_IMPORT_H
#define DPX_IMPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "calib/store/db.h"

struct import_nccl {
    const char *gpu;            /* our name; NULL: by what the logs call it */
    const char *cluster;        /* what the calibration belongs to; NULL: BELONGS_IMPORTED */
    int         op;             /* enum coll_op, where a log does not say; -1 */
    FILE       *to;             /* what was taken, in lines; NULL: stdout */
};

/* A calibration of each file; all of them or none, and a file that is there already is left as it
 * is.  Prints what it took.  0, or -1 reported; *refused: a file is at fault, not the database. */
int import_nccl(struct db *db, const struct import_nccl *how, char *const *paths, int npaths, bool *refused);

#endif
