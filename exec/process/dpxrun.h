/* dpxrun.h -- what the files of the program share; they alone join the executor with the
 * simulator and the database.
 *
 *     dpxrun.c           options, ranks, the run
 *     dpxrun_writable.c  whether what it is to write can be written
 *     dpxrun_same.c      whether all ranks were given the same
 *     dpxrun_device.c    the device, who carries collectives
 *     dpxrun_predict.c   the prediction, before; the same figures measured, after
 *     dpxrun_stages.c    the same of each stage of a pipeline
 *     dpxrun_print.c     progress, the table, JSON, the trace
 *     dpxrun_record.c    the database
 *     dpxrun_scalars.c   scalars of each step
 *     dpxrun_checkpoint.c  the state saved, and a run that goes on
 *     dpxrun_engine.c    a plan run by its framework; dpxrun_engine_record.c its rows
 *     dpxrun_budget.c    several in turn
 *     dpxrun_sbatch.c    the command line as a job of Slurm */
#ifndef DPX_DPXRUN_H
#define DPX_DPXRUN_H

#include <jansson.h>

#include "base/opts.h"
#include "calib/store/runs.h"
#include "exec/train/checkpoint.h"
#include "exec/train/train.h"
#include "model/memory/evaluate.h"
#include "model/schedule/measured.h"
#include "sim/clock/simulate.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISUSE = 2, EXIT_NO = 3 };
enum { COMM_MPI, COMM_NCCL, COMM_NULL };
enum { DEVICE_CPU, DEVICE_CUDA };

struct options {
    const char *plan, *data, *init, *adapters, *save, *save_grads, *hostfile, *trace, *db, *betas, *offload_dir, *checkpoint_dir, *tensorboard, *sbatch;
    int64_t checkpoint_every;           /* steps; 0: none is saved */
    int64_t steps, seed, warmup, memory, rank, threads, grads_step, reduce;
    double  lr, min_lr, weight_decay, clip, beta1, beta2, eps, loss_scale;     /* loss_scale: -1 where none is named */
    struct opt_pairs plans;             /* plan is the first of them */
    const char *python, *budget;
    int     engine, launcher;           /* enum engine, enum engine_launcher (exec/engine/engine.h) */
    int     device, comm, algorithm, sum, offload_io;       /* comm: -1 until dpxrun_open_device() where nothing was named */
    bool    kernels, json, brief, sequential, guarded, reference, no_compute, no_db, share_cores, allow_nan, resume;
};

/* The phases of a steady step, as the simulator's clock has them: work on the compute stream,
 * waits of it for collectives, and the rest; in a pipeline, of the stage that rank 0 has, waits for other stages. */
enum run_phase_id { RP_COMPUTE, RP_EXPOSED, RP_OPTIMIZER, RP_IDLE, RP_BUBBLE, NRP };
extern const char *const predict_phase_names[NRP];

struct predicted {
    struct measured_device known;       /* what the prediction rests on */
    struct evaluation e;
    struct timing     t;
    struct run        run;              /* of a steady step; n = 0: too many entries to keep */
    double            phase[NRP];
    int64_t           process_bytes;
    double            as_calibrated_s;  /* the step without the probe just taken, as dpxplan predicts it; NaN: no probe was taken */
};

/* One sampled step: entries in issue order, as this rank ran them. */
struct sample { int64_t step; enum sched_id id; struct exec_ran *ran; int64_t n; };

struct measured {
    struct train_report *report;        /* on rank 0 of each step, for medians and losses; elsewhere the last */
    int64_t n;                          /* steps done */
    double  seconds;                    /* of them together */
    int64_t rank;                       /* whose memory is compared: the fullest predicted */
    int64_t *held, *allocated, *process;    /* by rank */
    int64_t *elsewhere[NSPACE], *elsewhere_held[NSPACE];   /* by rank, the same beyond device memory */
    int64_t *part[NCAT];                /* of what the allocated peak consists: by category, by rank */
    double  median_s, p10_s, p90_s;     /* steady steps; without one, the first */
    double  phase[NRP];
    struct sample sample[3];
    int     nsamples;
};

/* One rank of each stage of a pipeline: its steady step, predicted and in the last sample. */
struct stage_run {
    int64_t rank;
    struct schedules s;
    struct run  predicted;              /* n = 0: too many entries to keep */
    struct ran *ran; int64_t n;         /* on rank 0, after the run */
    double     *since;                  /* as step_ran_since(); NULL: not compared */
};
struct stages {
    int  n, own;                        /* n = 0: no pipeline; own: the stage of the rank that records */
    bool compared;                      /* every stage's sample is there: */
    struct stage_parts predicted, measured;
    double predicted_s, step_s;         /* until the last stage is done */
    struct stage_run *of;
};

/* The state of all ranks: saved by this process so many times, the last one's bytes, seconds of all together; where it went on from. */
struct checkpoints {
    json_t *run;                        /* on rank 0: what a run that goes on must have been given; NULL: nothing is saved */
    int64_t from;                       /* the step after which this process went on; 0: it began anew */
    struct checkpoint_moved loaded;
    int64_t saves, bytes, predicted_bytes;
    double  seconds;
};

struct dpxrun {
    struct options o;
    struct plan    plan;                /* as given, with dpx's kernels */
    enum kernel_set written_for;        /* the kernels that it was written for */
    struct plan    here;                /* on this machine's cores */
    struct predicted predicted;
    struct measured  measured;
    struct stages    stages;
    struct checkpoints saved;
    struct tfevents *scalars;           /* on rank 0; NULL: none are written */
    struct device *device;
    bool           shared_device;       /* other ranks use it, too */
    struct train  *train;
    struct db     *db;
    int64_t        run_id;
    int            rank;
    bool           learns;              /* a framework's traces go into the database */
    bool           over;                /* does not fit */
    bool           refused;             /* run() failed by what it was given, not by what happened */
    struct exec_over first_over;
};

/* ---- dpxrun.c ---- */

/* Threads of a rank's compute. */
int dpxrun_threads(const struct dpxrun *r);

/* ---- dpxrun_same.c ---- */

/* Compares plan, options, version and the files' contents among ranks.  Every rank must call it: 0, or -1 on all of
 * them with the difference reported by rank 0. */
int dpxrun_check_same(const struct dpxrun *r);
/* What it compares: a new reference. */
json_t *dpxrun_same_document(const struct dpxrun *r);

/* ---- dpxrun_checkpoint.c: where neither --checkpoint-every nor --resume is given they do nothing ---- */

/* What can be refused before ranks start: 0, or -1 reported. */
int  checkpoints_check(const struct dpxrun *r);
/* All ranks, before the train is opened: saved.from.  An exit status; other than EXIT_DONE: reported. */
int  checkpoints_begin(struct dpxrun *r);
/* All ranks, when the train is open: how many bytes a save is expected to write.  0, or -1 on all of them. */
int  checkpoints_predict(struct dpxrun *r);
/* All ranks, before the first step, and after each; each time becomes a row of the database.  0, or -1 on all of them. */
int  checkpoints_load(struct dpxrun *r);
int  checkpoints_step(struct dpxrun *r, int64_t step);
void checkpoints_json(const struct dpxrun *r, json_t *doc);
void checkpoints_print(const struct dpxrun *r, FILE *to);
void checkpoints_free(struct dpxrun *r);

/* ---- dpxrun_device.c ---- */

/* Opens what --device names, decides on --comm where nothing was named, and says so.  Every rank must
 * call it; the exit status, EXIT_DONE on all ranks or on none. */
int dpxrun_open_device(struct dpxrun *r);
/* As JSON and the database name it: "cpu", "NVIDIA H200". */
static inline const char *device_label(const struct dpxrun *r)
{
    return device_async(r->device) ? device_name(r->device) : "cpu";
}
static inline bool on_host(const struct dpxrun *r) { return r->o.device == DEVICE_CPU; }

/* ---- dpxrun_predict.c ---- */

/* An exit status; other than EXIT_DONE: reported.  All ranks, for they take the probe together; rank 0 has the prediction. */
int  dpxrun_predict(struct dpxrun *r);
/* Rank 0: its own step on the clock, entry by entry, where the prediction is of a rank that holds more: what is sampled is
 * rank 0's.  0, or -1 reported. */
int  predict_own_step(struct dpxrun *r);
void predict_free(struct predicted *p);
/* Allocated at most, by what is to be run: a single step has no steady one. */
int64_t predict_allocated(const struct dpxrun *r);
/* The same of another memory: pinned, host, disk. */
int64_t predict_elsewhere(const struct dpxrun *r, enum space in);
/* Held by the schedule, as the executor's meter has it: without workspaces and staging. */
int64_t predict_held(const struct dpxrun *r);
/* The rank whose memory is printed: the fullest, or the one that is played. */
int64_t predict_shown_rank(const struct dpxrun *r);
/* Copies what a recorded step left.  0, or -1 reported. */
int  predict_keep_sample(struct dpxrun *r, int64_t step);
/* Medians, memory of all ranks, phases.  Every rank must call it. */
int  dpxrun_measure(struct dpxrun *r);
void predict_measured_free(struct measured *m);

/* Collectives of the whole run: predicted over init, the first step and the others, and counted. */
struct comm_pair { enum coll_op op; int group; enum dtype dtype; const char *group_name;
                   int64_t count, bytes, predicted_count, predicted_bytes; };
int predict_comm_pairs(const struct dpxrun *r, struct comm_pair out[COMM_LINES]);

/* Copies between memories over the whole run: predicted and counted, on this rank. */
struct moved_pair { enum space from, to; int64_t count, bytes, predicted_count, predicted_bytes; };
int moved_pairs(const struct dpxrun *r, struct moved_pair out[NSPACE * NSPACE]);

/* The phases that a run has: without a pipeline all but the last. */
static inline int predict_phases(const struct dpxrun *r) { return r->stages.n > 0 ? NRP : RP_BUBBLE; }

/* ---- dpxrun_stages.c: without a pipeline they do nothing ---- */

/* After dpxrun_predict(), all ranks: which ranks they are; on rank 0 their entries on one clock.  0, or -1 reported. */
int  stages_predict(struct dpxrun *r);
/* Whether this rank's samples are compared beside rank 0's. */
bool stages_has(const struct dpxrun *r, int64_t rank);
/* All ranks: every stage's last sample to rank 0, and where its time went. */
int  stages_measure(struct dpxrun *r);
void stages_free(struct stages *all);
void stages_json(const struct dpxrun *r, json_t *doc);
void stages_print(const struct dpxrun *r, FILE *to);
/* One side into the database. */
int  stages_record(struct dpxrun *r, bool predicted);

/* ---- dpxrun_print.c ---- */
void dpxrun_progress_line(const struct dpxrun *r, const struct train_report *s);
void dpxrun_progress_end(void);
int  dpxrun_print_result(const struct dpxrun *r);      /* JSON; the exit status */
int  dpxrun_write_trace(const struct dpxrun *r);

/* ---- dpxrun_record.c: without a database they do nothing ---- */
int  record_begin(struct dpxrun *r);
int  record_steps(struct dpxrun *r, int64_t from);
int  record_end(struct dpxrun *r, enum run_outcome how, const char *why);
/* For train_tell(): the run ends, from another thread than the one that records. */
void record_told(void *arg, const char *why, bool by_signal);

/* ---- dpxrun_scalars.c: without --tensorboard they do nothing ---- */

/* Of one step; NaN, and bytes of 0: not known. */
struct scalars { int64_t step, tokens, bytes, predicted_bytes; double loss, lr, grad_norm, seconds, predicted_s; };
/* Each: 0, or -1 reported.  check: before ranks start; begin, step: on rank 0. */
int  scalars_check(const struct dpxrun *r);
int  scalars_begin(struct dpxrun *r);
int  scalars_step(struct dpxrun *r, const struct scalars *s);
void scalars_end(struct dpxrun *r);

/* ---- dpxrun_engine.c ---- */

/* --engine: the exit status; measured.median_s is set where it is EXIT_DONE. */
int dpxrun_engine(struct dpxrun *r);
/* The prediction by what the database knows now.  0, or -1 reported. */
int dpxrun_engine_predict(struct dpxrun *r);
/* Reads the plan as its framework has it.  0, or -1 reported. */
int dpxrun_plan_for_engine(struct dpxrun *r);

/* ---- dpxrun_writable.c ---- */

/* Said before the first step, not after the last: 0, or -1 reported. */
int dpxrun_can_write(const struct dpxrun *r);

/* ---- dpxrun_sbatch.c ---- */

/* Writes the job and runs nothing: the exit status. */
int dpxrun_sbatch(const struct dpxrun *r, int argc, char **argv);

/* ---- dpxrun_budget.c ---- */

/* Several plans, one after the other: the exit status. */
int dpxrun_in_turn(const struct dpxrun *r);

#endif
