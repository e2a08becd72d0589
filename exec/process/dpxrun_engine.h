/* dpxrun_engine.h -- what dpxrun --engine's two files share: the run (dpxrun_engine.c) and its rows (dpxrun_engine_record.c). */
#ifndef DPX_DPXRUN_ENGINE_H
#define DPX_DPXRUN_ENGINE_H

#include "calib/store/runs_ranks.h"
#include "exec/engine/engine.h"
#include "exec/process/dpxrun.h"

enum { NDIFFER = 2 };           /* init; the first three steps */

/* One rank as planned, to be held against what it did. */
struct planned {
    struct schedules s;
    struct ledger    l;
    struct difference { int64_t at; char planned[160], issued[160]; } differs[NDIFFER];      /* the first collective that is another; at -1: none */
};

struct engine_run {
    struct dpxrun *r;
    struct engine_job  job;
    struct engine_end  end;
    struct engine_rows rows;
    struct planned    *rank;            /* by rank */
    double *lr, *seconds, *loss;        /* by step: of the slowest rank; mean over the global batch */
    int64_t steps;                      /* done on all ranks */
    double  median_s, p10_s, p90_s;
    bool    reductions;                 /* the record says by which operation */
    struct run_rank_part *part;         /* of the traced step by rank; NULL: none was traced */
};

/* What a rank was to allocate at most in an enum engine_phase. */
int64_t engine_peak_planned(const struct planned *p, int phase);
/* What PyTorch's allocator was to reserve; -1: not predicted. */
int64_t engine_planned_reserved(const struct engine_run *e);
/* The most of a rank over all phases; -1: not known. */
int64_t engine_most(const struct engine_rank *k, bool reserved);
/* Of an optimizer step. */
int64_t engine_tokens(const struct plan *p);

/* The run and its prediction, before it starts; what came of it.  Nothing without a database.  0, or -1 reported. */
int engine_record_begun(struct engine_run *e);
int engine_record_ended(struct engine_run *e);

#endif
