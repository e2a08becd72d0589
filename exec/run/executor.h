/* executor.h -- the schedules of a plan on one rank, for real.
 *
 *     struct executor *x = executor_new(&args);            (dry: finds addresses and peaks)
 *     executor_map(x) ... executor_run(x, SCHED_INIT, &step) ...
 *     executor_run(x, SCHED_FIRST, &step); executor_run(x, SCHED_STEADY, &step) ...
 *
 * It reads the entries and nothing else: an operation is dispatched on its kind, a buffer
 * comes and goes where the schedule says, a wait is a wait.  Which strategy a plan has is
 * not known here.  The calling thread is the issuing thread; lanes.h has the others. */
#ifndef DPX_EXECUTOR_H
#define DPX_EXECUTOR_H

#include "exec/comm/comm.h"
#include "exec/data/own_tensors.h"
#include "exec/data/weights.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/device/lanes.h"
#include "exec/device/store.h"
#include "exec/kernels/kernels.h"
#include "model/plan/plan.h"
#include "model/schedule/schedule.h"

struct executor;

struct executor_args {
    const struct plan *plan;                /* as the rank has it: its model is cut (local_model.h) */
    const struct local_share *share;        /* of which this is the cut; NULL: nothing is */
    const struct own_tensors *own;          /* whose tensors weights are; NULL: the plan's */
    const struct schedules *schedules;      /* lowered with `detailed`; must outlive the executor */
    struct comm *const *comm;               /* by group (schedules->groups); NULL where one has no communicator */
    struct device *device;                  /* NULL: the host.  It outlives the executor */
    atomic_bool   *stop;                    /* set: everything ends soon */
    atomic_int    *busy;                    /* counts threads that compute (lanes_count_busy()); NULL: not counted */
    int            threads;                 /* of the compute stream */
    bool           guarded, reference;      /* arena_new(), kernels_open() */
    bool           no_compute;              /* kernels do nothing: memory at any scale */
    int64_t        limit;                   /* bytes allocated in device memory, INT64_MAX: none */
    const char    *folder;                  /* for the files that SPACE_DISK is; NULL: a schedule that has some is refused */
    enum block_io_kind io;                  /* how they are read and written */
    const struct weights *weights;
    uint64_t       seed;                    /* dropout's */
    enum coll_algo algo[NCOLL];
    enum coll_sum  sum;
};

/* The first entry that needs more than the limit: which, in words, the largest buffer that it brings
 * and its bytes, and what all together would be then. */
struct exec_over {
    bool over;
    enum sched_id sched;
    int  op;
    int64_t iteration, bytes, total;
    char buffer[64], where[96];
};

/* The first NaN or infinity that the optimizer of a step was given: in the weights before its update, else in the
 * gradients.  Looked for on the host only (exec_finite.c). */
struct exec_bad { bool found, weights; int tensor; int64_t element; };

/* One optimizer step: what it is given, and what it leaves. */
struct exec_step {
    int64_t number;                 /* 1, 2, ... */
    const int32_t *ids, *labels;    /* [accumulation][micro_batch * seq] */
    const int64_t *samples;         /* [accumulation]: number of the first sample of each micro-batch */
    struct adamw   adamw;
    double  loss_scale;             /* fp16: what the loss is multiplied with before backward, and adamw.grad_scale takes away again; 0: 1 */
    /* Called for runs of gradients as the optimizer reads them; g is the host's.  NULL: not called. */
    void (*on_grad)(void *arg, int tensor, int64_t from, int64_t n, const void *g, enum dtype t);
    void  *on_grad_arg;

    double  loss_sum;               /* of all tokens of this rank's micro-batches */
    int64_t loss_tokens;
    double  grad_norm;              /* NaN where the schedule takes none */
    bool    norm_taken;
    bool    skipped;                /* the overflow flag was set: guarded entries did nothing */
    int64_t guarded_taken;          /* how many */
    struct exec_bad bad;
};

/* Runs all schedules dry, steady twice: addresses, extent, the allocated peak, whether the limit
 * holds.  NULL with the reason reported. */
struct executor *executor_new(const struct executor_args *a);
void executor_free(struct executor *x);             /* accepts NULL */
const struct exec_over *executor_over(const struct executor *x);
int64_t executor_extent(const struct executor *x);
/* From the dry run, and of what ran since executor_map(). */
int64_t executor_allocated_peak(const struct executor *x);
int64_t executor_held_peak(const struct executor *x);
const struct arena_meter *executor_meter(const struct executor *x);
/* The same for any memory; the four above are those of device memory. */
int64_t executor_extent_in(const struct executor *x, enum space in);
int64_t executor_allocated_peak_in(const struct executor *x, enum space in);
int64_t executor_held_peak_in(const struct executor *x, enum space in);
const struct arena_meter *executor_meter_in(const struct executor *x, enum space in);
/* Bytes of memory through which files are read and written; the files, NULL where there are none. */
int64_t executor_file_buffers(const struct executor *x);
const struct store *executor_store(const struct executor *x);

/* Maps the arenas, starts the streams.  0, or -1 reported. */
int executor_map(struct executor *x);
/* Issues a schedule and waits for its end.  0, or -1 reported. */
int executor_run(struct executor *x, enum sched_id id, struct exec_step *step);

/* All calls of one collective since executor_map(): count, bytes of their full buffers. */
struct exec_count { _Atomic int64_t count, bytes; };
const struct exec_count *executor_count(const struct executor *x, enum coll_op op, int group, enum dtype t);

/* All copies from one memory to another since executor_map(): count, bytes written there. */
const struct exec_count *executor_moved(const struct executor *x, enum space from, enum space to);

/* One entry as it ran in the last recorded step; position: of the entry in issue order. */
struct exec_ran {
    int32_t position;
    int     op;
    int64_t iteration;
    double  issued, start, end;
    int64_t bytes;                  /* the most that was allocated while it was issued */
};
/* Records the next runs; executor_ran() then returns n entries of the last, seconds from its
 * begin.  The array stays the executor's. */
int  executor_record(struct executor *x, bool on);
const struct exec_ran *executor_ran(const struct executor *x, int64_t *n);
/* What computes: kernel_ops.name. */
const char *executor_kernels(const struct executor *x);
/* A sentence for the user where this machine lacks something that the plan uses, or NULL. */
const char *executor_note(const struct executor *x);
/* Seconds of compute kernels by class since executor_map(); 0 on an asynchronous device. */
double executor_class_seconds(const struct executor *x, enum kernel_class c);

/* Persistent parameters of this rank: calls f for each run of elements that it holds (master
 * weights where there are any), in no particular order; p is the host's.  After a whole step. */
int  executor_params(struct executor *x, int (*f)(void *arg, int tensor, int64_t from, int64_t n, const void *p,
                                                  enum dtype t, bool master), void *arg);

/* A part of what outlives a step: bytes [at, at + n) of a buffer's instance, or of one of its tensors that kernels made one by one. */
struct exec_part { int64_t family, instance, piece, at, n; };
/* Reads the part's bytes, or fills them; the host's.  0, or -1 reported. */
typedef int exec_state_fn(void *arg, const struct exec_part *part, void *bytes);
/* All that outlives a step on this rank, after a whole one: f is called for each part, always in the same order.  Also numbers that the
 * host keeps.  Refused by name: activations that outlive the step. */
int  exec_state_out(struct executor *x, exec_state_fn *f, void *arg);
/* After executor_map(), in the place of steps 1 to `step`: f fills the same parts. */
int  exec_state_in(struct executor *x, int64_t step, exec_state_fn *f, void *arg);

struct lanes *executor_lanes(const struct executor *x);     /* for the watchdog */

#endif
