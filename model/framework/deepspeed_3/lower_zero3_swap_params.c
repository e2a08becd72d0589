/* lower_zero3_swap_params.c -- stage 3's partitions on disk (ZeRO-Infinity).
 *
 * Sources: runtime/swap_tensor/partitioned_param_swapper.py, stage3.py and partitioned_param_coordinator.py of DeepSpeed
 * 0.19.6.  A partition of at least a block has a file; smaller ones are in host memory by themselves.  What the first
 * sub-groups have, up to max_in_cpu elements, is in one pinned buffer instead, as without a disk.  A partition is read
 * into a buffer of a pool before its gather, and keeps that buffer until the parameter is released. */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ds_offload_param *keys(const struct z3 *z) { return &z->d.p->ds.offload_param; }

static int64_t aligned(const struct z3 *z, int64_t elems) { return round_up(elems, z->files.align); }

/* ---- buffers ---- */

bool z3_has_file(const struct z3 *z, int t)
{
    return z->files.on && z->q[t] * z->d.e >= z->files.least;
}

bool z3_is_flat(const struct z3 *z, const struct z3_group *g)
{
    return !z->files.on || z3_group_begin(z, g) + g->elems <= z->files.flat;
}

bool z3_in_flat(const struct z3 *z, int t) { return z->place[t] >= 0 && z3_is_flat(z, z3_group_of(z, t)); }

bool z3_on_disk(const struct z3 *z, int t)
{
    return z->files.on && !z3_in_flat(z, t) && z3_has_file(z, t);
}

void z3_files_setup(struct z3 *z)
{
    struct z3_files *f = &z->files;
    const struct ds_aio *aio = &z->d.p->ds.aio;
    int64_t least = z->d.p->limits.ds_aio_least;

    f->on = keys(z)->device == OFFLOAD_NVME;
    f->least = aio->block_size > least ? aio->block_size : least;
    f->align = z->d.p->limits.ds_aio_align * aio->intra_op_parallelism / z->d.e;
    f->flat = !f->on || keys(z)->max_in_cpu > z->all_q ? z->all_q : keys(z)->max_in_cpu;
    f->out = -1;
}

static int64_t file_bytes(const struct ds *d, const struct tensor *t)
{
    int64_t align = d->p->limits.ds_aio_align * d->p->ds.aio.intra_op_parallelism / d->e;

    return round_up(ceil_div(t->numel, d->n), align) * d->e;
}

/* reserve_partitioned_swap_space, for the largest sub-group: whole parameters, each rounded up, though partitions alone go
 * through it (stage3.py takes ds_numel of parameters, not of their ds_tensor). */
static int64_t out_elems(const struct z3 *z)
{
    const struct z3_group *largest = &z->groups[0];
    int64_t n = 0;

    for (int i = 1; i < z->ngroups; i++)
        if (z->groups[i].elems > largest->elems)
            largest = &z->groups[i];
    for (int t = largest->first; t < largest->last; t++)
        n += aligned(z, z->d.m->tensors[t].numel);
    return n;
}

static bool any_on_disk(const struct z3 *z)
{
    return !z3_is_flat(z, &z->groups[z->ngroups - 1]);
}

void z3_files_declare(struct z3 *z)
{
    struct z3_files *f = &z->files;
    struct schedules *s = z->d.s;

    if (!f->on)
        return;
    f->file.in = SPACE_DISK;
    ds_declare(&z->d, &f->file, CAT_PARAMS, "file of a partition", 1, file_bytes);
    f->file.holds = HOLDS_PARAM;
    f->file.dtype = z->d.dt;
    z3_pool_open(&f->pool, keys(z)->buffer_count);
    f->pool.family = sched_buf_in(s, SPACE_HOST, CAT_OVERHEAD, "parameter buffer", "buffer", 0, f->pool.count,
                                  aligned(z, keys(z)->buffer_size) * z->d.e);
    if (any_on_disk(z))
        f->out = sched_buf_in(s, SPACE_HOST, CAT_OVERHEAD, "partitioned swap buffer", NULL, 0, 1, out_elems(z) * z->d.e);
    f->buffer = malloc(2 * ((size_t)z->d.m->ntensors + 1) * sizeof *f->buffer);
    if (!f->buffer)
        abort();
    f->list = f->buffer + z->d.m->ntensors + 1;
    for (int t = 0; t < z->d.m->ntensors; t++)
        f->buffer[t] = -1;
}

void z3_files_free(struct z3 *z)
{
    ds_undeclare(&z->files.file);
    free(z->files.pool.free);
    free(z->files.buffer);
}

static void act_file(struct z3 *z, int what, int t)
{
    int64_t from, n = z3_part(z, t, &from);

    ds_act_part(&z->d, &z->files.file, what, t, from, n, 0);
}

static void act_buffer(struct z3 *z, int what, int t)
{
    sched_act_as(z->d.s, what, z->files.pool.family, z->files.buffer[t] < 0 ? 0 : z->files.buffer[t], 0,
                 z3_parts(z, HOLDS_PARAM, z->d.dt, &t, 1));
}

void z3_act_partition(struct z3 *z, int what, int t)
{
    int64_t from, n = z3_part(z, t, &from);

    if (z3_in_flat(z, t))
        sched_act_as(z->d.s, what, z->lp, 0, 0, z3_own(z, HOLDS_PARAM, z->d.dt, &t, 1, 0));
    else if (z3_on_disk(z, t))
        act_buffer(z, what, t);
    else
        ds_act_part(&z->d, &z->partition, what, t, from, n, 0);
}

/* ---- buffers are taken and given ---- */

static void take(struct z3 *z, int t)
{
    char why[160];

    z->files.buffer[t] = z3_pool_take(&z->files.pool);
    if (z->files.buffer[t] >= 0)
        return;
    snprintf(why, sizeof why, "deepspeed.offload_param.buffer_count: %d buffers are in use when %.60s is needed", z->files.pool.count,
             z->d.m->tensors[t].name);
    z3_disk_refuse(z, why);
}

void z3_give_buffer(struct z3 *z, int t)
{
    if (!z->files.on || z->files.buffer[t] < 0)
        return;
    z3_pool_give(&z->files.pool, z->files.buffer[t]);
    z->files.buffer[t] = -1;
}

/* swap_in: buffers are taken, and one request after the other begins. */
static void begin_reads(struct z3 *z, enum phase ph, const int *tensors, int n)
{
    int64_t bytes = 0;

    for (int i = 0; i < n; i++) {
        take(z, tensors[i]);
        bytes += aligned(z, z->q[tensors[i]]) * z->d.e;
    }
    sched_set(z->d.s, STREAM_DISK_READ, ph, "read partitions", bytes, bytes);
    for (int i = 0; i < n; i++) {
        act_file(z, ACT_R, tensors[i]);
        act_buffer(z, ACT_W, tensors[i]);
    }
    sched_of(z->d.s, "parameters from", tensors[0], 0);
    z->files.reading = true;
}

static void await_reads(struct z3 *z, enum phase ph)
{
    if (z->files.reading)
        z3_block(z, STREAM_DISK_READ, ph, "await the reads");
    z->files.reading = false;
}

/* _ensure_availability_of_partitioned_params: what is not there is read, and all reads are waited for. */
void z3_files_ensure(struct z3 *z, enum phase ph, const int *tensors, int n)
{
    bool any = false;
    int absent = 0;

    for (int i = 0; i < n && z->files.on; i++) {
        if (!z3_on_disk(z, tensors[i]))
            continue;
        any = true;
        if (z->files.buffer[tensors[i]] < 0)
            z->files.list[absent++] = tensors[i];
    }
    if (absent > 0)
        begin_reads(z, ph, z->files.list, absent);
    if (any)
        await_reads(z, ph);
}

/* ---- the coordinator's questions ---- */

bool z3_is_absent(void *arg, int t)
{
    const struct z3 *z = arg;

    return z3_on_disk(z, t) && z->files.buffer[t] < 0;
}

int z3_buffers_left(void *arg) { return ((const struct z3 *)arg)->files.pool.nfree; }

void z3_read_ahead(void *arg, const int *tensors, int n)
{
    struct z3 *z = arg;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (tensors[i] == tensors[k]) {
                z3_disk_refuse(z, "deepspeed.offload_param: a partition would be read ahead twice, which DeepSpeed refuses");
                return;
            }
    begin_reads(z, z->d.walk.forward ? PHASE_FORWARD : PHASE_BACKWARD, tensors, n);
}

/* Buffers that are in use, and by what: one byte each, for the comparison of micro-steps. */
void z3_files_state(const struct z3 *z, uint8_t *to)
{
    for (int t = 0; t < z->d.m->ntensors; t++)
        to[t] = z->files.on ? (uint8_t)(z->files.buffer[t] + 1) : 0;
    for (int i = 0; i < z->files.pool.count; i++)
        to[z->d.m->ntensors + i] = i < z->files.pool.nfree ? (uint8_t)(z->files.pool.free[i] + 1) : 0;
}

/* ---- init ---- */

/* The pool is locked: its pages are there. */
void z3_files_pool(struct z3 *z)
{
    struct schedules *s = z->d.s;
    const struct z3_pool *p = &z->files.pool;

    if (!z->files.on || p->count == 0)
        return;
    sched_copy(s, STREAM_HOST, PHASE_INIT, "lock parameter buffers", 0, p->count * s->bufs[p->family].bytes);
    sched_does(s, COPY_ZERO, 0);
    sched_act_all(s, ACT_ALLOC | ACT_W, p->family);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
}

static void write_file(struct z3 *z, int t)
{
    int64_t bytes = aligned(z, z->q[t]) * z->d.e;

    sched_set(z->d.s, STREAM_DISK_WRITE, PHASE_INIT, "write partition", bytes, bytes);
    act_buffer(z, ACT_R, t);
    act_file(z, ACT_ALLOC | ACT_W, t);
    z3_block(z, STREAM_DISK_WRITE, PHASE_INIT, "await the writes");
}

/* _partition_param with final_location nvme: through a buffer to its file. */
void z3_files_partition(struct z3 *z, int t)
{
    struct ds *d = &z->d;
    int64_t from, n = z3_part(z, t, &from);

    if (z->q[t] > keys(z)->buffer_size)
        z3_disk_refuse(z, "deepspeed.offload_param.buffer_size: smaller than the largest partition");
    take(z, t);
    if (n > 0) {
        sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "partition", n * d->e, n * d->e);
        act_buffer(z, ACT_W, t);
    } else {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "partition of padding");
    }
    ds_act(d, &z->copy, n > 0 ? ACT_R | ACT_FREE : ACT_FREE, t, 0);
    z3_block(z, STREAM_COMPUTE, PHASE_INIT, "await the partition");
    write_file(z, t);
    z3_give_buffer(z, t);
}

/* swap_into_buffer: straight to the flat buffer where aio can, else through one of its own. */
void z3_files_to_flat(struct z3 *z, int t, int comes)
{
    struct ds *d = &z->d;
    int64_t bytes = aligned(z, z->q[t]) * d->e;
    bool straight = z->q[t] % z->files.align == 0;

    if (!straight)
        take(z, t);
    sched_set(d->s, STREAM_DISK_READ, PHASE_INIT, "read partition for good", bytes, bytes)->after = AFTER(STREAM_HOST);
    act_file(z, ACT_R, t);
    if (straight)
        z3_act_partition(z, comes | ACT_W, t);
    else
        act_buffer(z, ACT_W, t);
    z3_block(z, STREAM_DISK_READ, PHASE_INIT, "await the reads");
    if (straight)
        return;
    sched_set(d->s, STREAM_HOST, PHASE_INIT, "move to flat buffer", z->q[t] * d->e, z->q[t] * d->e);
    act_buffer(z, ACT_R, t);
    z3_act_partition(z, comes | ACT_W, t);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the flat buffer");
    z3_give_buffer(z, t);
}

void z3_files_out_buffer(struct z3 *z)
{
    struct schedules *s = z->d.s;

    if (z->files.out < 0)
        return;
    sched_copy(s, STREAM_HOST, PHASE_INIT, "zero partitioned swap buffer", 0, s->bufs[z->files.out].bytes);
    sched_does(s, COPY_ZERO, 0);
    sched_act(s, ACT_ALLOC | ACT_W, z->files.out, 0, 0);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
}

/* _swap_in_sub_group_to_flat_buffer: one partition after the other is read, and widened to where it belongs. */
void z3_files_widen(struct z3 *z, const struct z3_group *g, struct z3_place to, int what)
{
    struct ds *d = &z->d;

    for (int t = g->first; t < g->last; t++) {
        z3_files_ensure(z, PHASE_INIT, &t, 1);
        sched_set(d->s, STREAM_HOST, PHASE_INIT, "to fp32", z->q[t] * d->e, z->q[t] * 4);
        z3_act_partition(z, ACT_R, t);
        sched_act_as(d->s, t == g->first ? what : what & ~ACT_ALLOC, to.buf, to.at, 0,
                     z3_own(z, HOLDS_PARAM, DT_FP32, &t, 1, z->begin[g->first]));
        z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
        z3_give_buffer(z, t);
    }
}

/* ---- the step ---- */

/* Tensors of a sub-group with a file, into files.list; their aligned elements. */
static int64_t those_on_disk(struct z3 *z, const struct z3_group *g, int *n, int64_t *elems)
{
    int64_t sum = 0;

    *n = 0;
    *elems = 0;
    for (int t = g->first; t < g->last; t++)
        if (z3_on_disk(z, t)) {
            z->files.list[(*n)++] = t;
            *elems += z->q[t];
            sum += aligned(z, z->q[t]);
        }
    return sum;
}

/* _partitioned_params_swap_out: values of small partitions are copied to them, the others go through one buffer to
 * their files. */
void z3_files_values(struct z3 *z, const struct z3_group *g, enum phase ph, uint8_t guard)
{
    struct ds *d = &z->d;
    int64_t elems, all;
    bool copied = false;
    int n;

    for (int t = g->first; t < g->last; t++) {
        if (z3_on_disk(z, t)) {
            if (z->files.buffer[t] >= 0)
                z3_disk_refuse(z, "deepspeed.offload_param: a partition that was read ahead is still in host memory at the step");
            continue;
        }
        sched_copy(d->s, STREAM_HOST, ph, "update partition", z->q[t] * 4, z->q[t] * d->e)->flags = guard;
        sched_does(d->s, COPY_SET, 1);
        sched_act_as(d->s, ACT_R, g->p.buf, g->p.at, 0, g->new_values);
        z3_act_partition(z, ACT_W, t);
        copied = true;
    }
    all = those_on_disk(z, g, &n, &elems);
    if (n == 0 && copied)
        z3_block(z, STREAM_HOST, ph, "await the host");         /* the CPU copies before it goes on */
    if (n == 0)
        return;
    if (all * d->e > d->s->bufs[z->files.out].bytes)
        z3_disk_refuse(z, "deepspeed.sub_group_size: the partitions of a sub-group do not fit DeepSpeed's buffer for the largest");
    sched_copy(d->s, STREAM_HOST, ph, "cast new values", elems * 4, elems * d->e)->flags = guard;
    sched_does(d->s, COPY_SET, 1);
    sched_act_as(d->s, ACT_R, g->p.buf, g->p.at, 0, g->new_values);
    sched_act_as(d->s, ACT_W, z->files.out, 0, 0, z3_aligned_parts(z, z->files.list, n));
    z3_block(z, STREAM_HOST, ph, "await the host");
    sched_copy(d->s, STREAM_DISK_WRITE, ph, "write partitions", all * d->e, all * d->e)->flags = guard;
    sched_does(d->s, COPY_SET, 1);
    sched_act_as(d->s, ACT_R, z->files.out, 0, 0, z3_aligned_parts(z, z->files.list, n));
    for (int i = 0; i < n; i++)
        act_file(z, ACT_W, z->files.list[i]);
    z3_block(z, STREAM_DISK_WRITE, ph, "await the writes");
}
