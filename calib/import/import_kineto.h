/* import_kineto.h -- traces of PyTorch's profiler as a calibration of the GPUs that they were taken on. */
#ifndef DPX_IMPORT_KINETO_H
#define DPX_IMPORT_KINETO_H

#include <stdbool.h>
#include <stdio.h>

#include "calib/store/db.h"

struct import_kineto {
    const char *plan;           /* plan.json of what was traced */
    const char *steps;          /* "2-5", "3": of the trace, from 1; NULL: all */
    const char *cluster;        /* what the calibration belongs to; NULL: what the plan's cluster names */
    FILE       *to;             /* what was taken, in lines; NULL: stdout */
};

/* One calibration of all traces, each of another rank of the same run; nothing where one of them is refused or the
 * first was taken in before.  Prints what it took.  0, or -1 reported; *refused: a file or option is at fault, not the
 * database. */
int import_kineto(struct db *db, const struct import_kineto *how, char *const *paths, int npaths, bool *refused);

#endif
