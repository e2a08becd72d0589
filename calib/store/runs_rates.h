/* runs_rates.h -- what was measured of collectives and of matrix products, for reports.
 *
 *     struct rates r;
 *     if (rates_read(db, &r) == 0) { ... rates_free(&r); }
 *
 * Of each thing the newest series counts, as in the views `collectives` and `measured`. */
#ifndef DPX_RUNS_RATES_H
#define DPX_RUNS_RATES_H

#include <stdint.h>

#include "calib/store/db.h"

/* bytes: the full buffer; bus_gbs: bytes/s over each link, as nccl-tests counts, in 1e9. */
struct coll_rate {
    int64_t     series;
    const char *host, *device, *op, *algorithm, *dtype;
    int64_t     ranks, per_node, bytes, samples;
    double      seconds, algorithm_gbs, bus_gbs, spread;
};

struct gemm_rate {
    int64_t     series;
    const char *host, *device, *name, *fn, *dtype;
    int64_t     ranks, threads, batch, m, n, k, samples;
    double      seconds, gflops, spread;
};

struct rates {
    struct coll_rate *coll;     /* by host, op, algorithm, dtype, ranks, bytes */
    struct gemm_rate *gemm;     /* by host, dtype, ranks, FLOP */
    int64_t ncoll, ngemm;
    struct texts *texts;
};

/* How many times too long the host's calibration may be, since the machine was busy meanwhile (series_lateness(), SERIES_LATE): of
 * what counts now.  1: it was quiet, or there is none.  0, or -1 reported. */
int  rates_late(struct db *db, const char *host, double *late);

/* 0, or -1 reported with nothing to free. */
int  rates_read(struct db *db, struct rates *out);
void rates_free(struct rates *r);

#endif
