/* runs_ranks.h -- what each rank of a framework's run recorded (dpxrun --engine), beside what was predicted of it.
 *
 *     runs_ranks_predicted(db, run, phases, n);        (right after runs_begin)
 *     runs_ranks_measured(db, run, &m);                (before runs_end)
 *     struct run_ranks r;
 *     if (runs_ranks(db, run, &r) == 0) { ... run_ranks_free(&r); } */
#ifndef DPX_RUNS_RANKS_H
#define DPX_RUNS_RANKS_H

#include <stdint.h>

#include "calib/store/db.h"

/* Peaks of one rank in init, its first, its second and a steady step, in bytes; -1: not known. */
struct run_rank_phase {
    int64_t     rank;
    const char *phase;                  /* "init", "first", "second", "steady" */
    int64_t     predicted_allocated, allocated, active, reserved;
    int64_t     retries;                /* times that the allocator freed its cache; -1 */
};

struct run_rank_step { int64_t rank, step; double loss, seconds; };

/* Where the time of one step went, by the framework's profiler; seconds, their sum is the step. */
struct run_rank_part { int64_t rank; double compute, exposed, optimizer, idle; };

/* MHz of a rank's GPU while steps ran: medians, and the most that it can; -1: not known. */
struct run_rank_clock { int64_t rank, sm, sm_most, memory, memory_most; };

struct run_ranks {
    struct run_rank_phase *phase;       /* by rank, in their order */
    struct run_rank_step  *step;        /* by rank and step */
    struct run_rank_part  *part;        /* by rank; none where nothing was traced */
    struct run_rank_clock *clock;       /* by rank; of GPUs that were asked */
    int64_t nphases, nsteps, nparts, nclocks;
    struct texts *texts;                /* what runs_ranks() gave points into */
};

/* 0, or -1 reported with nothing recorded.  A prediction cannot be changed. */
int runs_ranks_predicted(struct db *db, int64_t run, const struct run_rank_phase *p, int64_t n);
int runs_ranks_measured(struct db *db, int64_t run, const struct run_ranks *m);

/* 0 with copies, freed at once; or -1 reported with nothing to free. */
int  runs_ranks(struct db *db, int64_t run, struct run_ranks *out);
void run_ranks_free(struct run_ranks *r);

#endif
