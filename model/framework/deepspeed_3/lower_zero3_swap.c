/* lower_zero3_swap.c -- stage 3's optimizer states on disk (ZeRO-Infinity).
 *
 * Sources: runtime/swap_tensor/{optimizer_utils,partitioned_optimizer_swapper,pipelined_optimizer_swapper,utils}.py
 * of DeepSpeed 0.19.6.  A sub-group's weights and moments are files of their own, rounded up to 1024 bytes for each
 * thread of aio (_io_aligned_numel); a pool of equal buffers, page-locked but unknown to the device, holds those that
 * are there.  The step takes one sub-group after the other: read, update, write.  Pipelined, the next is read before
 * the update, and the last is written during it. */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the pool ---- */

int z3_pool_take(struct z3_pool *p)
{
    return p->nfree > 0 ? p->free[--p->nfree] : -1;
}

void z3_pool_give(struct z3_pool *p, int at)
{
    p->free[p->nfree++] = at;
}

void z3_pool_open(struct z3_pool *p, int64_t count)
{
    p->count = (int)count;
    p->free = malloc((size_t)(count + 1) * sizeof *p->free);
    if (!p->free)
        abort();
    for (p->nfree = 0; p->nfree < p->count; p->nfree++)
        p->free[p->nfree] = p->nfree;
}

void z3_disk_refuse(struct z3 *z, const char *why)
{
    if (!z->disk.why[0])
        snprintf(z->disk.why, sizeof z->disk.why, "%s", why);
}

/* SwapBufferManager.allocate: the last `n` that are free, in order. */
static void take(struct z3 *z, struct z3_swapped *in, int n)
{
    struct z3_pool *p = &z->disk.pool;

    if (n > p->nfree) {
        z3_disk_refuse(z, "deepspeed.offload_optimizer.buffer_count: too few for the sub-groups that are in host memory at "
                          "once, four buffers each");
        n = p->nfree;
    }
    for (int i = 0; i < n; i++)
        in->at[in->n++] = p->free[p->nfree - n + i];
    p->nfree -= n;
}

static void give(struct z3 *z, struct z3_swapped *in)
{
    for (int i = 0; i < in->n; i++)
        z3_pool_give(&z->disk.pool, in->at[i]);
    in->n = 0;
}

/* ---- buffers ---- */

void z3_disk_setup(struct z3 *z)
{
    const struct deepspeed_options *o = &z->d.p->ds;
    struct z3_disk *k = &z->disk;
    int64_t least = z->d.p->limits.ds_aio_least;

    k->states = o->offload_optimizer.device == OFFLOAD_NVME;
    k->reads = k->states && o->offload_optimizer.pipeline_read;
    k->writes = k->states && o->offload_optimizer.pipeline_write;
    k->pipelined = k->reads || k->writes;
    k->least = o->aio.block_size > least ? o->aio.block_size : least;
    k->align = z->d.p->limits.ds_aio_align / 4 * o->aio.intra_op_parallelism;
    k->grads.current = -1;
}

static int64_t wide_bytes(const struct ds *d, const struct tensor *t) { return round512(ceil_div(t->numel, d->n) * 4); }

/* SwapBufferManager: buffers of the largest sub-group. */
void z3_disk_declare(struct z3 *z)
{
    struct z3_disk *k = &z->disk;
    int64_t largest = 0, count = z->d.p->ds.offload_optimizer.buffer_count;

    if (!k->states)
        return;
    for (int i = 0; i < z->ngroups; i++)
        largest = z->groups[i].elems > largest ? z->groups[i].elems : largest;
    z3_pool_open(&k->pool, count < 1 << 16 ? count : 1 << 16);
    k->pool.family = sched_buf_in(z->d.s, SPACE_HOST, CAT_OVERHEAD, "swap buffer", "buffer", 0, k->pool.count,
                                  round_up(largest, k->align) * 4);
    ds_declare(&z->d, &k->wide, CAT_GRADS, "fp32 gradient that is not on disk", 1, wide_bytes);
    k->wide.holds = HOLDS_GRAD;
    k->wide.dtype = DT_FP32;
    k->grads.buffer = calloc(3 * ((size_t)k->pool.count + 1), sizeof *k->grads.buffer);
    if (!k->grads.buffer)
        abort();
    k->grads.idle = k->grads.buffer + k->pool.count + 1;
    k->grads.writing = k->grads.idle + k->pool.count + 1;
}

void z3_disk_free(struct z3 *z)
{
    for (int i = 0; i < z->ngroups; i++)
        free(z->groups[i].in.at);
    ds_undeclare(&z->disk.wide);
    free(z->disk.pool.free);
    free(z->disk.grads.buffer);
    free(z->disk.grads.piece);
}

int64_t z3_disk_written(const struct z3 *z, int t)
{
    int64_t from, n = z3_part(z, t, &from), aligned = n / z->disk.align * z->disk.align;

    return n * 4 >= z->disk.least && aligned * 4 >= z->disk.least ? aligned : 0;
}

static int file(struct z3 *z, const char *what, const struct z3_group *g, int64_t bytes)
{
    return sched_buf_in(z->d.s, SPACE_DISK, CAT_OPTIMIZER, what, "sub-group", (int)(g - z->groups), 1, bytes);
}

/* is_swappable_tensor: smaller sub-groups stay in host memory. */
void z3_disk_group(struct z3 *z, struct z3_group *g)
{
    g->disk = z->disk.states && g->elems * 4 >= z->disk.least;
    if (!g->disk)
        return;
    g->host = true;
    g->in.at = calloc((size_t)z->disk.pool.count + 1, sizeof *g->in.at);
    if (!g->in.at)
        abort();
    g->aligned = round_up(g->elems, z->disk.align);
    for (int t = g->first; t < g->last; t++) {
        int64_t from;
        g->has_grads |= z3_part(z, t, &from) > 0;
        g->grads_written += z3_disk_written(z, t);
    }
    g->file = file(z, "file of fp32 weights", g, g->aligned * 4);
    file(z, "file of exp_avg", g, g->aligned * 4);
    file(z, "file of exp_avg_sq", g, g->aligned * 4);
    int grads = file(z, "files of gradients", g, g->grads_written * 4);
    z->d.s->bufs[grads].category = CAT_GRADS;
    g->adam = sched_buf_in(z->d.s, SPACE_HOST, CAT_OPTIMIZER, "exp_avg", NULL, 0, 1, g->elems * 4);
    sched_buf_in(z->d.s, SPACE_HOST, CAT_OPTIMIZER, "exp_avg_sq", NULL, 0, 1, g->elems * 4);
}

/* ---- entries ---- */

static void disk_copy(struct z3 *z, bool reads, enum phase ph, const char *what, const struct z3_group *g, int64_t elems)
{
    sched_set(z->d.s, reads ? STREAM_DISK_READ : STREAM_DISK_WRITE, ph, what, elems * 4, elems * 4);
    sched_of(z->d.s, "sub-group", (int)(g - z->groups), 0);
}

static int as(const struct z3_group *g, int i) { return i == 0 ? g->as_p : i == 1 ? g->as_m : g->as_v; }

/* Buffer `at` to file i of the sub-group: a file comes when it is written first. */
static void act_write(struct z3 *z, const struct z3_group *g, int i, int at, bool comes)
{
    sched_act_as(z->d.s, ACT_R, z->disk.pool.family, at, 0, as(g, i));
    sched_act_as(z->d.s, comes ? ACT_ALLOC | ACT_W : ACT_W, g->file + i, 0, 0, as(g, i));
}

static void await_disk(struct z3 *z, bool reads, enum phase ph)
{
    z3_block(z, reads ? STREAM_DISK_READ : STREAM_DISK_WRITE, ph, reads ? "await the reads" : "await the writes");
}

/* ---- init ---- */

/* The buffers are there, and zero, for good. */
void z3_disk_pool(struct z3 *z)
{
    struct schedules *s = z->d.s;
    const struct z3_pool *p = &z->disk.pool;

    sched_copy(s, STREAM_HOST, PHASE_INIT, "zero swap buffers", 0, p->count * s->bufs[p->family].bytes);
    sched_does(s, COPY_ZERO, 0);
    sched_act_all(s, ACT_ALLOC | ACT_W, p->family);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
}

/* _swap_out_unpinned_tensors: n sub-groups' partitions go to buffers at[0 ..], in fp32, and are written. */
static void masters_out(struct z3 *z, struct z3_group *const *g, const int *at, int n)
{
    for (int i = 0; i < n; i++)
        z3_away_widen(z, g[i], (struct z3_place){ z->disk.pool.family, at[i] }, ACT_W);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
    for (int i = 0; i < n; i++) {
        disk_copy(z, false, PHASE_INIT, "write fp32 weights", g[i], g[i]->aligned);
        act_write(z, g[i], 0, at[i], true);
    }
    await_disk(z, false, PHASE_INIT);
}

/* Of a sub-group whose partitions are on disk: by itself, through a buffer in pageable memory. */
void z3_disk_master(struct z3 *z, struct z3_group *g)
{
    int from = ds_scratch_in(&z->d, SPACE_HOST, CAT_TEMPORARIES, "fp32 partition from disk", g->elems * 4);
    int at = z->disk.pool.free[0];

    z3_away_widen(z, g, (struct z3_place){ from, 0 }, ACT_ALLOC | ACT_W);
    sched_set(z->d.s, STREAM_HOST, PHASE_INIT, "fp32 weights to their buffer", g->elems * 4, g->elems * 4);
    sched_act_as(z->d.s, ACT_R | ACT_FREE, from, 0, 0, g->as_p);
    sched_act_as(z->d.s, ACT_W, z->disk.pool.family, at, 0, g->as_p);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
    disk_copy(z, false, PHASE_INIT, "write fp32 weights", g, g->aligned);
    act_write(z, g, 0, at, true);
    await_disk(z, false, PHASE_INIT);
}

/* initialize_parameters: as many at a time as there are buffers. */
void z3_disk_masters(struct z3 *z)
{
    const struct z3_pool *p = &z->disk.pool;
    struct z3_group **batch = calloc((size_t)p->count + 1, sizeof *batch);
    int n = 0;

    if (!batch)
        abort();
    for (int i = 0; i < z->ngroups; i++) {
        if (z->groups[i].disk && z3_is_flat(z, &z->groups[i]))
            batch[n++] = &z->groups[i];
        if (n > 0 && (n == p->count || i + 1 == z->ngroups)) {
            masters_out(z, batch, p->free, n);
            n = 0;
        }
    }
    free(batch);
}

static struct z3_group *next_on_disk(struct z3 *z, const struct z3_group *g)
{
    int i = (int)(g - z->groups) + 1;

    while (i < z->ngroups && !z->groups[i].disk)
        i++;
    return i < z->ngroups ? &z->groups[i] : NULL;
}

/* initialize_optimizer_states: each sub-group is read, given a gradient of zeros that nothing uses, and written back. */
void z3_disk_states(struct z3 *z, struct z3_group *g)
{
    z3_disk_in(z, g, Z3_BIRTH);
    if (!z3_is_flat(z, g))
        z3_files_values(z, g, PHASE_INIT, 0);
    z3_disk_out(z, g, Z3_BIRTH);
}

/* ---- in ---- */

/* _retrieve_unswapped_grad_partitions: what stayed on the device comes down, piece by piece. */
static void rest_of_gradients(struct z3 *z, const struct z3_group *g, enum phase ph)
{
    struct ds *d = &z->d;

    for (int t = g->first; t < g->last; t++) {
        int64_t from, n = z3_part(z, t, &from), at = z3_disk_written(z, t);
        if (at == n)
            continue;
        sched_set(d->s, STREAM_COMPUTE, ph, "gradient that is not on disk", (n - at) * 4, (n - at) * 4);
        ds_act_part(d, &z->disk.wide, ACT_R, t, from + at, n - at, at * 4);
        sched_act_as(d->s, ACT_W, g->g.buf, g->g.at, 0, z3_disk_piece(z, t, at, n - at, (z->begin[t] - z->begin[g->first] + at) * 4));
        z3_block(z, STREAM_COMPUTE, ph, "await the gradient");
    }
}

/* Gradients on the device are no more: in 0.19.6 when they were read, in 0.19.8 when the sub-group goes. */
static void drop_rest(struct z3 *z, const struct z3_group *g, enum phase ph)
{
    int64_t from;
    bool any = false;

    for (int t = g->first; t < g->last; t++)
        if (z3_disk_written(z, t) < z3_part(z, t, &from)) {
            if (!any)
                sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, ph, "drop gradients that were not on disk");
            any = true;
            ds_act(&z->d, &z->disk.wide, ACT_FREE, t, 0);
        }
}

static void read_gradients(struct z3 *z, struct z3_group *g, enum phase ph)
{
    disk_copy(z, true, ph, "read gradients", g, g->grads_written);
    sched_act_as(z->d.s, ACT_R, g->file + 3, 0, 0, g->as_grad_file);
    sched_act_as(z->d.s, ACT_W, g->g.buf, g->g.at, 0, g->as_grads);
}

/* Buffers are taken and reads begin; the moments are there from the second step on. */
static void begin_reads(struct z3 *z, struct z3_group *g, enum z3_time time, enum phase ph)
{
    int pool = z->disk.pool.family, n = time == Z3_LATER ? 3 : 1;
    bool grads = time != Z3_BIRTH && g->has_grads;

    take(z, &g->in, n + grads);
    if (g->in.n < n + grads)
        return;
    g->p = (struct z3_place){ pool, g->in.at[0] };
    if (n == 3) {
        g->m = (struct z3_place){ pool, g->in.at[1] };
        g->v = (struct z3_place){ pool, g->in.at[2] };
    }
    g->g = (struct z3_place){ pool, g->in.at[g->in.n - 1] };
    disk_copy(z, true, ph, n == 3 ? "read weights and moments" : "read weights", g, n * g->aligned);
    for (int i = 0; i < n; i++) {
        sched_act_as(z->d.s, ACT_R, g->file + i, 0, 0, as(g, i));
        sched_act_as(z->d.s, ACT_W, pool, g->in.at[i], 0, as(g, i));
    }
    if (grads && z->disk.pipelined) {   /* all at once there; two writers of one buffer follow each other here */
        rest_of_gradients(z, g, ph);
        if (g->grads_written > 0)
            read_gradients(z, g, ph);
    }
}

static enum phase phase_of(enum z3_time time) { return time == Z3_BIRTH ? PHASE_INIT : PHASE_OPTIMIZER; }

void z3_disk_in(struct z3 *z, struct z3_group *g, enum z3_time time)
{
    struct z3_disk *k = &z->disk;
    struct z3_group *next = next_on_disk(z, g);
    enum phase ph = phase_of(time);
    bool grads = time != Z3_BIRTH && g->has_grads;

    z3_disk_flush(z, ph);
    if (k->reading != g)
        begin_reads(z, g, time, ph);
    k->reading = NULL;
    await_disk(z, true, ph);
    if (k->reads && next) {
        begin_reads(z, next, time, ph);
        k->reading = next;
    }
    if (grads && !k->pipelined) {
        if (g->grads_written > 0) {
            read_gradients(z, g, ph);
            await_disk(z, true, ph);
        }
        rest_of_gradients(z, g, ph);
    }
    if (grads && !plan_has_deepspeed_0_19_8(z->d.p))
        drop_rest(z, g, ph);
}

/* ---- out ---- */

/* A step's first moments are pageable: they go to buffers that are free. */
static void born_to_pool(struct z3 *z, struct z3_group *g, enum phase ph)
{
    int first = g->in.n;

    take(z, &g->in, z->disk.pipelined ? 2 : z->disk.pool.nfree);
    if (g->in.n < first + 2)
        return;
    for (int i = 1; i < 3; i++) {
        sched_set(z->d.s, STREAM_HOST, ph, i == 1 ? "exp_avg to its buffer" : "exp_avg_sq to its buffer", g->elems * 4,
                  g->elems * 4);
        sched_act_as(z->d.s, z->disk.pipelined ? ACT_R : ACT_R | ACT_FREE, g->adam + i - 1, 0, 0, as(g, i));
        sched_act_as(z->d.s, ACT_W, z->disk.pool.family, g->in.at[first + i - 1], 0, as(g, i));
    }
    z3_block(z, STREAM_HOST, ph, "await the host");
    disk_copy(z, false, ph, "write moments", g, 2 * g->aligned);
    for (int i = 1; i < 3; i++)
        act_write(z, g, i, g->in.at[first + i - 1], true);
}

static void end_writes(struct z3 *z, enum phase ph)
{
    if (!z->disk.writing)
        return;
    await_disk(z, false, ph);
    give(z, &z->disk.writing->in);
    z->disk.writing = NULL;
}

void z3_disk_out(struct z3 *z, struct z3_group *g, enum z3_time time)
{
    struct z3_disk *k = &z->disk;
    enum phase ph = phase_of(time);
    int n = time == Z3_LATER ? 3 : 1;

    end_writes(z, ph);
    if (g->in.n < n)
        return;                     /* refused */
    if (time != Z3_BIRTH && g->has_grads && plan_has_deepspeed_0_19_8(z->d.p))
        drop_rest(z, g, ph);
    if (time == Z3_FIRST && k->pipelined)
        born_to_pool(z, g, ph);
    disk_copy(z, false, ph, n == 3 ? "write weights and moments" : "write weights", g, n * g->aligned);
    for (int i = 0; i < n; i++)
        act_write(z, g, i, g->in.at[i], false);
    k->writing = g;
    if (time == Z3_FIRST && !k->pipelined) {
        await_disk(z, false, ph);
        born_to_pool(z, g, ph);
    }
    if (!k->writes || !next_on_disk(z, g))
        end_writes(z, ph);
}

/* The pipelined swapper forgets the first moments' own memory when their buffers come: in the second step. */
void z3_disk_end(struct z3 *z, bool first)
{
    if (!first || !z->disk.pipelined)
        return;
    sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "the first moments' memory goes");
    for (int i = 0; i < z->ngroups; i++)
        for (int k = 0; k < 2 && z->groups[i].disk; k++)
            sched_act(z->d.s, ACT_FREE, z->groups[i].adam + k, 0, 0);
    sched_note(z->d.s, "pipelined swapping keeps the first step's moments in host memory, shown until its end, until the "
                       "second step");
}
