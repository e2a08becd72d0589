/* lower_zero3.h -- DeepSpeed's stage 3; for lower_zero3*.c only.
 *
 * Sources: deepspeed/runtime/zero/{stage3,partition_parameters,parameter_offload,
 * partitioned_param_coordinator}.py and runtime/comm/coalesced_collectives.py of
 * 0.19.6; functions are named at the entries.
 *
 * Every parameter is partitioned by itself: q = ceil(numel/N) elements a rank; with AutoEP those of experts over the ranks that have the
 * same experts.
 * lower_zero3.c is init and micro-steps, lower_zero3_step.c the step,
 * lower_zero3_pass.c the kernels between the hooks, lower_zero3_fetch.c gathers and
 * releases, lower_zero3_reduce.c the gradient bucket, lower_zero3_layout.c what the
 * buffers hold, lower_zero3_second.c secondary partitions, lower_zero3_int8.c gathers in int8,
 * lower_zero3_int4.c reductions in int4, lower_zero3_offload.c what lies in host memory, lower_zero3_host.c the
 * step there, lower_zero3_swap.c optimizer states on disk, lower_zero3_swap_grads.c
 * their gradients and lower_zero3_swap_params.c partitions on disk. */
#ifndef DPX_LOWER_ZERO3_H
#define DPX_LOWER_ZERO3_H

#include "model/lower/common/pinned.h"
#include "model/framework/deepspeed/lower_ds.h"
#include "model/framework/deepspeed_3/zero3_coordinator.h"

/* How ranks share each tensor: parts of `times` * q elements, one for each of n ranks of a group, of which this is the `rank`-th. */
struct z3_cut { int64_t n, rank, times; enum group among; };

/* How a gathered parameter is held. */
enum z3_held { Z3_COPY, Z3_PADDED, Z3_VIEW };   /* a copy; the padded buffer; a view of a flat one */

/* One gather: its flat buffer lives until its last parameter was awaited (a view:
 * until it is released).  Reused for gathers of the same size. */
struct z3_gather {
    int      family, instance;      /* of the flat buffer; family -1: none */
    int     *tensors, n;
    int64_t  cap;
    const struct z3_cut *cut;       /* what the ranks gave to it */
    int      left;
    int      with;                  /* the record of the same call's tensors of the other kind; -1: none */
    bool     leads;                 /* before that one */
    int      layout;                /* of the flat buffer, once gathered */
    int      kind;                  /* the flat buffer holds codes: of kinds[]; -1: numbers */
    bool     done;                  /* awaited once */
    uint16_t event;
    int      next_free;
};

/* Ring of the last events that the issuing thread may have to wait for: pending
 * are the numbers of their recordings, waited that of the last one waited for. */
struct z3_ring { uint16_t event[8]; int pending[4], n, recorded, waited; };

/* What is reduced: a buffer, or (buf -1) the gradient of the bucket's one tensor itself. */
struct z3_wire {
    int  buf;
    int  all, own;                  /* layouts: before the reduction, and after it where this rank reads */
    bool passing;                   /* it goes when it was read */
    bool cast;                      /* it is in the dtype of accumulation already */
};

/* Buffers of one size in host memory, between which disks and copies take turns: those that are free, the
 * next one to be taken last (SwapBufferManager, AsyncPartitionedParameterSwapper). */
struct z3_pool { int family, count, *free, nfree; };
void z3_pool_open(struct z3_pool *p, int64_t count);    /* all are free */
int  z3_pool_take(struct z3_pool *p);           /* -1: none is free */
void z3_pool_give(struct z3_pool *p, int at);

struct z3_place { int buf, at; };               /* a family's instance */

/* A sub-group's buffers of the pool while it is there: weights, moments (from the second step on), gradient; in the
 * first step then what is free. */
struct z3_swapped { int *at, n; };

/* Gradients on their way to disk: AsyncTensorSwapper. */
struct z3_swapper {
    int    *buffer, n;              /* instances of the pool; none: it has no buffers */
    int    *idle, nidle;            /* places in buffer[], the next one last */
    int    *writing, nwriting;
    int     current;                /* place in buffer[], or -1 */
    int64_t used;                   /* elements of it */
    struct z3_piece { int tensor; int64_t n, at; } *piece;  /* in it */
    int     npieces;
    int64_t room;
};

struct z3 {
    struct ds       d;
    struct z3_trace trace;
    struct z3_coord coord;
    int64_t   *q, *begin;           /* per tensor: elements of a part, and of those before it that train */
    int64_t    all_q;               /* of all that train */
    int       *trained, ntrained;   /* the tensors that train */
    int       *place;               /* per tensor: which of them it is; -1: it is frozen */
    bool       overlap, sequential, by_all_reduce;
    bool       zero_init;           /* built module by module, never whole */
    enum stream gather_stream, reduce_stream;
    enum dtype accum;               /* gradients between micro-steps */

    int lp, ipg, grad_buffer;
    struct ds_families copy, padded, partition, grads;
    struct z3_cut cut, expert_cut;  /* of the partitions; of the experts' that ranks share out */
    int       *belongs;             /* each tensor to a parameter group: ds_parameter_groups() */

    /* What a parameter was gathered into stays until its backward, though it is released, and gathered once more, into the second of two
     * buffers (`which`), where autograd saved not the parameter but its data: a view of it, or what torch.utils.checkpoint, not reentrant,
     * detached of a recomputed block's (checkpoint.py, _recomputation_hook). */
    uint8_t   *data_saved;          /* and the backward that needs it is to come */
    uint8_t   *which;
    uint8_t   *kept;                /* 1 + how it is held + 4 `which`; 0: nothing is kept */
    int       *kept_gather;         /* the record of an all-reduced one */
    int       *apart;               /* for gathers of tensors of both kinds */

    /* ZeRO++'s hpZ: a second copy of the parameters, cut among the ranks of GROUP_SECONDARY. */
    struct z3_second {
        bool on;
        struct z3_cut cut;
        struct ds_families part;
        uint8_t *there;             /* per tensor */
        int     *list;
    } second;

    /* qwZ: parameters are gathered as codes.  Gathers of a kind have buffers of the same families; instances are the records'. */
    bool int8;
    struct z3_codes {
        const struct z3_cut *cut;
        int64_t mine, groups;       /* elements and groups that this rank gives */
        bool    several;            /* parameters */
        int     all, scales, sent, sent_scales, numbers;    /* codes and scales, of all ranks and this one's; several: in fp16 */
    } *kinds;
    int      nkinds;
    int64_t  cap_kinds;

    /* qgZ: gradients of matrices are reduced as codes, in a node and then across nodes. */
    struct z3_int4 {
        int64_t ranks, nodes;       /* of a node; of the world.  0: they are not */
        struct ds_families half, codes, scales, got, got_scales, sum, sum_scales, all, all_scales, numbers, part, padded;
    } int4;

    /* Outside of device memory. */
    struct z3_away {
        bool params, states;        /* partitions; fp32 weights, Adam and gradients */
        bool pin_states;
        struct ds_families here;    /* partitions on their way to a gather */
        struct pinned pinned;
    } away;

    /* Optimizer states on disk. */
    struct z3_disk {
        bool    states, pipelined, reads, writes;   /* the last two: pipeline_read, pipeline_write */
        int64_t least, align;       /* bytes from which a tensor goes to disk; elements of 4 bytes */
        struct z3_pool pool;
        struct z3_swapper grads;
        struct ds_families wide;    /* fp32 gradients on the device, until they are written or the step */
        struct z3_group *reading, *writing;     /* begun before it is needed; not awaited */
        char    why[240];           /* what the options do not allow; empty: nothing */
    } disk;

    /* Partitions on disk. */
    struct z3_files {
        bool    on, reading;        /* reading: requests that were not waited for */
        int64_t least, align;       /* bytes from which a partition has a file; elements */
        int64_t flat;               /* elements of the pinned buffer */
        struct ds_families file;
        struct z3_pool pool;
        int     out;                /* the buffer for new values, or -1 */
        int    *buffer;             /* per tensor: instance of the pool, or -1 */
        int    *list;
    } files;

    uint8_t   *held;                /* per tensor, while it is there */
    int       *gather_of;
    struct z3_gather *gathers;
    int        ngathers;
    int64_t    cap_gathers;
    struct z3_list { int free, made; } *lists, singles;    /* per family of flat buffers; none */
    int        nlists;
    bool       gather_dirty;        /* its stream has work that compute did not wait for */
    int        release_op;          /* the entry that frees parameters, if it is the last one */
    struct z3_ring fetched, reduced;

    /* The bucket. */
    int       *bucket, nbucket, nth;    /* nth of this backward */
    int64_t    elements;
    uint8_t   *grad_live;
    bool       accumulates;         /* not the first micro-step */
    bool       boundary;            /* the last micro-step */

    /* What it starts from, and ends with; the trace was recorded before it. */
    uint8_t   *before, *after, *repeated;  /* repeated: that of the micro-step that became a repeat first */
    bool       recorded;

    /* The pass of a piece being emitted: kernels before run.k0 are issued. */
    struct walk_run run;
    int        next_event;          /* of the trace */
    int        recomputed[NPIECE];  /* of the kernels of a recomputed block's backward */
    int        next_ready, using;   /* module in use, or -1 */
    int        pending[64], npending;   /* gradients ready, neither issued nor in the bucket */

    /* Sub-groups of the optimizer: trained[first ... last - 1]; beside a disk everything trains, and trained[t] is t. */
    struct z3_group {
        int     first, last;
        int64_t elems;
        int     managed;            /* family of states in managed memory, or -1 */
        int     master, adam;       /* families; adam: the second moments are the next one where `host` */
        bool    host;               /* they are in host memory, and so is: */
        int     grad;               /* the gradient, in fp32 */
        int     out;                /* values between two memories while they are cast */
        struct z3_place p, m, v, g; /* where the step finds weights, moments and gradient */
        int     as_p, as_m, as_v;   /* layouts there, and `wide` */
        int     as_grads, as_grad_file;     /* what goes to disk of the gradient, there and in its files */
        bool    disk;               /* weights and moments are in files, between steps: */
        int     file;               /* three families: weights, exp_avg, exp_avg_sq; then gradients */
        int64_t aligned;            /* elements of such a file */
        int64_t grads_written;      /* elements of gradients that go to disk; the others stay on the device */
        bool    has_grads, grads_there;     /* this rank has any; their files exist */
        struct z3_swapped in;
        int     part, grads;        /* layouts: its parameters and gradients where all of them are, */
        int     flat, wide;         /* its gradients alone, as they are kept and in fp32, */
        int     new_values;         /* and its master weights as values of the parameters, */
        int     narrow_values;      /* also in the model's dtype */
    } *groups;
    int        ngroups;
};

/* ---- passes ---- */
/* Events of the trace, up to one. */
void z3_run_events(struct z3 *z, int end);
/* Hooks: of a piece's pass all its events; which parameters an entry reads and which gradients it leaves. */
void z3_pass(void *zero3, const struct walk_run *r);
void z3_compute(void *zero3, const struct walk_run *r);

/* Partitions by themselves: before they become one, and those that never do. */
static inline const char *z3_partition_name(const struct z3 *z)
{
    return z->d.frozen_bytes > 0 ? "partition" : "partition before flattening";
}

/* ---- outside of device memory ---- */
/* Where things lie, before buffers are declared. */
void z3_away_setup(struct z3 *z);
/* Buffers that exist once. */
void z3_away_declare(struct z3 *z);
void z3_away_free(struct z3 *z);
/* Buffers of a sub-group whose states are away, in host memory or (the first ones) on the device. */
void z3_away_group(struct z3 *z, struct z3_group *g);
/* Init: a tensor's partition leaves the device; all partitions become one; masters; gradients. */
void z3_away_partition(struct z3 *z, int tensor);
void z3_away_flatten(struct z3 *z);
void z3_away_masters(struct z3 *z);
void z3_away_gradients(struct z3 *z);
/* partition_grads: the bucket's reduced parts go to the host.  The last entry, which frees, comes at the end. */
void z3_away_parts(struct z3 *z, const struct z3_wire *w);
/* The step: overflow, norms, a sub-group's new weights become partitions, its update. */
void z3_away_overflow(struct z3 *z);
void z3_away_norms(struct z3 *z);
void z3_away_values(struct z3 *z, const struct z3_group *g, uint8_t guard);
void z3_away_update(struct z3 *z, struct z3_group *g, bool first, uint8_t guard);
/* A tensor's partition comes to the device, on this stream; the issuing thread waits for it.  Action of
 * the last entry on it there. */
void z3_bring(struct z3 *z, enum stream st, enum phase ph, int tensor);
void z3_use_here(struct z3 *z, int what, int tensor);
/* Where one rank has all of it, the parameter; nothing waits. */
void z3_bring_whole(struct z3 *z, enum stream st, enum phase ph, int tensor);
/* ---- optimizer states on disk ---- */
void z3_disk_setup(struct z3 *z);
void z3_disk_declare(struct z3 *z);
void z3_disk_group(struct z3 *z, struct z3_group *g);
void z3_disk_free(struct z3 *z);
/* Init: the pool; masters of all sub-groups on disk; initialize_optimizer_states. */
void z3_disk_pool(struct z3 *z);
void z3_disk_masters(struct z3 *z);
void z3_disk_master(struct z3 *z, struct z3_group *g);
void z3_disk_states(struct z3 *z, struct z3_group *g);
/* A sub-group comes to host memory, and goes.  It has no gradients at init and no moments before the first
 * step, in which they are born. */
enum z3_time { Z3_BIRTH, Z3_FIRST, Z3_LATER };
void z3_disk_in(struct z3 *z, struct z3_group *g, enum z3_time time);
void z3_disk_out(struct z3 *z, struct z3_group *g, enum z3_time time);
/* After the last sub-group. */
void z3_disk_end(struct z3 *z, bool first);
/* Elements of a tensor's part that go to disk; the rest stays on the device until the step. */
int64_t z3_disk_written(const struct z3 *z, int tensor);
/* Gradients of the bucket go to disk, or stay; the last entry frees what is written. */
void z3_disk_gradients(struct z3 *z);
void z3_disk_drop(struct z3 *z);
/* _flush_gradient_swapper. */
void z3_disk_flush(struct z3 *z, enum phase ph);
/* A layout: elements [at, at+n) of this rank's part of a gradient in fp32, `bytes` from a buffer's begin. */
int  z3_disk_piece(const struct z3 *z, int tensor, int64_t at, int64_t n, int64_t bytes);
/* Its fp32 values, from where the partitions are, into a buffer. */
void z3_away_widen(struct z3 *z, const struct z3_group *g, struct z3_place to, int what);
/* What does not fit the options: the first reason counts. */
void z3_disk_refuse(struct z3 *z, const char *why);

/* ---- partitions on disk ---- */
void z3_files_setup(struct z3 *z);
void z3_files_declare(struct z3 *z);
void z3_files_free(struct z3 *z);
/* Whether a sub-group's partitions are in the flat buffer; whether a partition is big enough for a file, and whether
 * that is where it is. */
bool z3_is_flat(const struct z3 *z, const struct z3_group *g);
bool z3_in_flat(const struct z3 *z, int tensor);    /* a frozen tensor's partition is not */
/* Elements of parts before this sub-group's. */
int64_t z3_group_begin(const struct z3 *z, const struct z3_group *g);
bool z3_has_file(const struct z3 *z, int tensor);
bool z3_on_disk(const struct z3 *z, int tensor);
const struct z3_group *z3_group_of(const struct z3 *z, int tensor);     /* of one that trains */
/* Action of the last entry on this rank's partition, wherever in host memory it is. */
void z3_act_partition(struct z3 *z, int what, int tensor);
/* Init. */
void z3_files_pool(struct z3 *z);
void z3_files_partition(struct z3 *z, int tensor);
void z3_files_to_flat(struct z3 *z, int tensor, int comes);
void z3_files_out_buffer(struct z3 *z);
void z3_files_widen(struct z3 *z, const struct z3_group *g, struct z3_place to, int what);
/* Before a gather; when the parameter is released; the coordinator's calls. */
void z3_files_ensure(struct z3 *z, enum phase ph, const int *tensors, int n);
void z3_give_buffer(struct z3 *z, int tensor);
bool z3_is_absent(void *arg, int tensor);
int  z3_buffers_left(void *arg);
void z3_read_ahead(void *arg, const int *tensors, int n);
/* ntensors + buffers bytes. */
void z3_files_state(const struct z3 *z, uint8_t *to);
/* New values of a sub-group that is not flat. */
void z3_files_values(struct z3 *z, const struct z3_group *g, enum phase ph, uint8_t guard);

/* The issuing thread waits for what a stream was given. */
void z3_block(struct z3 *z, enum stream st, enum phase ph, const char *what);

/* ---- layouts; all are 0 where nobody asks ---- */
/* Families, once their tensors and groups are known. */
void z3_describe(struct z3 *z);
static inline const struct z3_cut *z3_cut_of(const struct z3 *z, int t)
{
    return ds_is_of_experts(&z->d, &z->d.m->tensors[t]) ? &z->expert_cut : &z->cut;
}

static inline int64_t z3_numel(const struct z3 *z, int t) { return z->d.m->tensors[t].numel; }
/* This rank has all of it. */
static inline bool z3_is_alone(const struct z3 *z, int t) { return z3_cut_of(z, t)->n < 2; }

/* Elements that this rank's part of a tensor has, padding left out, and its first one; those of a rank by any cut. */
int64_t z3_part(const struct z3 *z, int tensor, int64_t *from);
int64_t z3_part_of(const struct z3 *z, const struct z3_cut *c, int tensor, int64_t rank, int64_t *from);
/* This rank's parts of those that train at their place among the parts of all such, counted from element `begin`. */
int  z3_own(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n, int64_t begin);
/* Of a buffer with one chunk a rank, each the parts of n tensors end to end: this rank's, or all. */
int  z3_chunk(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n);
int  z3_chunks(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n);
/* Whole tensors from element `from` on, each rounded up to so many bytes. */
int  z3_whole(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n, int64_t from,
              int64_t rounded_to);
/* This rank's parts end to end, each rounded up to 512 bytes. */
int  z3_parts(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n);
/* The same for what aio writes: each rounded up to its alignment, in the model's dtype. */
int  z3_aligned_parts(const struct z3 *z, const int *tensors, int n);
/* Of whole tensors end to end, this rank's parts. */
int  z3_inside(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int n);
/* The same of the i-th tensor alone. */
int  z3_inside_one(const struct z3 *z, enum holds h, enum dtype dt, const int *tensors, int i);

/* This rank's parts of n tensors end to end. */
int  z3_mine(const struct z3 *z, const struct z3_cut *c, enum holds h, enum dtype dt, const int *tensors, int n);

/* ---- fetch ---- */
/* A record of a gather, of the flat buffer's family (-1: none). */
int  z3_take_record(struct z3 *z, int family, const int *tensors, int n);
enum phase z3_phase(const struct z3 *z);
/* Action of the last entry on this rank's parts of tensors, which are always there: named only to those who move them. */
void z3_own_parts(struct z3 *z, int what, const int *tensors, int n);
/* An all-gather among the ranks of a cut; its entry. */
struct op *z3_all_gather(struct z3 *z, const struct z3_cut *cut, enum dtype t, int64_t elems, int tensors);
void z3_gather(void *arg, const int *tensors, int n);
void z3_await(void *arg, int tensor);
void z3_ready(void *arg, int module);
void z3_release(void *arg, int tensor);
/* Its buffer from now on: the one that nothing keeps. */
void z3_take_buffer(struct z3 *z, int tensor, enum z3_held how);
/* Do blocks' linear layers save a view of the weight, as torch._grouped_mm() does of the experts': FalconLinear (`input @ self.weight.T`),
 * and AutoTP's layers (module_inject/layers.py, `torch.matmul(input, self.weight.transpose(-1, -2))`)? */
bool z3_linear_saves_view(const struct ds *d);
/* A module's forward begins that saves what backward needs; `again`: in a recomputation. */
void z3_module_saves(struct z3 *z, const struct z3_module *m, bool again);
/* The backward of what saved its data is over. */
void z3_drop_kept_data(struct z3 *z, int tensor);
/* A parameter is gathered by itself, and compute waits: someone asked for it whose module does not have it. */
void z3_gather_now(void *arg, int tensor);
/* Action of the last entry on a parameter that is there; the partition itself, on one rank. */
void z3_use(struct z3 *z, int what, int tensor);
void z3_gather_persistent(struct z3 *z);
/* Actions of the last entry, an all-gather of one tensor: from this rank's part to its buffer,
 * which may also come and go. */
void z3_fill(struct z3 *z, int what, int tensor);

/* ---- secondary partitions ---- */
void z3_second_setup(struct z3 *z);
void z3_second_declare(struct z3 *z);
void z3_second_free(struct z3 *z);
/* _partition_param_sec: of a parameter that is there, unless it has one. */
void z3_second_keep(struct z3 *z, enum phase ph, int tensor);
/* Action of the last entry on this rank's part. */
void z3_second_act(struct z3 *z, int what, int tensor);
/* invalidate_secondary_tensor. */
void z3_second_drop(struct z3 *z);

/* ---- gathers in int8 ---- */
/* CUDAQuantizer.quantize(): groups of n elements, which 8 divides; 0: it asserts. */
int64_t z3_int8_groups(int64_t n);
/* Refuses tensors whose parts have padding. */
void z3_int8_setup(struct z3 *z);
/* A gather from the parts of a cut; its first wait; its last, which frees what it held on the last entry. */
void z3_int8_gather(struct z3 *z, const int *tensors, int n, const struct z3_cut *cut);
void z3_int8_wait(struct z3 *z, struct z3_gather *g);
void z3_int8_drop(struct z3 *z, const struct z3_gather *g);

/* ---- reductions in int4 ---- */
void z3_int4_setup(struct z3 *z);
void z3_int4_declare(struct z3 *z);
void z3_int4_free(struct z3 *z);
/* __avg_scatter_grads by all_to_all_quant_reduce(). */
void z3_int4_flush(struct z3 *z);

/* ---- gradients ---- */
/* Gradients of the bucket that are not in its buffer, in the dtype of the wire, each an allocation of its own; -1: they are in it
 * already, or in the buffer. */
int  z3_cast_kept(struct z3 *z);
/* Whether the bucket's gradients were copied into its buffer. */
bool z3_in_buffer(const struct z3 *z);
/* The last entry writes this rank's parts of the bucket's gradients, or adds to them.  parts: their elements; it also casts them. */
void z3_keep_parts(struct z3 *z, int64_t parts);
/* Action of the last entry on this rank's parts of what was reduced. */
void z3_act_own(struct z3 *z, int what, const struct z3_wire *w);
/* The last entry drops gradients that were not copied into the bucket. */
void z3_drop_kept(struct z3 *z);
bool z3_flushes(const struct z3 *z, int tensor, int64_t waiting);
void z3_add_grads(struct z3 *z, const int *tensors, int n);
void z3_flush(struct z3 *z);

/* ---- the step ---- */
void z3_step(struct z3 *z, bool first);

/* An event on the last entry, or the one before once more; the wait for the third last. */
void z3_ring_record(struct z3 *z, struct z3_ring *r, bool on_last);
void z3_ring_wait(struct z3 *z, struct z3_ring *r, enum phase ph);

#endif
