/* lower_zero12_reduce.c -- the gradient bucket of stages 1 and 2: what
 * reduce_independent_p_g_buckets_and_remove_grads, average_tensor and
 * reduce_ipg_grads of stage_1_and_2.py do. */
#include "model/lower_zero12.h"

#include <stdlib.h>

static int64_t numel(const struct z12 *z, int t) { return z->d.m->tensors[t].numel; }

bool z12_owns(const struct z12 *z, int t)
{
    int64_t left = z->d.rank * z->part;

    return z->start[t] < left + z->part && z->start[t] + numel(z, t) > left;
}

void z12_setup_bucket(struct z12 *z)
{
    if (z->ipg_live || !z->contiguous)
        return;
    ds_memory(&z->d, PHASE_BACKWARD, "allocate bucket", ACT_ALLOC, z->ipg);
    z->ipg_live = true;
    z->index = 0;
}

bool z12_acts(const struct z12 *z, const int *tensors, int n)
{
    int64_t elements = z->elements;

    if (z->contiguous && !z->ipg_live)
        return true;
    for (int i = 0; i < n; i++) {
        elements += numel(z, tensors[i]);
        if (elements > z->bucket_size)
            return true;
    }
    return false;
}

void z12_add(struct z12 *z, int t)
{
    z->bucket[z->nbucket++] = t;
    z->elements += numel(z, t);
    if (z->contiguous && numel(z, t) > z->bucket_size)
        z->large = true;
}

static void free_grad(struct z12 *z, int t)
{
    if (z->live[t])
        ds_act(&z->d, &z->grads, ACT_FREE, t, z->grad_copy);
    z->live[t] = 0;
}

void z12_copy_in(struct z12 *z, const int *tensors, int n)
{
    int64_t bytes = 0;

    if (!z->contiguous || n == 0)
        return;
    for (int i = 0; i < n; i++)
        bytes += numel(z, tensors[i]) * z->d.e;
    sched_copy(z->d.s, STREAM_COMPUTE, PHASE_BACKWARD, "copy into bucket", bytes, bytes);
    sched_act(z->d.s, ACT_USE, z->ipg, z->index, 0);
    for (int i = 0; i < n && !z->wide; i++)     /* its storage is the bucket's from here on */
        free_grad(z, tensors[i]);
}

void z12_hook(struct z12 *z, int t)
{
    z12_setup_bucket(z);
    if (z->elements + numel(z, t) > z->bucket_size) {
        z12_flush(z);
        if (z->overlap && z->contiguous)
            z->index = 1 - z->index;
    }
    z12_add(z, t);
    if (!z->large)
        z12_copy_in(z, &t, 1);
}

/* ---- one collective of a bucket ---- */

static void use_source(struct z12 *z)
{
    if (z->contiguous && !z->large) {
        sched_act(z->d.s, ACT_USE, z->ipg, z->index, 0);
        return;
    }
    for (int i = 0; i < z->nbucket; i++)
        if (z->live[z->bucket[i]])
            ds_act(&z->d, &z->grads, ACT_USE, z->bucket[i], z->grad_copy);
}

static void copy(struct z12 *z, const char *what, int64_t reads, int64_t writes)
{
    sched_copy(z->d.s, z->stream, PHASE_REDUCE, what, reads, writes);
}

/* flatten (torch.cat, unless it is one tensor), cast, reduce, cast back, copy
 * back `own` elements.  rank < 0: all-reduce. */
static void reduce_once(struct z12 *z, bool one_tensor, bool divides, int64_t rank, int64_t elems,
                        int64_t own)
{
    struct ds *d = &z->d;
    int64_t bytes = elems * d->e, wire = elems * d->ce;
    int flat = -1, cast = -1;

    if (!one_tensor) {
        copy(z, "flatten", bytes, bytes);
        flat = ds_scratch(d, CAT_BUCKET, "flattened gradients", round512(bytes));
        use_source(z);
        sched_act(d->s, ACT_ALLOC, flat, 0, 0);
    }
    if (d->comm != d->dt) {
        copy(z, "cast", bytes, wire);
        cast = ds_scratch(d, CAT_BUCKET, "gradients on the wire", round512(wire));
        sched_act(d->s, ACT_ALLOC, cast, 0, 0);
    }
    if (divides)
        copy(z, "divide", wire, wire);
    ds_coll(d, z->stream, PHASE_REDUCE, rank < 0 ? COLL_ALL_REDUCE : COLL_REDUCE, d->comm, RED_SUM, elems);
    sched_of(d->s, "bucket", z->nth, 0);
    if (cast >= 0 || flat >= 0)
        sched_act(d->s, ACT_USE, cast >= 0 ? cast : flat, 0, 0);
    else
        use_source(z);
    if (cast >= 0) {
        copy(z, "cast back", wire, bytes);
        sched_act(d->s, ACT_FREE, cast, 0, 0);
    }
    if (own > 0) {
        copy(z, "copy back", own * d->e, own * d->e);
        use_source(z);
        if (flat >= 0)
            sched_act(d->s, ACT_USE, flat, 0, 0);
    }
    if (flat >= 0) {                /* returned by allreduce_bucket, gone with its caller */
        sched_op(d->s, OP_MEMORY, z->stream, PHASE_REDUCE, "drop copy");
        sched_act(d->s, ACT_FREE, flat, 0, 0);
    }
}

/* ---- slices: who owns what of a bucket ---- */

struct chunk { int64_t owner, elems, own; int slices; };

/* allreduce_and_scatter and allreduce_no_retain: sent as soon as it exceeds a bucket. */
static void send(struct z12 *z, struct chunk *c, bool by_owner)
{
    if (c->elems == 0)
        return;
    if (by_owner && z->overlap)     /* allreduce_and_copy */
        ds_synchronize(&z->d, PHASE_REDUCE, "synchronize");
    reduce_once(z, c->slices == 1, false, by_owner ? c->owner : -1, c->elems, c->own);
    *c = (struct chunk){ .owner = c->owner };
}

static void add_slice(struct z12 *z, struct chunk *c, const struct z12_slice *s, bool by_owner)
{
    c->owner = s->owner;
    c->elems += s->elems;
    c->own += s->owner == z->d.rank ? s->elems : 0;
    c->slices++;
    if (c->elems > z->bucket_size)
        send(z, c, by_owner);
}

static void push_slice(struct z12 *z, int64_t owner, int64_t elems)
{
    if (z->nslices > 0 && z->slices[z->nslices - 1].owner == owner) {
        z->slices[z->nslices - 1].elems += elems;
        return;
    }
    if (z->nslices == z->cap_slices) {
        z->cap_slices = z->cap_slices ? 2 * z->cap_slices : 256;
        z->slices = realloc(z->slices, (size_t)z->cap_slices * sizeof *z->slices);
        if (!z->slices)
            abort();
    }
    z->slices[z->nslices++] = (struct z12_slice){ .owner = owner, .elems = elems, .next = -1 };
}

/* The bucket's gradients cut at the partition boundaries; neighbours in the bucket
 * that have one owner are merged. */
static void find_slices(struct z12 *z)
{
    z->nslices = 0;
    for (int i = 0; i < z->nbucket; i++) {
        int64_t at = z->start[z->bucket[i]], end = at + numel(z, z->bucket[i]);
        while (at < end) {
            int64_t r = at / z->part, to = (r + 1) * z->part < end ? (r + 1) * z->part : end;
            push_slice(z, r, to - at);
            at = to;
        }
    }
}

/* Owners in the order of their first appearance, each with all its slices. */
static void reduce_by_owner(struct z12 *z)
{
    for (int i = 0; i < z->nslices; i++) {          /* owner_last: its last slice + 1 */
        int32_t *last = &z->owner_last[z->slices[i].owner];
        z->slices[i].later = *last > 0;
        if (*last > 0)
            z->slices[*last - 1].next = i;
        *last = i + 1;
    }
    for (int i = 0; i < z->nslices; i++) {
        struct chunk c = { 0 };
        if (z->slices[i].later)
            continue;
        for (int k = i; k >= 0; k = z->slices[k].next)
            add_slice(z, &c, &z->slices[k], true);
        send(z, &c, true);
        z->owner_last[z->slices[i].owner] = 0;
    }
}

/* average_tensor with reduce_scatter: the bucket is divided in place, then its
 * slices go by all-reduce together, or by reduces to their owners. */
static void reduce_slices(struct z12 *z)
{
    int64_t bytes = z->elements * z->d.e;
    struct chunk c = { 0 };

    copy(z, "divide", bytes, bytes);
    use_source(z);
    find_slices(z);
    if (z->owner_last) {
        reduce_by_owner(z);
        return;
    }
    for (int i = 0; i < z->nslices; i++)
        add_slice(z, &c, &z->slices[i], false);
    send(z, &c, false);
}

/* ---- the flush ---- */

/* reduce_ipg_grads: what this rank keeps leaves the bucket, the rest is dropped. */
static void keep_own(struct z12 *z)
{
    struct schedules *s = z->d.s;
    int64_t bytes = 0;

    for (int i = 0; i < z->nbucket; i++)
        if (z->contiguous && z12_owns(z, z->bucket[i]))
            bytes += numel(z, z->bucket[i]) * z->d.e;
    if (bytes > 0) {                /* copy_grads_in_partition: whole tensors */
        copy(z, "keep own gradients", bytes, bytes);
        use_source(z);
        sched_act(s, z->own_live ? ACT_USE : ACT_ALLOC, z->own, z->copy, 0);
        z->own_live = true;
    }
    if (z->wide)
        return;
    for (int i = 0; i < z->nbucket; i++) {
        int t = z->bucket[i];
        bool own = z12_owns(z, t);
        if (!z->live[t] || (own && !z->contiguous))
            continue;
        if (!own && (!z->stage2 || (!z->contiguous && z->overlap))) {
            z->late[z->nlate++] = t;
            continue;
        }
        sched_op(s, OP_MEMORY, z->stream, PHASE_REDUCE, "drop gradient");
        free_grad(z, t);
    }
}

void z12_free_late(struct z12 *z)
{
    if (z->nlate == 0)
        return;
    sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "drop gradients");
    for (int i = 0; i < z->nlate; i++)
        free_grad(z, z->late[i]);
    z->nlate = 0;
}

/* average_tensor: the reduction waits for the bucket, and with overlap_comm compute
 * waits for the previous reduction before the next is issued. */
static void wait_streams(struct z12 *z)
{
    struct op *o;

    if (!z->overlap)
        return;
    if (!z->contiguous) {           /* allreduce_and_copy */
        ds_synchronize(&z->d, PHASE_REDUCE, "synchronize");
        if (z->stage2)
            z12_free_late(z);
        return;
    }
    o = sched_op(z->d.s, OP_MEMORY, STREAM_REDUCE, PHASE_REDUCE, "await gradients");
    o->after = AFTER(STREAM_COMPUTE);
    o = sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await previous bucket");
    o->after = AFTER(STREAM_REDUCE);
}

void z12_flush(struct z12 *z)
{
    if (z->nbucket == 0)
        return;
    wait_streams(z);
    if (!z->contiguous)             /* buffered_reduce_fallback */
        reduce_once(z, z->nbucket == 1, true, -1, z->elements, z->elements);
    else if (!z->d.p->ds.reduce_scatter)
        reduce_once(z, true, true, -1, z->elements, 0);
    else
        reduce_slices(z);
    keep_own(z);
    z->nbucket = 0;
    z->elements = 0;
    z->large = false;
    z->nth++;
}
