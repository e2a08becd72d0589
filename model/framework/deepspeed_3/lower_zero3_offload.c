/* lower_zero3_offload.c -- stage 3 with partitions or optimizer states in host memory (ZeRO-Offload).
 *
 * Sources: stage3.py and partition_parameters.py of DeepSpeed 0.19.6; functions are named at the entries.  Here are the
 * buffers, init, partitions and gradients on their way; lower_zero3_host.c is the step.
 * Copies run on the streams that need them: gradients on the reduction's, partitions on the gather's.  A copy
 * that is not asked to be non_blocking, or that has pageable memory on one side, holds the issuing thread until
 * its stream is through (aten/src/ATen/native/cuda/Copy.cu: memcpy_and_sync; cudaMemcpyAsync of pageable memory).
 * Copies that change the dtype and block do so on the host (Copy.cu: conversion_device).
 *
 * Host memory that is only reserved is not counted: calloc's pages that nothing wrote (the gradient buffer of
 * initialize_optimizer_states, tensors of zeros or empty ones from which pinned ones are copied). */
#include "model/framework/deepspeed_3/lower_zero3.h"

#include "base/fail.h"

static const struct ds_offload_optimizer *optimizer_keys(const struct z3 *z) { return &z->d.p->ds.offload_optimizer; }
static const struct ds_offload_param *param_keys(const struct z3 *z) { return &z->d.p->ds.offload_param; }

void z3_block(struct z3 *z, enum stream st, enum phase ph, const char *what)
{
    sched_op(z->d.s, OP_WAIT, STREAM_ISSUE, ph, what)->after = AFTER(st);
}

/* ---- buffers ---- */

const struct z3_group *z3_group_of(const struct z3 *z, int t)
{
    int i = 0;

    while (z->groups[i].last <= z->place[t])
        i++;
    return &z->groups[i];
}

int64_t z3_group_begin(const struct z3 *z, const struct z3_group *g) { return z->begin[z->trained[g->first]]; }

int lower_zero3_check(const struct plan *p)
{
    if (p->ds.offload_optimizer.device == OFFLOAD_NVME && p->ds.offload_optimizer.ratio < 1)
        return fail("deepspeed.offload_optimizer.ratio: sub-groups on the device with states on disk are not followed: "
                    "leave ratio out or keep states in host memory");
    if (p->ds.offload_optimizer.device == OFFLOAD_NVME && p->ds.offload_optimizer.buffer_count < 4)
        return fail("deepspeed.offload_optimizer.buffer_count: a sub-group needs 4 buffers: its weights, two moments and the "
                    "gradient");
    if (p->ds.offload_param.device == OFFLOAD_NVME && p->ds.offload_optimizer.device == OFFLOAD_NONE)
        return fail("deepspeed.offload_param.device: parameters on disk with optimizer states on the device are not followed: "
                    "set offload_optimizer");
    if (p->ds.offload_param.device == OFFLOAD_NVME && p->ds.offload_optimizer.ratio < 1)
        return fail("deepspeed.offload_optimizer.ratio: sub-groups on the device with parameters on disk are not followed");
    if (p->ds.offload_param.device == OFFLOAD_NVME && (p->ds.offload_param.buffer_count < 1 || p->ds.offload_param.buffer_count > 250))
        return fail("deepspeed.offload_param.buffer_count: from 1 to 250 buffers");
    if (p->ds.offload_param.device == OFFLOAD_NVME && p->ds.aio.use_gds)
        return fail("deepspeed.aio.use_gds: GPUDirect Storage is not followed");
    if (p->ds.offload_optimizer.device == OFFLOAD_NVME && p->ds.offload_optimizer.fast_init
        && p->ds.offload_param.device == OFFLOAD_NVME)
        return fail("deepspeed.offload_optimizer.fast_init: not followed");
    return 0;
}

void z3_away_setup(struct z3 *z)
{
    struct z3_away *a = &z->away;

    a->params = param_keys(z)->device != OFFLOAD_NONE;
    a->states = optimizer_keys(z)->device != OFFLOAD_NONE;
    a->pin_states = optimizer_keys(z)->pin_memory;
    z3_disk_setup(z);
    z3_files_setup(z);
}

/* Pinned where asked for, else pageable. */
static int host_buf(struct z3 *z, bool pin, enum category cat, const char *what, int64_t bytes)
{
    return sched_buf_in(z->d.s, pin ? SPACE_PINNED : SPACE_HOST, cat, what, NULL, 0, 1, pin ? pinned_bytes(bytes) : bytes);
}

static int64_t partition_bytes(const struct ds *d, const struct tensor *t)
{
    int64_t bytes = ceil_div(t->numel, d->n) * d->e;

    return d->p->ds.offload_param.pin_memory ? pinned_bytes(bytes) : bytes;
}

static int64_t here_bytes(const struct ds *d, const struct tensor *t)
{
    return round512(ceil_div(t->numel, d->n) * d->e);
}

void z3_away_declare(struct z3 *z)
{
    struct ds *d = &z->d;

    if (z->away.params) {
        /* _create_param_groups_fp16_flat_cpu_memory: pinned whatever pin_memory says. */
        z->lp = host_buf(z, true, CAT_PARAMS, "partitioned parameters", z->files.flat * d->e);
        z->partition.in = param_keys(z)->pin_memory ? SPACE_PINNED : SPACE_HOST;
        ds_declare(d, &z->partition, CAT_PARAMS, z3_partition_name(z), 1, partition_bytes);
        ds_declare(d, &z->away.here, CAT_ALL_GATHER, "partition on the device", 1, here_bytes);
        z->away.here.holds = HOLDS_PARAM;
        z->away.here.dtype = d->dt;
    }
    if (z->away.states)
        z->grad_buffer = host_buf(z, z->away.pin_states, CAT_GRADS, "partitioned gradients",
                                  z->all_q * dtype_bytes(z->accum));
}

void z3_away_free(struct z3 *z)
{
    ds_undeclare(&z->away.here);
    z3_disk_free(z);
    z3_files_free(z);
}

/* Sub-groups [0, int((1 - ratio) * n)) stay on the device (_create_fp32_partitions). */
static bool stays(const struct z3 *z, const struct z3_group *g)
{
    return !z->away.states || (int)(g - z->groups) < (int)((1 - optimizer_keys(z)->ratio) * z->ngroups);
}

void z3_away_group(struct z3 *z, struct z3_group *g)
{
    struct schedules *s = z->d.s;
    int64_t bytes = g->elems * 4;

    z3_disk_group(z, g);
    if (!g->disk)
        g->host = !stays(z, g);
    if (g->host != z->away.params && z->d.dt != DT_FP32)
        g->out = host_buf(z, false, CAT_TEMPORARIES, "values on their way", g->host ? g->elems * z->d.e : bytes);
    if (g->disk)
        return;
    if (g->host) {
        g->master = host_buf(z, false, CAT_OPTIMIZER, "fp32 partition", bytes);
        g->adam = host_buf(z, false, CAT_OPTIMIZER, "exp_avg", bytes);
        host_buf(z, false, CAT_OPTIMIZER, "exp_avg_sq", bytes);
        g->grad = host_buf(z, z->away.pin_states, CAT_GRADS, "fp32 gradient partition", bytes);
    } else if (z->away.states) {
        g->master = sched_buf(s, CAT_OPTIMIZER, "fp32 partition", NULL, 0, 1, round512(bytes));
        g->adam = sched_buf(s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", NULL, 0, 1, 2 * round512(bytes));
        sched_part(s, g->adam, round512(bytes));
        sched_part(s, g->adam, round512(bytes));
        g->grad = sched_buf(s, CAT_GRADS, "fp32 gradient partition", NULL, 0, 1, round512(bytes));
    }
    g->p.buf = g->master;
    g->m.buf = g->adam;
    g->v.buf = g->host ? g->adam + 1 : g->adam;
    g->g.buf = g->grad;
}

/* ---- init ---- */

/* _partition_param: ds_tensor is in host memory, and copied there. */
void z3_away_partition(struct z3 *z, int t)
{
    struct ds *d = &z->d;
    int64_t from, n = z3_part(z, t, &from);

    if (n > 0) {
        sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "partition", n * d->e, n * d->e);
    } else {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "partition of padding");
    }
    ds_act_part(d, &z->partition, n > 0 ? ACT_ALLOC | ACT_W : ACT_ALLOC, t, from, n, 0);
    ds_act(d, &z->copy, n > 0 ? ACT_R | ACT_FREE : ACT_FREE, t, 0);
    z3_block(z, STREAM_COMPUTE, PHASE_INIT, "await the partition");
}

/* Those that were moved. */
static void partitions_go(struct z3 *z)
{
    struct ds *d = &z->d;

    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "partitions go");
    for (int t = 0; t < d->m->ntensors; t++)
        if (z3_in_flat(z, t) && !z3_has_file(z, t))
            ds_act(d, &z->partition, ACT_FREE, t, 0);
    if (!param_keys(z)->pin_memory)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "their pinned blocks stay");
    for (int t = 0; t < d->m->ntensors; t++)
        if (z3_in_flat(z, t) && !z3_has_file(z, t))
            pinned_keep(&z->away.pinned, d->s, z->q[t] * d->e);
}

/* _move_to_flat_buffer; the blocks of pinned partitions stay with the allocator. */
void z3_away_flatten(struct z3 *z)
{
    struct ds *d = &z->d;
    int comes = ACT_ALLOC, moved = 0;

    for (int t = 0; t < d->m->ntensors; t++) {
        int64_t from, n = z3_part(z, t, &from);
        if (!z3_in_flat(z, t))
            continue;
        if (z3_has_file(z, t)) {
            z3_files_to_flat(z, t, comes);
            comes = 0;
            continue;
        }
        sched_set(d->s, STREAM_HOST, PHASE_INIT, "move to flat buffer", z->q[t] * d->e, z->q[t] * d->e);
        ds_act_part(d, &z->partition, ACT_R, t, from, n, 0);
        z3_act_partition(z, comes | ACT_W, t);
        comes = 0;
        moved++;
    }
    if (comes && z->files.flat > 0)     /* room for less than a sub-group */
        ds_memory(d, PHASE_INIT, "flat buffer", ACT_ALLOC, z->lp);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the flat buffer");
    if (moved > 0)
        partitions_go(z);
    z3_files_out_buffer(z);
}

/* A copy of a sub-group's values. */
static void values(struct z3 *z, enum stream st, const char *what, int64_t reads, int64_t writes)
{
    sched_set(z->d.s, st, PHASE_INIT, what, reads, writes);
}

/* .to("cpu", fp32): a blocking copy, which casts on the host what it has brought there. */
void z3_away_widen(struct z3 *z, const struct z3_group *g, struct z3_place to, int what)
{
    struct ds *d = &z->d;
    int64_t narrow = g->elems * d->e, wide = g->elems * 4;
    bool direct = !z->away.params && d->dt == DT_FP32;
    int from = -1;

    if (!z3_is_flat(z, g)) {
        z3_files_widen(z, g, to, what);
        return;
    }
    if (!z->away.params) {
        if (!direct)
            from = ds_scratch_in(d, SPACE_HOST, CAT_TEMPORARIES, "partition to convert", narrow);
        values(z, STREAM_COMPUTE, "partition to host", narrow, narrow);
        sched_act_as(d->s, ACT_R, z->lp, 0, 0, g->part);
        sched_act_as(d->s, direct ? what : ACT_ALLOC | ACT_W, direct ? to.buf : from, direct ? to.at : 0, 0,
                     g->narrow_values);
        z3_block(z, STREAM_COMPUTE, PHASE_INIT, "await the partition");
    }
    if (direct)
        return;
    values(z, STREAM_HOST, "to fp32", narrow, wide);
    if (from < 0)
        sched_act_as(d->s, ACT_R, z->lp, 0, 0, g->part);
    else
        sched_act_as(d->s, ACT_R | ACT_FREE, from, 0, 0, g->narrow_values);
    sched_act_as(d->s, what, to.buf, to.at, 0, g->new_values);
}

/* The same in a temporary buffer, or (-1) where it is already what is wanted. */
static int widened(struct z3 *z, const struct z3_group *g)
{
    int to;

    if (z->away.params && z->d.dt == DT_FP32 && z3_is_flat(z, g))
        return -1;
    to = ds_scratch_in(&z->d, SPACE_HOST, CAT_TEMPORARIES, "converted fp32 partition", g->elems * 4);
    z3_away_widen(z, g, (struct z3_place){ to, 0 }, ACT_ALLOC | ACT_W);
    return to;
}

static void act_widened(struct z3 *z, const struct z3_group *g, int from)
{
    if (from >= 0)
        sched_act_as(z->d.s, ACT_R | ACT_FREE, from, 0, 0, g->new_values);
    else
        sched_act_as(z->d.s, ACT_R, z->lp, 0, 0, g->part);
}

/* .to(device, fp32), then .clone(). */
static void master(struct z3 *z, const struct z3_group *g)
{
    struct ds *d = &z->d;
    int64_t wide = g->elems * 4;

    if (!g->host && !z->away.params) {
        values(z, STREAM_COMPUTE, "fp32 partition", g->elems * d->e, wide);
        sched_act_as(d->s, ACT_R, z->lp, 0, 0, g->part);
        sched_act_as(d->s, ACT_ALLOC | ACT_W, g->master, 0, 0, g->new_values);
        return;
    }
    if (!z3_is_flat(z, g)) {            /* what was read is the master itself */
        z3_away_widen(z, g, (struct z3_place){ g->master, 0 }, ACT_ALLOC | ACT_W);
        return;
    }
    int from = widened(z, g);
    if (!g->host) {
        int here = ds_scratch(d, CAT_TEMPORARIES, "converted fp32 partition on the device", round512(wide));
        z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
        values(z, STREAM_COMPUTE, "partition to device", wide, wide);
        act_widened(z, g, from);
        sched_act_as(d->s, ACT_ALLOC | ACT_W, here, 0, 0, g->new_values);
        z3_block(z, STREAM_COMPUTE, PHASE_INIT, "await the partition");
        from = here;
    }
    values(z, g->host ? STREAM_HOST : STREAM_COMPUTE, "fp32 partition", wide, wide);
    act_widened(z, g, from);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, g->master, 0, 0, g->new_values);
    if (g->host)
        z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
}

void z3_away_masters(struct z3 *z)
{
    if (z->disk.states)
        z3_disk_pool(z);
    for (int i = 0; i < z->ngroups; i++)
        if (!z->groups[i].disk)
            master(z, &z->groups[i]);
        else if (!z3_is_flat(z, &z->groups[i]))
            z3_disk_master(z, &z->groups[i]);
    if (z->disk.states)
        z3_disk_masters(z);
}

/* Zeros on the host: a pinned tensor is written, pages of a pageable one come when they are used. */
static void zeros(struct z3 *z, bool pin, int buf, int64_t bytes)
{
    struct schedules *s = z->d.s;

    if (pin) {
        pinned_take(&z->away.pinned, s, PHASE_INIT, bytes);
        sched_copy(s, STREAM_HOST, PHASE_INIT, "pinned zeros", 0, bytes);
        sched_does(s, COPY_ZERO, 0);
    } else {
        sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "zeros");
    }
    sched_act(s, pin ? ACT_ALLOC | ACT_W : ACT_ALLOC, buf, 0, 0);
}

/* A sub-group's .grad on the device comes from zeros on the host, whose block stays. */
static void zeros_to_device(struct z3 *z, const struct z3_group *g)
{
    struct ds *d = &z->d;
    bool pin = z->away.pin_states;
    int64_t bytes = g->elems * 4;
    int from = ds_scratch_in(d, pin ? SPACE_PINNED : SPACE_HOST, CAT_TEMPORARIES, "zeros for the device",
                             pin ? pinned_bytes(bytes) : bytes);

    if (pin)
        pinned_take(&z->away.pinned, d->s, PHASE_INIT, bytes);
    sched_copy(d->s, STREAM_HOST, PHASE_INIT, "zeros", 0, bytes);
    sched_does(d->s, COPY_ZERO, 0);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, from, 0, 0, g->wide);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
    sched_set(d->s, STREAM_COMPUTE, PHASE_INIT, "zeros to device", bytes, bytes);
    sched_act_as(d->s, ACT_R | ACT_FREE, from, 0, 0, g->wide);
    sched_act(d->s, ACT_ALLOC | ACT_W, g->grad, 0, 0);
    z3_block(z, STREAM_COMPUTE, PHASE_INIT, "await the zeros");
    if (!pin)
        return;
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "their pinned block stays");
    pinned_keep(&z->away.pinned, d->s, bytes);
}

/* initialize_optimizer_states, then _setup_for_real_optimizer's buffers. */
void z3_away_gradients(struct z3 *z)
{
    struct ds *d = &z->d;

    for (int i = 0; i < z->ngroups; i++)
        if (z->groups[i].disk) {
            z3_disk_states(z, &z->groups[i]);
        } else if (z->groups[i].host) {
            zeros(z, z->away.pin_states, z->groups[i].grad, z->groups[i].elems * 4);
            if (!z3_is_flat(z, &z->groups[i]))
                z3_files_values(z, &z->groups[i], PHASE_INIT, 0);
        } else
            zeros_to_device(z, &z->groups[i]);
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
    ds_coll(d, STREAM_COMPUTE, PHASE_INIT, COLL_BARRIER, DT_FP32, RED_NONE, 0);
    if (d->p->ds.contiguous_gradients)
        ds_memory(d, PHASE_INIT, "gradient bucket", ACT_ALLOC, z->ipg);
    zeros(z, z->away.pin_states, z->grad_buffer, z->all_q * dtype_bytes(z->accum));
    z3_block(z, STREAM_HOST, PHASE_INIT, "await the host");
}

/* ---- partitions come to the device: .to(current_device_name()) ---- */

void z3_use_here(struct z3 *z, int what, int t)
{
    int64_t from, n = z3_part(z, t, &from);

    ds_act_part(&z->d, &z->away.here, what, t, from, n, 0);
}

void z3_bring(struct z3 *z, enum stream st, enum phase ph, int t)
{
    struct ds *d = &z->d;

    z3_files_ensure(z, ph, &t, 1);
    sched_set(d->s, st, ph, "partition to device", z->q[t] * d->e, z->q[t] * d->e);
    z3_act_partition(z, ACT_R, t);
    z3_use_here(z, ACT_ALLOC | ACT_W, t);
    sched_of(d->s, "parameter", t, 0);
    z3_block(z, st, ph, "await the partition");
}

void z3_bring_whole(struct z3 *z, enum stream st, enum phase ph, int t)
{
    struct ds *d = &z->d;

    z3_take_buffer(z, t, Z3_COPY);
    z3_files_ensure(z, ph, &t, 1);
    sched_set(d->s, st, ph, "parameter to device", z->q[t] * d->e, z->q[t] * d->e);
    z3_act_partition(z, ACT_R, t);
    ds_act(d, &z->copy, ACT_ALLOC | ACT_W, t, z->which[t]);
    sched_of(d->s, "parameter", t, 0);
}

/* ---- gradients leave the device: partition_grads ---- */

/* A gradient on its way, of one tensor: n elements of this rank, on the device and in the dtype of accumulation.  buf -1:
 * in its tensor's own buffer, where it stays until it is on disk. */
struct part {
    int     tensor, buf, layout;
    int64_t n;
    const struct z3_group *group;
};

static void act_stays(struct z3 *z, int what, const struct part *p)
{
    int64_t from;

    z3_part(z, p->tensor, &from);
    ds_act_part(&z->d, &z->disk.wide, what, p->tensor, from, p->n, 0);
}

static void act_part(struct z3 *z, int what, const struct part *p)
{
    if (p->buf < 0)
        act_stays(z, what, p);
    else
        sched_act_as(z->d.s, what, p->buf, 0, 0, p->layout);
}

/* A copy of gradients on the stream of the reduction; with pageable memory it holds the issuing thread. */
static void carry(struct z3 *z, const char *what, int64_t bytes)
{
    sched_set(z->d.s, z->reduce_stream, PHASE_REDUCE, what, bytes, bytes);
}

static void carried(struct z3 *z)
{
    if (!z->away.pin_states)
        z3_block(z, z->reduce_stream, PHASE_REDUCE, "pageable memory");
}

static int in_grad_buffer(struct z3 *z, int t) { return z3_own(z, HOLDS_GRAD, z->accum, &t, 1, 0); }

static void to_host(struct z3 *z, const struct part *p, const struct z3_wire *w, int what)
{
    carry(z, "gradient to host", p->n * dtype_bytes(z->accum));
    if (w)
        z3_act_own(z, what, w);
    else
        act_part(z, what, p);
    sched_act_as(z->d.s, ACT_W, z->grad_buffer, 0, 0, in_grad_buffer(z, p->tensor));
    carried(z);
}

static void from_host(struct z3 *z, const struct part *p, int what)
{
    carry(z, "gradient back to device", p->n * dtype_bytes(z->accum));
    sched_act_as(z->d.s, ACT_R, z->grad_buffer, 0, 0, in_grad_buffer(z, p->tensor));
    act_part(z, what, p);
    carried(z);
}

/* _constant_buffered_norm2: pieces of 250e6 elements, widened to fp64. */
static void norm(struct z3 *z, const struct part *p)
{
    struct ds *d = &z->d;
    int64_t piece = p->n < 250000000 ? p->n : 250000000;

    sched_copy(d->s, z->reduce_stream, PHASE_REDUCE, "gradient norm", p->n * dtype_bytes(z->accum), 0);
    sched_does(d->s, COPY_NORM, 1);
    act_part(z, ACT_R, p);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "gradient in fp64", round512(piece * 8)), 0, 0);
}

static void cast_to_fp32(struct z3 *z, const struct part *p)
{
    sched_set(z->d.s, z->reduce_stream, PHASE_REDUCE, "gradient to fp32", p->n * dtype_bytes(z->accum), p->n * 4);
}

/* In fp32: the part itself, or a cast of it. */
static struct part in_fp32(struct z3 *z, const struct part *p)
{
    struct part wide = *p;

    if (z->accum == DT_FP32)
        return wide;
    wide.buf = ds_scratch(&z->d, CAT_TEMPORARIES, "gradient part in fp32", round512(p->n * 4));
    wide.layout = z3_parts(z, HOLDS_GRAD, DT_FP32, &p->tensor, 1);
    cast_to_fp32(z, p);
    act_part(z, ACT_R, p);
    act_part(z, ACT_ALLOC | ACT_W, &wide);
    return wide;
}

/* The fp32 gradient of a sub-group on disk waits for the rest of its bucket. */
static void to_fp32(struct z3 *z, const struct part *p)
{
    cast_to_fp32(z, p);
    act_part(z, ACT_R | ACT_FREE, p);
    act_stays(z, ACT_ALLOC | ACT_W, p);
}

/* _offload_grad_partition_at_boundary. */
static void at_boundary(struct z3 *z, const struct part *p)
{
    const struct z3_group *g = p->group;

    norm(z, p);
    if (g->disk) {
        if (z->accum != DT_FP32)
            to_fp32(z, p);
        return;
    }
    struct part wide = in_fp32(z, p);
    carry(z, g->host ? "fp32 gradient to host" : "fp32 gradient", p->n * 4);
    act_part(z, ACT_R | ACT_FREE, &wide);
    if (wide.buf != p->buf)
        sched_act(z->d.s, ACT_FREE, p->buf, 0, 0);
    sched_act_as(z->d.s, ACT_W, g->grad, 0, 0, z3_own(z, HOLDS_GRAD, DT_FP32, &p->tensor, 1, z3_group_begin(z, g)));
    if (g->host)
        carried(z);
}

static void one_part(struct z3 *z, const struct z3_wire *w, int t, int64_t n)
{
    struct ds *d = &z->d;
    int64_t bytes = n * dtype_bytes(z->accum);
    struct part p = { .tensor = t, .n = n, .group = z3_group_of(z, t) };
    int last = z->boundary ? 0 : ACT_FREE;

    if (z->boundary && p.group->disk && z->accum == DT_FP32) {
        p.buf = -1;
    } else {
        p.buf = ds_scratch(d, CAT_TEMPORARIES, "gradient part", round512(bytes));
        p.layout = z3_parts(z, HOLDS_GRAD, z->accum, &t, 1);
    }
    if (!z->accumulates) {
        to_host(z, &p, w, ACT_R);
        from_host(z, &p, ACT_ALLOC | ACT_W | last);
    } else {
        from_host(z, &p, ACT_ALLOC | ACT_W);
        sched_copy(d->s, z->reduce_stream, PHASE_REDUCE, "add to gradient", 2 * bytes, bytes);
        sched_does(d->s, COPY_ADD, 1);
        z3_act_own(z, ACT_R, w);
        act_part(z, ACT_A, &p);
        to_host(z, &p, NULL, ACT_R | last);
    }
    if (z->boundary)
        at_boundary(z, &p);
}

/* What was reduced in another dtype is cast first, all of the bucket. */
static struct z3_wire cast_parts(struct z3 *z, const struct z3_wire *w)
{
    struct ds *d = &z->d;
    struct z3_wire to = *w;
    int64_t elems = 0, bytes = 0;

    for (int i = 0; i < z->nbucket; i++) {
        elems += z->q[z->bucket[i]];
        bytes += round512(z->q[z->bucket[i]] * dtype_bytes(z->accum));
    }
    to.buf = ds_scratch(d, CAT_TEMPORARIES, "gradient parts cast", bytes);
    to.own = z3_parts(z, HOLDS_GRAD, z->accum, z->bucket, z->nbucket);
    to.passing = true;
    sched_set(d->s, z->reduce_stream, PHASE_REDUCE, "cast gradient parts", elems * d->ce, elems * dtype_bytes(z->accum));
    z3_act_own(z, ACT_R, w);
    sched_act_as(d->s, ACT_ALLOC | ACT_W, to.buf, 0, 0, to.own);
    return to;
}

void z3_away_parts(struct z3 *z, const struct z3_wire *w)
{
    struct z3_wire from = z->d.comm != z->accum && !w->cast ? cast_parts(z, w) : *w;

    for (int i = 0; i < z->nbucket; i++) {
        int64_t begin, n = z3_part(z, z->bucket[i], &begin);
        if (n > 0)
            one_part(z, &from, z->bucket[i], n);
    }
    if (z->boundary && z->disk.states)
        z3_disk_gradients(z);
    sched_op(z->d.s, OP_MEMORY, z->reduce_stream, PHASE_REDUCE, "drop reduced gradients");
    if (z->boundary && z->disk.states)
        z3_disk_drop(z);
    if (from.buf != w->buf)
        sched_act(z->d.s, ACT_FREE, from.buf, 0, 0);
}
