/* runs_memory.h -- what a run's memory consists of: predicted before it, measured after it.
 *
 *     runs_memory_predicted(db, run, &p);      (right after runs_begin)
 *     runs_memory_measured(db, run, &m);       (before runs_end)
 *     struct run_parts l;
 *     if (runs_parts(db, run, &l) == 0) { ... run_parts_free(&l); }
 *
 * All of it is the *allocated* meter: what is live in order of issue (model/schedule/ledger.h). */
#ifndef DPX_RUNS_MEMORY_H
#define DPX_RUNS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"

/* Bytes of one category that were live at the peak of a rank's device memory; or, by these names, the peak of another
 * memory by itself.  -1: that side is not known. */
struct run_part { int64_t run, rank; const char *category; int64_t predicted_bytes, bytes; };
#define RUNS_PINNED "pinned memory"
#define RUNS_HOST   "pageable host memory"
#define RUNS_DISK   "disk"
bool runs_part_elsewhere(const struct run_part *p);

/* The most that was live while one entry of a schedule was issued, on rank 0; position as in
 * struct run_entry.  -1: not known. */
struct run_moment { const char *schedule; int64_t position, predicted_bytes, bytes; };

/* One side of it: of each part and moment the bytes that are not -1 count. */
struct run_memory_side {
    int64_t available;                  /* bytes that schedules may allocate on a rank; -1: not known */
    const struct run_part   *part;      /* `run` is not looked at */
    const struct run_moment *moment;
    int64_t nparts, nmoments;
};

/* 0, or -1 with nothing recorded.  A prediction cannot be changed. */
int runs_memory_predicted(struct db *db, int64_t run, const struct run_memory_side *p);
int runs_memory_measured(struct db *db, int64_t run, const struct run_memory_side *m);

/* By run, rank, and category in the order in which they were given.  Copies, freed at once. */
struct run_parts { struct run_part *part; int64_t n; struct texts *texts; };
int  runs_parts(struct db *db, int64_t run, struct run_parts *out);
void run_parts_free(struct run_parts *p);

/* In order of issue. */
struct run_moments { struct run_moment *moment; int64_t n; struct texts *texts; };
int  runs_moments(struct db *db, int64_t run, struct run_moments *out);
void run_moments_free(struct run_moments *m);

/* Bytes that a rank of the run may use; -1 where that was not recorded. */
int runs_available(struct db *db, int64_t run, int64_t *bytes);

#endif
