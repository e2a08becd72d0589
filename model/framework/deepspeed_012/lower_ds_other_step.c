/* lower_ds_other_step.c -- construction and step of FP16_Optimizer, of FusedAdam alone and of BF16_Optimizer. */
#include "model/framework/deepspeed_012/lower_ds_other.h"

#include <stdlib.h>

/* ---- steps ---- */

static struct op *adam(struct ds_other *o, int64_t elems) { return ds_adamw(&o->d, o->d.p, elems); }

static struct op *pass_over(struct ds_other *o, const char *what, int64_t reads, int64_t writes,
                            enum copy_fn fn)
{
    struct op *c = sched_copy(o->d.s, STREAM_COMPUTE, PHASE_OPTIMIZER, what, reads, writes);

    sched_does(o->d.s, fn, 1);
    return c;
}

/* What a model's ranks agree on; under Ulysses the ranks that share positions.  They have the same gradients, of which only the first rank's
 * count in the sum: it stays what it is. */
static void among_model(const struct ds_other *o, enum dtype t, enum red_op red)
{
    const struct ds *d = &o->d;

    if (d->p->parallel.context <= 1) {
        ds_among_model(d, t, red);
        return;
    }
    sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_CONTEXT, t, red, 1);
    sched_moves(d->s, red == RED_MAX ? OF_OVERFLOW : OF_META);
}

static int64_t largest_bytes(const struct ds *d)
{
    int64_t most = 0;

    for (int t = 0; t < d->m->ntensors; t++)
        if (!d->m->tensors[t].frozen && ds_tensor_bytes(d, &d->m->tensors[t]) > most)
            most = ds_tensor_bytes(d, &d->m->tensors[t]);
    return most;
}

/* torch's AdamW with foreach has square roots of all parameters at once, each a tensor. */
static void adamw_temporaries(struct ds_other *o)
{
    struct ds *d = &o->d;

    if (d->p->optimizer != OPTIMIZER_ADAMW || d->p->optimizer_form != OPTIMIZER_FOREACH)
        ds_adamw_temporaries(d, d->p, largest_bytes(d));
    else
        sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch_of_all(d, CAT_TEMPORARIES, "AdamW's temporaries"), 0, 0);
}

/* FusedAdam, or torch's AdamW on the parameters themselves, alone; utils.clip_grad_norm_, called by the engine. */
static void step_fp32(struct ds_other *o, bool first)
{
    struct ds *d = &o->d;

    if (d->p->clip > 0) {
        pass_over(o, "gradient norm", ds_other_grad_bytes(o), 0, COPY_NORM);
        ds_act_all(d, &o->grads, ACT_R);
        among_model(o, DT_FP32, RED_SUM);
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1);
        sched_moves(d->s, OF_META); /* the average of what all have: it stays what it is */
        pass_over(o, "scale gradients", ds_other_grad_bytes(o), ds_other_grad_bytes(o), COPY_CLIP);
        ds_act_all(d, &o->grads, ACT_RW);
    }
    adam(o, d->m->trainable)->u.optimizer.tensors = d->p->model.ntrainable;
    ds_act_all(d, &o->grads, ACT_R);
    sched_act(d->s, ACT_RW, o->group->params, 0, 0);
    sched_act(d->s, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, o->group->adam, 0, 0);
    adamw_temporaries(o);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    ds_act_all(d, &o->grads, ACT_FREE);
}

/* Has this rank tensors that another one counts in the norm?  _require_avoid_recompute_norm(): of tensor-parallel ranks behind the first
 * what all have whole, of a pipeline's last stage what is tied.  Ranks that share positions are such ranks to it, and have all whole
 * (parallel_state_sp.py: get_model_parallel_rank is get_sequence_parallel_rank). */
static bool leaves_out_of_the_norm(const struct ds *d)
{
    bool tied = false;

    for (int t = 0; t < d->m->ntensors; t++)
        tied |= ds_is_shared(d, t);
    return d->local->share.tensor_rank > 0 || d->local->share.context_rank > 0 || (tied && !d->local->share.embeds);
}

/* get_flattened_grad_norm(): such a rank makes a mask of the flat gradient's length: zeros, their cumulative sum (fp32 both), the mask; then
 * a copy of the gradient without what it hides. */
static void norm_of_flat_gradient(struct ds_other *o, uint8_t guard)
{
    struct schedules *s = o->d.s;
    int64_t p = o->group->elems;

    if (leaves_out_of_the_norm(&o->d)) {
        pass_over(o, "mask of what other ranks count", 12 * p, 9 * p, COPY_NOTHING)->flags = guard;
        sched_act(s, ACT_ALLOC | ACT_FREE, o->mask, 0, 0);
        pass_over(o, "masked gradients", 5 * p, 4 * p, COPY_NOTHING)->flags = guard;
        sched_act(s, ACT_ALLOC | ACT_FREE, o->masked, 0, 0);
    }
    pass_over(o, "gradient norm", 4 * p, 0, COPY_NORM)->flags = guard;
    sched_act(s, ACT_R, o->group->wide_flat, 0, 0);
}

/* get_norm_with_moe_layers(): of all experts' groups one number, summed over the ranks that share the experts out. */
static void norm_of_experts(struct ds_other *o, uint8_t guard)
{
    for (int g = 1; g < o->ngroups; g++) {
        pass_over(o, "gradient norm", 4 * o->group[g].elems, 0, COPY_NORM)->flags = guard;
        sched_act(o->d.s, ACT_R, o->group[g].wide_flat, 0, 0);
    }
    if (o->ngroups > 1) {
        sched_coll(o->d.s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_EXPERT, DT_FP32, RED_SUM, 1)->flags = guard;
        sched_moves(o->d.s, OF_META);
    }
}

/* FP16_Optimizer.step: fp32 copies of a group's gradients, then their concatenation. */
static void flat_fp32_gradient(struct ds_other *o, int group, uint8_t guard)
{
    struct schedules *s = o->d.s;
    const struct ds_other_group *g = &o->group[group];
    int64_t n = g->elems;

    pass_over(o, "gradients to fp32", n * o->d.e, 4 * n, COPY_SET)->flags = guard;
    ds_other_act_grads(o, group, ACT_R);
    sched_act(s, ACT_ALLOC | ACT_WRITE, g->wide_list, 0, 0);
    pass_over(o, "flatten gradients", 4 * n, 4 * n, COPY_SET)->flags = guard;
    sched_act(s, ACT_ALLOC | ACT_WRITE, g->wide_flat, 0, 0);
    sched_act(s, ACT_READ | ACT_FREE, g->wide_list, 0, 0);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop gradients");
    ds_other_act_grads(o, group, ACT_FREE);
}

/* The master's new values into the flat parameters. */
static struct op *update_parameters(struct ds_other *o, const struct ds_other_group *g)
{
    struct ds *d = &o->d;
    struct op *c = pass_over(o, "update parameters", g->part * 4, g->part * d->e, COPY_SET);

    sched_act_as(d->s, ACT_R, g->master, 0, 0, g->master_part);
    sched_act_as(d->s, ACT_W, o->flat, 0, 0, g->flat_part);
    return c;
}

/* CheckOverflow.has_overflow(), which asks the ranks that share experts out. */
static void look_for_overflow(struct ds_other *o)
{
    struct ds *d = &o->d;

    pass_over(o, "look for overflow", ds_other_grad_bytes(o), 0, COPY_OVERFLOW);
    ds_act_all(d, &o->grads, ACT_R);
    if (o->ngroups > 1) {
        sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_EXPERT, DT_UINT8, RED_MAX, 1);
        sched_moves(d->s, OF_OVERFLOW);
    }
    among_model(o, DT_UINT8, RED_MAX);
    struct op *w = sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow");
    w->after = AFTER(STREAM_COMPUTE);
}

static void step_fp16(struct ds_other *o)
{
    struct schedules *s = o->d.s;
    uint8_t guard = o->d.dt == DT_FP16 ? OPF_GUARDED : 0;

    look_for_overflow(o);
    for (int g = 0; g < o->ngroups; g++)
        flat_fp32_gradient(o, g, guard);
    norm_of_flat_gradient(o, guard);
    among_model(o, DT_FP32, RED_SUM);
    norm_of_experts(o, guard);
    for (int g = 0; g < o->ngroups; g++) {
        pass_over(o, "unscale and clip", 4 * o->group[g].elems, 4 * o->group[g].elems, COPY_CLIP)->flags = guard;
        sched_act(s, ACT_RW, o->group[g].wide_flat, 0, 0);
    }
    for (int g = 0; g < o->ngroups; g++) {
        adam(o, o->group[g].elems)->flags = guard;
        sched_act(s, ACT_RW, o->group[g].master, 0, 0);
        sched_act(s, ACT_RW, o->group[g].adam, 0, 0);
        sched_act(s, ACT_R | (o->ngroups == 1 ? ACT_FREE : 0), o->group[g].wide_flat, 0, 0);
    }
    for (int g = 0; g < o->ngroups && o->ngroups > 1; g++)
        ds_memory(&o->d, PHASE_OPTIMIZER, "drop fp32 gradients", ACT_FREE, o->group[g].wide_flat);
    for (int g = 0; g < o->ngroups; g++)
        update_parameters(o, &o->group[g])->flags = guard;
}

/* BF16_Optimizer.step: the norm is local, for every rank has all gradients. */
static void step_bf16(struct ds_other *o, bool first)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    const struct ds_other_group *g = o->group;
    int64_t all = o->se * d->m->trainable;

    pass_over(o, "gradient norm", all, 0, COPY_NORM);
    sched_act(s, ACT_R, o->hp_grads, 0, 0);
    ds_among_model(d, DT_FP32, RED_SUM);
    struct op *w = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read the norm");
    w->after = AFTER(STREAM_COMPUTE);
    if (d->p->clip > 0) {
        pass_over(o, "clip gradients", all, all, COPY_CLIP);
        sched_act(s, ACT_RW, o->hp_grads, 0, 0);
    }
    if (o->sum != DT_FP32) {        /* the partition's, widened for the optimizer */
        pass_over(o, "gradients to fp32", o->se * g->part, 4 * g->part, COPY_SET);
        sched_act_as(s, ACT_R, o->hp_grads, 0, 0, o->hp_part);
        sched_act(s, ACT_ALLOC | ACT_WRITE, g->wide_flat, 0, 0);
    }
    adam(o, g->part);
    if (o->sum != DT_FP32)
        sched_act(s, ACT_READ | ACT_FREE, g->wide_flat, 0, 0);
    else
        sched_act_as(s, ACT_R, o->hp_grads, 0, 0, o->hp_part);
    sched_act(s, ACT_RW, g->master, 0, 0);
    sched_act(s, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, g->adam, 0, 0);
    ds_adamw_temporaries(d, d->p, round512(g->part * 4));
    update_parameters(o, g);
    if (d->n > 1) {
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_GATHER, d->dt, RED_NONE, o->flat_numel);
        sched_act_as(s, ACT_R, o->flat, 0, 0, g->flat_part);
        sched_act(s, ACT_W, o->flat, 0, 0);
    }
    pass_over(o, "zero fp32 gradients", 0, o->se * o->flat_numel, COPY_ZERO);
    sched_act(s, ACT_W, o->hp_grads, 0, 0);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");   /* _take_model_step: to None */
    ds_act_all(d, &o->grads, ACT_FREE);
}

void ds_other_step(struct ds_other *o, bool first)
{
    if (o->bf16)
        step_bf16(o, first);
    else if (o->d.dt == DT_FP32)
        step_fp32(o, first);
    else
        step_fp16(o);
}

/* ---- init ---- */

static void init_copy(struct ds_other *o, const char *what, int64_t reads, int64_t writes)
{
    sched_set(o->d.s, STREAM_COMPUTE, PHASE_INIT, what, reads, writes);
}

/* The partition, cloned in passing, becomes the fp32 master. */
static void widen_master(struct ds_other *o, const struct ds_other_group *g, const char *what)
{
    struct schedules *s = o->d.s;

    init_copy(o, what, g->part * o->d.e, g->part * 4);
    sched_act(s, ACT_ALLOC | ACT_FREE, g->clone, 0, 0);
    sched_act_as(s, ACT_R, o->flat, 0, 0, g->flat_part);
    sched_act_as(s, ACT_ALLOC | ACT_WRITE, g->master, 0, 0, g->master_part);
}

/* FP16_Optimizer.initialize_optimizer_states steps once with a zero gradient.  Its states are zero
 * afterwards; that DeepSpeed thereby counts a step and decays the weights once is not followed: as data
 * the entry does nothing, and the next one says what is in the states. */
static void born_states(struct ds_other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;

    for (int g = 0; g < o->ngroups; g++) {
        ds_memory(d, PHASE_INIT, "zero gradient", ACT_ALLOC | ACT_WRITE, o->group[g].wide_flat);
        s->ops[s->nops - 1].flags = OPF_LOAD;
    }
    for (int g = 0; g < o->ngroups; g++) {
        adam(o, o->group[g].elems);
        sched_act(s, ACT_ALLOC, o->group[g].adam, 0, 0);
        if (o->ngroups == 1)
            sched_act(s, ACT_FREE, o->group[g].wide_flat, 0, 0);
    }
    for (int g = 0; g < o->ngroups && o->ngroups > 1; g++)
        ds_memory(d, PHASE_INIT, "drop zero gradient", ACT_FREE, o->group[g].wide_flat);
    for (int g = 0; g < o->ngroups; g++) {
        ds_memory(d, PHASE_INIT, "zero states", ACT_W, o->group[g].adam);
        s->ops[s->nops - 1].flags = OPF_LOAD;
    }
}

/* The model as it comes to the device. */
static void load_model(const struct ds_other *o)
{
    int *params = malloc((size_t)o->ngroups * sizeof *params);

    if (!params)
        abort();
    for (int g = 0; g < o->ngroups; g++)
        params[g] = o->group[g].params;
    ds_load_model(&o->d, params, o->ngroups, o->belongs);
    free(params);
}

/* FP16_Optimizer's constructor, of a group. */
static void flatten_group(struct ds_other *o, int group)
{
    struct schedules *s = o->d.s;
    const struct ds_other_group *g = &o->group[group];
    int64_t bytes = g->elems * o->d.e;

    init_copy(o, "clone parameters", bytes, bytes);
    sched_act(s, ACT_R, g->params, 0, 0);
    sched_act(s, ACT_ALLOC | ACT_WRITE, g->clones, 0, 0);
    init_copy(o, "flatten parameters", bytes, bytes);
    if (o->ngroups == 1)
        sched_act(s, ACT_ALLOC | ACT_WRITE, o->flat, 0, 0);
    else
        sched_act_as(s, group ? ACT_W : ACT_ALLOC | ACT_WRITE, o->flat, 0, 0, g->flat_part);
    sched_act(s, ACT_READ | ACT_FREE, g->clones, 0, 0);
    sched_act(s, ACT_FREE, g->params, 0, 0);
    widen_master(o, g, "fp32 parameters");
}

static void init_stage0(struct ds_other *o)
{
    struct ds *d = &o->d;

    ds_pipe_construct(d);
    load_model(o);
    for (int g = 0; g < o->ngroups && d->dt != DT_FP32; g++)
        flatten_group(o, g);
    if (d->dt != DT_FP32)
        born_states(o);
    ds_pipe_greet(d);
}

static void init_bf16(struct ds_other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;

    ds_pipe_construct(d);
    load_model(o);
    init_copy(o, "flatten parameters", d->m->trainable * d->e, o->flat_numel * d->e);
    sched_act(s, ACT_ALLOC | ACT_WRITE, o->flat, 0, 0);
    sched_act(s, ACT_READ | ACT_FREE, o->group->params, 0, 0);
    widen_master(o, o->group, "fp32 partition");
    ds_memory(d, PHASE_INIT, "fp32 gradients", ACT_ALLOC | ACT_WRITE, o->hp_grads);
    s->ops[s->nops - 1].flags = OPF_LOAD;
    ds_pipe_greet(d);
}

void ds_other_init(void *other)
{
    struct ds_other *o = other;

    if (o->bf16)
        init_bf16(o);
    else
        init_stage0(o);
}
