/* lower_ds_other_layout.c -- buffers, parameter groups and layouts of stage 0 and BF16_Optimizer. */
#include "model/framework/deepspeed_012/lower_ds_other.h"

#include <stdlib.h>

#include "base/fail.h"
#include "model/schedule/sharding.h"

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

/* Two allocations of as many bytes. */
static int pair_of(const struct ds_other *o, enum category cat, const char *what, int64_t bytes)
{
    int buf = sched_buf(o->d.s, cat, what, NULL, 0, 1, 2 * bytes);

    sched_part(o->d.s, buf, bytes);
    sched_part(o->d.s, buf, bytes);
    return buf;
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

    sched_holds(s, g->params, ds_apart(d, o->belongs, group, HOLDS_PARAM, d->dt));
    sched_holds(s, g->clones, ds_apart(d, o->belongs, group, HOLDS_PARAM, d->dt));
    sched_holds(s, g->master, ds_flat(d, o->start, HOLDS_MASTER, DT_FP32, left, g->part, 0));
    sched_holds(s, g->adam, adam_layout(o, g, fp32));
    sched_holds(s, g->wide_list, ds_apart(d, o->belongs, group, HOLDS_GRAD, DT_FP32));
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
    const struct ds *d = &o->d;
    struct schedules *s = d->s;
    struct ds_other_group *g = &o->group[group];

    g->params = ds_each_of(d, o->belongs, group, CAT_PARAMS, fp32 ? "parameters" : "parameters before flattening", 1, ds_tensor_bytes);
    g->clones = ds_each_of(d, o->belongs, group, CAT_PARAMS, "clones of parameters", 1, ds_tensor_bytes);
    g->clone = sched_buf(s, CAT_TEMPORARIES, "clone", NULL, 0, 1, round512(g->part * d->e));
    g->master = sched_buf(s, CAT_OPTIMIZER, "fp32 parameters", NULL, 0, 1, round512(g->part * 4));
    g->adam = fp32 ? ds_each_of(d, o->belongs, group, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", 2, wide_bytes)
                   : pair_of(o, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", round512(g->part * 4));
    g->wide_list = ds_each_of(d, o->belongs, group, CAT_TEMPORARIES, "gradients in fp32", 1, wide_bytes);
    g->wide_flat = sched_buf(s, CAT_TEMPORARIES, "flat fp32 gradients", NULL, 0, 1, round512(g->part * 4));
}

void ds_other_declare(struct ds_other *o)
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
    sched_part(s, o->mask, round512(4 * (masked + 1)));
    sched_part(s, o->mask, round512(4 * (masked + 1)));
    sched_part(s, o->mask, round512(masked + 1));
    o->masked = sched_buf(s, CAT_TEMPORARIES, "gradients without what is masked", NULL, 0, 1, round512(4 * masked) + round512(masked + 1));
    sched_part(s, o->masked, round512(4 * masked));
    sched_part(s, o->masked, round512(masked + 1));
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
int ds_other_make_groups(struct ds_other *o)
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
