/* runs.h -- what was predicted for a run and what happened, in the database.
 *
 *     int64_t id = runs_begin(db, &run, &predicted);       (committed before the first step)
 *     runs_steps(db, id, steps, n);                        (between timed steps, in batches)
 *     runs_end(db, id, &(struct run_end){ .outcome = RUN_FINISHED, ... });
 *
 * Every call is one transaction: all of its rows, or none with the reason reported.  A run
 * whose process died has no outcome: RUN_OPEN for ever.  What was predicted cannot be
 * changed afterwards.  Seconds, bytes; times of day are seconds since 1970 (UTC).  NaN is kept as
 * SQL's NULL and read back as NaN; texts are UTF-8, and NULL where not known. */
#ifndef DPX_RUNS_H
#define DPX_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "calib/store/db.h"

enum run_outcome { RUN_OPEN, RUN_FINISHED, RUN_FAILED, RUN_INTERRUPTED };
const char *run_outcome_name(enum run_outcome o);

/* What is run, where and with what. */
struct run_start {
    double      started;
    const char *host, *device, *cpu;        /* "node7", "cpu", "AMD EPYC 9654" */
    int64_t     cores, memory;              /* of that machine: all, not what is free */
    const char *dpx_version;                /* "0.1.0 (3fa9c21)" */
    const char *comm_version, *kernels_version;     /* "Open MPI 4.1.4", "oneDNN 2.6.3" */
    const char *plan;                       /* the plan.json document, with model and cluster */
    const char *options;                    /* a JSON object: what else the command line said */
    int64_t     world_size, seed;
};

/* All calls of one collective in the whole run; one row for each op, group and dtype. */
struct run_comm { const char *op, *group, *dtype; int64_t count, bytes; };

/* Seconds of one phase of a steady step ("forward", "optimizer" ...). */
struct run_phase { const char *name; double seconds; };

struct run_predicted {
    const char *basis;                      /* "measured", "published", "datasheet" */
    double      step_s, low_s, high_s;      /* one steady step; the 90 % interval */
    int64_t     rank;                       /* the fullest, to which the bytes belong */
    int64_t     held_bytes, allocated_bytes, process_bytes;     /* peaks; -1: not predicted */
    const struct run_comm  *comm;
    const struct run_phase *phase;
    int ncomm, nphase;
};

struct run_step {
    int64_t     step;                       /* 1, 2, ... */
    const char *schedule;                   /* which one it ran: "first", "steady" */
    double      loss, seconds, lr, grad_norm;
    int64_t     tokens;                     /* of the global batch */
};

/* One entry of a schedule as one rank ran it in a sampled step, beside its prediction; seconds
 * from the beginning of that step.  NaN: not predicted, or not run. */
struct run_entry {
    int64_t     step;                       /* 0: init */
    int64_t     rank;
    int64_t     position;                   /* 0, 1, ... in issue order, repeats unrolled */
    int64_t     entry, iteration;           /* index in the schedule; of the innermost repeat */
    const char *schedule, *stream, *kind, *what, *unit;
    const char *pass;                       /* "forward", "backward", "weights", "optimizer", "message"; NULL: part of none */
    int64_t     micro_step;                 /* that it is for; -1: none */
    double      predicted_start_s, predicted_end_s, start_s, end_s;
    double      met_s;                      /* when all stages that take part had come to it; NaN: it meets none, not known */
};

/* Memory of one rank over the whole run: peaks in bytes, -1 where not known. */
struct run_memory {
    int64_t     rank;
    const char *host;
    int64_t     held_bytes, allocated_bytes, process_bytes;
};

struct run_end {
    enum run_outcome outcome;               /* not RUN_OPEN */
    const char *reason;                     /* the line that said why it failed; NULL */
    double      ended;
    double      step_s, p10_s, p90_s;       /* median and spread of steady steps; NaN without any */
    double      tokens_per_s;
};

/* ---- writing: 0, or -1 with nothing recorded ---- */

/* The run's number, from 1; -1 with nothing recorded.  `p` may be NULL: not predicted. */
int64_t runs_begin(struct db *db, const struct run_start *r, const struct run_predicted *p);
int runs_steps(struct db *db, int64_t run, const struct run_step *s, int n);
int runs_entries(struct db *db, int64_t run, const struct run_entry *e, int64_t n);
/* These are set once or again: the last word counts. */
int runs_memory(struct db *db, int64_t run, const struct run_memory *m, int n);
int runs_comm(struct db *db, int64_t run, const struct run_comm *c, int n);
int runs_phases(struct db *db, int64_t run, const struct run_phase *p, int n);
/* Once: a second is refused. */
int runs_end(struct db *db, int64_t run, const struct run_end *e);

/* ---- reading: everything returned is a copy, freed at once ---- */

/* Measured beside predicted.  -1 or NaN: that side has no such row. */
struct run_comm_row {
    const char *op, *group, *dtype;
    int64_t count, bytes, predicted_count, predicted_bytes;
};
struct run_phase_row { const char *name; double seconds, predicted_s; };

/* One run of a list: what one line of a table needs. */
struct run_row {
    int64_t     id;
    struct run_start start;
    struct run_end   end;                   /* RUN_OPEN: of what was recorded until it ended */
    const char *model, *strategy, *dialect; /* from the plan; model may be NULL */
    int64_t     steps;
    bool        has_prediction;
    struct run_predicted predicted;         /* without comm and phase */
    int64_t     held_bytes, allocated_bytes, process_bytes;     /* of the fullest rank; -1 */
};

struct run_list {
    struct run_row *run;                    /* by id */
    int64_t         n;
    struct texts   *texts;                  /* what the pointers point into */
};

struct run_record {
    struct run_row        row;
    struct run_step      *step;             /* in order */
    struct run_comm_row  *comm;
    struct run_phase_row *phase;            /* in the order they were given */
    struct run_memory    *memory;           /* by rank */
    struct run_entry     *entry;            /* by step, rank, position */
    int64_t nstep, ncomm, nphase, nmemory, nentry;
    struct texts *texts;
};

/* 0, or -1 with the reason reported and nothing to free. */
int  runs_list(struct db *db, struct run_list *out);
void run_list_free(struct run_list *l);
int  runs_load(struct db *db, int64_t id, struct run_record *out);
void run_record_free(struct run_record *r);

#endif
