/* bench.h -- timing the executor's own kernels, collectives and lanes, all ranks at once.
 *
 *     struct bench b = { .threads = 1, .db = db, .calibration = id, .stop = &stop };
 *     bench_open(&b);
 *     bench_run(&b, &item, 2.5);                   (about so many seconds)
 *     bench_close(&b);
 *
 * What is timed is what runs: kernels through executor_kernel_run(), in the order of a block program and
 * on as much memory, collectives through comm_call() back to back, hand-overs through lanes.h.
 * Every rank of the machine does the same at the same time, since they share its memory's
 * bandwidth.  A probe product is timed before and after each group of series, for shared
 * machines drift.  Warm-up is not recorded; every repetition after it is.
 *
 * On a CUDA device the same calls queue there, and times are the device's (bench_device.c); operands
 * are its memory, collectives NCCL's, where each rank has a device of its own.
 *
 * Every function is called by all ranks together.  Rank 0 has the database. */
#ifndef DPX_BENCH_H
#define DPX_BENCH_H

#include <stdatomic.h>

#include "calib/store/series.h"
#include "exec/comm/comm.h"
#include "exec/device/cpu_use.h"
#include "exec/device/device.h"
#include "exec/kernels/kernels.h"
#include "exec/device/cores.h"
#include "exec/train/probe.h"
#include "model/plan/plan.h"

enum bench_kind { BENCH_OWN, BENCH_PASSES, BENCH_PROGRAM, BENCH_COLL, BENCH_OVERLAP, BENCH_HOST, BENCH_DISK };

struct bench_item {
    enum bench_kind kind;
    char   what[160];                    /* for the progress line */
    double weight;                      /* of its time among the others' */
    const struct plan *plan;            /* BENCH_PROGRAM */
    enum dtype     dtype;               /* BENCH_PASSES, BENCH_COLL, BENCH_OVERLAP */
    const char    *folder;              /* BENCH_DISK */
    bool           queues;              /* BENCH_DISK: depths of the queue and sizes of blocks as well */
    enum coll_op   op;                  /* BENCH_COLL */
    enum coll_algo algo;
    int            step;                /* BENCH_COLL: sizes grow by 2^step; 0: 2^k and 1.5 * 2^k */
    int64_t        largest;             /* BENCH_COLL, BENCH_PASSES, BENCH_HOST: bytes of an operand; BENCH_DISK: of a rank's file */
    int            group;               /* BENCH_COLL: ranks of each group, all groups at once; 0: one of all */
    bool           strided;             /* of every so many-th rank, as replica groups are */
};

enum { BENCH_BATCH = 1024 };            /* samples whose times are not there yet; DEVICE_MARKS is more */

struct bench_span { double from, to; };         /* seconds of the clock of lanes_now() */

struct bench_timer {
    int    n;
    double from;                        /* the host's */
    struct bench_span *to[BENCH_BATCH];
    enum stream stream[BENCH_BATCH];
    int64_t number[BENCH_BATCH], marked[NSTREAM];
    unsigned held;                      /* AFTER() bits of streams that wait for this batch's ballast */
    void  *ballast;
    int64_t ballast_bytes;
    double ballast_s;                   /* what one takes */
    double began, queueing_s;           /* when the host began a batch; what it took to queue the last */
};

struct bench {
    bool     cuda;                      /* else the host */
    int      rank, nranks, local, per_node, threads;
    unsigned char cpus[CORES_MASK];     /* on which the ranks of this node compute (cores.h) */
    struct db *db;                      /* rank 0's */
    int64_t  calibration;
    atomic_bool *stop;
    atomic_int   busy;                  /* comm_args: whether a kernel is timed beside collectives */

    struct device *device;
    bool     carries;                   /* collectives between the ranks can be timed */
    struct bench_timer timer;
    struct kernels *k;                  /* of the compute stream */
    void    *workspace;
    int64_t  workspace_bytes;
    struct probe *probe;
    double   probe_before_s;
    struct comm *comm;                  /* of all ranks */
    void    *staging;
    struct series *pending;             /* rank 0: to be written together */
    int      npending;
};

int  bench_open(struct bench *b);
void bench_close(struct bench *b);      /* accepts what failed to open */

/* One item in about `seconds` (the ranks' largest counts), into the database.  What the calibration has
 * already is not timed again.  0, or -1 reported. */
int bench_run(struct bench *b, const struct bench_item *item, double seconds);

/* Other processes on the same cores make every time longer.  Of what the ranks of a node need, the share that others
 * have had since then (cpu_use.h), the largest of all nodes; 0 on a device.  Above BENCH_CROWDED a time is not the
 * machine's own: less is what daemons take. */
#define BENCH_CROWDED .10
double bench_crowd(struct bench *b, const struct cpu_use *since);
/* Of the processors that a node's ranks need, the share that others left them short of, 0 to 1.  2 ranks on 2 processors need both:
 * where others use half a processor they lack a quarter.  4 ranks that share 2 processors need 2.  0 where there are enough for all,
 * or the kernel does not say.  own_s: processor seconds of all ranks of the node. */
double bench_shortage(const struct cpu_use *since, const struct cpu_use *now, double own_s, double need);
/* Sleeps until others use less, or for so many seconds; at least half a second.  The crowd that is left. */
double bench_wait_until_quiet(struct bench *b, double at_most_s, double *waited);

/* What is to be measured, and in how much time. */
struct bench_wish {
    bool        quick;
    const char *models;                 /* names or files with commas between; NULL: a grid of shapes */
    int64_t     seq;                    /* tokens of a sample; 0: up to 256 */
    const char *micro_batches;          /* "1,2,4"; NULL: a few */
    const char *degrees;                /* "1,2": shapes of one of so many tensor- or context-parallel ranks; NULL: 1 and, unless
                                         * quick, all that divide the ranks */
    bool        precision[NDTYPE];
    int64_t     memory;                 /* bytes of a rank: what takes more is refused; 0: not looked at */
    bool        cuda, carries;          /* as struct bench */
    const char *disk;                   /* the folder whose disk is measured; NULL: none is */
};
struct bench_list { struct bench_item *item; int n; struct plan *plan; int nplans; };

/* For `nranks` ranks.  0, or -1 reported with nothing to free. */
int  bench_list(const struct bench_wish *w, int nranks, struct bench_list *out);
void bench_list_free(struct bench_list *l);

/* ---- for bench_*.c ---- */

int bench_own(struct bench *b, double seconds);
/* Until all ranks are here; those that wait sleep. */
int bench_meet_asleep(void);
int bench_alone(struct bench *b);       /* part of it: a product while the other ranks sleep, and while they compute; one machine's ranks */
int bench_passes(struct bench *b, enum dtype t, int64_t largest, double seconds);
int bench_codes(struct bench *b, enum dtype t, int64_t largest, double seconds);
int bench_program(struct bench *b, const struct plan *p, double seconds);
int bench_coll(struct bench *b, const struct bench_item *item, double seconds);
int bench_overlap(struct bench *b, enum dtype t, double seconds);
int bench_host(struct bench *b, int64_t largest, double seconds);
int bench_disk(struct bench *b, const struct bench_item *item, double seconds);

/* The rank whose kernels of a plan are timed: the last of the context's, which has most to do. */
int64_t bench_program_rank(const struct plan *p);

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

/* ---- bench_device.c ---- */

/* What is called between the two is one sample; its times are in *to after bench_settle(), which must
 * live until then; BENCH_BATCH of them bring one about.  Stream s is the kernels' or the comm's that is called;
 * on the host it does not matter. */
int  bench_begin(struct bench *b, enum stream s);
int  bench_end(struct bench *b, struct bench_span *to);
int  bench_settle(struct bench *b);
void bench_seconds(const struct bench_span *span, int n, double *s);

struct device *bench_device_open(int local_rank);       /* CUDA's; NULL reported */
int  bench_timer_open(struct bench *b);
void bench_timer_close(struct bench *b);
/* 1: each rank has a device of its own; 0: some share one; -1 reported. */
int  bench_apart(struct bench *b);
/* Of the host over MPI, of devices over NCCL.  Every rank must call it, each with its own group of n
 * ranks.  NULL reported; *staging is to be freed after it. */
struct comm *bench_comm(struct bench *b, const int *ranks, int n, const char *name, void **staging);
/* `most`, or what a small device can spare for one operand: a 512th of its memory (of 141 GB 280 MiB).  An
 * emulated one says that it has little, and is done in time. */
int64_t bench_operand(const struct bench *b, int64_t most);
/* What computes and what carries, with driver and libraries. */
void bench_versions(struct bench *b, char *kernels, size_t kernels_size, char *comm, size_t comm_size);

/* Memory where kernels compute: zeros; NULL reported.  It must go before bench_close(). */
void *bench_map(struct bench *b, int64_t bytes);
void  bench_unmap(struct bench *b, void *p, int64_t bytes);         /* accepts NULL */
int   bench_put(struct bench *b, void *to, const void *host, int64_t bytes);
int   bench_fill_on(struct bench *b, void *to, enum dtype t, int64_t n, double scale, double offset);

/* Memory of the host that is really there, filled with zeros; NULL reported.  free() it. */
void *bench_memory(int64_t bytes);

/* n numbers in [offset - scale, offset + scale); what comes after the first BENCH_FILLED repeats them.
 * Random: a matrix that repeats itself every few rows has few and large singular values. */
enum { BENCH_FILLED = 1 << 20 };
void  bench_fill(void *to, enum dtype t, int64_t n, double scale, double offset);

#endif
