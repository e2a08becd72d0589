/* lower_ds_other_reduce.c -- engine.allreduce_bucket: whole gradients, once a step, in buckets.
 *
 * With AutoEP (_get_gradients_for_reduction) what is no expert comes first, over the data-parallel ranks, then the experts' over the ranks
 * that have the same; both are divided by the data-parallel ranks. */
#include "model/framework/deepspeed_012/lower_ds_other.h"
#include "model/schedule/sharding.h"

/* Of tensors [t0, t1) those of experts, or the others, `elems` elements, that are reduced together: .grad of each, or of BF16_Optimizer
 * the flat fp32 gradients as they are. */
struct bucket { int t0, t1, n; int64_t elems; bool experts; };     /* n of them train */

static bool has(const struct ds_other *o, const struct bucket *b, int t)
{
    return !o->d.m->tensors[t].frozen && (o->belongs[t] > 0) == b->experts;
}

/* In a passing buffer they lie end to end. */
static int bucket_layout(const struct ds_other *o, const struct bucket *b, enum dtype dt)
{
    int layout = sched_layout(o->d.s, 0);
    struct sharding x = { o->d.s, o->d.m->tensors, HOLDS_GRAD, dt, .at = 0 };

    for (int t = b->t0; t < b->t1 && layout; t++)
        if (has(o, b, t))
            sharding_whole(&x, t, 1);
    return layout;
}

static void act_source(const struct ds_other *o, int what, const struct bucket *b)
{
    if (o->bf16)
        sched_act(o->d.s, what, o->hp_grads, 0, 0);
    for (int t = b->t0; t < b->t1 && !o->bf16 && o->d.s->detailed; t++)
        if (has(o, b, t))
            ds_act(&o->d, &o->grads, what, t, 0);
}

/* On a passing buffer; below 0: there is none. */
static void act_bucket(const struct ds_other *o, int what, const struct bucket *b, int buf, enum dtype dt)
{
    if (buf < 0)
        act_source(o, what, b);
    else
        sched_act_as(o->d.s, what, buf, 0, 0, bucket_layout(o, b, dt));
}

static void copy(const struct ds_other *o, const char *what, int64_t reads, int64_t writes, double scale)
{
    sched_copy(o->d.s, STREAM_COMPUTE, PHASE_REDUCE, what, reads, writes);
    sched_does(o->d.s, COPY_SET, scale);
}

/* postscale_gradients: by gradient_predivide_factor before and by the rest after, where they are not 1. */
static void scale(const struct ds_other *o, const struct bucket *b, int buf, double by)
{
    int64_t wire = b->elems * o->d.ce;

    if (by >= 1 && by <= 1)
        return;
    copy(o, "divide", wire, wire, by);
    act_bucket(o, ACT_RW, b, buf, o->d.comm);
}

static void reduce_in(const struct ds_other *o, const struct bucket *b, int buf)
{
    double factor = o->d.p->ds.prescale;

    scale(o, b, buf, 1 / factor);
    sched_coll(o->d.s, STREAM_COMPUTE, PHASE_REDUCE, COLL_ALL_REDUCE, b->experts ? GROUP_EXPERT_DATA : GROUP_DATA, o->d.comm, RED_SUM, b->elems);
    act_bucket(o, ACT_RW, b, buf, o->d.comm);
    scale(o, b, buf, factor / (double)o->d.n);
}

static void reduce_once(struct ds_other *o, const struct bucket *b)
{
    struct ds *d = &o->d;
    enum dtype have = o->bf16 ? o->sum : d->dt;
    int64_t bytes = b->elems * dtype_bytes(have), wire = b->elems * d->ce;
    int flat = -1, cast = -1;

    if (!o->bf16 && b->n > 1) {
        flat = ds_scratch(d, CAT_BUCKET, "flattened gradients", round512(bytes));
        copy(o, "flatten", bytes, bytes, 1);
        act_source(o, ACT_R, b);
        act_bucket(o, ACT_ALLOC | ACT_WRITE, b, flat, have);
    }
    if (d->comm != have) {
        cast = ds_scratch(d, CAT_BUCKET, "gradients on the wire", round512(wire));
        copy(o, "cast", bytes, wire, 1);
        act_bucket(o, ACT_R, b, flat, have);
        act_bucket(o, ACT_ALLOC | ACT_WRITE, b, cast, d->comm);
    }
    reduce_in(o, b, cast >= 0 ? cast : flat);
    if (cast >= 0) {
        copy(o, "cast back", wire, bytes, 1);
        act_bucket(o, ACT_W, b, flat, have);
        act_bucket(o, ACT_READ | ACT_FREE, b, cast, d->comm);
    }
    copy(o, "copy back", bytes, bytes, 1);
    if (flat >= 0) {
        act_source(o, ACT_W, b);
        act_bucket(o, ACT_READ | ACT_FREE, b, flat, have);
    } else {                        /* DeepSpeed copies it onto itself */
        sched_does(d->s, COPY_NOTHING, 1);
        act_source(o, ACT_USE, b);
    }
}

/* allreduce_no_retain(): in registration order. */
static void reduce_kind(struct ds_other *o, bool experts)
{
    const struct model *m = o->d.m;
    struct bucket b = { .experts = experts };

    while (b.t1 < m->ntensors) {
        int t = b.t1++;
        bool in = has(o, &b, t);
        b.n += in;
        b.elems += in ? m->tensors[t].numel : 0;
        if (b.n > 0 && (b.elems > o->d.p->limits.ds_allreduce || b.t1 == m->ntensors)) {
            reduce_once(o, &b);
            b = (struct bucket){ .t0 = b.t1, .t1 = b.t1, .experts = experts };
        }
    }
}

void ds_other_reduce(struct ds_other *o)
{
    const struct model *m = o->d.m;

    if (o->bf16) {                  /* one tensor: the flat fp32 gradients */
        reduce_once(o, &(struct bucket){ 0, m->ntensors, m->ntrainable, o->flat_numel, false });
        return;
    }
    reduce_kind(o, false);
    if (o->ngroups > 1)
        reduce_kind(o, true);
}
