/* lower_ds_other.h -- DeepSpeed without its ZeRO optimizer: stage 0 and BF16_Optimizer; for lower_*.c only.
 *
 * lower_ds_other.c is the micro-steps and the whole, lower_ds_other_layout.c the buffers, lower_ds_other_reduce.c the reduction,
 * lower_ds_other_step.c construction and the step. */
#ifndef DPX_LOWER_DS_OTHER_H
#define DPX_LOWER_DS_OTHER_H

#include "model/framework/deepspeed/lower_ds.h"

/* A parameter group (ds_moe_groups()): the only one; with AutoEP one of what is no expert, and those of experts.  Of BF16_Optimizer there is one. */
struct ds_other_group {
    int64_t elems;                  /* that train */
    int64_t base, padded, part;     /* where it begins in the flat order; there with padding; of it this rank's partition, all at stage 0 */
    int     params, clones, clone, master, adam, wide_list, wide_flat;
    int     flat_part, master_part; /* layouts: this rank's partition where it lies in `flat`; the master as parameters */
};

struct ds_other {
    struct ds d;
    bool      bf16;
    enum dtype sum;                 /* bf16: in which gradients are added up; se: its bytes */
    int64_t   se;
    struct ds_other_group *group;
    int       ngroups;
    int      *belongs;              /* each tensor to one of them */
    int64_t  *start;                /* of each tensor in the flat order of all groups */
    int64_t   flat_numel;
    int flat, hp_grads, partial, hp_temp, mask, masked;
    int hp_part;                    /* layout: the partition in the fp32 gradients */
    struct ds_families grads;
    bool      add;                  /* .grad exists */
};

static inline int64_t ds_other_grad_bytes(const struct ds_other *o) { return o->d.m->trainable * o->d.e; }

/* Stage 0: FP16_Optimizer, or the optimizer itself in fp32. */
int lower_ds_stage0(const struct local_model *local, struct schedules *s);

/* Stage 1 in bf16 with grad_accum_dtype fp32: BF16_Optimizer. */
int lower_ds_bf16(const struct local_model *local, struct schedules *s);

/* The parameter groups and where their tensors lie: 0, or -1 reported.  Then all buffers but a stage's. */
int  ds_other_make_groups(struct ds_other *o);
void ds_other_declare(struct ds_other *o);

/* Action of the last entry on .grad of a group's tensors. */
void ds_other_act_grads(const struct ds_other *o, int group, int what);

/* After the last micro-step's backward: buffered_allreduce_fallback(). */
void ds_other_reduce(struct ds_other *o);

/* A hook. */
void ds_other_init(void *other);
void ds_other_step(struct ds_other *o, bool first);

#endif
