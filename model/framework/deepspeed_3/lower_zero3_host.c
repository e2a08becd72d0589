/* lower_zero3_host.c -- stage 3's step where optimizer states are in host memory: overflow, norms, and sub-group after
 * sub-group the update and the new values.  Sub-groups that stay on the device (Twin-Flow) come first, in the same loop.
 *
 * Source: stage3.py of DeepSpeed 0.19.6; functions are named at the entries. */
#include "model/framework/deepspeed_3/lower_zero3.h"

/* has_overflow: isinf(...).any() and isnan(...).any() on the host, one after the other: a byte each. */
void z3_away_overflow(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t bytes = z->all_q * dtype_bytes(z->accum);

    if (d->dt != DT_FP16)
        return;
    sched_copy(d->s, STREAM_HOST, PHASE_OPTIMIZER, "look for overflow", 2 * bytes, 2 * z->all_q);
    sched_does(d->s, COPY_OVERFLOW, 1);
    sched_act(d->s, ACT_R, z->grad_buffer, 0, 0);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch_in(d, SPACE_HOST, CAT_TEMPORARIES, "overflow mask on the host",
                                                        z->all_q), 0, 0);
    z3_block(z, STREAM_HOST, PHASE_OPTIMIZER, "await the host");
    ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_UINT8, RED_MAX, 1);
    sched_moves(d->s, OF_OVERFLOW);
    z3_block(z, STREAM_COMPUTE, PHASE_OPTIMIZER, "read overflow");
}

/* complete_grad_norm_calculation_for_cpu_offload: the sum of a sub-group's norms is read, all-reduced in fp32 and
 * read again.  For the executor the last of these sums carries all norms; the earlier ones move as many bytes. */
void z3_away_norms(struct z3 *z)
{
    struct ds *d = &z->d;
    uint8_t guard = d->dt == DT_FP16 ? OPF_GUARDED : 0;

    for (int i = 0; i < z->ngroups; i++) {
        z3_block(z, STREAM_COMPUTE, PHASE_OPTIMIZER, "read the norm");
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1)->flags |= guard;
        sched_moves(d->s, i + 1 < z->ngroups ? OF_META : OF_NORM);
        z3_block(z, STREAM_COMPUTE, PHASE_OPTIMIZER, "read the sum");
    }
}

static struct op *update(struct z3 *z, enum stream st, const char *what, int64_t reads, int64_t writes, uint8_t guard)
{
    struct op *o = sched_copy(z->d.s, st, PHASE_OPTIMIZER, what, reads, writes);

    o->flags = guard;
    sched_does(z->d.s, COPY_SET, 1);
    return o;
}

/* Both are in one memory: one pass. */
static void values_at_home(struct z3 *z, const struct z3_group *g, uint8_t guard)
{
    update(z, g->host ? STREAM_HOST : STREAM_COMPUTE, "update partitions", g->elems * 4, g->elems * z->d.e, guard);
    sched_act_as(z->d.s, ACT_R, g->p.buf, g->p.at, 0, g->new_values);
    sched_act_as(z->d.s, ACT_W, z->lp, 0, 0, g->part);
}

/* From the host to the device: cast, then copied. */
static void values_up(struct z3 *z, const struct z3_group *g, uint8_t guard)
{
    struct schedules *s = z->d.s;
    int64_t bytes = g->elems * z->d.e;
    bool cast = z->d.dt != DT_FP32;

    if (cast) {
        update(z, STREAM_HOST, "cast new values", g->elems * 4, bytes, guard);
        sched_act_as(s, ACT_R, g->p.buf, g->p.at, 0, g->new_values);
        sched_act_as(s, ACT_ALLOC | ACT_W, g->out, 0, 0, g->narrow_values);
    }
    z3_block(z, STREAM_HOST, PHASE_OPTIMIZER, "await the host");
    update(z, STREAM_COMPUTE, "new values to device", bytes, bytes, guard);
    if (cast)
        sched_act_as(s, ACT_R | ACT_FREE, g->out, 0, 0, g->narrow_values);
    else
        sched_act_as(s, ACT_R, g->p.buf, g->p.at, 0, g->new_values);
    sched_act_as(s, ACT_W, z->lp, 0, 0, g->part);
    z3_block(z, STREAM_COMPUTE, PHASE_OPTIMIZER, "await the new values");
}

/* From the device to the host: copied, then cast. */
static void values_down(struct z3 *z, const struct z3_group *g, uint8_t guard)
{
    struct schedules *s = z->d.s;
    int64_t bytes = g->elems * 4;
    bool cast = z->d.dt != DT_FP32;

    update(z, STREAM_COMPUTE, "new values to host", bytes, bytes, guard);
    sched_act_as(s, ACT_R, g->p.buf, g->p.at, 0, g->new_values);
    if (cast)
        sched_act_as(s, ACT_ALLOC | ACT_W, g->out, 0, 0, g->new_values);
    else
        sched_act_as(s, ACT_W, z->lp, 0, 0, g->part);
    z3_block(z, STREAM_COMPUTE, PHASE_OPTIMIZER, "await the new values");
    if (!cast)
        return;
    update(z, STREAM_HOST, "cast new values", bytes, g->elems * z->d.e, guard);
    sched_act_as(s, ACT_R | ACT_FREE, g->out, 0, 0, g->new_values);
    sched_act_as(s, ACT_W, z->lp, 0, 0, g->part);
    z3_block(z, STREAM_HOST, PHASE_OPTIMIZER, "await the host");
}

/* _reassign_or_swap_out_partitioned_parameters: a copy_ that blocks. */
void z3_away_values(struct z3 *z, const struct z3_group *g, uint8_t guard)
{
    if (!z3_is_flat(z, g))
        z3_files_values(z, g, PHASE_OPTIMIZER, guard);
    else if (g->host == z->away.params)
        values_at_home(z, g, guard);
    else if (g->host)
        values_up(z, g, guard);
    else
        values_down(z, g, guard);
}

/* DeepSpeedCPUAdam on the host's threads, or the backup optimizer, torch's AdamW, on the device: it makes a list of
 * square roots (torch/optim/adam.py, _multi_tensor_adam). */
static void adam(struct z3 *z, const struct z3_group *g, bool first, uint8_t guard)
{
    struct schedules *s = z->d.s;
    int states = first ? ACT_ALLOC | ACT_RW : ACT_RW;
    struct op *o = lower_adamw(s, z->d.p, g->host ? ADAMW_ON_HOST : ADAMW_FOREACH, g->elems);

    o->flags = guard;
    o->u.optimizer.tensors = 1;
    if (g->host)
        o->what = "AdamW on the host";
    sched_act_as(s, ACT_R, g->g.buf, g->g.at, 0, g->wide);
    sched_act_as(s, ACT_RW, g->p.buf, g->p.at, 0, g->as_p);
    if (g->host) {
        sched_act_as(s, states, g->m.buf, g->m.at, 0, g->as_m);
        sched_act_as(s, states, g->v.buf, g->v.at, 0, g->as_v);
    } else {
        sched_act(s, states, g->adam, 0, 0);
    }
    if (!g->host && z->d.p->kernels != KERNELS_DPX)
        sched_act(s, ACT_ALLOC | ACT_FREE, ds_scratch(&z->d, CAT_TEMPORARIES, "square roots", round512(g->elems * 4)),
                  0, 0);
}

/* One sub-group: unscale_and_clip_grads, _optimizer_step, its values. */
void z3_away_update(struct z3 *z, struct z3_group *g, bool first, uint8_t guard)
{
    struct schedules *s = z->d.s;

    if (g->disk) {
        if (first)                  /* born beside the buffers */
            g->m = (struct z3_place){ g->adam, 0 }, g->v = (struct z3_place){ g->adam + 1, 0 };
        z3_disk_in(z, g, first ? Z3_FIRST : Z3_LATER);
    }

    sched_copy(s, g->host ? STREAM_HOST : STREAM_COMPUTE, PHASE_OPTIMIZER, "unscale and clip", g->elems * 4,
               g->elems * 4)->flags = guard;
    sched_does(s, COPY_CLIP, 1);
    sched_act_as(s, ACT_RW, g->g.buf, g->g.at, 0, g->wide);
    adam(z, g, first, guard);
    z3_away_values(z, g, guard);
    if (g->host && z->away.params)
        z3_block(z, STREAM_HOST, PHASE_OPTIMIZER, "await the host");
    if (g->disk)
        z3_disk_out(z, g, first ? Z3_FIRST : Z3_LATER);
}
