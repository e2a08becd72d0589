/* lower_zero12_layout.c -- the buffers of stages 1 and 2: how large they are and which elements lie
 * where (of each parameter group: lower_zero12_groups.c).
 *
 *     flat               all parameters in flat order, A elements
 *     partition          flat [r A/N, (r+1) A/N): master, Adam's states, the gradient of the step
 *     own                averaged gradients: whole tensors that touch the partition, end to end; where they are
 *                        accumulated in fp32 by 0.19.8, the partition (_build_compact_grad_partition_buffer)
 *     bucket             gradients end to end in the order in which they were added */
#include "model/framework/deepspeed_012/lower_zero12.h"
#include "model/plan/optimizer_traits.h"

/* ---- what they hold ---- */

/* The buffer `own`: only what is in the partition, where it lies in whole tensors. */
static int own_part(const struct z12 *z)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t from, to;

    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z12_group_of(z, t) == z->of && z12_in_partition(z, t, &from, &to))
            sched_slice(z->d.s, HOLDS_GRAD, z->d.dt, t, from, to - from, z->own_at[t] + from * z->d.e);
    return layout;
}

int z12_own_layout(const struct z12 *z, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);

    for (int i = 0; i < n && layout; i++) {
        int t = tensors ? tensors[i] : i;
        if (z12_owns(z, t))
            sched_slice(z->d.s, HOLDS_GRAD, z->d.dt, t, 0, z12_numel(z, t), z->own_at[t]);
    }
    return layout;
}

int z12_partition(const struct z12 *z, enum holds h, enum dtype t)
{
    return ds_flat(&z->d, z->start, h, t, z12_left(z->of), z->of->part, 0);
}

static void describe_group(struct z12 *z)
{
    struct schedules *s = z->d.s;
    struct z12_group *g = z->of;
    enum dtype dt = z->d.dt;
    int64_t left = z12_left(g);

    sched_holds(s, z->params[g - z->group], ds_apart(&z->d, z->belongs, (int)(g - z->group), HOLDS_PARAM, dt));
    sched_holds(s, g->flat, ds_flat(&z->d, z->start, HOLDS_PARAM, dt, g->base, g->padded, 0));
    g->flat_part = ds_flat(&z->d, z->start, HOLDS_PARAM, dt, left, g->part, (left - g->base) * z->d.e);
    g->lone_part = z12_partition(z, HOLDS_PARAM, dt);
    g->master_part = z12_partition(z, HOLDS_PARAM, DT_FP32);
    sched_holds(s, g->master, z12_partition(z, HOLDS_MASTER, DT_FP32));
    if (!z->host && !g->orthogonal && optimizer_traits(z->d.p->optimizer)->by == BY_TORCH) {
        sched_holds(s, g->adam, z12_partition(z, HOLDS_EXP_AVG, DT_FP32));
        ds_flat_slices(&z->d, z->start, HOLDS_EXP_AVG_SQ, DT_FP32, left, g->part, round512(g->part * 4));
    }
    sched_holds(s, g->flat_grad, z12_partition(z, HOLDS_GRAD, z->wide ? DT_FP32 : dt));
    sched_holds(s, g->wide_grad, z12_partition(z, HOLDS_GRAD, DT_FP32));
    if (z->compact) {
        g->own_part = z12_partition(z, HOLDS_GRAD, DT_FP32);
        sched_holds(s, z->own, g->own_part);
        return;
    }
    g->own_part = own_part(z);
}

static void describe(struct z12 *z)
{
    for (int g = z->ngroups - 1; g >= 0; g--) {
        z->of = &z->group[g];
        describe_group(z);
    }
    if (!z->compact)
        sched_holds(z->d.s, z->own, z12_own_layout(z, NULL, z->d.m->ntensors));
}

void z12_act_own(const struct z12 *z, int what)
{
    const struct ds_families *each = z->of->orthogonal ? &z->updates : &z->grads;
    int64_t from, to;

    if ((z->contiguous || z->compact) && !z->of->orthogonal) {
        if (z->of->nown > 0 || z->compact)
            sched_act_as(z->d.s, what, z->own, 0, 0, z->of->own_part);
        return;
    }
    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z12_group_of(z, t) == z->of && z12_in_partition(z, t, &from, &to))
            ds_act_part(&z->d, each, what, t, from, to - from, from * dtype_bytes(each->dtype));
}

/* ---- declaring them ---- */

static int64_t wide_bytes(const struct ds *d, const struct tensor *t)
{
    (void)d;
    return round512(t->numel * 4);
}

static void declare_group(struct z12 *z, int64_t e)
{
    struct schedules *s = z->d.s;
    struct z12_group *g = z->of;

    g->managed = -1;
    if (!z->host) {
        g->master = sched_buf(s, CAT_OPTIMIZER, "fp32 partition", NULL, 0, 1, round512(g->part * 4));
        if (!g->orthogonal)
            g->adam = ds_states(&z->d, g->part, &g->managed);
    }
    g->pad = sched_buf(s, CAT_GRADS, "zeros beyond the last gradient", NULL, 0, 1, round512(g->own_pad * e));
    g->flat_grad = sched_buf(s, CAT_TEMPORARIES, "flat gradient partition", NULL, 0, 1, round512(g->part * e));
    g->wide_grad = sched_buf(s, CAT_TEMPORARIES, "fp32 gradient partition", NULL, 0, 1, round512(g->part * 4));
}

void z12_declare(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    bool twice = z->stage2 && d->p->accumulation > 1 && !z->compact && !z->host;
    int64_t e = z->wide ? 4 : d->e;

    for (int g = 0; g < z->ngroups; g++) {
        z->params[g] = ds_each_of(d, z->belongs, g, CAT_PARAMS, "parameters before flattening", 1, ds_tensor_bytes);
        z->group[g].flat = sched_buf(s, CAT_PARAMS, "flat parameters", NULL, 0, 1, round512(z->group[g].padded * d->e));
    }
    if (z->host)
        z12_declare_offload(z);
    for (int g = z->ngroups - 1; g >= 0; g--) {
        z->of = &z->group[g];
        declare_group(z, e);
    }
    z->ipg = sched_buf(s, CAT_BUCKET, "gradient bucket", "bucket", 0, z->overlap ? 2 : 1,
                       round512(z->bucket_size * z->be));
    z->own = z->compact ? sched_buf(s, CAT_GRADS, "fp32 gradients of the partition", NULL, 0, 1,
                                    round512(z->of->part * 4))
                        : sched_buf(s, CAT_GRADS, "gradients that touch the partition", NULL, 0, twice ? 2 : 1,
                                    round512(z->own_numel * d->e));
    z->partial = sched_buf(s, CAT_GRADS, "first part of the tied gradient", NULL, 0, 1,
                           d->tied >= 0 ? ds_tensor_bytes(d, &d->m->tensors[d->tied]) : 0);
    ds_declare(d, &z->grads, CAT_GRADS, "gradient", twice && !z->contiguous ? 2 : 1,
               z->wide ? wide_bytes : ds_tensor_bytes);
    ds_hold(d, &z->grads, HOLDS_GRAD, z->wide ? DT_FP32 : d->dt);
    if (z->muon)
        z12_muon_declare(z);
    if (z->wide) {
        ds_declare(d, &z->narrow, CAT_GRADS, "gradient before it is added", 1, ds_tensor_bytes);
        ds_hold(d, &z->narrow, HOLDS_GRAD, d->dt);
    }
    if (s->detailed)
        describe(z);
}
