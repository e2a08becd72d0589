/* lower_zero3_step.c -- stage 3's step: overflow, norms, sub-group after sub-group. */
#include "model/framework/deepspeed_3/lower_zero3.h"

static void overflow_check(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t bytes = z->all_q * dtype_bytes(z->accum);

    if (d->dt != DT_FP16)
        return;
    /* isinf(...).any() and isnan(...).any(), one after the other: a byte each. */
    sched_copy(d->s, z->reduce_stream, PHASE_OPTIMIZER, "look for overflow", 2 * bytes, 2 * z->all_q);
    sched_does(d->s, COPY_OVERFLOW, 1);
    sched_act(d->s, ACT_R, z->grad_buffer, 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "overflow mask", round512(z->all_q)),
              0, 0);
    struct op *o = ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_UINT8, RED_MAX, 1);
    o->after = AFTER(z->reduce_stream);
    sched_moves(d->s, OF_OVERFLOW);
    ds_among_model(d, DT_UINT8, RED_MAX);
    o = sched_op(d->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow");
    o->after = AFTER(STREAM_COMPUTE);
}

/* Each sub-group's norm is summed over the ranks that share it; an experts' one also over those that share the experts out.  For the executor
 * the last of these sums carries what all sub-groups have added; the earlier ones move as many bytes. */
static void norms(struct z3 *z, uint8_t guard)
{
    struct ds *d = &z->d;
    int64_t ge = dtype_bytes(z->accum);

    for (int i = 0; i < z->ngroups; i++) {
        const struct z3_group *g = &z->groups[i];
        const struct z3_cut *cut = z3_cut_of(z, z->trained[g->first]);
        int64_t largest = 0;
        for (int k = g->first; k < g->last; k++)
            largest = z->q[z->trained[k]] > largest ? z->q[z->trained[k]] : largest;
        sched_copy(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", g->elems * ge, 0)->flags = guard;
        sched_does(d->s, COPY_NORM, 1);
        sched_act_as(d->s, ACT_R, z->grad_buffer, 0, 0, g->grads);
        sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "gradient in fp64",
                                                         round512(largest * 8)), 0, 0);
        sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, cut->among, DT_FP64, RED_SUM, 1)->flags |= guard;
        sched_moves(d->s, i + 1 < z->ngroups ? OF_META : OF_NORM);
        ds_among_model(d, DT_FP64, RED_SUM);
        if (cut == &z->cut)
            continue;
        sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_EXPERT, DT_FP64, RED_SUM, 1)->flags |= guard;
        sched_moves(d->s, OF_META);
    }
}

/* What a sub-group's optimizer reads: where it is among all gradients, or a buffer of its own. */
struct group_grads { int buf, layout; bool passing; };

/* A copy of a sub-group's gradients in a buffer that lives until the update; the one before goes. */
static void move_grads(struct z3 *z, struct group_grads *from, int to, int layout, const char *what,
                       int64_t reads, int64_t writes, uint8_t guard)
{
    struct schedules *s = z->d.s;

    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, what, reads, writes)->flags = guard;
    sched_does(s, COPY_SET, 1);
    sched_act_as(s, ACT_ALLOC | ACT_W, to, 0, 0, layout);
    sched_act_as(s, from->passing ? ACT_R | ACT_FREE : ACT_R, from->buf, 0, 0, from->layout);
    *from = (struct group_grads){ to, layout, true };
}

/* _prepare_sub_group: flattened unless it is one tensor, and in fp32. */
static struct group_grads prepare_grads(struct z3 *z, const struct z3_group *g, uint8_t guard)
{
    struct ds *d = &z->d;
    int64_t bytes = g->elems * dtype_bytes(z->accum);
    struct group_grads r = { z->grad_buffer, g->grads, false };

    if (g->last - g->first > 1)
        move_grads(z, &r, ds_scratch(d, CAT_TEMPORARIES, "flat gradient partition", round512(bytes)), g->flat,
                   "flatten gradients", bytes, bytes, guard);
    if (z->accum != DT_FP32)
        move_grads(z, &r, ds_scratch(d, CAT_TEMPORARIES, "fp32 gradient partition", round512(g->elems * 4)),
                   g->wide, "gradients to fp32", bytes, g->elems * 4, guard);
    return r;
}

/* ... unscale_and_clip_grads, step, _release_sub_group. */
static void update_group(struct z3 *z, const struct z3_group *g, bool first, uint8_t guard)
{
    struct schedules *s = z->d.s;
    struct group_grads r = prepare_grads(z, g, guard);

    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "unscale and clip", g->elems * 4,
               g->elems * 4)->flags = guard;
    sched_does(s, COPY_CLIP, 1);
    sched_act_as(s, ACT_RW, r.buf, 0, 0, r.layout);
    ds_adamw(&z->d, z->d.p, g->elems)->flags = guard;
    sched_act_as(s, ACT_R, r.buf, 0, 0, r.layout);
    sched_act(s, ACT_RW, g->master, 0, 0);
    sched_act(s, first ? ACT_ALLOC | ACT_RW : ACT_RW, g->adam, 0, 0);
    ds_adamw_temporaries(&z->d, z->d.p, round512(g->elems * 4));
    if (first)
        ds_manage_states(&z->d, g->managed);
    z3_away_values(z, g, guard);
    if (r.passing) {
        sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop fp32 gradients")->flags = guard;
        sched_act(s, ACT_FREE, r.buf, 0, 0);
    }
}

void z3_step(struct z3 *z, bool first)
{
    uint8_t guard = z->d.dt == DT_FP16 ? OPF_GUARDED : 0;

    if (z->away.states) {
        z3_away_overflow(z);
        z3_away_norms(z);
    } else {
        overflow_check(z);
        norms(z, guard);
    }
    for (int i = 0; i < z->ngroups; i++)
        if (z->away.states)
            z3_away_update(z, &z->groups[i], first, guard);
        else
            update_group(z, &z->groups[i], first, guard);
    z3_disk_end(z, first);
}
