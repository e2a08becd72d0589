/* lower_ds_other.c -- DeepSpeed's stage 0 and BF16_Optimizer: whole gradients in
 * .grad on every rank, reduced after the last micro-step's backward.
 *
 * Stage 0 in 16 bits is FP16_Optimizer (runtime/fp16/fused_optimizer.py), since the
 * configuration's "AdamW" is FusedAdam; in fp32 it is FusedAdam alone.
 * BF16_Optimizer is runtime/bf16_optimizer.py.  All of DeepSpeed 0.19.6. */
#include "model/framework/deepspeed_012/lower_ds_other.h"

#include <stdlib.h>

/* ---- micro-steps ---- */

static void begin(void *other) { ds_pipe_begin(&((struct ds_other *)other)->d); }

/* Where .grad exists, the head's part of a tied weight's gradient is kept beside it until the embedding's is there: its kernel is an entry. */
static void begin_pass(void *other)
{
    struct ds_other *o = other;
    struct walk *w = &o->d.walk;

    ds_begin_pass(o);
    if (w->forward)
        return;
    o->add = walk_is_stage(w) ? stage_ports_passed(&w->ports, PIPE_BACKWARD, 0) > 0 : !w->first;
    w->cuts = o->add && o->d.tied_kernel >= 0;
    w->fate = o->add ? GRADS_DROP : GRADS_KEEP;
}

static bool cut(void *other, const struct walk_run *r, int k)
{
    const struct ds_other *o = other;

    (void)r;
    return k == o->d.tied_kernel - 1 || k == o->d.tied_kernel;
}

static void pre_run(void *other, const struct walk_run *r)
{
    struct ds_other *o = other;

    ds_pipe_before(&o->d, r);
    if (o->d.walk.cuts)
        o->d.walk.fate = r->k0 == o->d.tied_kernel ? GRADS_KEEP : GRADS_DROP;
}

static void leave_grads(const struct ds_other *o, const struct walk_run *r)
{
    const struct ds *d = &o->d;
    bool ties = r->piece == PIECE_HEAD && d->tied_kernel >= r->k0 && d->tied_kernel < r->k1;

    if (ties && o->add)
        sched_act(d->s, ACT_ALLOC, o->partial, 0, 0);
    else if (ties)
        ds_act(d, &o->grads, ACT_ALLOC, d->tied, 0);
    for (int i = 0; i < d->nready[r->piece]; i++) {
        const struct ds_ready *x = &d->ready[r->piece][i];
        if (x->kernel >= r->k0 && x->kernel < r->k1)
            ds_act_by(d, &o->grads, o->add ? ACT_A : x->tensor == d->tied ? ACT_W : ACT_ALLOC | ACT_WRITE, ds_handed(d, r->piece, r->block, x), r->by);
    }
}

static void compute(void *other, const struct walk_run *r)
{
    const struct ds_other *o = other;

    ds_reads_frozen(&o->d);
    sched_act(o->d.s, ACT_R, o->flat, 0, 0);
    if (!r->forward)
        leave_grads(o, r);
}

static void post_run(void *other, const struct walk_run *r)
{
    struct ds_other *o = other;

    if (!r->forward && r->piece == PIECE_EMBED && o->d.tied >= 0 && o->add)
        sched_act(o->d.s, ACT_FREE, o->partial, 0, 0);
    ds_leaves(&o->d, r);
    ds_pipe_after(&o->d, r);
    o->d.walk.cuts &= !r->ends;         /* the head alone */
}

/* backward_prologue: clear_lp_grads zeroes. */
static void pre_backward(void *other, struct at root)
{
    struct ds_other *o = other;

    (void)root;
    if (!o->bf16 || !o->add)
        return;
    sched_copy(o->d.s, STREAM_COMPUTE, PHASE_BACKWARD, "zero gradients", 0, ds_other_grad_bytes(o));
    sched_does(o->d.s, COPY_ZERO, 0);
    ds_act_all(&o->d, &o->grads, ACT_W);
}

/* update_hp_grads: one gradient after the other, through an fp32 copy. */
static void update_sums(struct ds_other *o)
{
    struct schedules *s = o->d.s;
    int64_t trained = o->d.m->trainable;

    if (o->sum == o->d.dt) {
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to gradients", ds_other_grad_bytes(o) + o->se * trained, o->se * trained);
        sched_does(s, COPY_ADD, 1);
    } else {
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to fp32 gradients", ds_other_grad_bytes(o) + 12 * trained, 8 * trained);
        sched_does(s, COPY_ADD, 1);
        sched_act(s, ACT_ALLOC | ACT_FREE, o->hp_temp, 0, 0);
    }
    sched_act(s, ACT_A, o->hp_grads, 0, 0);
    ds_act_all(&o->d, &o->grads, ACT_R);
}

static void post_backward(void *other, struct at root)
{
    struct ds_other *o = other;

    (void)root;
    if (o->bf16)
        update_sums(o);
    ds_pipe_end_of_backward(&o->d);
}

/* PipelineEngine's ReduceTiedGrads. */
static void sum_tied(struct ds_other *o)
{
    for (int t = 0; t < o->d.m->ntensors; t++)
        if (ds_is_shared(&o->d, t)) {
            ds_pipe_sum_tied(&o->d, t, o->bf16 ? o->sum : o->d.dt);
            if (o->bf16)
                sched_act(o->d.s, ACT_RW, o->hp_grads, 0, 0);
            else
                ds_act(&o->d, &o->grads, ACT_RW, t, 0);
        }
}

static void end_of_backward(void *other)
{
    sum_tied(other);
    ds_other_reduce(other);
}

static void optimizer(void *other)
{
    struct ds_other *o = other;

    ds_other_step(o, o->d.walk.step == SCHED_FIRST);
    ds_pipe_tell_loss(&o->d);
}

static const struct walk_hooks hooks = {
    .init = ds_other_init, .begin = begin, .end_of_backward = end_of_backward, .optimizer = optimizer, .begin_pass = begin_pass,
    .end_of_pass = ds_pipe_end_of_pass, .pre_backward = pre_backward, .post_backward = post_backward, .compute = compute, .pre_run = pre_run,
    .post_run = post_run, .cut = cut, .pre_stage_act = ds_pipe_pre_act, .stage_act = ds_pipe_act, .grads = CAT_GRADS,
};

/* ---- the whole ---- */

static int lower_other(struct ds_other *o, const struct local_model *local, struct schedules *s)
{
    int64_t padded = 0, part = 0;
    int rc = ds_init(&o->d, local, s, &hooks);

    if (rc == 0)
        rc = ds_other_make_groups(o);
    if (rc == 0) {
        o->sum = local->plan->ds.grad_accum_fp32 ? DT_FP32 : o->d.dt;
        o->se = dtype_bytes(o->sum);
        ds_other_declare(o);
        ds_pipe_declare(&o->d);
        for (int g = 0; g < o->ngroups; g++)
            padded += o->group[g].padded, part += o->group[g].part;
        sched_unit(s, "model", 0, o->d.m->trainable, padded, part);
        rc = walk_steps(&o->d.walk);
    }
    ds_free(&o->d);
    ds_undeclare(&o->grads);
    free(o->group);
    free(o->belongs);
    free(o->start);
    return rc;
}

int lower_ds_stage0(const struct local_model *local, struct schedules *s)
{
    struct ds_other o = { .bf16 = false };

    if (local->plan->parallel.context > 1)      /* _reduce_non_expert_gradients() divides by world / sequence_parallel_size */
        sched_note(s, "with parallel.context stage 0 of DeepSpeed leaves gradients context times as large as the mean; the schedule has the mean");
    return lower_other(&o, local, s);
}

int lower_ds_bf16(const struct local_model *local, struct schedules *s)
{
    struct ds_other o = { .bf16 = true };

    if (local->plan->strategy == STRAT_DDP)
        sched_note(s, "in bf16 a pipeline at stage 0 takes BF16_Optimizer too: the optimizer's states are cut over the data-parallel ranks, and "
                      "gradients are added up in bf16");
    else
        sched_note(s, "BF16_Optimizer keeps the fp32 gradients of the whole model on every rank");
    return lower_other(&o, local, s);
}
