/* lower_zero3_reduce.c -- stage 3's gradient bucket:
 * reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket,
 * __avg_scatter_grads, reduce_scatter_coalesced and partition_grads. */
#include "model/lower_zero3.h"

#include <stdlib.h>

static int64_t numel(const struct z3 *z, int t) { return z->d.m->tensors[t].numel; }

bool z3_flushes(const struct z3 *z, int t, int64_t waiting)
{
    int64_t elements = z->elements + waiting;

    return elements > 0 && elements + numel(z, t) > z->d.p->ds.reduce_bucket_size;
}

static bool is_copied(const struct z3 *z, int64_t elements, int t)
{
    return z->d.p->ds.contiguous_gradients && elements + numel(z, t) <= z->d.p->ds.reduce_bucket_size;
}

/* One copy for n gradients that fit; a larger one stays what it is. */
void z3_add_grads(struct z3 *z, const int *tensors, int n)
{
    struct ds *d = &z->d;
    int64_t elems = 0, at = z->elements;
    struct op *o;

    for (int i = 0; i < n; i++) {
        if (is_copied(z, at, tensors[i]))
            elems += numel(z, tensors[i]);
        at += numel(z, tensors[i]);
    }
    if (elems > 0) {
        o = sched_copy(d->s, z->reduce_stream, PHASE_BACKWARD, "copy into bucket", elems * d->e, elems * d->ce);
        o->after = z->overlap ? AFTER(STREAM_COMPUTE) : 0;
        sched_act(d->s, ACT_USE, z->ipg, 0, 0);
    }
    for (int i = 0; i < n; i++) {
        int t = tensors[i];
        if (is_copied(z, z->elements, t) && z->grad_live[t]) {
            ds_act(d, &z->grads, ACT_USE | ACT_FREE, t, 0);
            z->grad_live[t] = 0;
        }
        z->bucket[z->nbucket++] = t;
        z->elements += numel(z, t);
    }
}

/* ---- the flush ---- */

static void copy(struct z3 *z, const char *what, int64_t reads, int64_t writes)
{
    sched_copy(z->d.s, z->reduce_stream, PHASE_REDUCE, what, reads, writes);
}

/* partition_grads: this rank's parts become, or are added to, its gradients. */
static void keep_parts(struct z3 *z, int64_t parts, int cat, int cast)
{
    struct ds *d = &z->d;
    int64_t ge = dtype_bytes(z->accum);

    copy(z, z->accumulates ? "add to gradients" : "copy to gradients",
         parts * (z->accumulates ? d->ce + ge : d->ce), parts * ge);
    sched_act(d->s, ACT_USE, z->grad_buffer, 0, 0);
    if (d->comm != z->accum)
        sched_act(d->s, ACT_ALLOC | ACT_FREE,
                  ds_scratch(d, CAT_TEMPORARIES, "gradient parts cast", round512(parts * ge)), 0, 0);
    if (cat >= 0)
        sched_act(d->s, ACT_FREE, cat, 0, 0);
    if (cast >= 0)
        sched_act(d->s, ACT_FREE, cast, 0, 0);
    for (int i = 0; i < z->nbucket; i++)
        if (z->grad_live[z->bucket[i]]) {
            ds_act(d, &z->grads, ACT_FREE, z->bucket[i], 0);
            z->grad_live[z->bucket[i]] = 0;
        }
}

/* Gradients that were not copied into the bucket, in the dtype of the wire. */
static int cast_kept(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t elems = 0, bytes = 0;
    int cast;

    for (int i = 0; i < z->nbucket; i++)
        if (z->grad_live[z->bucket[i]]) {
            elems += numel(z, z->bucket[i]);
            bytes += round512(numel(z, z->bucket[i]) * d->ce);
        }
    if (elems == 0 || d->comm == d->dt)
        return -1;
    cast = ds_scratch(d, CAT_REDUCE_SCATTER, "gradients on the wire", bytes);
    copy(z, "cast", elems * d->e, elems * d->ce);
    sched_act(d->s, ACT_ALLOC, cast, 0, 0);
    return cast;
}

/* reduce_scatter_coalesced: concatenated once more, parts of a rank together,
 * unless it is one tensor that needs no padding. */
static void reduce_scatter(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t parts = 0, all;
    int cat = -1, cast = cast_kept(z);
    bool in_place = z->nbucket == 1 && numel(z, z->bucket[0]) % d->n == 0;

    for (int i = 0; i < z->nbucket; i++)
        parts += z->q[z->bucket[i]];
    all = parts * d->n;
    if (!in_place) {
        copy(z, "concatenate parts", z->elements * d->ce, all * d->ce);
        cat = ds_scratch(d, CAT_REDUCE_SCATTER, "reduce-scatter buffer", round512(all * d->ce));
        if (d->p->ds.contiguous_gradients)
            sched_act(d->s, ACT_USE, z->ipg, 0, 0);
        sched_act(d->s, ACT_ALLOC, cat, 0, 0);
    }
    copy(z, "divide", all * d->ce, all * d->ce);
    ds_coll(d, z->reduce_stream, PHASE_REDUCE, COLL_REDUCE_SCATTER, d->comm, RED_SUM, all);
    sched_of(d->s, "bucket", z->nth, 0);
    if (cat >= 0 || cast >= 0)
        sched_act(d->s, ACT_USE, cat >= 0 ? cat : cast, 0, 0);
    else if (z->grad_live[z->bucket[0]])
        ds_act(d, &z->grads, ACT_USE, z->bucket[0], 0);
    else
        sched_act(d->s, ACT_USE, z->ipg, 0, 0);
    keep_parts(z, parts, cat, cast);
}

/* __avg_scatter_contiguous_grads: reduce_scatter false. */
static void all_reduce(struct z3 *z)
{
    struct ds *d = &z->d;
    int64_t bytes = z->elements * d->ce, parts = 0;
    int cast = -1;

    copy(z, "divide", bytes, bytes);
    sched_act(d->s, ACT_USE, z->ipg, 0, 0);
    ds_coll(d, z->reduce_stream, PHASE_REDUCE, COLL_ALL_REDUCE, d->comm, RED_SUM, z->elements);
    sched_of(d->s, "bucket", z->nth, 0);
    sched_act(d->s, ACT_USE, z->ipg, 0, 0);
    if (d->comm != z->accum) {
        int64_t wide = z->elements * dtype_bytes(z->accum);
        copy(z, "cast", bytes, wide);
        cast = ds_scratch(d, CAT_REDUCE_SCATTER, "gradients cast", round512(wide));
        sched_act(d->s, ACT_ALLOC, cast, 0, 0);
    }
    for (int i = 0; i < z->nbucket; i++)
        parts += z->q[z->bucket[i]];
    keep_parts(z, parts, -1, cast);
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
    else
        reduce_scatter(z);
    z3_ring_record(z, &z->reduced, true);
    z->nbucket = 0;
    z->elements = 0;
    z->nth++;
}
