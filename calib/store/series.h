/* series.h -- what was timed, sample by sample, into the database.
 *
 *     int64_t id = calibration_begin(db, &calibration);    (or an interrupted one, continued)
 *     if (!series_known(db, id, &s)) { ... time it ... series_put(db, id, &s, 1); }
 *     calibration_end(db, id, now);
 *
 * A series is one thing timed many times.  Every sample is kept; the summary beside them is what
 * fits read, so that a reader's time does not depend on how many there are.  Every call is one
 * transaction.  A calibration that was interrupted has no end; what it recorded counts. */
#ifndef DPX_SERIES_H
#define DPX_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"
#include "model/schedule/measured.h"

enum series_kind { SERIES_KERNEL, SERIES_PASS, SERIES_COLL, SERIES_OVERLAP, SERIES_OWN, NSERIES_KIND };
extern const char *const series_words[];        /* as in the table, ended by NULL */

/* As in the table, ended by NULL. */
extern const char *const calibration_sources[];

/* Texts may be NULL where not known, but for host, device, cpu, source, options. */
struct calibration {
    double      started;
    const char *host, *device, *cpu;
    int64_t     cores, memory;
    const char *source;                 /* "dpxcal", "nccl-tests", "kineto" */
    int64_t     ranks, threads;         /* ranks 0: each series has its own; threads 0: not dpx's own kernels */
    const char *options;                /* a JSON object */
    const char *dpx_version, *comm_version, *kernels_version, *origin;
};

/* What does not apply is 0 or NULL. */
struct series {
    enum series_kind kind;
    const char *name;                   /* kernel, pass_words[], coll_name(), own_words[] */
    int         fn, class;              /* enum kernel_fn, kernel_class: kernels only */
    enum dtype  dtype;
    const char *algorithm;              /* of a collective: "ring"; of a message SERIES_PAIR; of a framework's kernel or pass: its kernel set */
    int64_t     ranks, per_node, threads;
    int64_t     batch, m, n, k, seq, dim, bytes;
    double      flops;
    bool        dropout;
    const char *beside;
    double      started, probe_before_s, probe_after_s;     /* NaN: no probe */
    /* nsamples in all, those of rank 0 first, as many of each of `of_ranks` ranks; 0: one of the
     * slowest rank each time. */
    const double *seconds;
    int           nsamples, of_ranks;
};

#define SERIES_PAIR "pair"

struct summary { double median, mean, min, p05, p95, confidence; };
/* Of n >= 1 samples.  confidence: half of the distribution-free 95 % interval of the median
 * (order statistics n/2 -+ 0.98 sqrt(n)) as a share of it. */
void series_summarize(const double *seconds, int n, struct summary *out);

/* The calibration's number; -1 reported. */
int64_t calibration_begin(struct db *db, const struct calibration *c);
/* The newest without an end that is the same in all but `started`, and no older than `seconds`: it
 * can be continued.  Its number, 0 if there is none, -1 reported. */
int64_t calibration_open_since(struct db *db, const struct calibration *c, double seconds);
/* Of the cores that were timed, the share that other processes had meanwhile: 0 to 1.  0, or -1 reported. */
int     calibration_crowd(struct db *db, int64_t id, double crowd);
/* Fits are written too (fits.h). */
int     calibration_end(struct db *db, int64_t id, double ended);

/* ---- within a transaction of the caller's; -1 unreported ---- */

/* The calibration's number; `ended` may be NaN. */
int64_t calibration_add(struct db *db, const struct calibration *c, double ended);
int     series_add(struct db *db, int64_t calibration, const struct series *s, int n);
/* 1 if one of that machine, source and beginning is there, 0 if not, -1 reported.  Logs of nccl-tests
 * and traces have no beginning but their file's date, so there the file must be the same. */
int     calibration_known(struct db *db, const struct calibration *c);
/* Removes what is known of it where that was interrupted and this has an end (`ended` not NaN) or more
 * series: so that the whole takes the place of the part.  0, or -1 reported. */
int     calibration_outgrown(struct db *db, const struct calibration *c, double ended, int nseries);

/* All of them or none. */
int series_put(struct db *db, int64_t calibration, const struct series *s, int n);
/* The number of the last that was put, 0 if there is none; and removing those of a calibration that came after it.  -1 reported. */
int64_t series_last(struct db *db);
int     series_forget(struct db *db, int64_t calibration, int64_t after);
/* How many times longer than on a quiet machine things took, of a calibration of its cores; the larger of
 * - 1 / (1 - crowd): processes that share cores fairly get what the others leave;
 * - how many times its least sample the median of a series is: the median of that over kernels and passes.  On a quiet
 *   machine 1.02 to 1.15.  It sees what comes and goes, crowd what stays.
 *   Of what takes 50 us or more: shorter times vary with the state of the caches.
 * ranks, threads 0: of any.  1 where nothing is known; NaN reported. */
double  series_lateness(struct db *db, int64_t machine, int64_t ranks, int64_t threads);
/* From this on the machine was busy while it was timed. */
#define SERIES_LATE 1.25
/* 1 if this calibration has it, 0 if not, -1 reported. */
int series_known(struct db *db, int64_t calibration, const struct series *s);

#endif
