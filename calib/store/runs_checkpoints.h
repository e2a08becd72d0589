/* runs_checkpoints.h -- each time that a run saved or loaded its training state: predicted and measured.
 *
 *     runs_checkpoint(db, run, &one);                  (after it; a run that dies keeps those it made)
 *     struct run_checkpoints l;
 *     if (runs_checkpoints(db, run, &l) == 0) { ... run_checkpoints_free(&l); } */
#ifndef DPX_RUNS_CHECKPOINTS_H
#define DPX_RUNS_CHECKPOINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"

/* After which step; the state of all ranks.  Seconds until every rank was done; NaN: the rate of the disks is not known. */
struct run_checkpoint {
    int64_t step;
    bool    loaded;             /* it was read, and the run went on from it */
    int64_t bytes, predicted_bytes;
    double  seconds, predicted_s;
};

/* 0, or -1 with nothing recorded. */
int runs_checkpoint(struct db *db, int64_t run, const struct run_checkpoint *one);

/* By step, a load first.  0, or -1 reported. */
struct run_checkpoints { struct run_checkpoint *of; int n; };
int  runs_checkpoints(struct db *db, int64_t run, struct run_checkpoints *out);
void run_checkpoints_free(struct run_checkpoints *l);

#endif
