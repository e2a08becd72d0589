/* lower_zero3_reduce.c -- stage 3's gradient bucket:
 * reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket,
 * __avg_scatter_grads, reduce_scatter_coalesced and partition_grads. */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <stdlib.h>

/* All gradients of a bucket are reduced among the same ranks. */
static bool has_others(const struct z3 *z, int t)
{
    int with = z->nbucket > 0 ? z->bucket[0] : z->npending > 0 ? z->pending[0] : t;

    return z3_cut_of(z, with) != z3_cut_of(z, t);
}

bool z3_flushes(const struct z3 *z, int t, int64_t waiting)
{
    int64_t elements = z->elements + waiting;

    return elements > 0 && (has_others(z, t) || elements + z3_numel(z, t) > z->d.p->ds.reduce_bucket_size);
}

static const struct z3_cut *bucket_cut(const struct z3 *z) { return z3_cut_of(z, z->bucket[0]); }

static bool is_copied(const struct z3 *z, int64_t elements, int t)
{
    return z->d.p->ds.contiguous_gradients && elements + z3_numel(z, t) <= z->d.p->ds.reduce_bucket_size;
}

/* The bucket with n gradients from element `at` on: all are copied, or none (one that is larger
 * than the bucket is alone). */
static int in_bucket(const struct z3 *z, const int *tensors, int n, int64_t at)
{
    return z3_whole(z, HOLDS_GRAD, z->d.comm, tensors, n, at, 1);
}

/* One copy for n gradients that fit; a larger one stays what it is. */
void z3_add_grads(struct z3 *z, const int *tensors, int n)
{
    struct ds *d = &z->d;
    int64_t elems = 0, at = z->elements;
    struct op *o;

    for (int i = 0; i < n; i++) {
        if (is_copied(z, at, tensors[i]))
            elems += z3_numel(z, tensors[i]);
        at += z3_numel(z, tensors[i]);
    }
    if (elems > 0) {
        o = sched_copy(d->s, z->reduce_stream, PHASE_BACKWARD, "copy into bucket", elems * d->e,
                       elems * d->ce);
        o->after = z->overlap ? AFTER(STREAM_COMPUTE) : 0;
        sched_does(d->s, COPY_SET, 1);
        sched_act_as(d->s, ACT_W, z->ipg, 0, 0, in_bucket(z, tensors, n, z->elements));
    }
    for (int i = 0; i < n; i++) {
        int t = tensors[i];
        if (is_copied(z, z->elements, t) && z->grad_live[t]) {
            ds_act(d, &z->grads, ACT_R | ACT_FREE, t, 0);
            z->grad_live[t] = 0;
        }
        z->bucket[z->nbucket++] = t;
        z->elements += z3_numel(z, t);
    }
}

/* ---- the flush ---- */

static void copy(struct z3 *z, const char *what, int64_t reads, int64_t writes)
{
    sched_copy(z->d.s, z->reduce_stream, PHASE_REDUCE, what, reads, writes);
}

static void act_all(struct z3 *z, int what, const struct z3_wire *w)
{
    if (w->buf >= 0)
        sched_act_as(z->d.s, what, w->buf, 0, 0, w->all);
    else
        ds_act(&z->d, &z->grads, what, z->bucket[0], 0);
}

/* Of one tensor: the buffer's own layout, for what reads it holds no other. */
void z3_act_own(struct z3 *z, int what, const struct z3_wire *w)
{
    int t = z->bucket[0];
    int64_t from, n = z3_part(z, t, &from);

    if (w->buf >= 0)
        sched_act_as(z->d.s, what, w->buf, 0, 0, w->own);
    else
        ds_act_part(&z->d, &z->grads, what, t, from, n, from * z->d.ce);
}

bool z3_in_buffer(const struct z3 *z) { return !z->grad_live[z->bucket[0]]; }

void z3_drop_kept(struct z3 *z)
{
    for (int i = 0; i < z->nbucket; i++)
        if (z->grad_live[z->bucket[i]]) {
            ds_act(&z->d, &z->grads, ACT_FREE, z->bucket[i], 0);
            z->grad_live[z->bucket[i]] = 0;
        }
}

void z3_keep_parts(struct z3 *z, int64_t parts)
{
    struct ds *d = &z->d;
    int64_t ge = dtype_bytes(z->accum);

    copy(z, z->accumulates ? "add to gradients" : "copy to gradients",
         parts * (z->accumulates ? d->ce + ge : d->ce), parts * ge);
    sched_does(d->s, z->accumulates ? COPY_ADD : COPY_SET, 1);
    sched_act_as(d->s, z->accumulates ? ACT_A : ACT_W, z->grad_buffer, 0, 0,
                 z3_own(z, HOLDS_GRAD, z->accum, z->bucket, z->nbucket, 0));
    if (d->comm != z->accum)
        sched_act(d->s, ACT_ALLOC | ACT_FREE,
                  ds_scratch(d, CAT_TEMPORARIES, "gradient parts cast", round512(parts * ge)), 0, 0);
}

/* partition_grads: this rank's parts become, or are added to, its gradients.  With them goes
 * `cast`, unless it is what they are read from. */
static void keep_parts(struct z3 *z, int64_t parts, const struct z3_wire *w, int cast)
{
    struct ds *d = &z->d;

    if (z->away.states) {
        z3_away_parts(z, w);
        if (w->passing)
            z3_act_own(z, ACT_FREE, w);
        if (cast >= 0 && cast != w->buf)
            sched_act(d->s, ACT_FREE, cast, 0, 0);
        z3_drop_kept(z);
        return;
    }
    z3_keep_parts(z, parts);
    z3_act_own(z, w->passing ? ACT_R | ACT_FREE : ACT_R, w);
    if (cast >= 0 && cast != w->buf)
        sched_act(d->s, ACT_FREE, cast, 0, 0);
    z3_drop_kept(z);
}

int z3_cast_kept(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t elems = 0, bytes = 0;
    int cast;

    if (z3_in_buffer(z) || d->comm == d->dt)
        return -1;
    for (int i = 0; i < z->nbucket; i++) {
        elems += z3_numel(z, z->bucket[i]);
        bytes += round512(z3_numel(z, z->bucket[i]) * d->ce);
    }
    cast = ds_scratch(d, CAT_REDUCE_SCATTER, "gradients on the wire", bytes);
    copy(z, "cast", elems * d->e, elems * d->ce);
    sched_does(d->s, COPY_SET, 1);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, cast, 0, 0,
                 z3_whole(z, HOLDS_GRAD, d->comm, z->bucket, z->nbucket, 0, 512));
    for (int i = 0; i < z->nbucket; i++)
        ds_act(d, &z->grads, ACT_R, z->bucket[i], 0);
    return cast;
}

/* The bucket's gradients, wherever they are. */
static void read_bucket(struct z3 *z, int cast)
{
    struct schedules *s = z->d.s;

    if (cast >= 0)
        sched_act_as(s, ACT_R, cast, 0, 0, z3_whole(z, HOLDS_GRAD, z->d.comm, z->bucket, z->nbucket, 0, 512));
    else if (z3_in_buffer(z))
        sched_act_as(s, ACT_R, z->ipg, 0, 0, in_bucket(z, z->bucket, z->nbucket, 0));
    else
        for (int i = 0; i < z->nbucket; i++)
            ds_act(&z->d, &z->grads, ACT_R, z->bucket[i], 0);
}

/* reduce_scatter_coalesced: concatenated once more, parts of a rank together, unless it is one
 * tensor that needs no padding.  (The tensors of a chunk are sorted there; here they come as in
 * the bucket.) */
static struct z3_wire concatenated(struct z3 *z, int64_t all, int cast)
{
    struct ds *d = &z->d;
    const struct z3_cut *cut = bucket_cut(z);
    struct z3_wire w = { .buf = cast, .own = z3_chunk(z, cut, HOLDS_GRAD, d->comm, z->bucket, z->nbucket) };

    if (z->nbucket == 1 && z3_numel(z, z->bucket[0]) % cut->n == 0) {
        w.all = in_bucket(z, z->bucket, 1, 0);
        if (cast < 0 && z3_in_buffer(z))
            w.buf = z->ipg;
        w.passing = w.buf >= 0 && w.buf != z->ipg;
        return w;
    }
    copy(z, "concatenate parts", z->elements * d->ce, all * d->ce);
    sched_does(d->s, COPY_SET, 1);
    w.buf = ds_scratch(d, CAT_REDUCE_SCATTER, "reduce-scatter buffer", round512(all * d->ce));
    w.all = z3_chunks(z, cut, HOLDS_GRAD, d->comm, z->bucket, z->nbucket);
    w.passing = true;
    read_bucket(z, cast);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, w.buf, 0, 0, w.all);
    return w;
}

/* Averages are taken before the sum. */
static void divide(struct z3 *z, const struct z3_wire *w, int64_t bytes, int64_t by)
{
    copy(z, "divide", bytes, bytes);
    sched_does(z->d.s, COPY_SET, 1.0 / (double)by);
    act_all(z, ACT_RW, w);
}

/* Experts' gradients are averages over all ranks, whose tokens they have (_gradient_averaging_world_size): the parts once more, each
 * multiplied into a tensor of its own. */
static void scale_parts(struct z3 *z, struct z3_wire *w, int64_t parts)
{
    struct ds *d = &z->d;
    int64_t bytes = 0;

    if (bucket_cut(z) == &z->cut)
        return;
    for (int i = 0; i < z->nbucket; i++)
        bytes += round512(z->q[z->bucket[i]] * d->ce);
    copy(z, "scale", parts * d->ce, parts * d->ce);
    sched_does(d->s, COPY_SET, (double)bucket_cut(z)->n / (double)d->n);
    z3_act_own(z, w->passing ? ACT_R | ACT_FREE : ACT_R, w);
    w->buf = ds_scratch(d, CAT_REDUCE_SCATTER, "gradient parts scaled", bytes);
    w->own = z3_parts(z, HOLDS_GRAD, d->comm, z->bucket, z->nbucket);
    w->passing = true;
    sched_act_as(d->s, ACT_ALLOC | ACT_W, w->buf, 0, 0, w->own);
}

static void reduce_scatter(struct z3 *z)
{
    struct ds *d = &z->d;
    const struct z3_cut *cut = bucket_cut(z);
    int64_t parts = 0;
    int cast = z3_cast_kept(z);

    for (int i = 0; i < z->nbucket; i++)
        parts += z->q[z->bucket[i]];
    struct z3_wire w = concatenated(z, parts * cut->n, cast);
    divide(z, &w, parts * cut->n * d->ce, cut->n);
    sched_coll(d->s, z->reduce_stream, PHASE_REDUCE, COLL_REDUCE_SCATTER, cut->among, d->comm, RED_SUM, parts * cut->n)->u.coll.tensors = z->nbucket;
    sched_of(d->s, "bucket", z->nth, 0);
    act_all(z, ACT_R, &w);
    z3_act_own(z, ACT_W, &w);
    scale_parts(z, &w, parts);
    keep_parts(z, parts, &w, cast);
}

/* __avg_scatter_contiguous_grads: reduce_scatter false. */
static void all_reduce(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t bytes = z->elements * d->ce, parts = 0;
    struct z3_wire w = { .buf = z->ipg, .all = in_bucket(z, z->bucket, z->nbucket, 0) };

    w.own = w.all;                  /* every rank has all of it and keeps its parts */
    divide(z, &w, bytes, d->n);
    sched_coll(d->s, z->reduce_stream, PHASE_REDUCE, COLL_ALL_REDUCE, bucket_cut(z)->among, d->comm, RED_SUM, z->elements)->u.coll.tensors = z->nbucket;
    sched_of(d->s, "bucket", z->nth, 0);
    act_all(z, ACT_RW, &w);
    if (d->comm != z->accum) {
        int64_t wide = z->elements * dtype_bytes(z->accum);
        copy(z, "cast", bytes, wide);
        sched_does(d->s, COPY_SET, 1);
        act_all(z, ACT_R, &w);
        w.buf = ds_scratch(d, CAT_REDUCE_SCATTER, "gradients cast", round512(wide));
        w.own = z3_whole(z, HOLDS_GRAD, z->accum, z->bucket, z->nbucket, 0, 1);
        w.passing = w.cast = true;
        sched_act_as(d->s, ACT_ALLOC | ACT_W, w.buf, 0, 0, w.own);
    }
    for (int i = 0; i < z->nbucket; i++)
        parts += z->q[z->bucket[i]];
    keep_parts(z, parts, &w, -1);
}

/* __reduce_and_partition_ipg_grads. */
void z3_flush(struct z3 *z)
{
    if (z->nbucket == 0)
        return;
    z3_ring_wait(z, &z->reduced, PHASE_REDUCE);
    if (z->overlap) {
        struct op *o = sched_op(z->d.s, OP_MEMORY, z->reduce_stream, PHASE_REDUCE, "await gradients");
        o->after = AFTER(STREAM_COMPUTE);
    }
    if (z->d.p->ds.contiguous_gradients && !z->d.p->ds.reduce_scatter &&
        z->elements <= z->d.p->ds.reduce_bucket_size)
        all_reduce(z);
    else if (z->int4.nodes > 0)
        z3_int4_flush(z);
    else
        reduce_scatter(z);
    z3_ring_record(z, &z->reduced, true);
    z->nbucket = 0;
    z->elements = 0;
    z->nth++;
}
