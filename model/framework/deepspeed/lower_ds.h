/* lower_ds.h -- what the DeepSpeed lowerings share; for lower_*.c only.
 *
 * A tensor is named by its index in model->tensors, which is registration order
 * and also DeepSpeed's ds_id.  Buffers that exist once per tensor are families by
 * tensor of a block, one instance per block. */
#ifndef DPX_LOWER_DS_H
#define DPX_LOWER_DS_H

#include "model/walk/walk.h"

/* A gradient that becomes ready in the backward pass of a piece. */
struct ds_ready {
    int kernel;                     /* after which it is complete */
    int tensor;                     /* of block 0, or of the embedding or head */
    int place;                      /* among the piece's: program_tensor() */
};

/* The first member of each stage's own struct: what the walk hands to hooks. */
struct ds {
    struct walk         walk;
    const struct plan  *p;
    const struct local_model *local;
    const struct model *m;
    struct schedules   *s;
    int64_t    n, rank;             /* data-parallel ranks; this one */
    enum dtype dt, comm;            /* the model's; gradients' on the wire */
    int64_t    e, ce;               /* their bytes */
    int        layers, block0, per_block, blocks_end;   /* no layers: each tensor has a family of its own */
    struct ds_ready *ready[NPIECE]; /* in the order in which autograd hands them out */
    int        nready[NPIECE];
    int        tied_kernel;         /* of the head's backward: leaves the tied weight's gradient, not
                                     * complete before the embedding's; -1: none does */
    int        tied;                /* that tensor, or -1 */
    bool       has_tables;          /* the optimizer's are with the first of its states */
    int        frozen;              /* buffer of the parameters that do not train, each as it is; its bytes: */
    int64_t    frozen_bytes;
    struct { const char *what; int64_t bytes; int family; } *scratch;
    int        nscratch, cap_scratch;
    struct ds_left {                /* what MOELayer's l_aux holds of a recomputed block: family by piece, or -1; it is there, of every such block */
        int  of[NPIECE];
        bool there;
    } *left;
    struct ds_pipe {                /* a pipeline's stage: lower_ds_pipeline.c */
        int exchange, inputs, frame, outputs, graphs;   /* families */
        int slot;                   /* pipe buffer whose last output goes in the next head's forward; -1: none */
        bool keeps_graph;           /* what that output's graph holds stays until the loss is there */
        bool met[2];                /* of the first step: a message's shape is known: activations; from the stage before */
    } pipe;
};

/* Its tensor, where a block or the embedding or head hands it out. */
int  ds_handed(const struct ds *d, enum piece_id piece, int64_t block, const struct ds_ready *x);

/* 0, or -1 with the reason reported.  ds_free() in any case. */
int  ds_init(struct ds *d, const struct local_model *local, struct schedules *s, const struct walk_hooks *hooks);
void ds_free(struct ds *d);

/* ---- parameter groups ---- */

/* Elements of a parameter group of experts, at most, unless one tensor has more: max_group_size of
 * split_params_into_different_moe_groups_for_optimizer(), deepspeed/moe/utils.py of 0.19.6 and 0.19.8. */
#define DS_EXPERT_GROUP INT64_C(178956971)

/* How many groups the optimizer has, and to which each tensor belongs: one of all that trains; with decay_groups one of what decays and one of
 * what does not; with AutoEP the experts' tensors are taken out
 * of it, in registration order, into groups of their own.  A tensor larger than such a group is one by itself: the engine drops the empty
 * one before it (_configure_optimizer). */
int  ds_parameter_groups(const struct plan *p, const struct model *m, int *belongs);

/* Is the tensor of experts that ranks share out?  The ranks that have the same tensor: those with the same experts, else all. */
bool    ds_is_of_experts(const struct ds *d, const struct tensor *t);
int64_t ds_ranks_of(const struct ds *d, const struct tensor *t);

/* ---- one family per tensor (of a block, of the embedding, of the head) ---- */

struct ds_families {
    int       *family;              /* by copy, then by tensor of a block */
    int        copies;
    enum space in;                  /* set before ds_declare(), as */
    bool       trained;             /* of tensors that train alone: ds_act_all() leaves out the others */
    enum holds holds;               /* ds_hold() */
    enum dtype dtype;
};

typedef int64_t ds_bytes(const struct ds *d, const struct tensor *t);
void ds_declare(const struct ds *d, struct ds_families *f, enum category cat, const char *what,
                int copies, ds_bytes *bytes);
/* Each family holds its tensor, whole, from the buffer's begin; what is beyond is padding. */
void ds_hold(const struct ds *d, struct ds_families *f, enum holds h, enum dtype t);
/* The tensor's buffers, if it is the first of its family, hold its elements [from, from+n), from the buffer's begin. */
void ds_hold_part(const struct ds *d, struct ds_families *f, int tensor, int64_t n, int64_t from);
void ds_undeclare(struct ds_families *f);
/* Action of the last entry on a tensor's instance; copy 0 mostly. */
void ds_act(const struct ds *d, const struct ds_families *f, int what, int tensor, int copy);
/* The same inside a repeat over blocks: `by` blocks an iteration. */
void ds_act_by(const struct ds *d, const struct ds_families *f, int what, int tensor, int by);
/* Where the tensor's buffer has a layout of its own for this entry (of stride 0); ds_act_part()
 * makes it: elements [from, from+n) only, `at` bytes from its begin. */
void ds_act_as(const struct ds *d, const struct ds_families *f, int what, int tensor, int layout);
void ds_act_part(const struct ds *d, const struct ds_families *f, int what, int tensor, int64_t from,
                 int64_t n, int64_t at);
/* On every tensor, or on every one that trains. */
void ds_act_all(const struct ds *d, const struct ds_families *f, int what);

ds_bytes ds_tensor_bytes;           /* of the model's dtype, rounded as the allocator does */
/* Over what trains. */
int64_t  ds_sum(const struct ds *d, ds_bytes *bytes);
/* A buffer that is an allocation, or n, for each tensor of a parameter group that trains. */
int      ds_each_of(const struct ds *d, const int *belongs, int group, enum category cat, const char *what, int n, ds_bytes *bytes);

/* ---- layouts of one buffer for all tensors that train ---- */

/* Tensors as `start` places them (elements; NULL: end to end in registration order): a layout of
 * elements [from, from+n) of that, the first of them `at` bytes into the buffer. */
int  ds_flat(const struct ds *d, const int64_t *start, enum holds h, enum dtype t, int64_t from,
             int64_t n, int64_t at);
/* The same, appended to the last layout. */
void ds_flat_slices(const struct ds *d, const int64_t *start, enum holds h, enum dtype t, int64_t from,
                    int64_t n, int64_t at);
/* Whole tensors of a parameter group, each as an allocation of its own, rounded up. */
int  ds_apart(const struct ds *d, const int *belongs, int group, enum holds h, enum dtype t);

/* ---- entries ---- */

/* A collective of the world; DeepSpeed issues it among one rank too. */
struct op *ds_coll(const struct ds *d, enum stream st, enum phase ph, enum coll_op op, enum dtype t,
                   enum red_op red, int64_t elems);
/* One buffer comes, goes or is moved; on the compute stream. */
/* A number that ranks of the data-parallel group have agreed on, among those that have the rest of the model: tensor-parallel ranks or a
 * pipeline's, where there are any. */
void ds_among_model(const struct ds *d, enum dtype t, enum red_op red);
void ds_memory(const struct ds *d, enum phase ph, const char *what, int act, int buf);
/* The issuing thread waits for all streams: torch.cuda.synchronize(). */
void ds_synchronize(const struct ds *d, enum phase ph, const char *what);

enum piece_id ds_piece(const struct ds *d, int block);
/* Names the piece of the last entry: "block 3", "embedding", "head". */
void ds_name(const struct ds *d, enum piece_id piece, int block, int by);

/* A hook: a pass with nothing cut, and gradients where there are any. */
void ds_begin_pass(void *ds);
/* Behind a block's forward, and the end of its backward: what MOELayer's l_aux holds of it goes, or stays. */
void ds_leaves(const struct ds *d, const struct walk_run *r);

/* A passing buffer of that size: one family for each size and name. */
int ds_scratch(struct ds *d, enum category cat, const char *what, int64_t bytes);
/* One of a tensor for each that trains, as large. */
int ds_scratch_of_all(struct ds *d, enum category cat, const char *what);
/* The same elsewhere than in device memory; the name says where. */
int ds_scratch_in(struct ds *d, enum space in, enum category cat, const char *what, int64_t bytes);

/* AdamW's entry on `elems` elements of one flat fp32 tensor: DeepSpeed's FusedAdam and a pass that makes the 16-bit copy, or the
 * torch.optim.AdamW that deepspeed.initialize() was given. */
struct op *ds_adamw(struct ds *d, const struct plan *p, int64_t elems);
/* What torch's makes beside the states, as the last actions of that entry: square roots (foreach), of a loop their quotient, too. */
/* The family of the states that the optimizer makes of a flat tensor of n elements in fp32, by its first step; `managed`: that of those in
 * managed memory (bitsandbytes' paged optimizers), which the first step allocates with ds_manage_states(), or -1. */
int  ds_states(struct ds *d, int64_t n, int *managed);
void ds_manage_states(struct ds *d, int managed);
void ds_adamw_temporaries(struct ds *d, const struct plan *p, int64_t bytes);

/* Rank 0's values of a parameter, at construction; its buffer's action follows. */
void ds_broadcast_tensor(const struct ds *d, int t);

/* The model comes to the device with its first weights, what trains in a buffer for each parameter group (`belongs`; NULL: there is one),
 * whole tensors each as an allocation of its own, rounded up; the rest in d->frozen.  engine._broadcast_model: one broadcast a parameter,
 * registration order. */
void ds_load_model(const struct ds *d, const int *params, int ngroups, const int *belongs);
/* ---- a stage of a pipeline: lower_ds_pipeline.c ---- */

/* Families; tensors whose gradients another stage has a part of. */
void ds_pipe_declare(struct ds *d);
bool ds_is_shared(const struct ds *d, int tensor);
/* At the begin and at the end of construction. */
void ds_pipe_construct(const struct ds *d);
void ds_pipe_greet(const struct ds *d);
/* Whether another stage sends the gradient that this one's backward begins with. */
bool ds_pipe_returns(const struct ds *d);
/* Around a step, a pass and each piece's pass, of any plan; ds_pipe_after() behind the piece's last entry of backward. */
void ds_pipe_begin(struct ds *d);
void ds_pipe_begin_pass(struct ds *d);
void ds_pipe_before(const struct ds *d, const struct walk_run *r);
void ds_pipe_after(const struct ds *d, const struct walk_run *r);
void ds_pipe_end_of_backward(const struct ds *d);
/* Hooks. */
void ds_pipe_pre_act(void *ds, const struct pipeline_act *a);
void ds_pipe_act(void *ds, const struct pipeline_act *a);
void ds_pipe_end_of_pass(void *ds);
/* The all-reduce of a tensor's gradient, whose buffer's action follows. */
void ds_pipe_sum_tied(const struct ds *d, int tensor, enum dtype dt);
/* The last stage tells the others the loss. */
void ds_pipe_tell_loss(const struct ds *d);

/* The last entry computes with what does not train. */
void ds_reads_frozen(const struct ds *d);

#endif
