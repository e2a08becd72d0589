/* lower_zero12_offload.c -- offload_optimizer of stages 1 and 2: the master, Adam's states and the gradient of the
 * partition are in host memory, where DeepSpeedCPUAdam steps them.
 *
 *     init    __init__ (fp32 partition, 16-bit staging, temp_grad_buffer_*), initialize_optimizer_states
 *     bucket  copy_grads_in_partition: of each gradient that touches the partition, after its reduction
 *               async_accumulate_grad_in_cpu_via_gpu     stage 2 with several micro-steps: up, add, down; whole
 *               set_norm_for_param_grad_in_gpu, update_offload_overflow_tracker, async_inplace_copy_grad_to_fp32_buffer
 *                                                        with the last one: norm, look at it, cast, down
 *     step    step(), complete_grad_norm_calculation_for_cpu_offload
 *
 * No stream is for copies alone: they are on the stream that reduces.  What is not pinned holds the issuing thread. */
#include "model/lower/common/pinned.h"
#include "model/framework/deepspeed_012/lower_zero12.h"

static int64_t largest(const struct z12 *z)
{
    int64_t n = 0;

    for (int t = 0; t < z->d.m->ntensors; t++)
        if (z12_numel(z, t) > n)
            n = z12_numel(z, t);
    return n;
}

/* ---- buffers ---- */

static bool pins(const struct z12 *z) { return z->d.p->ds.offload_optimizer.pin_memory; }

static int64_t host_bytes(const struct z12 *z, int64_t bytes) { return pins(z) ? pinned_bytes(bytes) : bytes; }

static int64_t sum_bytes(const struct ds *d, const struct tensor *t)
{
    int64_t bytes = t->numel * d->e;

    return d->p->ds.offload_optimizer.pin_memory ? pinned_bytes(bytes) : bytes;
}

static int kept(const struct z12 *z, enum category cat, const char *what, int64_t bytes)
{
    return sched_buf_in(z->d.s, pins(z) ? SPACE_PINNED : SPACE_HOST, cat, what, NULL, 0, 1, host_bytes(z, bytes));
}

void z12_declare_offload(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;

    z->of->master = kept(z, CAT_OPTIMIZER, "fp32 partition", z->of->part * 4);
    z->staging = kept(z, CAT_PARAMS, "updated partition on its way up", z->of->part * d->e);
    z->host_grad = kept(z, CAT_GRADS, "fp32 gradient of the partition", z->of->part * 4);
    z->unused = kept(z, CAT_OVERHEAD, "temp_grad_buffer_for_cpu_offload", largest(z) * d->e);
    z->moment[0] = sched_buf_in(s, SPACE_HOST, CAT_OPTIMIZER, "exp_avg", NULL, 0, 1, z->of->part * 4);
    z->moment[1] = sched_buf_in(s, SPACE_HOST, CAT_OPTIMIZER, "exp_avg_sq", NULL, 0, 1, z->of->part * 4);
    z->temp = sched_buf(s, CAT_OVERHEAD, "sum of earlier micro-steps", NULL, 0, 1, round512(largest(z) * d->e));
    z->sums.in = pins(z) ? SPACE_PINNED : SPACE_HOST;
    ds_declare(d, &z->sums, CAT_GRADS, "sum of gradients", 1, sum_bytes);
    ds_hold(d, &z->sums, HOLDS_GRAD, d->dt);
    if (!s->detailed)
        return;
    sched_holds(s, z->host_grad, z12_partition(z, HOLDS_GRAD, DT_FP32));
    sched_holds(s, z->moment[0], z12_partition(z, HOLDS_EXP_AVG, DT_FP32));
    sched_holds(s, z->moment[1], z12_partition(z, HOLDS_EXP_AVG_SQ, DT_FP32));
}

/* ---- the issuing thread ---- */

static void await(const struct z12 *z, enum phase ph, const char *what, uint16_t after)
{
    sched_op(z->d.s, OP_WAIT, STREAM_ISSUE, ph, what)->after = after;
}

/* What is pageable is copied while the issuing thread waits. */
static void await_pageable(const struct z12 *z, enum phase ph, enum stream st)
{
    if (!pins(z))
        await(z, ph, "pageable copy", AFTER(st));
}

/* ---- init ---- */

static void on_host(const struct z12 *z, const char *what, enum copy_fn fn, int64_t reads, int64_t writes)
{
    sched_copy(z->d.s, STREAM_HOST, PHASE_INIT, what, reads, writes);
    sched_does(z->d.s, fn, 1);
}

static int pageable(struct z12 *z, const char *what, int64_t bytes)
{
    return ds_scratch_in(&z->d, SPACE_HOST, CAT_TEMPORARIES, what, bytes);
}

/* Zeros in host memory, pinned as accelerator.pin_memory() does it: by a copy, of which the pageable tensor goes then
 * (`goes`) or with the constructor; that one is returned, or -1.  No data: all of it is written before it is read. */
static int zeros(struct z12 *z, const char *what, int to, int64_t bytes, bool goes)
{
    int from = pins(z) ? pageable(z, what, bytes) : to;

    on_host(z, what, COPY_NOTHING, 0, bytes);
    sched_act(z->d.s, ACT_ALLOC | ACT_USE, from, 0, 0);
    if (!pins(z))
        return -1;
    on_host(z, "pin", COPY_NOTHING, bytes, bytes);
    sched_act(z->d.s, ACT_USE | (goes ? ACT_FREE : 0), from, 0, 0);
    sched_act(z->d.s, ACT_ALLOC | ACT_USE, to, 0, 0);
    return goes ? -1 : from;
}

/* clone().to("cpu", fp32): down as it is, then widened there. */
static void master(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t bytes = z->of->part * d->e, wide = z->of->part * 4;
    bool widens = d->dt != DT_FP32;
    int fp32 = pins(z) ? pageable(z, "fp32 partition, not pinned yet", wide) : z->of->master;
    int down = widens ? pageable(z, "partition as it came", bytes) : fp32;

    sched_set(s, STREAM_COMPUTE, PHASE_INIT, "clone partition", bytes, bytes);
    sched_act_as(s, ACT_R, z->of->flat, 0, 0, z->of->flat_part);
    sched_act_as(s, ACT_ALLOC | ACT_W, z->of->flat_grad, 0, 0, z->of->lone_part);
    sched_set(s, STREAM_COMPUTE, PHASE_INIT, "partition to the host", bytes, bytes);
    sched_act_as(s, ACT_READ | ACT_FREE, z->of->flat_grad, 0, 0, z->of->lone_part);
    sched_act_as(s, ACT_ALLOC | ACT_W, down, 0, 0, z->of->lone_part);
    await(z, PHASE_INIT, "partition to the host", AFTER(STREAM_COMPUTE));
    if (widens) {
        on_host(z, "widen partition", COPY_SET, bytes, wide);
        sched_act_as(s, ACT_READ | ACT_FREE, down, 0, 0, z->of->lone_part);
        sched_act_as(s, ACT_ALLOC | ACT_W, fp32, 0, 0, z->of->master_part);
    }
    if (pins(z)) {
        on_host(z, "pin", COPY_SET, wide, wide);
        sched_act_as(s, ACT_READ | ACT_FREE, fp32, 0, 0, z->of->master_part);
        sched_act_as(s, ACT_ALLOC | ACT_W, z->of->master, 0, 0, z->of->master_part);
    }
}

void z12_offload_init(struct z12 *z)
{
    struct ds *d = &z->d;
    int64_t most = largest(z) * d->e;
    int held;

    master(z);
    held = zeros(z, "staging", z->staging, z->of->part * d->e, false);
    zeros(z, "temporary gradient", z->unused, most, true);
    sched_copy(d->s, STREAM_COMPUTE, PHASE_INIT, "zero temporary gradient", 0, most);
    sched_act(d->s, ACT_ALLOC | ACT_USE, z->temp, 0, 0);
    zeros(z, "gradient of the partition", z->host_grad, z->of->part * 4, true);
    await(z, PHASE_INIT, "constructed", AFTER(STREAM_HOST));
    if (held >= 0)
        ds_memory(d, PHASE_INIT, "the constructor's locals go", ACT_FREE, held);
}

/* ---- a gradient that touches the partition, reduced ---- */

/* Act on elements [from, from+n) where the reduction left them: in the bucket; in a gradient too large for it; where they
 * are accumulated in fp32, in the partition. */
static void act_reduced(struct z12 *z, int what, int t, int64_t from, int64_t n)
{
    struct schedules *s = z->d.s;
    int64_t left = z12_left(z->of);
    int layout = sched_layout(s, 0);

    if (z->compact) {
        sched_slice(s, HOLDS_GRAD, DT_FP32, t, from, n, (z->start[t] + from - left) * 4);
        sched_act_as(s, what, z->own, 0, 0, layout);
    } else if (z->large) {
        sched_slice(s, HOLDS_GRAD, z->grads.dtype, t, from, n, from * z->be);
        ds_act_as(&z->d, &z->grads, what, t, layout);
    } else {
        sched_slice(s, HOLDS_GRAD, z->bt, t, from, n, (z->at[t] + from) * z->be);
        sched_act_as(s, what, z->ipg, z->index, 0, layout);
    }
}

static void copy(struct z12 *z, const char *what, enum copy_fn fn, int64_t reads, int64_t writes)
{
    sched_copy(z->d.s, z->stream, PHASE_REDUCE, what, reads, writes);
    sched_does(z->d.s, fn, 1);
    sched_of(z->d.s, "bucket", z->nth, 0);
}

/* _record_offload_copy(), _wait_for_offload_copies(): 0.19.8's. */
static void copied(struct z12 *z)
{
    if (z->newer) {
        z->d.s->ops[z->d.s->nops - 1].record = z->copied;
        z->copying = true;
    }
    await_pageable(z, PHASE_REDUCE, z->stream);
}

static void await_copies(struct z12 *z, enum phase ph)
{
    if (z->copying)
        sched_op(z->d.s, OP_WAIT, STREAM_ISSUE, ph, "gradients on their way down")->wait[0] = z->copied;
    z->copying = false;
}

/* buffer_to_accumulate_to_in_cpu(): once, whole, and kept. */
static void make_sum(struct z12 *z, int t)
{
    struct schedules *s = z->d.s;
    int64_t bytes = z12_numel(z, t) * z->d.e;

    if (!z->makes_sums)
        return;
    if (pins(z)) {
        int from = pageable(z, "sum of gradients, not pinned yet", bytes);
        sched_copy(s, STREAM_HOST, PHASE_REDUCE, "zero sum of gradients", 0, bytes);
        sched_act(s, ACT_ALLOC | ACT_USE, from, 0, 0);
        sched_copy(s, STREAM_HOST, PHASE_REDUCE, "pin", bytes, bytes);
        sched_act(s, ACT_USE | ACT_FREE, from, 0, 0);
    } else
        sched_copy(s, STREAM_HOST, PHASE_REDUCE, "zero sum of gradients", 0, bytes);
    ds_act(&z->d, &z->sums, ACT_ALLOC | ACT_USE, t, 0);
    await(z, PHASE_REDUCE, "sum of gradients", AFTER(STREAM_HOST));
}

/* async_accumulate_grad_in_cpu_via_gpu. */
static void accumulate(struct z12 *z, int t)
{
    struct schedules *s = z->d.s;
    int64_t n = z12_numel(z, t), bytes = n * z->d.e;
    int whole;

    await_copies(z, PHASE_REDUCE);
    make_sum(z, t);
    if (!z->first_micro) {
        whole = sched_layout(s, 0);
        sched_slice(s, HOLDS_GRAD, z->d.dt, t, 0, n, 0);
        copy(z, "sum of gradients up", COPY_SET, bytes, bytes);
        ds_act(&z->d, &z->sums, ACT_R, t, 0);
        sched_act_as(s, ACT_W, z->temp, 0, 0, whole);
        await_pageable(z, PHASE_REDUCE, z->stream);
        copy(z, "add sum of gradients", COPY_ADD, 2 * bytes, bytes);
        sched_act_as(s, ACT_R, z->temp, 0, 0, whole);
        act_reduced(z, ACT_A, t, 0, n);
    }
    copy(z, "sum of gradients down", COPY_SET, bytes, bytes);
    act_reduced(z, ACT_R, t, 0, n);
    ds_act(&z->d, &z->sums, ACT_W, t, 0);
    copied(z);
}

/* Norm and the look for infinities, whose result the issuing thread reads, of the reduced gradient; of the slice alone where
 * that is all that there is. */
static void look_at(struct z12 *z, int t, int64_t from, int64_t n)
{
    struct ds *d = &z->d;
    int64_t e = z->compact ? 4 : z->be, all = z->compact ? n : z12_numel(z, t);
    bool guarded = d->dt != DT_FP32 && d->p->ds.check_grad_overflow;

    copy(z, "gradient norm", COPY_NORM, n * e, 0);
    act_reduced(z, ACT_R, t, from, n);
    sched_act(d->s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "gradient in fp64", round512(n * 8)), 0, 0);
    copy(z, "look for overflow", guarded ? COPY_OVERFLOW : COPY_NOTHING, 2 * all * e, 0);
    act_reduced(z, guarded ? ACT_R : ACT_USE, t, z->compact ? from : 0, all);
    await(z, PHASE_REDUCE, "read overflow of a gradient", AFTER(z->stream));
}

/* async_inplace_copy_grad_to_fp32_buffer_from_gpu. */
static void to_host(struct z12 *z, int t, int64_t from, int64_t n)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    bool casts = !z->compact && z->bt != DT_FP32;
    int wide = -1, alone = 0, there;

    if (casts) {
        alone = sched_layout(s, 0);
        sched_slice(s, HOLDS_GRAD, DT_FP32, t, from, n, 0);
        wide = ds_scratch(d, CAT_TEMPORARIES, "gradient in fp32 on its way down", round512(n * 4));
        copy(z, "gradient to fp32", COPY_SET, n * z->be, n * 4);
        act_reduced(z, ACT_R, t, from, n);
        sched_act_as(s, ACT_ALLOC | ACT_W, wide, 0, 0, alone);
    }
    there = sched_layout(s, 0);
    sched_slice(s, HOLDS_GRAD, DT_FP32, t, from, n, (z->start[t] + from - z12_left(z->of)) * 4);
    copy(z, "gradient down", COPY_SET, n * 4, n * 4);
    if (casts)
        sched_act_as(s, ACT_READ | ACT_FREE, wide, 0, 0, alone);
    else
        act_reduced(z, ACT_R, t, from, n);
    sched_act_as(s, ACT_W, z->host_grad, 0, 0, there);
    copied(z);
}

void z12_offload_gradient(struct z12 *z, int t)
{
    int64_t from, to;

    if (!z12_in_partition(z, t, &from, &to))
        return;
    if (z->stage2 && !z->compact && z->d.p->accumulation > 1)
        accumulate(z, t);
    if (!z->boundary)
        return;
    look_at(z, t, from, to - from);
    to_host(z, t, from, to - from);
}

/* ---- the step ---- */

/* check_overflow, and the norm of each gradient read by itself. */
static void overflow_and_norm(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;

    await_copies(z, PHASE_OPTIMIZER);
    if (z12_guard(z)) {
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_UINT8, RED_MAX, 1);
        sched_moves(s, OF_OVERFLOW);
        await(z, PHASE_OPTIMIZER, "read overflow", AFTER(STREAM_COMPUTE));
    }
    if (z->of->nown > 0) {
        sched_repeat(s, z->of->nown);
        await(z, PHASE_OPTIMIZER, "read the norm of a gradient", AFTER(STREAM_COMPUTE));
        sched_repeat_end(s);
    }
    ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1)->flags = z12_guard(z);
    sched_moves(s, OF_NORM);
    await(z, PHASE_OPTIMIZER, "read the norm", AFTER(STREAM_COMPUTE));
}

/* unscale_and_clip_grads does nothing without a norm to clip to and a loss scale; CPU Adam; the cast into the staging
 * buffer. */
static void step_on_host(struct z12 *z, bool first)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    struct op *o;

    if (d->p->clip > 0 || d->dt == DT_FP16) {
        sched_copy(s, STREAM_HOST, PHASE_OPTIMIZER, "unscale and clip", z->of->part * 4, z->of->part * 4)->flags = z12_guard(z);
        sched_does(s, COPY_CLIP, 1);
        sched_act(s, ACT_RW, z->host_grad, 0, 0);
    }
    o = lower_adamw(s, d->p, ADAMW_ON_HOST, z->of->part);
    o->flags = z12_guard(z);
    sched_act(s, ACT_R, z->host_grad, 0, 0);
    sched_act(s, ACT_RW, z->of->master, 0, 0);
    for (int i = 0; i < 2; i++)
        sched_act(s, first ? ACT_ALLOC | ACT_RW : ACT_RW, z->moment[i], 0, 0);
    sched_set(s, STREAM_HOST, PHASE_OPTIMIZER, "cast partition", z->of->part * 4, z->of->part * d->e)->flags = z12_guard(z);
    sched_act_as(s, ACT_R, z->of->master, 0, 0, z->of->master_part);
    sched_act_as(s, ACT_W, z->staging, 0, 0, z->of->lone_part);
    await(z, PHASE_OPTIMIZER, "CPU Adam", AFTER(STREAM_HOST));
}

void z12_offload_step(struct z12 *z, bool first)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t bytes = z->of->part * d->e;

    overflow_and_norm(z);
    step_on_host(z, first);
    sched_set(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "update parameters", bytes, bytes)->flags = z12_guard(z);
    sched_act_as(s, ACT_R, z->staging, 0, 0, z->of->lone_part);
    sched_act_as(s, ACT_W, z->of->flat, 0, 0, z->of->flat_part);
    await_pageable(z, PHASE_OPTIMIZER, STREAM_COMPUTE);
    if (z->compact && z->own_live)
        ds_memory(d, PHASE_OPTIMIZER, "drop fp32 gradients", ACT_FREE, z->own);
    z->own_live = false;
}
