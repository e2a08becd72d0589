/* lower_zero12_reduce.c -- the gradient bucket of stages 1 and 2: what
 * reduce_independent_p_g_buckets_and_remove_grads, average_tensor and
 * reduce_ipg_grads of stage_1_and_2.py do. */
#include "base/room.h"
#include "model/framework/deepspeed_012/lower_zero12.h"
#include "model/schedule/sharding.h"

#include <stdlib.h>

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
        elements += z12_numel(z, tensors[i]);
        if (elements > z->bucket_size)
            return true;
    }
    return false;
}

void z12_add(struct z12 *z, int t)
{
    z->bucket[z->nbucket++] = t;
    z->at[t] = z->elements;
    z->elements += z12_numel(z, t);
    if (z->contiguous && z12_numel(z, t) > z->bucket_size)
        z->large = true;
}

static void free_grad(struct z12 *z, int t, int and_what)
{
    if (z->live[t])
        ds_act(&z->d, &z->grads, ACT_FREE | and_what, t, z->grad_copy);
    z->live[t] = Z12_GONE;
}

int z12_in_bucket(const struct z12 *z, const int *tensors, int n)
{
    int layout = sched_layout(z->d.s, 0);

    for (int i = 0; i < n && layout; i++)
        sched_slice(z->d.s, HOLDS_GRAD, z->bt, tensors[i], 0, z12_numel(z, tensors[i]),
                    z->at[tensors[i]] * z->be);
    return layout;
}

/* Gradients that are buffers of their own are copied here; what backward only streams by, its
 * compute entry has put into the bucket. */
void z12_copy_in(struct z12 *z, const int *tensors, int n)
{
    struct schedules *s = z->d.s;
    int64_t bytes = 0;
    int m = 0;

    if (!z->contiguous || n == 0)
        return;
    for (int i = 0; i < n; i++) {
        bytes += z12_numel(z, tensors[i]) * z->be;
        if (z->live[tensors[i]] == Z12_THERE)
            z->there[m++] = tensors[i];
    }
    sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "copy into bucket", bytes, bytes)->flags |= OPF_HOOK;
    sched_kernels(s, n);
    sched_does(s, m ? COPY_SET : COPY_NOTHING, 1);
    sched_act_as(s, m ? ACT_W : ACT_USE, z->ipg, z->index, 0, z12_in_bucket(z, z->there, m));
    for (int i = 0; i < n; i++) {
        bool read = z->live[tensors[i]] == Z12_THERE;
        if (!z->wide || z->compact) /* its storage is the bucket's from here on */
            free_grad(z, tensors[i], read ? ACT_R : 0);
        else if (read)
            ds_act(&z->d, &z->grads, ACT_R, tensors[i], z->grad_copy);
    }
}

/* "clone guarantees independent storage": the gradient's own goes when it is made. */
static void clone_large(struct z12 *z, int t)
{
    int64_t bytes = z12_numel(z, t) * z->be;

    sched_copy(z->d.s, STREAM_COMPUTE, PHASE_BACKWARD, "clone large gradient", bytes, bytes);
    sched_act(z->d.s, ACT_ALLOC | ACT_FREE, ds_scratch(&z->d, CAT_TEMPORARIES, "clone of a large gradient", round512(bytes)), 0,
              0);
}

void z12_hook(struct z12 *z, int t)
{
    z12_setup_bucket(z);
    if (z->elements + z12_numel(z, t) > z->bucket_size) {
        z12_flush(z);
        if (z->overlap && z->contiguous)
            z->index = 1 - z->index;
    }
    z12_add(z, t);
    if (!z->large)
        z12_copy_in(z, &t, 1);
    else if (z->host && z->newer)
        clone_large(z, t);
}

/* ---- one collective of a bucket ---- */

/* Slices of the bucket that are reduced together: from `first` on, one after the other or those of one
 * owner; `own` elements of them return to where they came from; `kept` are in this rank's partition, in
 * slices of one tensor of which the largest is largest_kept. */
struct chunk { int first, slices; bool by_owner; enum group among; int64_t elems, own, kept, largest_kept; };

/* Is this rank among those that get a slice back, by its place in the group that it is reduced over? */
static bool mine(const struct z12 *z, const struct z12_slice *x)
{
    int64_t place = x->among == GROUP_EXPERT_DATA ? z->d.local->expert_data_rank : z->d.rank;

    return x->first <= place && place <= x->last;
}

static int next_slice(const struct z12 *z, const struct chunk *c, int k)
{
    if (c->by_owner)
        return z->slices[k].next;
    for (k++; k < z->nslices && z->slices[k].among != c->among; k++)
        ;
    return k;
}

/* Slices of elements [from, from+n) of the bucket's gradients, the first of them `at` bytes into the
 * buffer. */
static void bucket_slices(struct z12 *z, enum dtype dt, int64_t from, int64_t n, int64_t at)
{
    struct sharding x = { z->d.s, z->d.m->tensors, HOLDS_GRAD, dt, at, from, n, 0 };

    for (int i = 0; i < z->nbucket; i++) {
        x.next = z->at[z->bucket[i]];
        sharding_flat(&x, z->bucket[i]);
    }
}

/* Where a chunk lies in the bucket, or `packed` in a buffer of its own; all of it or this rank's. */
static int chunk_layout(struct z12 *z, const struct chunk *c, enum dtype dt, bool packed, bool only_own)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t at = 0;

    for (int i = 0, k = c->first; i < c->slices && layout; i++, k = next_slice(z, c, k)) {
        const struct z12_slice *x = &z->slices[k];
        if (!only_own || mine(z, x))
            bucket_slices(z, dt, x->at, x->elems, (packed ? at : x->at) * dtype_bytes(dt));
        at += x->elems;
    }
    return layout;
}

/* Act on the chunk where backward left it: in the bucket; in a gradient too large for it, which is
 * laid out as the bucket would be; without a bucket in all its gradients, whole. */
static void act_source(struct z12 *z, int what, const struct chunk *c, bool only_own)
{
    const struct ds *d = &z->d;

    if (z->contiguous) {
        int layout = chunk_layout(z, c, z->large ? z->grads.dtype : z->bt, false, only_own);
        if (z->large)
            ds_act_as(d, &z->grads, what, z->bucket[0], layout);
        else
            sched_act_as(d->s, what, z->ipg, z->index, 0, layout);
        return;
    }
    for (int i = 0; i < z->nbucket; i++)
        if (z->live[z->bucket[i]])
            ds_act(d, &z->grads, what, z->bucket[i], z->grad_copy);
}

/* The same in passing buffer `buf`; below 0: there is none. */
static void act_chunk(struct z12 *z, int what, const struct chunk *c, int buf, enum dtype dt)
{
    if (buf < 0)
        act_source(z, what, c, false);
    else
        sched_act_as(z->d.s, what, buf, 0, 0, chunk_layout(z, c, dt, true, false));
}

static void copy(struct z12 *z, const char *what, int64_t reads, int64_t writes, double scale)
{
    sched_copy(z->d.s, z->stream, PHASE_REDUCE, what, reads, writes);
    sched_does(z->d.s, COPY_SET, scale);
}

/* A chunk on its way: what it is multiplied with before and after the reduction (1: no such pass), and
 * its root (below 0: all-reduce). */
struct journey { const struct chunk *c; double before, after; int64_t root; };

static void scale(struct z12 *z, const struct chunk *c, int buf, double by)
{
    int64_t wire = c->elems * z->d.ce;

    if (by >= 1 && by <= 1)
        return;
    copy(z, "divide", wire, wire, by);
    act_chunk(z, ACT_RW, c, buf, z->d.comm);
}

/* Scale, reduce, scale: on the chunk in `buf`. */
static void reduce_in(struct z12 *z, const struct journey *j, int buf)
{
    struct ds *d = &z->d;

    scale(z, j->c, buf, j->before);
    sched_coll(d->s, z->stream, PHASE_REDUCE, j->root < 0 ? COLL_ALL_REDUCE : COLL_REDUCE, j->c->among, d->comm, RED_SUM, j->c->elems);
    if (j->root >= 0)
        sched_root(d->s, (int)j->root);
    sched_of(d->s, "bucket", z->nth, 0);
    act_chunk(z, ACT_RW, j->c, buf, d->comm);
    scale(z, j->c, buf, j->after);
}

/* This rank's elements return to where they came from, out of passing buffer `buf`. */
static void copy_back(struct z12 *z, const struct chunk *c, int buf, enum dtype dt)
{
    if (c->own == 0)
        return;
    copy(z, "copy back", c->own * dtype_bytes(dt), c->own * z->be, 1);
    if (buf >= 0) {
        act_source(z, ACT_W, c, true);
        act_chunk(z, ACT_R, c, buf, dt);
    } else {                        /* DeepSpeed copies it onto itself */
        sched_does(z->d.s, COPY_NOTHING, 1);
        act_source(z, ACT_USE, c, true);
    }
}

/* get_gradient_for_reduction: an fp32 sum is not reduced itself, but a copy in the model's dtype. */
static bool reduces_copy(const struct z12 *z)
{
    return z->wide && !z->compact && (z->large || !z->contiguous);
}

/* ---- accumulation in this rank's fp32 partition (0.19.8) ---- */

void z12_build_partition(struct z12 *z, enum stream stream)
{
    sched_copy(z->d.s, stream, PHASE_REDUCE, "zero fp32 partition", 0, z->of->part * 4);
    sched_does(z->d.s, COPY_ZERO, 0);
    sched_act(z->d.s, ACT_ALLOC | ACT_WRITE, z->own, 0, 0);
    z->own_live = true;
}

/* What a chunk's kept elements are in `own`. */
static int kept_layout(struct z12 *z, const struct chunk *c)
{
    int layout = sched_layout(z->d.s, 0);
    int64_t left = z12_left(z->of), from, to;

    for (int i = 0, k = c->first; i < c->slices && layout; i++, k = next_slice(z, c, k))
        for (int b = 0; b < z->nbucket && z->slices[k].owner == z->d.rank; b++) {
            const struct z12_slice *x = &z->slices[k];
            int t = z->bucket[b];
            if (!z12_in_partition(z, t, &from, &to))
                continue;
            from = x->at - z->at[t] > from ? x->at - z->at[t] : from;
            to = x->at + x->elems - z->at[t] < to ? x->at + x->elems - z->at[t] : to;
            if (from < to)
                sched_slice(z->d.s, HOLDS_GRAD, DT_FP32, t, from, to - from, (z->start[t] + from - left) * 4);
        }
    return layout;
}

/* _add_to_grad_partition_buffer: what was reduced in `buf` (below 0: where backward left it), one slice
 * after the other through an fp32 copy. */
static void add_to_partition(struct z12 *z, const struct chunk *c, int buf)
{
    bool widens = z->d.comm != DT_FP32;
    int64_t wide = c->kept * 4;

    if (!z->compact || c->kept == 0)
        return;
    if (!z->own_live)
        z12_build_partition(z, z->stream);
    copy(z, "add to fp32 partition", c->kept * z->d.ce + wide * (1 + widens), wide * (1 + widens), 1);
    sched_does(z->d.s, COPY_ADD, 1);
    if (widens)
        sched_act(z->d.s, ACT_ALLOC | ACT_FREE, ds_scratch(&z->d, CAT_TEMPORARIES, "one slice in fp32",
                                                           round512(c->largest_kept * 4)), 0, 0);
    act_chunk(z, ACT_R, c, buf, z->d.comm);
    sched_act_as(z->d.s, ACT_A, z->own, 0, 0, kept_layout(z, c));
}

/* ---- the journey ---- */

static void drop_copy(struct z12 *z, int buf)
{
    sched_op(z->d.s, OP_MEMORY, z->stream, PHASE_REDUCE, "drop copy");
    sched_act(z->d.s, ACT_FREE, buf, 0, 0);
}

/* flatten (torch.cat, unless it is one tensor), cast, reduce, cast back, copy back.  0.19.8 returns what
 * was reduced, so that fp32 on the wire reaches the partition; before, it was what the result was cast
 * back to. */
static void reduce_once(struct z12 *z, struct journey j, bool one_tensor)
{
    struct ds *d = &z->d;
    const struct chunk *c = j.c;
    int64_t bytes = c->elems * z->be, wire = c->elems * d->ce;
    int flat = -1, cast = -1, reduced;      /* buffers; below 0: none */
    enum dtype dt = z->bt;                  /* of what was reduced */

    if (!one_tensor || reduces_copy(z)) {
        flat = ds_scratch(d, CAT_BUCKET, "flattened gradients", round512(bytes));
        copy(z, "flatten", bytes, bytes, 1);
        act_source(z, ACT_R, c, false);
        act_chunk(z, ACT_ALLOC | ACT_WRITE, c, flat, z->bt);
    }
    if (d->comm != z->bt) {
        cast = ds_scratch(d, CAT_BUCKET, "gradients on the wire", round512(wire));
        copy(z, "cast", bytes, wire, 1);
        act_chunk(z, ACT_R, c, flat, z->bt);
        act_chunk(z, ACT_ALLOC | ACT_WRITE, c, cast, d->comm);
    }
    reduced = cast >= 0 ? cast : flat;
    reduce_in(z, &j, reduced);
    if (cast >= 0) {
        copy(z, "cast back", wire, bytes, 1);
        act_chunk(z, ACT_W | (z->newer && flat >= 0 ? ACT_FREE : 0), c, flat, z->bt);
        act_chunk(z, z->newer ? ACT_R : ACT_READ | ACT_FREE, c, cast, d->comm);
        reduced = z->newer ? cast : flat;
        dt = z->newer ? d->comm : z->bt;
    }
    add_to_partition(z, c, reduced);
    copy_back(z, c, reduced, dt);
    if (reduced >= 0)               /* returned by allreduce_bucket, gone with its caller */
        drop_copy(z, reduced);
}

/* ---- slices: who owns what of a bucket ---- */

/* allreduce_and_scatter and allreduce_no_retain: sent as soon as it exceeds a bucket. */
static void send(struct z12 *z, struct chunk *c)
{
    if (c->elems == 0)
        return;
    if (c->by_owner && z->overlap)  /* allreduce_and_copy */
        ds_synchronize(&z->d, PHASE_REDUCE, "synchronize");
    reduce_once(z, (struct journey){ c, 1, 1, c->by_owner ? z->slices[c->first].owner : -1 },
                c->slices == 1);
    *c = (struct chunk){ .by_owner = c->by_owner, .among = c->among };
}

static void add_slice(struct z12 *z, struct chunk *c, int k)
{
    const struct z12_slice *s = &z->slices[k];

    if (c->slices++ == 0)
        c->first = k;
    c->elems += s->elems;
    if (mine(z, s)) {
        c->own += s->elems;
        c->kept += s->elems;
        c->largest_kept = s->elems > c->largest_kept ? s->elems : c->largest_kept;
    }
    if (c->elems > z->bucket_size)
        send(z, c);
}

static void push_slice(struct z12 *z, struct z12_slice x)
{
    bool apart = z->compact && x.owner == z->d.rank;
    struct z12_slice *last = z->nslices > 0 ? &z->slices[z->nslices - 1] : NULL;

    if (last && last->owner == x.owner && last->among == x.among && last->first == x.first && last->last == x.last && !apart) {
        last->elems += x.elems;
        return;
    }
    z->slices = room_for(z->slices, z->nslices, &z->cap_slices, sizeof *z->slices);
    x.next = -1;
    z->slices[z->nslices++] = x;
}

/* The bucket's gradients cut at the partition boundaries; neighbours in the bucket that have one owner
 * are merged, but for those that are added to this rank's fp32 partition. */
static void find_slices(struct z12 *z)
{
    z->nslices = 0;
    for (int i = 0; i < z->nbucket; i++) {
        int t = z->bucket[i];
        const struct z12_group *g = z12_group_of(z, t);
        int64_t at = z->start[t], end = at + z12_numel(z, t), shift = z->at[t] - at;
        while (at < end) {
            int64_t r = (at - g->base) / g->part, next = g->base + (r + 1) * g->part, to = next < end ? next : end;
            struct z12_slice x = { .owner = r, .at = at + shift, .elems = to - at, .among = g->among, .first = r, .last = r };
            if (g->orthogonal) {                    /* muon_copy_ranks */
                x.first = (z->start[t] - g->base) / g->part;
                x.last = (end - 1 - g->base) / g->part;
            }
            push_slice(z, x);
            at = to;
        }
    }
}

/* The whole bucket as one slice; `own`: all of it is to be copied back. */
static struct chunk whole_bucket(struct z12 *z, bool own)
{
    struct chunk c = { .slices = 1, .elems = z->elements, .own = own ? z->elements : 0 };
    int64_t from, to;

    z->nslices = 0;
    push_slice(z, (struct z12_slice){ .owner = z->d.rank, .elems = z->elements, .among = GROUP_DATA, .first = z->d.rank, .last = z->d.rank });
    for (int i = 0; i < z->nbucket && z->compact; i++)
        if (z12_in_partition(z, z->bucket[i], &from, &to)) {
            c.kept += to - from;
            c.largest_kept = to - from > c.largest_kept ? to - from : c.largest_kept;
        }
    return c;
}

static int32_t *last_of_owner(struct z12 *z, const struct z12_slice *x)
{
    return &z->owner_last[x->owner + (x->among == GROUP_EXPERT_DATA ? z->d.n : 0)];
}

/* Owners in the order of their first appearance, each with all its slices; those of experts behind the others' places. */
static void reduce_by_owner(struct z12 *z)
{
    for (int i = 0; i < z->nslices; i++) {          /* owner_last: its last slice + 1 */
        int32_t *last = last_of_owner(z, &z->slices[i]);
        z->slices[i].later = *last > 0;
        if (*last > 0)
            z->slices[*last - 1].next = i;
        *last = i + 1;
    }
    for (int i = 0; i < z->nslices; i++) {
        struct chunk c = { .by_owner = true, .among = z->slices[i].among };
        if (z->slices[i].later)
            continue;
        for (int k = i; k >= 0; k = z->slices[k].next)
            add_slice(z, &c, k);
        send(z, &c);
        *last_of_owner(z, &z->slices[i]) = 0;
    }
}

/* Slices of all that is reduced over one group, which are the buckets of average_tensor. */
static void reduce_among(struct z12 *z, enum group among)
{
    struct chunk c = { .among = among };

    for (int i = 0; i < z->nslices; i++)
        if (z->slices[i].among == among)
            add_slice(z, &c, i);
    send(z, &c);
}

/* average_tensor with reduce_scatter: the bucket is divided in place, then its
 * slices go by all-reduce together, or by reduces to their owners. */
static void reduce_slices(struct z12 *z)
{
    int64_t bytes = z->elements * z->be;
    struct chunk whole = whole_bucket(z, false);

    if (z->compact && whole.kept > 0 && !z->own_live)
        z12_build_partition(z, z->stream);
    copy(z, "divide", bytes, bytes, 1 / (double)z->d.n);
    act_source(z, ACT_RW, &whole, false);
    find_slices(z);
    if (z->owner_last) {
        reduce_by_owner(z);
        return;
    }
    enum group first = z->slices[0].among;
    reduce_among(z, first);
    if (z->ngroups > 1 && !z->muon)
        reduce_among(z, first == GROUP_DATA ? GROUP_EXPERT_DATA : GROUP_DATA);
}

/* ---- the flush ---- */

static void drop_grad(struct z12 *z, int t)
{
    if (!z->live[t])
        return;
    sched_op(z->d.s, OP_MEMORY, z->stream, PHASE_REDUCE, "drop gradient");
    free_grad(z, t, 0);
}

/* The same where what this rank keeps is in its fp32 partition: at stage 2 own gradients stay until the
 * epilogue, those of others go; at stage 1 it is the other way round, and those of others stay in the
 * bucket until the step. */
static void keep_none(struct z12 *z)
{
    for (int i = 0; i < z->nbucket; i++) {
        int t = z->bucket[i];
        bool own = z12_owns(z, t);
        if (!z->stage2 && z->contiguous && !own)
            z->viewed[z->index] |= !z->large;
        else if (!z->stage2 && z->contiguous)
            drop_grad(z, t);
        else if (z->stage2 && !own && z->overlap && !z->contiguous && z->live[t])
            z->late[z->nlate++] = t;
        else if (z->stage2 && !own)
            drop_grad(z, t);
    }
}

/* What touches the partition goes to the host, and is dropped with the last micro-step: those in the bucket are gone already. */
static void send_own(struct z12 *z)
{
    for (int i = 0; i < z->nbucket; i++) {
        int t = z->bucket[i];
        if (!z12_owns(z, t))
            continue;
        z12_offload_gradient(z, t);
        if (z->boundary)
            drop_grad(z, t);
        else if (z->live[t] && !z->compact)
            z->late[z->nlate++] = t;
    }
}

/* reduce_ipg_grads: what this rank keeps leaves the bucket, the rest is dropped. */
static void keep_own(struct z12 *z)
{
    struct schedules *s = z->d.s;
    struct chunk whole = whole_bucket(z, false);
    int64_t bytes = 0;

    if (z->host)
        send_own(z);
    if (z->compact) {
        keep_none(z);
        return;
    }
    for (int i = 0; i < z->nbucket && !z->host; i++)
        if (z->contiguous && z12_owns(z, z->bucket[i]))
            bytes += z12_numel(z, z->bucket[i]) * z->d.e;
    if (bytes > 0) {                /* copy_grads_in_partition: whole tensors */
        copy(z, "keep own gradients", bytes, bytes, 1);
        act_source(z, ACT_R, &whole, false);
        sched_act_as(s, z->own_live ? ACT_W : ACT_ALLOC | ACT_WRITE, z->own, z->copy, 0,
                     z12_own_layout(z, z->bucket, z->nbucket));
        z->own_live = true;
    }
    if (z->wide)
        return;
    for (int i = 0; i < z->nbucket; i++) {
        int t = z->bucket[i];
        bool own = z12_owns(z, t);
        if (!z->live[t] || (own && (z->host || !z->contiguous)))
            continue;
        if (!own && (!z->stage2 || (!z->contiguous && z->overlap))) {
            z->late[z->nlate++] = t;
            continue;
        }
        drop_grad(z, t);
    }
}

void z12_free_late(struct z12 *z)
{
    if (z->nlate == 0)
        return;
    sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "drop gradients");
    for (int i = 0; i < z->nlate; i++)
        free_grad(z, z->late[i], 0);
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

/* Where the average is taken: buffered_reduce_fallback divides before, gradient_reduction_w_predivide
 * by one factor before and by the rest after. */
static void reduce_whole(struct z12 *z)
{
    double n = (double)z->d.n, factor = z->d.p->ds.prescale;
    struct chunk c = whole_bucket(z, !z->contiguous || reduces_copy(z));
    struct journey j = { &c, z->contiguous ? 1 / factor : 1 / n, z->contiguous ? factor / n : 1, -1 };

    reduce_once(z, j, z->contiguous || z->nbucket == 1);
}

void z12_flush(struct z12 *z)
{
    if (z->nbucket == 0)
        return;
    wait_streams(z);
    if (z->contiguous && z->d.p->ds.reduce_scatter)
        reduce_slices(z);
    else
        reduce_whole(z);
    keep_own(z);
    z->nbucket = 0;
    z->elements = 0;
    z->large = false;
    z->nth++;
}
