/* executor_internal.h -- what the files of the executor share.
 *
 *     executor.c      dry runs, issuing a schedule, waits and their order
 *     exec_memory.c   an arena for each memory: places in it, mapping; windows for the host
 *     instances.c     buffers: where their instances lie, what they hold
 *     exec_copy.c     copies, the gradient norm, first weights
 *     exec_quant.c, exec_low_rank.c   codes; PowerSGD's matrices
 *     exec_coll.c     collectives
 *     exec_compute.c  segments of block programs: places, parameters, gradients
 *     exec_kernel.c   one kernel: from places to a call of kernels.h
 *     exec_linear.c   linear layers' kernels, exec_float8.c those that are rounded to 8 bits
 *     exec_context.c  the same where ranks share a sequence
 *     exec_optim.c    the optimizer
 *     exec_state.c    what outlives a step, out and in */
#ifndef DPX_EXECUTOR_INTERNAL_H
#define DPX_EXECUTOR_INTERNAL_H

#include "base/room.h"
#include "exec/comm/comm.h"
#include "exec/device/store.h"
#include "exec/kernels/exact_sum.h"
#include "exec/kernels/torch_random.h"
#include "exec/run/executor.h"

/* An instance of a buffer family.  Granted: its slices are tensors that kernels allocate one by
 * one; then piece[] has their offsets, -1 where one is not there. */
struct inst {
    bool    live, granted;
    int64_t at;                     /* in its memory's arena; on disk: in the store */
    int64_t *piece;
    struct kept *kept;              /* a block's activations lie in it; NULL */
    struct when last;               /* its uses so far are done then */
};

/* What the embedding, a block or the head keeps between kernels: offsets, -1 none.  In a pipeline every micro-step has
 * its own: several are under way. */
struct context { int64_t at[NSLOT]; };
enum { CTX_EMBED, CTX_HEAD, CTX_BLOCK0 };

/* What a micro-step's passes hand on, by stage of the rank: token ids, the gradient of the residual stream, and what the
 * last piece, or the stage before, left. */
struct flight { int64_t ids, dx, handed; };

/* Of a context that has left device memory: how many bytes of each slot, one after the other; -1 none. */
struct kept { int64_t bytes[NSLOT]; };

/* Elements [from, from+n) of a tensor as an entry sees them. */
struct view {
    int tensor;
    enum holds holds;
    enum dtype dtype;
    int64_t from, n;
    int64_t at;                     /* offset in its memory's arena, or in the store; -1: granted, not there yet */
    enum space space;
    int64_t end;                    /* of its instance, likewise */
    struct inst *inst;
    int slice;                      /* of the layout; granted: of the family's */
    uint8_t what;                   /* ACT_ bits of its act */
    bool own;                       /* the act has a layout of its own */
};
struct views { struct view *v; int n; int64_t room; };

/* The order of what has been issued. */
struct order {
    struct when lane[NSTREAM];      /* what is done when the last task of the lane is */
    struct when group[PLAN_GROUPS];
    struct when issue;              /* what the issuing thread has waited for */
    struct when *event, *event_need;    /* by event: the recorded one's */
    int64_t ticket[PLAN_GROUPS];
    int64_t *turn;                  /* of sends to each rank of the world, then of receives from each */
};

struct executor {
    struct executor_args a;
    const struct plan *p;
    const struct schedules *s;
    struct recipe recipe;
    struct device *d;
    struct arena *arena;            /* of device memory: in[SPACE_DEVICE] */
    struct arena *in[NSPACE];
    struct store *store;            /* the bytes of SPACE_DISK; NULL: none is used, or dry */
    struct store_file *file; int nfiles;    /* an instance on disk has one: first_file[family] + instance */
    int64_t *file_begin; int *first_file;
    struct lanes *lanes;            /* NULL: dry */
    struct kernels *kernels[NSTREAM];
    void *workspace;                /* of the device, as inv_freq is */
    int64_t workspace_bytes;
    float *inv_freq;                /* [rotary_dim / 2] */
    struct exec_over over;
    int64_t dry_extent[NSPACE], dry_peak[NSPACE];
    bool    repeats;                /* steady steps repeat the places of the one before (dry_run()) */

    struct inst **inst;             /* [family][instance] */
    bool    staged;                 /* the plan is a pipeline: entries say their micro-step and stage */
    int64_t steps, nctx, nflights;  /* micro-steps under way at most; contexts of each; flights of all */
    struct context *ctx;            /* [steps][nctx]: embedding, head, blocks */
    struct flight *flight;          /* [chunks][steps] */
    struct order order;
    struct views reads, writes;     /* scratch of the issuing thread */

    /* The schedule being issued. */
    enum sched_id id;
    struct exec_step *step;
    int64_t micro;                  /* micro-steps begun */
    int32_t position;
    struct when now;                /* clock of the entry being issued */
    struct when entered;            /* what is done when it starts */
    struct when need;
    int64_t comes[NSPACE];          /* bytes that its first task will hold */

    /* Written by tasks, in the order that their entries' waits give. */
    double  norm_local, norm_sum, *norm_of;     /* norm_of: [ntensors] */
    /* [ntensors], of weights that are gathered in float8: the largest magnitude on this rank, and on all that have a part. */
    float   *amax_local;
    _Atomic float *amax;
    struct exact_sum exact;         /* in place of the three with `deterministic` */
    bool    norm_taken, overflow;
    bool    norm_new;               /* norm_local has what no sum over ranks has yet */
    struct torch_seeds seeds;       /* of PowerSGD's draws */
    int64_t guarded;

    struct exec_count count[NCOLL][PLAN_GROUPS][NDTYPE];
    struct exec_count moved[NSPACE][NSPACE];
    double  class_s[NKERNEL_CLASS];

    bool    recording;
    double  began;
    struct exec_ran *ran; int64_t nran, room_ran;
};

/* What of the model, and of the positions outside of attention and MLP, is this rank's; all of it: rank 0 of 1. */
static inline int64_t tensor_rank(const struct executor *x)  { return x->a.share ? x->a.share->tensor_rank : 0; }
static inline int64_t tensor_ranks(const struct executor *x) { return x->a.share ? x->a.share->tensor_ranks : 1; }
static inline bool    is_sequence(const struct executor *x)  { return x->a.share && x->a.share->sequence; }

static inline const struct tensor *tensor_of(const struct executor *x, int t) { return &x->p->model.tensors[t]; }

/* ---- instances.c ---- */
int  instances_open(struct executor *x);
void instances_reset(struct executor *x);
void instances_close(struct executor *x);
/* All uses so far are done, and counts of done tasks begin anew at 0. */
void instances_all_done(struct executor *x);
struct inst *inst_of(struct executor *x, const struct act *a, int64_t iteration, int j);
int  inst_alloc(struct executor *x, const struct op *o, const struct act *a, int64_t iteration);
void inst_free(struct executor *x, const struct act *a, int64_t iteration);
/* Appends the views of the entry's acts that have a bit of `bits`. */
void views_of(struct executor *x, const struct op *o, int64_t iteration, int bits, struct views *out);
void views_clear(struct views *v);
/* Does all of it exist?  0, or -1 reported: kernels have not made it yet. */
int  views_there(const struct executor *x, const struct op *o, const struct views *v);
/* The view of v that holds element `at` of a tensor; NULL. */
const struct view *view_find(const struct views *v, enum holds h, int tensor, int64_t at);
/* Address of element `at` of the tensor in the view. */
void *view_at(const struct executor *x, const struct view *v, int64_t at);
/* Begin of the region that an act names, for a collective: offset in the arena. */
int64_t act_region(struct executor *x, const struct act *a, int64_t iteration);

/* ---- exec_memory.c ---- */

int  exec_memory_open(struct executor *x);           /* arenas, nothing mapped.  0, or -1 reported */
void exec_memory_close(struct executor *x);
/* After the dry run: what it took is mapped, and everything free again.  0, or -1 reported. */
int  exec_memory_map(struct executor *x);
/* For debug runs: what is given back becomes NaN.  lanes_on_release()'s. */
void exec_memory_poison(void *arg, enum space in, int64_t offset, int64_t bytes);
/* A place for the entry being issued; -1 reported (over the limit, no memory). */
int64_t executor_take_in(struct executor *x, enum space in, int64_t bytes, enum category cat);
/* Instance i of family b, which is a file: it comes, or goes once the tasks of `last` are done. */
int64_t executor_take_file(struct executor *x, int b, int64_t i);
void    executor_give_file(struct executor *x, int b, const struct when *last);
/* Gives it back once the tasks of `last` are done. */
void executor_give_in(struct executor *x, enum space in, int64_t at, const struct when *last);
/* In device memory. */
int64_t executor_take(struct executor *x, int64_t bytes, enum category cat);
void executor_give(struct executor *x, int64_t at, const struct when *last);

/* ---- executor.c ---- */

/* In the place of steps 1 to `step`, after executor_map(): what lives after them has its places, of undefined contents.  0, or -1. */
int  executor_skip(struct executor *x, int64_t step);

/* Appends a task of the entry being issued; self is freed with it. */
void executor_put(struct executor *x, const struct op *o, int (*run)(struct task *), void *self);

/* Where the parts of a packed tensor are (packed_parts()): each in whole blocks of 512 bytes, one after the other. */
struct packed_weight exec_packed(const struct tensor *t, void *at);

/* ---- exec_compute.c ---- */

/* What kernels leave gradients of parameters in, where they have memory of their own. */
enum dtype executor_grad_dtype(const struct executor *x);

int  executor_compute_open(struct executor *x);
void executor_compute_close(struct executor *x);
void executor_compute_reset(struct executor *x);       /* nothing is anywhere */
bool executor_compute_idle(const struct executor *x);  /* is that so? */

/* Where a slot of a piece lies for entry o after what has been issued: offset in the arena, -1 nowhere. */
int64_t executor_compute_place(const struct executor *x, const struct op *o, int block, enum slot slot);

/* ---- one file each ---- */
int executor_issue_copy(struct executor *x, const struct op *o, int64_t iteration);
int executor_issue_quant(struct executor *x, const struct op *o, int64_t iteration);     /* exec_quant.c */
int executor_issue_low_rank(struct executor *x, const struct op *o, int64_t iteration);  /* exec_low_rank.c */
int executor_issue_load(struct executor *x, const struct op *o, int64_t iteration);
int executor_issue_coll(struct executor *x, const struct op *o, int64_t iteration);
int executor_issue_compute(struct executor *x, const struct op *o, int64_t iteration);
int executor_issue_optimizer(struct executor *x, const struct op *o, int64_t iteration);

/* What `o` computes with.  The host's entries that are not compute share its threads, but for copies and the host
 * stream, which overlap with it; a device's go by stream. */
static inline struct kernels *kernels_for(const struct executor *x, const struct op *o)
{
    return x->kernels[device_async(x->d) || stream_is_host(o->stream) ? o->stream : STREAM_COMPUTE];
}

/* Does the host itself read and write what `o` works on? */
static inline bool host_works(const struct executor *x, const struct op *o)
{
    return !device_async(x->d) || stream_is_host(o->stream);
}

/* Shows the host n elements of device memory, at once or piece by piece: f(arg, first, n, elements), the
 * first counted from 0.  What k was given before is done.  0, or -1: reported, or f's. */
int executor_host_sees(struct executor *x, struct kernels *k, int64_t n, const void *p, enum dtype t,
              int (*f)(void *arg, int64_t first, int64_t n, const void *p), void *arg);

/* The gradient norm as far as it is known. */
double executor_norm_value(const struct executor *x);

/* ---- exec_float8.c ---- */

/* A collective of tensors' largest magnitudes (OF_AMAX); a run of numbers in its tensor's codes. */
int exec_amax_run(struct executor *x, const struct op *o, int64_t iteration, struct comm *comm, struct coll_call *call);
int exec_float8_codes(struct executor *x, struct kernels *k, int tensor, int64_t n, void *codes, const void *from, enum dtype dt);

/* ---- exec_finite.c ---- */

/* A run of elements as the optimizer meets them, before it updates them; p is fp32. */
struct finite_run { const void *p, *g; int64_t n, from; int tensor; enum dtype gt; };
/* Whether the step so far has a loss or norm that is not finite. */
bool executor_finite_suspect(const struct executor *x);
/* Notes in x->step->bad what of a run is not finite, if the step is suspect or the first gradient is. */
void executor_finite_look(struct executor *x, bool suspect, const struct finite_run *r);

/* What the step's gradients are multiplied with, up to its optimizer. */
static inline double loss_scale_of(const struct exec_step *s) { return s && s->loss_scale > 0 ? s->loss_scale : 1; }

/* What run() of a task begins with: the entry is skipped. */
static inline bool guarded_off(struct executor *x, const struct op *o)
{
    return (o->flags & OPF_GUARDED) && x->overflow;
}

/* ---- exec_kernel.c ---- */
struct grad_out { void *p; enum dtype dt; enum grad_into into; bool wanted; };
struct kernel_call {
    struct executor *x;
    const struct op *op;
    const struct kernel *k;
    struct exec_step *step;
    int     block;                          /* of the whole model; -1 embedding, -2 head */
    int64_t micro;
    void   *at[NSLOT];
    bool    fresh[NSLOT];                   /* the slot came with this kernel */
    const void *param[2]; enum dtype param_dt;
    const struct tensor *weight;            /* FN_UNPACK, FN_FLOAT8_W: whose codes, or numbers, they are */
    struct grad_out grad[2];                /* weight, bias */
    struct { void *to; const void *from; enum dtype dt, st; int64_t n; bool add; } hand[4];
    int     nhand;
};
int executor_kernel_run(const struct kernel_call *c);
/* On what an adapter reads, `in` numbers a token.  Each of a block's has its own, as PEFT's modules have, by the slot that its A leaves;
 * elements are counted over whole samples. */
struct dropout exec_adapter_dropout(const struct kernel_call *c, enum slot low, int64_t in);
/* Attention, or its backward, of whole samples. */
int exec_attend(const struct kernel_call *c, struct kernels *k, const struct attention *a);
/* On the embedding of positions from `at` on, counted over the micro-step's whole samples. */
struct dropout exec_embed_dropout(const struct kernel_call *c, int64_t at);

/* ---- exec_context.c: kernels of a rank that has a share of each sample's positions, which are `a`'s ---- */
bool exec_context_is(const struct executor *x);
/* The position in its sample of a row of this rank's micro-batch, all samples' positions one after the other; *n: it and how many
 * rows behind it follow each other in the sample. */
int64_t exec_context_position(const struct executor *x, int64_t row, int64_t *n);
int  exec_context_run(const struct kernel_call *c, struct kernels *k, const struct attention *a);

#endif
