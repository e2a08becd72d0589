/* fit.h -- what the clock reads, from what was timed.
 *
 *     struct measured_device m;
 *     int found = fit_read(db, &(struct fit_want){ .precision = DT_FP32, .ranks = 2 }, &m);
 *     ... found > 0: m.kernel[i], m.coll[i] ...
 *     measured_device_free(&m);
 *
 * Only calibrations are read, never runs: a prediction must not have seen what it predicts.  Of
 * each thing the newest series of the machine counts, and of that its summary.  */
#ifndef DPX_FIT_H
#define DPX_FIT_H

#include "calib/store/db.h"
#include "model/schedule/measured.h"

struct fit_want {
    const char *device;         /* a GPU's name; NULL: the processor of this host */
    const char *machine;        /* what its calibrations belong to (belongs.h); NULL: of this host before others, then the newest */
    enum dtype  precision;
    int64_t     ranks;          /* busy at once; without kernels timed so, the nearest number that has */
    int64_t     per_node;       /* of them on one machine; 0: all */
    int64_t     threads;        /* of each rank's kernels: these before others; 0: its share of the cores */
};

/* What 0 threads stand for. */
int64_t fit_threads(int64_t threads, int64_t ranks, int64_t cores);

/* 1: found; 0: nothing was measured for it; -1 reported.  Unless 1 there is nothing to free. */
int fit_read(struct db *db, const struct fit_want *want, struct measured_device *out);

#endif
