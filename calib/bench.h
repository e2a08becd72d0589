/* bench.h -- timing the executor's own kernels, collectives and lanes, all ranks at once.
 *
 *     struct bench b = { .threads = 1, .db = db, .calibration = id, .stop = &stop };
 *     bench_open(&b);
 *     bench_run(&b, &item, 2.5);                   (about so many seconds)
 *     bench_close(&b);
 *
 * What is timed is what runs: kernels through kernel_run(), in the order of a block program and
 * on as much memory, collectives through comm_call() back to back, hand-overs through lanes.h.
 * Every rank of the machine does the same at the same time, since they share its memory's
 * bandwidth.  A probe product is timed before and after each group of series, for shared
 * machines drift.  Warm-up is not recorded; every repetition after it is.
 *
 * Every function is called by all ranks together.  Rank 0 has the database. */
#ifndef DPX_BENCH_H
#define DPX_BENCH_H

#include <stdatomic.h>

#include "calib/series.h"
#include "exec/comm.h"
#include "exec/kernels.h"
#include "exec/probe.h"
#include "model/plan.h"

enum bench_kind { BENCH_OWN, BENCH_PASSES, BENCH_PROGRAM, BENCH_COLL, BENCH_OVERLAP };

struct bench_item {
    enum bench_kind kind;
    char   what[160];                    /* for the progress line */
    double weight;                      /* of its time among the others' */
    const struct plan *plan;            /* BENCH_PROGRAM */
    enum dtype     dtype;               /* BENCH_PASSES, BENCH_COLL, BENCH_OVERLAP */
    enum coll_op   op;                  /* BENCH_COLL */
    enum coll_algo algo;
    int            step;                /* BENCH_COLL: sizes grow by 2^step; 0: 2^k and 1.5 * 2^k */
    int64_t        largest;             /* BENCH_COLL, BENCH_PASSES: bytes of an operand */
    int            group;               /* BENCH_COLL: ranks of each group, all groups at once; 0: one of all */
    bool           strided;             /* of every so many-th rank, as replica groups are */
};

struct bench {
    int      rank, nranks, per_node, threads;
    struct db *db;                      /* rank 0's */
    int64_t  calibration;
    atomic_bool *stop;

    struct kernels *k;
    void    *workspace;
    struct probe *probe;
    double   probe_before_s;
    struct comm *comm;                  /* of all ranks */
    void    *staging;
    struct series *pending;             /* rank 0: to be written together */
    int      npending;
};

int  bench_open(struct bench *b);
void bench_close(struct bench *b);      /* accepts what failed to open */

/* One item in about `seconds`, into the database.  What the calibration has already is not timed
 * again.  0, or -1 reported. */
int bench_run(struct bench *b, const struct bench_item *item, double seconds);

/* What is to be measured, and in how much time. */
struct bench_wish {
    bool        quick;
    const char *models;                 /* names or files with commas between; NULL: a grid of shapes */
    int64_t     seq;                    /* tokens of a sample; 0: up to 256 */
    const char *micro_batches;          /* "1,2,4"; NULL: a few */
    bool        precision[NDTYPE];
    int64_t     memory;                 /* bytes of a rank: what takes more is refused; 0: not looked at */
};
struct bench_list { struct bench_item *item; int n; struct plan *plan; int nplans; };

/* For `nranks` ranks.  0, or -1 reported with nothing to free. */
int  bench_list(const struct bench_wish *w, int nranks, struct bench_list *out);
void bench_list_free(struct bench_list *l);

/* ---- for bench_*.c ---- */

int bench_own(struct bench *b, double seconds);
int bench_passes(struct bench *b, enum dtype t, int64_t largest, double seconds);
int bench_program(struct bench *b, const struct plan *p, double seconds);
int bench_coll(struct bench *b, const struct bench_item *item, double seconds);
int bench_overlap(struct bench *b, enum dtype t, double seconds);

/* Whether the calibration has it: 1, 0, -1 reported. */
int bench_known(struct bench *b, const struct series *s);
/* This rank's n samples of a series; recorded by bench_flush().  `slowest`: of each sample the
 * rank that took longest, else all ranks' samples. */
int bench_keep(struct bench *b, const struct series *s, const double *seconds, int n, bool slowest);
int bench_flush(struct bench *b);

int    bench_barrier(void);
double bench_wall_clock(void);          /* seconds since 1970 */
/* The largest of all ranks' values; NaN reported. */
double bench_max(double mine);
/* Repetitions that fit, the same on all ranks: at least `least`, at most `most`. */
int    bench_reps(double slice, double each, int least, int most);

/* Memory that is really there, filled with small numbers; NULL reported.  free() it. */
void *bench_memory(int64_t bytes);
void  bench_fill(void *to, enum dtype t, int64_t n, double scale, double offset);

#endif
