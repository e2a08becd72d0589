/* lower_zero12_step.c -- DeepSpeedZeroOptimizer.step of stages 1 and 2 (zero/stage_1_and_2.py): overflow, norm, the partition's gradients as the
 * optimizer gets them, its step, and everybody's new parameters. */
#include "model/framework/deepspeed_012/lower_zero12.h"

static bool last_group(const struct z12 *z) { return z->of == &z->group[z->ngroups - 1]; }

static void drop_updates(struct z12 *z)
{
    sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop updates");
    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z12_group_of(z, t) == z->of && z12_owns(z, t))
            ds_act(&z->d, &z->updates, ACT_FREE, t, 0);
}

/* The buffer is one for all groups. */
static void drop_own(struct z12 *z)
{
    bool buffer = z->compact || (z->contiguous && z->own_numel > 0 && last_group(z));

    z12_drop_grads(z, PHASE_OPTIMIZER, true);
    if (buffer) {
        sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop own gradients");
        sched_act(z->d.s, ACT_FREE, z->own, 0, 0);
    }
    if (z->of->orthogonal && z->of->nown > 0)
        drop_updates(z);
    if (z->of->own_pad > 0 && !z->compact)
        ds_memory(&z->d, PHASE_OPTIMIZER, "drop padding", ACT_FREE, z->of->pad);
}

static int64_t own_bytes(const struct z12 *z) { return z->of->part * (z->wide || z->compact ? 4 : z->d.e); }

static void overflow(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;

    for (int g = 0; g < z->ngroups; g++) {
        z->of = &z->group[g];
        sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "look for overflow", own_bytes(z), 0);
        sched_does(s, COPY_OVERFLOW, 1);
        z12_act_own(z, ACT_R);
    }
    ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_UINT8, RED_MAX, 1);
    sched_moves(s, OF_OVERFLOW);
    ds_among_model(d, DT_UINT8, RED_MAX);
    struct op *o = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow");
    o->after = AFTER(STREAM_COMPUTE);
}

/* get_grad_norm_direct() of a group: over all ranks, of experts too. */
static void norm(struct z12 *z, uint8_t flags)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;

    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", own_bytes(z), 0)->flags = flags;
    sched_does(s, COPY_NORM, 1);
    z12_act_own(z, ACT_R);
    /* One gradient at a time, in fp64. */
    sched_act(s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "gradient in fp64",
                                                  round512(z->of->own_largest * 8)), 0, 0);
    ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1)->flags = flags;
    sched_moves(s, d->p->parallel.tensor > 1 || z->ngroups > 1 ? OF_META : OF_NORM);
    ds_among_model(d, DT_FP32, RED_SUM);
}

/* check_overflow and scaled_global_norm, which averages the experts' norms once more (_average_expert_grad_norms). */
static void overflow_and_norm(struct z12 *z)
{
    struct ds *d = &z->d;
    bool guarded = d->dt != DT_FP32 && d->p->ds.check_grad_overflow;
    uint8_t flags = guarded ? OPF_GUARDED : 0;

    if (guarded)
        overflow(z);
    for (int g = 0; g < z->ngroups && d->p->ds.compute_grad_norm; g++) {
        z->of = &z->group[g];
        norm(z, flags);
    }
    for (int g = 1; g < z->ngroups && d->p->ds.compute_grad_norm && d->p->parallel.expert > 1; g++) {
        sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, z->group[g].among, DT_FP32, RED_SUM, 1)->flags = flags;
        sched_moves(d->s, OF_META);
    }
    z->of = z->group;
}

/* The averaged gradients as the optimizer gets them, one fp32 tensor.  Returns its family, or -1: they
 * are that already.  What is freed is freed with overflow as well. */
static int flat_fp32_gradient(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t e = z->wide || z->compact ? 4 : d->e, bytes = z->of->part * e;
    bool flattens = z->of->nown + (z->of->own_pad > 0) > 1 && !z->compact, casts = e != 4;

    if (flattens) {
        sched_set(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "flatten gradients", bytes, bytes)->flags = z12_guard(z);
        sched_act(s, ACT_ALLOC | ACT_WRITE, z->of->flat_grad, 0, 0);
        z12_act_own(z, ACT_R);
    }
    if (casts) {
        sched_set(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradients to fp32", bytes,
                  z->of->part * 4)->flags = z12_guard(z);
        sched_act(s, ACT_ALLOC | ACT_WRITE, z->of->wide_grad, 0, 0);
        if (flattens)
            sched_act(s, ACT_READ | ACT_FREE, z->of->flat_grad, 0, 0);
        else
            z12_act_own(z, ACT_R);
    }
    return casts ? z->of->wide_grad : flattens ? z->of->flat_grad : -1;
}

static void act_gradient(const struct z12 *z, int what, int grad)
{
    if (grad >= 0)
        sched_act(z->d.s, what, grad, 0, 0);
    else
        z12_act_own(z, what);
}

static void update_partition(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;

    sched_set(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "update parameters", z->of->part * 4,
              z->of->part * d->e)->flags = z12_guard(z);
    sched_act_as(s, ACT_R, z->of->master, 0, 0, z->of->master_part);
    sched_act_as(s, ACT_W, z->of->flat, 0, 0, z->of->flat_part);
}

/* Everybody's new partition: all_gather_dp_groups, each group's in one call. */
static void gather_parameters(struct z12 *z)
{
    struct schedules *s = z->d.s;

    for (int i = 0; i < z->ngroups; i++) {
        const struct z12_group *g = &z->group[i];
        if (g->n < 2)
            continue;
        sched_coll(s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_GATHER, g->among, z->d.dt, RED_NONE, g->padded)->flags = z12_guard(z);
        sched_act_as(s, ACT_R, g->flat, 0, 0, g->flat_part);
        sched_act(s, ACT_W, g->flat, 0, 0);
    }
}

static void step_group(struct z12 *z, bool first)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    struct plan adamw = *d->p;          /* of what is not Muon's */

    adamw.optimizer = adamw.optimizer == OPTIMIZER_MUON ? OPTIMIZER_ADAMW : adamw.optimizer;
    z12_drop_grads(z, PHASE_OPTIMIZER, false);
    if (last_group(z))
        z12_release_bucket(z, PHASE_OPTIMIZER, true);
    int grad = flat_fp32_gradient(z);
    if (grad >= 0)
        drop_own(z);
    else if (z->compact)
        z12_drop_grads(z, PHASE_OPTIMIZER, true);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "unscale and clip", z->of->part * 4,
               z->of->part * 4)->flags = z12_guard(z);
    sched_does(s, COPY_CLIP, 1);
    act_gradient(z, ACT_RW, grad);
    struct op *o = z->of->orthogonal ? z12_muon_step(z) : ds_adamw(d, &adamw, z->of->part);
    o->flags = z12_guard(z);
    act_gradient(z, ACT_R, grad);
    sched_act(s, ACT_RW, z->of->master, 0, 0);
    if (!z->of->orthogonal)
        sched_act(s, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, z->of->adam, 0, 0);
    if (!z->of->orthogonal)
        ds_adamw_temporaries(d, &adamw, round512(z->of->part * 4));
    if (first && !z->of->orthogonal)
        ds_manage_states(d, z->of->managed);
    if (grad >= 0)
        ds_memory(d, PHASE_OPTIMIZER, "drop fp32 gradients", ACT_FREE, grad);
    else
        drop_own(z);
    update_partition(z);
}

/* DeepSpeedZeroOptimizer.step, up to this rank's share of the updated parameters. */
static void step_on_device(struct z12 *z, bool first)
{
    overflow_and_norm(z);
    if (z->muon)
        z12_muon_commit(z);
    for (int g = 0; g < z->ngroups; g++) {
        z->of = &z->group[g];
        step_group(z, first);
    }
    z->of = z->group;
}

/* What others' gradients keep goes before the update; where that is the host's, with the next forward. */
void z12_step(void *zero12)
{
    struct z12 *z = zero12;
    bool first = z->d.walk.step == SCHED_FIRST;

    if (z->host)
        z12_offload_step(z, first);
    else
        step_on_device(z, first);
    gather_parameters(z);
    if (z->host) {
        z12_drop_grads(z, PHASE_OPTIMIZER, false);
        z12_release_bucket(z, PHASE_OPTIMIZER, true);
    }
    ds_pipe_tell_loss(&z->d);
}
