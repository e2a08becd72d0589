/* lower_zero12.h -- DeepSpeedZeroOptimizer, stages 1 and 2; for lower_zero12*.c only.
 *
 * Source: deepspeed/runtime/zero/stage_1_and_2.py of DeepSpeed 0.19.6, and of 0.19.8
 * where a plan names it; functions are named at the entries.  lower_zero12.c is init and micro-steps, lower_zero12_step.c the step,
 * lower_zero12_groups.c the parameter groups, lower_zero12_layout.c the buffers and which elements lie where in them,
 * lower_zero12_reduce.c the gradient bucket, lower_zero12_backward.c the backward
 * pass cut where the bucket acts, lower_zero12_offload.c what is different where the optimizer is offloaded, lower_zero12_muon.c its Muon. */
#ifndef DPX_LOWER_ZERO12_H
#define DPX_LOWER_ZERO12_H

#include "model/framework/deepspeed/lower_ds.h"

/* What backward does with the gradients it makes. */
enum z12_mode {
    Z12_STREAM,                     /* each goes into the bucket and is freed */
    Z12_KEEP,                       /* each becomes .grad */
    Z12_ADD,                        /* each is added to the .grad that exists */
};

/* Elements [at, at+elems) of the bucket belong to one rank of a group; next, later: of that owner.  Ranks first to last get them back: the
 * owner; of a matrix that Muon orthogonalises all that have a part of it. */
struct z12_slice { int64_t owner, at, elems; int next; bool later; enum group among; int64_t first, last; };

/* A parameter group: the only one; with AutoEP one of what is no expert, and those of experts
 * (ds_parameter_groups()); of Muon its matrices, and what AdamW steps (_muon_param_groups).  Its flat parameters, A elements, are cut over the
 * ranks that have the same. */
struct z12_group {
    enum group among;               /* over which it is cut */
    int64_t    n, rank;             /* ranks; this one */
    int64_t    base;                /* where it begins in the flat order of all groups */
    int64_t    padded, part;        /* A and A/N */
    int64_t    own_largest;         /* elements of the largest slice in this rank's partition */
    int64_t    own_pad;             /* elements of the partition beyond the last tensor */
    int        nown;
    bool       orthogonal;          /* Muon's; whole: elements of whole matrices that touch the partition */
    int64_t    whole;
    int        momentum, staged;
    int        flat;                /* parameters */
    int        master, adam, managed, pad, flat_grad, wide_grad;
    /* Layouts: this rank's partition where it lies in `flat`; the partition alone, as parameters in the model's dtype and in fp32; and in
     * `own`. */
    int        flat_part, lone_part, master_part, own_part;
};

/* Of a gradient: the program keeps its first part (a tied weight's), it is there. */
enum z12_live { Z12_GONE, Z12_PART, Z12_THERE };

struct z12 {
    struct ds  d;
    bool       stage2, overlap, contiguous;
    bool       newer;               /* 0.19.8 */
    bool       wide;                /* gradients accumulate in fp32 copies (grad_accum) */
    bool       compact;             /* reduced gradients accumulate in `own`, which then is this rank's
                                     * partition in fp32: grad_accum_dtype fp32 of 0.19.8 */
    bool       host;                /* offload_optimizer */
    bool       muon;                /* the first group is Muon's */
    enum dtype bt;                  /* the bucket's; be: its bytes */
    int64_t    be;
    int64_t    bucket_size;         /* elements */
    struct z12_group *group, *of;   /* all; that of which entries are being made */
    int        ngroups;
    int       *belongs;             /* each tensor to one of them */
    int       *members;             /* for z12_members() */
    int64_t    flat_numel;          /* of all */
    int64_t   *start;               /* of each tensor in the flat order */
    int64_t    own_numel;           /* whole tensors that touch this rank's partition */
    int64_t   *own_at;              /* where such a tensor begins among them, in bytes */
    enum stream stream;             /* of the reduction */

    int *params;                    /* of each group: the model's tensors, before they are flattened */
    int ipg, own, partial;
    struct ds_families grads;       /* .grad of each tensor; copy 1: of a later micro-step that keeps them.
                                     * `wide`: its fp32 sum, and .grad is `narrow` */
    struct ds_families narrow;
    struct ds_families updates;     /* of `muon`: what the step has for each gradient */

    /* `host`: see z12_declare_offload().  `master` is there, and `adam` is `moment`; there is one group. */
    int        staging, host_grad, unused, moment[2], temp;
    struct ds_families sums;        /* of each tensor's gradients, of earlier micro-steps */
    uint16_t   copied;              /* event: of the last gradient on its way down */
    bool       copying;             /* somebody has to wait for it */
    bool       boundary, makes_sums;    /* the micro-step is the last; it is the first of a run */

    /* The micro-step being emitted. */
    enum z12_mode mode;
    int        copy, grad_copy;     /* instance of `own`, copy of `grads` */
    bool       hooks;               /* gradients enter the bucket as they get ready */
    bool       first_micro;
    uint8_t   *live;                /* per tensor: grads instance is live, enum z12_live */

    /* The bucket. */
    int       *bucket, nbucket, nth;    /* nth of this reduction */
    int64_t    elements;
    int64_t   *at;                  /* per tensor: element of the bucket at which it begins */
    bool       large;               /* it is one gradient larger than a bucket, not copied */
    bool       ipg_live, own_live;
    int        index;               /* which of the two buffers */
    bool       viewed[2];           /* gradients that are not dropped before the step lie in that buffer */
    int       *late, nlate;         /* gradients freed at a later moment */
    int       *pending, *there;     /* to be copied in after backward; of a copy, those that are buffers */
    int       *handed;              /* room of a pass's entries: what one hands out; gradients not yet copied in, and their kernels */
    struct z12_slice *slices;
    int        nslices;
    int64_t    cap_slices;
    int32_t   *owner_last;          /* per rank; NULL with use_multi_rank_bucket_allreduce */
};

/* ---- buffers ---- */

/* The groups: which tensor belongs to which, where each begins and what this rank has of it; start[], and the tensors in that order. */
int  z12_make_groups(struct z12 *z, int *order);
/* The tensors of a group in the optimizer's order: that of registration; Muon's has larger shapes first (original_muon.py, 0.19.8:
 * sorted(key=lambda x: x.size(), reverse=True)).  How many. */
int  z12_members(const struct z12 *z, int group, int *out);
void z12_measure(struct z12 *z);
void z12_declare(struct z12 *z);
/* A layout of those of n tensors (NULL: the model's) that `own` has, whole. */
int  z12_own_layout(const struct z12 *z, const int *tensors, int n);
/* Elements of a tensor that are in this rank's partition: [*from, *to); false: none. */
bool z12_in_partition(const struct z12 *z, int t, int64_t *from, int64_t *to);
/* A layout of the partition of z->of alone. */
int  z12_partition(const struct z12 *z, enum holds h, enum dtype t);
/* Act of the last entry on this rank's averaged gradients of z->of: the elements in its partition, wherever they are. */
void z12_act_own(const struct z12 *z, int what);

/* Elements of a tensor in the flat parameters: what does not train is not among them. */
static inline int64_t z12_numel(const struct z12 *z, int t)
{
    return z->d.m->tensors[t].frozen ? 0 : z->d.m->tensors[t].numel;
}
/* Flags of what a step with overflow leaves out. */
static inline uint8_t z12_guard(const struct z12 *z) { return z->d.dt != DT_FP32 && z->d.p->ds.check_grad_overflow ? OPF_GUARDED : 0; }

static inline const struct z12_group *z12_group_of(const struct z12 *z, int t) { return &z->group[z->belongs[t]]; }

/* Where this rank's partition of a group begins in the flat order. */
static inline int64_t z12_left(const struct z12_group *g) { return g->base + g->rank * g->part; }

/* The tensor touches this rank's partition. */
static inline bool z12_owns(const struct z12 *z, int t)
{
    const struct z12_group *g = z12_group_of(z, t);
    int64_t left = z12_left(g);

    return z->start[t] < left + g->part && z->start[t] + z12_numel(z, t) > left && z12_numel(z, t) > 0;
}

/* ---- the bucket ---- */

/* setup_buckets(): the buffers come at the first hook. */
void z12_setup_bucket(struct z12 *z);
/* Would adding these gradients flush, or is one too large to be copied? */
bool z12_acts(const struct z12 *z, const int *tensors, int n);
/* Adds a gradient without flushing; the copy is z12_copy_in()'s. */
void z12_add(struct z12 *z, int tensor);
/* A layout of gradients that were added, where they lie in the bucket. */
int  z12_in_bucket(const struct z12 *z, const int *tensors, int n);
/* One copy of n gradients that were added, and their end where they are live. */
void z12_copy_in(struct z12 *z, const int *tensors, int n);
/* A hook in full: set up, flush if it does not fit, add, copy. */
void z12_hook(struct z12 *z, int tensor);
void z12_flush(struct z12 *z);
void z12_free_late(struct z12 *z);
/* `compact`: the partition, zeros.  On the first use of it, or where nothing is in it at the last
 * micro-step's end. */
void z12_build_partition(struct z12 *z, enum stream stream);

/* ---- offload of the optimizer ---- */

void z12_declare_offload(struct z12 *z);
/* From the flat parameters on; fp32 partition, staging and gradient of the partition. */
void z12_offload_init(struct z12 *z);
/* A gradient that touches the partition has been reduced: it goes to the host, or its sum does. */
void z12_offload_gradient(struct z12 *z, int tensor);
/* The step up to this rank's share of the updated flat parameters. */
void z12_offload_step(struct z12 *z, bool first);

/* ---- Muon ---- */

void z12_muon_declare(struct z12 *z);
/* The updates of the averaged gradients, behind the last micro-step's reduction. */
void z12_muon_orthogonalise(struct z12 *z, bool first_step);
void z12_muon_commit(struct z12 *z);
/* Of the partition of z->of. */
struct op *z12_muon_step(struct z12 *z);
/* What muon_update() of a gradient takes at most beside its result, and the operations of its products. */
int64_t z12_muon_temporaries(const struct tensor *t, enum dtype dt);
double  z12_muon_flops(const struct tensor *t);

/* ---- the step ---- */

/* Memory entries: the bucket's buffers in which gradients lie (`viewed`), or those in which none does; .grad of what this rank owns, or of
 * what it does not: in the step of z->of's tensors. */
void z12_release_bucket(struct z12 *z, enum phase ph, bool viewed);
void z12_drop_grads(struct z12 *z, enum phase ph, bool own);
/* A hook. */
void z12_step(void *zero12);

/* ---- backward ---- */

/* Which pieces are cut, and what becomes of gradients. */
void z12_begin_backward(struct z12 *z);
/* Acts of an entry of backward, just appended, on gradients. */
void z12_leave_gradients(struct z12 *z, const struct walk_run *r);
void z12_end_backward(struct z12 *z);
/* Hooks. */
void z12_post_run(void *zero12, const struct walk_run *r);
void z12_pass(void *zero12, const struct walk_run *r);

#endif
