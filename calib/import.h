/* import.h -- sweeps of nccl-tests as a calibration. */
#ifndef DPX_IMPORT_H
#define DPX_IMPORT_H

#include "calib/db.h"

struct import_nccl {
    const char *gpu;            /* our name; NULL: by what the logs call it */
    const char *cluster;        /* what to call the machines together */
    int         op;             /* enum coll_op, where a log does not say; -1 */
};

/* One calibration from several files; all of them or none.  Prints what it took.  0, or -1 reported. */
int import_nccl(struct db *db, const struct import_nccl *how, char *const *paths, int npaths);

#endif
