/* lower_ds_other.c -- DeepSpeed's stage 0 and BF16_Optimizer: whole gradients in
 * .grad on every rank, reduced after the last micro-step's backward.
 *
 * Stage 0 in 16 bits is FP16_Optimizer (runtime/fp16/fused_optimizer.py), since the
 * configuration's "AdamW" is FusedAdam; in fp32 it is FusedAdam alone.
 * BF16_Optimizer is runtime/bf16_optimizer.py.  All of DeepSpeed 0.19.6. */
#include "model/framework/deepspeed_012/lower_ds_other.h"

#include <stdlib.h>

#include "base/fail.h"

/* ---- micro-steps ---- */

static int64_t grad_bytes(const struct ds_other *o) { return o->d.m->trainable * o->d.e; }

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
            ds_act_by(d, &o->grads, o->add ? ACT_A : x->tensor == d->tied ? ACT_W : ACT_ALLOC | ACT_WRITE,
                      x->tensor + (piece_is_block(r->piece) ? r->block * d->per_block : 0), r->by);
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
    sched_copy(o->d.s, STREAM_COMPUTE, PHASE_BACKWARD, "zero gradients", 0, grad_bytes(o));
    sched_does(o->d.s, COPY_ZERO, 0);
    ds_act_all(&o->d, &o->grads, ACT_W);
}

/* update_hp_grads: one gradient after the other, through an fp32 copy. */
static void update_sums(struct ds_other *o)
{
    struct schedules *s = o->d.s;
    int64_t trained = o->d.m->trainable;

    if (o->sum == o->d.dt) {
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to gradients", grad_bytes(o) + o->se * trained, o->se * trained);
        sched_does(s, COPY_ADD, 1);
    } else {
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to fp32 gradients", grad_bytes(o) + 12 * trained, 8 * trained);
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

/* ---- buffers ---- */

static int64_t wide_bytes(const struct ds *d, const struct tensor *t)
{
    (void)d;
    return round512(4 * t->numel);
}

static int64_t adam_bytes(const struct ds *d, const struct tensor *t) { return 2 * wide_bytes(d, t); }

static int64_t largest(const struct ds *d)
{
    int64_t n = 0;

    for (int t = 0; t < d->m->ntensors; t++)
        if (!d->m->tensors[t].frozen && d->m->tensors[t].numel > n)
            n = d->m->tensors[t].numel;
    return n;
}

static bool is_in(const struct ds_other *o, int group, int t) { return o->belongs[t] == group && !o->d.m->tensors[t].frozen; }

/* Each tensor of a group an allocation of its own. */
static int64_t sum_of(const struct ds_other *o, int group, ds_bytes *bytes)
{
    int64_t sum = 0;

    for (int t = 0; t < o->d.m->ntensors; t++)
        sum += is_in(o, group, t) ? bytes(&o->d, &o->d.m->tensors[t]) : 0;
    return sum;
}

static int apart_layout(const struct ds_other *o, int group, enum holds h, enum dtype dt)
{
    int layout = sched_layout(o->d.s, 0);
    int64_t at = 0;

    for (int t = 0; t < o->d.m->ntensors; t++)
        if (is_in(o, group, t)) {
            sched_slice(o->d.s, h, dt, t, 0, o->d.m->tensors[t].numel, at);
            at += round512(o->d.m->tensors[t].numel * dtype_bytes(dt));
        }
    return layout;
}

/* Where this rank's partition of a group begins in the flat order; stage 0 has all of it. */
static int64_t left_of(const struct ds_other *o, const struct ds_other_group *g) { return g->base + o->d.rank * g->part * o->bf16; }

/* Adam's states: flat, or in fp32 two tensors for each parameter. */
static int adam_layout(const struct ds_other *o, const struct ds_other_group *g, bool fp32)
{
    const struct ds *d = &o->d;
    int layout = sched_layout(d->s, 0);
    int64_t at = 0;

    if (!fp32) {
        ds_flat_slices(d, o->start, HOLDS_EXP_AVG, DT_FP32, left_of(o, g), g->part, 0);
        ds_flat_slices(d, o->start, HOLDS_EXP_AVG_SQ, DT_FP32, left_of(o, g), g->part, round512(g->part * 4));
        return layout;
    }
    for (int t = 0; t < d->m->ntensors; t++) {
        const struct tensor *x = &d->m->tensors[t];
        if (x->frozen)
            continue;
        sched_slice(d->s, HOLDS_EXP_AVG, DT_FP32, t, 0, x->numel, at);
        sched_slice(d->s, HOLDS_EXP_AVG_SQ, DT_FP32, t, 0, x->numel, at + wide_bytes(d, x));
        at += adam_bytes(d, x);
    }
    return layout;
}

static void describe_group(struct ds_other *o, int group, bool fp32)
{
    const struct ds *d = &o->d;
    struct schedules *s = d->s;
    struct ds_other_group *g = &o->group[group];
    int64_t left = left_of(o, g);

    sched_holds(s, g->params, apart_layout(o, group, HOLDS_PARAM, d->dt));
    sched_holds(s, g->clones, apart_layout(o, group, HOLDS_PARAM, d->dt));
    sched_holds(s, g->master, ds_flat(d, o->start, HOLDS_MASTER, DT_FP32, left, g->part, 0));
    sched_holds(s, g->adam, adam_layout(o, g, fp32));
    sched_holds(s, g->wide_list, apart_layout(o, group, HOLDS_GRAD, DT_FP32));
    sched_holds(s, g->wide_flat, ds_flat(d, o->start, HOLDS_GRAD, DT_FP32, left, g->part, 0));
    g->flat_part = ds_flat(d, o->start, HOLDS_PARAM, d->dt, left, g->part, left * d->e);
    g->master_part = ds_flat(d, o->start, HOLDS_PARAM, DT_FP32, left, g->part, 0);
}

static void describe(struct ds_other *o, bool fp32)
{
    const struct ds *d = &o->d;
    int64_t left = left_of(o, o->group);

    if (!fp32)
        sched_holds(d->s, o->flat, ds_flat(d, o->start, HOLDS_PARAM, d->dt, 0, o->flat_numel, 0));
    sched_holds(d->s, o->hp_grads, ds_flat(d, o->start, HOLDS_GRAD, o->sum, 0, o->flat_numel, 0));
    for (int g = 0; g < o->ngroups; g++)
        describe_group(o, g, fp32);
    o->hp_part = ds_flat(d, o->start, HOLDS_GRAD, o->sum, left, o->group->part, left * o->se);
}

static void declare_group(struct ds_other *o, int group, bool fp32)
{
    struct schedules *s = o->d.s;
    struct ds_other_group *g = &o->group[group];

    g->params = sched_buf(s, CAT_PARAMS, fp32 ? "parameters" : "parameters before flattening", NULL, 0, 1, sum_of(o, group, ds_tensor_bytes));
    g->clones = sched_buf(s, CAT_PARAMS, "clones of parameters", NULL, 0, 1, sum_of(o, group, ds_tensor_bytes));
    g->clone = sched_buf(s, CAT_TEMPORARIES, "clone", NULL, 0, 1, round512(g->part * o->d.e));
    g->master = sched_buf(s, CAT_OPTIMIZER, "fp32 parameters", NULL, 0, 1, round512(g->part * 4));
    g->adam = sched_buf(s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", NULL, 0, 1, fp32 ? sum_of(o, group, adam_bytes) : 2 * round512(g->part * 4));
    g->wide_list = sched_buf(s, CAT_TEMPORARIES, "gradients in fp32", NULL, 0, 1, sum_of(o, group, wide_bytes));
    g->wide_flat = sched_buf(s, CAT_TEMPORARIES, "flat fp32 gradients", NULL, 0, 1, round512(g->part * 4));
}

static void declare(struct ds_other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t masked = o->group->padded;
    bool fp32 = d->dt == DT_FP32 && !o->bf16;

    for (int g = 0; g < o->ngroups; g++)
        declare_group(o, g, fp32);
    o->flat = fp32 ? o->group->params : sched_buf(s, CAT_PARAMS, "flat parameters", NULL, 0, 1, round512(o->flat_numel * d->e));
    o->hp_grads = sched_buf(s, CAT_GRADS, o->se == 4 ? "fp32 gradients" : "gradients that are added up", NULL, 0, 1,
                            round512(o->flat_numel * o->se));
    o->mask = sched_buf(s, CAT_TEMPORARIES, "mask, and two sums it is made of", NULL, 0, 1, 2 * round512(4 * (masked + 1)) + round512(masked + 1));
    o->masked = sched_buf(s, CAT_TEMPORARIES, "gradients without what is masked", NULL, 0, 1, round512(4 * masked) + round512(masked + 1));
    o->partial = sched_buf(s, CAT_GRADS, "first part of the tied gradient", NULL, 0, 1,
                           d->tied >= 0 ? ds_tensor_bytes(d, &d->m->tensors[d->tied]) : 0);
    o->hp_temp = sched_buf(s, CAT_TEMPORARIES, "one gradient in fp32", NULL, 0, 1, round512(4 * largest(d)));
    o->grads.trained = true;
    ds_declare(d, &o->grads, CAT_GRADS, "gradient", 1, ds_tensor_bytes);
    ds_hold(d, &o->grads, HOLDS_GRAD, d->dt);
    if (s->detailed)
        describe(o, fp32);
}

/* ---- groups ---- */

void ds_other_act_grads(const struct ds_other *o, int group, int what)
{
    if (o->ngroups == 1) {
        ds_act_all(&o->d, &o->grads, what);
        return;
    }
    for (int t = 0; t < o->d.m->ntensors; t++)
        if (is_in(o, group, t))
            ds_act(&o->d, &o->grads, what, t, 0);
}

/* The flat parameters of all groups are one buffer, each group from a multiple of 512 bytes on, as its own allocation would be. */
static int make_groups(struct ds_other *o)
{
    const struct ds *d = &o->d;
    int64_t at = 0;

    o->belongs = calloc((size_t)d->m->ntensors + 1, sizeof *o->belongs);
    o->start = calloc((size_t)d->m->ntensors + 1, sizeof *o->start);
    o->ngroups = o->belongs ? ds_parameter_groups(d->p, d->m, o->belongs) : 0;
    o->group = calloc((size_t)o->ngroups + 1, sizeof *o->group);
    if (!o->belongs || !o->start || !o->group)
        return fail("out of memory for parameter groups");
    for (int i = 0; i < o->ngroups; i++) {
        struct ds_other_group *g = &o->group[i];
        g->base = at = round_up(at, 512 / d->e);
        for (int t = 0; t < d->m->ntensors; t++)
            if (is_in(o, i, t)) {
                o->start[t] = at;
                at += d->m->tensors[t].numel;
            }
        g->elems = at - g->base;
        g->padded = o->bf16 ? round_up(g->elems, 2 * d->n) : g->elems;
        g->part = o->bf16 ? g->padded / d->n : g->padded;
        at = g->base + g->padded;
    }
    o->flat_numel = at;
    return 0;
}

/* ---- the whole ---- */

static int lower_other(struct ds_other *o, const struct local_model *local, struct schedules *s)
{
    int64_t padded = 0, part = 0;
    int rc = ds_init(&o->d, local, s, &hooks);

    if (rc == 0)
        rc = make_groups(o);
    if (rc == 0) {
        o->sum = local->plan->ds.grad_accum_fp32 ? DT_FP32 : o->d.dt;
        o->se = dtype_bytes(o->sum);
        declare(o);
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
