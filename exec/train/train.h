/* train.h -- a plan really run on this rank: steps, data, the learning rate, what is measured.
 *
 *     struct train *t = train_open(&args);         (groups, dry run, arena, weights, init)
 *     while (train_step(t, &report) ...)
 *     train_save(t, "out.safetensors");
 *     train_close(t);
 *
 * Everything that ranks tell each other here (loss, slowest step, agreement on the order of
 * collectives) goes over a communicator of its own, "dpx control": it is not part of the plan. */
#ifndef DPX_TRAIN_H
#define DPX_TRAIN_H

#include "exec/data/tokens.h"
#include "exec/run/executor.h"
#include "exec/run/groups.h"
#include "exec/run/watchdog.h"

struct train_args {
    const struct plan *plan;
    const char *data, *init;            /* NULL: the built-in source; weights from the seed */
    const char *adapters;               /* a folder of PEFT's, with the first adapters; NULL: as PEFT makes them */
    bool        sequential;             /* data in order */
    uint64_t    seed;
    int64_t     steps, warmup;
    double      loss_scale;             /* fp16: of the first step; not above 0: LOSS_SCALING_FIRST */
    double      lr, min_lr, beta1, beta2, eps, weight_decay;
    int64_t     limit;                  /* bytes of memory, INT64_MAX: none */
    int         rank;                   /* played with `null`; else MPI's */
    struct device *device;              /* NULL: the host.  It outlives the run */
    bool        shared_device;          /* other ranks use it, too */
    bool        null, nccl, no_compute, guarded, reference;     /* neither null nor nccl: MPI */
    int         threads;
    enum coll_algo algo;
    enum coll_sum  sum;
    bool        allow_nan;              /* go on with weights, losses and norms that are not finite */
    const char *save_grads;             /* file for the gradients of step grads_step, or NULL */
    int64_t     grads_step;
    const char *offload_dir;            /* where buffers that lie on disk have their files */
    enum block_io_kind offload_io;
    bool        resume;                 /* nothing is initialised: train_state_in() is called before the first step */
};

/* One step as all ranks saw it. */
struct train_report {
    int64_t step;                       /* 1, 2, ... */
    double  loss;                       /* mean over the global batch */
    double  seconds;                    /* of the slowest rank */
    double  lr, grad_norm;
    int64_t tokens;                     /* of the global batch */
    bool    norm_taken;                 /* else grad_norm is NaN */
    bool    skipped;                    /* the gradient overflowed */
    double  loss_scale;                 /* 1 but in fp16 */
};

struct train;

/* Why there was nothing to run, on all ranks: the memory, or what was given (plan, files). */
struct train_refusal { struct exec_over over; bool bad_input; };

/* NULL with the reason reported, on every rank if on one. */
struct train *train_open(const struct train_args *a, struct train_refusal *why);
void train_close(struct train *t);      /* accepts NULL */

/* The next step; `record`: keep when every entry ran (train_executor(), executor_ran()).  0, or -1. */
int train_step(struct train *t, bool record, struct train_report *out);

/* Linear over `warmup` steps to lr, then half a cosine to min_lr at the last step.  Steps that overflow skips are not counted: as
 * accelerate and DeepSpeed have it, the scheduler goes on with the optimizer. */
double train_lr(const struct train_args *a, int64_t step);

/* All parameters, in Hugging Face's names, written by rank 0; of a model with adapters these, as a folder of PEFT's
 * (adapter_folder.h).  Every rank must call it.  0, or -1. */
int train_save(struct train *t, const char *path);

/* How far it is: with the executor's state all that the next step depends on, for data, dropout and learning rate go by the step. */
struct train_progress { int64_t step; double scale; int64_t since, lets_pass, skipped; };
struct train_progress train_progress(const struct train *t);
/* The rank's state after the last step, part by part; in the place of the steps up to `at`.  This rank alone: 0, or -1 reported. */
int train_state_out(struct train *t, exec_state_fn *f, void *arg);
int train_state_in(struct train *t, const struct train_progress *at, exec_state_fn *f, void *arg);
/* f(arg) on every rank: 0, or -1 on all ranks, with the reason of the lowest rank that failed reported. */
int train_together(struct train *t, int (*f)(void *arg), void *arg);

struct executor *train_executor(const struct train *t);
const struct schedules *train_schedules(const struct train *t);
double train_entropy(const struct train *t);        /* nats; NaN: not known */
const char *train_about_data(const struct train *t);
/* Memory of this process: what is accounted (arena, workspaces, staging, tokens), and the
 * most that was resident beyond what was there before; on an asynchronous device, its memory: what is
 * accounted there, on Hopper with the context and what NCCL takes (overhead_own_process(), elsewhere not known and left out),
 * and what its driver reports beyond what was in use before.  -1: not known. */
int64_t train_predicted_process(const struct train *t);
int64_t train_process_peak(const struct train *t);
/* What every rank has: out[world_size] on rank 0. */
int train_gather(struct train *t, int64_t mine, int64_t *out);
/* Any rank's failure becomes everybody's: 0, or -1 if one of them has `failed`. */
int train_agree(struct train *t, bool failed);
/* Why it failed, as it was reported; "" where no reason was reported. */
const char *train_why(const struct train *t);
/* Whom to tell on rank 0 before the job is ended from another thread (watchdog.h). */
void train_tell(struct train *t, watchdog_told *f, void *arg);

#endif
