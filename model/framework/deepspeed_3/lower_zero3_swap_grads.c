/* lower_zero3_swap_grads.c -- stage 3's gradients on their way to disk.
 *
 * Sources: runtime/swap_tensor/async_swapper.py, OptimizerSwapper._swap_out_gradients of DeepSpeed 0.19.6.  At the
 * boundary a tensor's part in fp32 is cut to what aio can write (_adjust_for_misaligned_lengths): that is copied into
 * a buffer of the pool, which is written when the next one does not fit; the rest, and what is smaller than a block,
 * stays on the device until the step.  All buffers of the pool take part, and go back to it before the first
 * sub-group is read. */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include "base/room.h"

static int group_number(const struct z3 *z, int t)
{
    int i = 0;

    while (z->groups[i].last <= t)
        i++;
    return i;
}

static void add_buffers(struct z3 *z)
{
    struct z3_swapper *w = &z->disk.grads;
    struct z3_pool *p = &z->disk.pool;

    for (w->n = 0; w->n < p->nfree; w->n++) {
        w->buffer[w->n] = p->free[w->n];
        w->idle[w->n] = w->n;
    }
    w->nidle = w->n;
    w->nwriting = 0;
    p->nfree = 0;
    w->current = -1;
}

/* A piece's place in the files of its sub-group's gradients. */
static void act_file(struct z3 *z, const struct z3_piece *p, int64_t in_files)
{
    struct z3_group *g = &z->groups[group_number(z, p->tensor)];

    sched_act_as(z->d.s, g->grads_there ? ACT_W : ACT_ALLOC | ACT_W, g->file + 3, 0, 0,
                 z3_disk_piece(z, p->tensor, 0, p->n, in_files * 4));
    g->grads_there = true;
}

/* Elements that the files have before this tensor's. */
static int64_t before_in_files(const struct z3 *z, int tensor)
{
    int64_t n = 0;

    for (int t = z->groups[group_number(z, tensor)].first; t < tensor; t++)
        n += z3_disk_written(z, t);
    return n;
}

/* _flush_ready_buffers: the current buffer is written. */
static void submit(struct z3 *z, enum phase ph)
{
    struct z3_swapper *w = &z->disk.grads;
    int64_t n = 0;

    if (w->current < 0)
        return;
    for (int i = 0; i < w->npieces; i++)
        n += w->piece[i].n;
    sched_set(z->d.s, STREAM_DISK_WRITE, ph, "write gradients", n * 4, n * 4);
    for (int i = 0; i < w->npieces; i++) {
        sched_act_as(z->d.s, ACT_R, z->disk.pool.family, w->buffer[w->current], 0,
                     z3_disk_piece(z, w->piece[i].tensor, 0, w->piece[i].n, w->piece[i].at * 4));
        act_file(z, &w->piece[i], before_in_files(z, w->piece[i].tensor));
    }
    w->writing[w->nwriting++] = w->current;
    w->current = -1;
    w->npieces = 0;
}

/* _wait_for_swap_complete. */
static void complete(struct z3 *z, enum phase ph)
{
    struct z3_swapper *w = &z->disk.grads;

    if (w->nwriting > 0)
        z3_block(z, STREAM_DISK_WRITE, ph, "await the writes");
    for (int i = 0; i < w->nwriting; i++)
        w->idle[w->nidle++] = w->writing[i];
    w->nwriting = 0;
}

/* _make_swap_space. */
static void make_space(struct z3 *z, int64_t n)
{
    struct z3_swapper *w = &z->disk.grads;
    int64_t size = z->d.s->bufs[z->disk.pool.family].bytes / 4;

    if (w->current >= 0 && w->used + n <= size)
        return;
    if (w->current >= 0) {
        bool wait = w->nidle == 0;
        submit(z, PHASE_REDUCE);
        if (wait)
            complete(z, PHASE_REDUCE);
    }
    w->current = w->idle[--w->nidle];
    w->used = 0;
}

/* From the device into the buffer: pageable to the device, and blocking. */
static void insert(struct z3 *z, int t, int64_t n)
{
    struct z3_swapper *w = &z->disk.grads;
    int64_t from;

    make_space(z, n);
    z3_part(z, t, &from);
    sched_set(z->d.s, z->reduce_stream, PHASE_REDUCE, "fp32 gradient to its buffer", n * 4, n * 4);
    ds_act_part(&z->d, &z->disk.wide, ACT_R, t, from, n, 0);
    sched_act_as(z->d.s, ACT_W, z->disk.pool.family, w->buffer[w->current], 0, z3_disk_piece(z, t, 0, n, w->used * 4));
    z3_block(z, z->reduce_stream, PHASE_REDUCE, "pageable memory");
    w->piece = room_for(w->piece, w->npieces, &w->room, sizeof *w->piece);
    w->piece[w->npieces++] = (struct z3_piece){ t, n, w->used };
    w->used += n;
}

/* Is this tensor's fp32 gradient that of a sub-group on disk, and has this rank any of it? */
static bool concerns(const struct z3 *z, int t)
{
    int64_t from;

    return z->groups[group_number(z, t)].disk && z3_part(z, t, &from) > 0;
}

/* Sub-group after sub-group, in the order in which the bucket has them. */
void z3_disk_gradients(struct z3 *z)
{
    for (int i = 0; i < z->nbucket; i++) {
        int g = group_number(z, z->bucket[i]), seen = 0;
        for (int k = 0; k < i; k++)
            seen |= group_number(z, z->bucket[k]) == g;
        for (int k = i; k < z->nbucket && !seen; k++) {
            int t = z->bucket[k];
            if (group_number(z, t) != g || !concerns(z, t) || z3_disk_written(z, t) == 0)
                continue;
            if (z->disk.grads.n == 0)
                add_buffers(z);
            if (z->disk.grads.n > 0)
                insert(z, t, z3_disk_written(z, t));
        }
    }
}

void z3_disk_drop(struct z3 *z)
{
    int64_t from;

    for (int i = 0; i < z->nbucket; i++)
        if (concerns(z, z->bucket[i]) && z3_disk_written(z, z->bucket[i]) == z3_part(z, z->bucket[i], &from))
            ds_act(&z->d, &z->disk.wide, ACT_FREE, z->bucket[i], 0);
}

/* release_buffers: the rest is written, and the buffers go back to the pool. */
void z3_disk_flush(struct z3 *z, enum phase ph)
{
    struct z3_swapper *w = &z->disk.grads;

    if (w->n == 0)
        return;
    submit(z, ph);
    complete(z, ph);
    for (int i = 0; i < w->n; i++)
        z3_pool_give(&z->disk.pool, w->buffer[i]);
    w->n = 0;
}
