/* lower_zero12.c -- DeepSpeed's stages 0, 1 and 2; here DeepSpeedZeroOptimizer, which
 * is stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py of 0.19.6 and 0.19.8).
 *
 * All parameters live in one flat buffer of A = pad(P, 2N) elements; rank r owns
 * elements [r A/N, (r+1) A/N) whatever tensors they belong to, with an fp32 master
 * and Adam's states for them.  There is no reduce-scatter: buckets are all-reduced
 * and each rank keeps what it owns.  README.md derives what it costs. */
#include "model/framework/deepspeed_012/lower_zero12.h"

#include <stdlib.h>

#include "base/fail.h"
#include "model/framework/deepspeed_012/lower_ds_other.h"

/* ---- init ---- */

/* single_partition_of_fp32_groups: a clone of the partition, widened; in fp32 the clone itself. */
static void fp32_partition(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    bool widens = d->dt != DT_FP32;

    if (widens) {
        sched_set(s, STREAM_COMPUTE, PHASE_INIT, "clone partition", z->of->part * d->e, z->of->part * d->e);
        sched_act_as(s, ACT_R, z->of->flat, 0, 0, z->of->flat_part);
        sched_act_as(s, ACT_ALLOC | ACT_WRITE, z->of->flat_grad, 0, 0, z->of->lone_part);
    }
    sched_set(s, STREAM_COMPUTE, PHASE_INIT, "fp32 partition", z->of->part * d->e, z->of->part * 4);
    if (!widens)
        sched_act_as(s, ACT_R, z->of->flat, 0, 0, z->of->flat_part);
    sched_act_as(s, ACT_ALLOC | ACT_WRITE, z->of->master, 0, 0, z->of->master_part);
    if (widens)
        sched_act_as(s, ACT_READ | ACT_FREE, z->of->flat_grad, 0, 0, z->of->lone_part);
}

/* initialize_optimizer_states: one of each group; all go when the last one is there. */
static void zero_gradients(struct z12 *z)
{
    for (int g = 0; g < z->ngroups; g++) {
        bool last = g == z->ngroups - 1;
        sched_copy(z->d.s, STREAM_COMPUTE, PHASE_INIT, "zero gradient", 0, z->group[g].part * 4);
        sched_does(z->d.s, COPY_ZERO, 0);
        sched_act(z->d.s, ACT_ALLOC | ACT_WRITE | (last ? ACT_FREE : 0), z->group[g].wide_grad, 0, 0);
        for (int i = 0; i < g && last; i++)
            sched_act(z->d.s, ACT_FREE, z->group[i].wide_grad, 0, 0);
    }
}

/* Of the constructor's loop: the cache is emptied, and a group is flattened beside itself where that has room, else on the host. */
static void flatten(struct z12 *z, int group, bool on_device)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t elems = 0;
    struct op *o;

    for (int t = 0; t < d->m->ntensors; t++)
        elems += z->belongs[t] == group ? z12_numel(z, t) : 0;
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "empty cache")->flags = OPF_EMPTIES;
    if (!on_device) {
        ds_memory(d, PHASE_INIT, "parameters to host", ACT_FREE, z->params[group]);
        s->ops[s->nops - 1].flags = OPF_EMPTIES;
    }
    o = sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "flatten parameters", elems * d->e, z->of->padded * d->e);
    sched_act(s, ACT_ALLOC | ACT_WRITE, z->of->flat, 0, 0);
    if (on_device) {
        sched_does(s, COPY_SET, 1);
        sched_act(s, ACT_READ | ACT_FREE, z->params[group], 0, 0);
    } else
        o->flags = OPF_LOAD;        /* what the host has: the same weights */
}

/* The constructor: of each group flat parameters and fp32 partition; then a zero gradient that
 * initialize_optimizer_states makes and drops. */
static void init(void *zero12)
{
    struct z12 *z = zero12;
    struct ds *d = &z->d;
    int64_t room = cluster_available(&d->p->cluster) - d->frozen_bytes;

    for (int g = 0; g < z->ngroups; g++)
        room -= d->s->bufs[z->params[g]].bytes;
    ds_pipe_construct(d);
    ds_load_model(d, z->params, z->ngroups, z->belongs);
    for (int g = 0; g < z->ngroups; g++) {
        z->of = &z->group[g];
        int64_t flat = d->s->bufs[z->of->flat].bytes;
        flatten(z, g, room >= flat);
        room += d->s->bufs[z->params[g]].bytes - flat;
        if (z->host) {
            z12_offload_init(z);
            continue;
        }
        fp32_partition(z);
        room -= d->s->bufs[z->of->master].bytes;
    }
    if (!z->host)
        zero_gradients(z);
    z->of = z->group;
    ds_pipe_greet(d);
}

/* ---- a micro-step ---- */

/* reduce_gradients, stage 1 without overlap_comm: after backward, one parameter group after the other. */
static void reduce_after(struct z12 *z)
{
    int n = 0;

    for (int g = 0; g < z->ngroups; g++)
        for (int i = 0, all = z12_members(z, g, z->members); i < all; i++) {
            int t = z->members[i];
            if (z12_acts(z, &t, 1)) {
                z12_copy_in(z, z->pending, n);
                n = 0;
                z12_hook(z, t);
                continue;
            }
            z12_add(z, t);
            z->pending[n++] = t;
        }
    z12_copy_in(z, z->pending, n);
}

/* all_grad_tensors keeps the sum of earlier micro-steps. */
static void accumulate_own(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t bytes = z->own_numel * d->e;

    sched_copy(s, STREAM_COMPUTE, PHASE_REDUCE, "accumulate own gradients", 2 * bytes, bytes);
    sched_does(s, COPY_ADD, 1);
    if (z->contiguous && z->own_numel > 0) {
        sched_act(s, ACT_A, z->own, 0, 0);
        sched_act(s, ACT_READ | ACT_FREE, z->own, 1, 0);
    }
    for (int t = 0; t < d->m->ntensors && !z->contiguous; t++)
        if (z12_owns(z, t)) {
            ds_act(d, &z->grads, ACT_A, t, 0);
            ds_act(d, &z->grads, ACT_READ | ACT_FREE, t, 1);
        }
}

void z12_release_bucket(struct z12 *z, enum phase ph, bool viewed)
{
    bool any = false;

    for (int i = 0; i <= z->overlap; i++) {
        if (z->viewed[i] != viewed)
            continue;
        if (!any)
            sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, ph, "release bucket");
        any = true;
        sched_act(z->d.s, ACT_FREE, z->ipg, i, 0);
    }
}

void z12_drop_grads(struct z12 *z, enum phase ph, bool own)
{
    bool any = false;

    for (int t = 0; t < z->d.m->ntensors; t++) {
        if (!z->live[t] || z12_owns(z, t) != own || (ph == PHASE_OPTIMIZER && z12_group_of(z, t) != z->of))
            continue;
        if (!any)
            sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, ph, "drop gradients");
        any = true;
        ds_act(&z->d, &z->grads, ACT_FREE, t, 0);
        z->live[t] = Z12_GONE;
    }
}

/* independent_gradient_partition_epilogue. */
static void epilogue(struct z12 *z, bool boundary)
{
    struct ds *d = &z->d;

    z12_flush(z);
    if (z->overlap)
        ds_synchronize(d, PHASE_REDUCE, "synchronize");
    z12_free_late(z);
    if (z->copy == 1)
        accumulate_own(z);
    if (boundary && z->compact && !z->own_live && !z->host)
        z12_build_partition(z, STREAM_COMPUTE);
    if (boundary && z->muon)
        z12_muon_orthogonalise(z, d->walk.step == SCHED_FIRST);
    for (int g = 0; g < z->ngroups && boundary && !z->compact && !z->host; g++)     /* get_flat_partition */
        if (z->group[g].own_pad > 0)
            ds_memory(d, PHASE_REDUCE, "pad own gradients", ACT_ALLOC, z->group[g].pad);
    if (z->ipg_live)
        z12_release_bucket(z, PHASE_REDUCE, false);
    z->ipg_live = false;
    if (z->compact && z->stage2)    /* _clear_param_grad_only */
        z12_drop_grads(z, PHASE_REDUCE, true);
}

/* Of backward: a stage of a pipeline reduces after all passes. */
static void begin_micro_step(struct z12 *z)
{
    const struct walk *w = &z->d.walk;
    bool stage = walk_is_stage(w), first = stage ? stage_ports_passed(&w->ports, PIPE_BACKWARD, 0) == 0 : w->first;

    z->first_micro = first;
    z->boundary = w->last && !stage;
    z->hooks = z->stage2 || (z->boundary && z->overlap);
    z->copy = z->stage2 && !first && !z->compact && !z->host;
    z->grad_copy = z->copy && !z->contiguous;
    if (first || !z->compact)
        z->own_live = false;
    z->viewed[0] = z->viewed[1] = false;
    z->nth = 0;
    if (z->wide)                    /* .grad goes into its fp32 sum */
        z->mode = Z12_KEEP;
    else if (z->hooks && z->contiguous && (z->stage2 || first))
        z->mode = Z12_STREAM;
    else
        z->mode = first || z->stage2 ? Z12_KEEP : Z12_ADD;
    if (z->copy)
        for (int t = 0; t < z->d.m->ntensors; t++)
            z->live[t] = Z12_GONE;  /* of copy 1 */
    z->makes_sums &= first;
}

static void begin_pass(void *zero12)
{
    struct z12 *z = zero12;

    ds_begin_pass(z);
    if (z->d.walk.forward)
        return;
    begin_micro_step(z);
    z12_begin_backward(z);
}

static void pre_run(void *zero12, const struct walk_run *r) { ds_pipe_before(&((struct z12 *)zero12)->d, r); }

static void compute(void *zero12, const struct walk_run *r)
{
    struct z12 *z = zero12;

    ds_reads_frozen(&z->d);
    for (int g = 0; g < z->ngroups; g++)
        sched_act(z->d.s, ACT_R, z->group[g].flat, 0, 0);
    if (!r->forward)
        z12_leave_gradients(z, r);
}

static void post_backward(void *zero12, struct at root)
{
    struct z12 *z = zero12;

    (void)root;
    z12_end_backward(z);
    ds_pipe_end_of_backward(&z->d);
}

static void end_of_micro_step(void *zero12)
{
    struct z12 *z = zero12;

    if (!z->stage2 && z->boundary && !z->hooks)
        reduce_after(z);
    if (z->stage2 || z->boundary)
        epilogue(z, z->boundary);
}

/* PipelineEngine's ReduceTiedGrads, and ReduceGrads: reduce_gradients(pipeline_parallel=True), which appends a bucket that nobody uses. */
static void reduce_stage(struct z12 *z)
{
    struct ds *d = &z->d;
    int unused = z->contiguous ? ds_scratch(d, CAT_BUCKET, "bucket that is not used", round512(z->bucket_size * z->be)) : -1;

    for (int t = 0; t < d->m->ntensors; t++)
        if (ds_is_shared(d, t)) {
            ds_pipe_sum_tied(d, t, d->dt);
            ds_act(d, &z->grads, ACT_RW, t, 0);
        }
    z->boundary = true;
    if (unused >= 0)
        ds_memory(d, PHASE_REDUCE, "bucket that is not used", ACT_ALLOC, unused);
    reduce_after(z);
    epilogue(z, true);
    if (unused >= 0)
        ds_memory(d, PHASE_REDUCE, "bucket that is not used", ACT_FREE, unused);
}

/* ---- whole steps ---- */

static void begin(void *zero12)
{
    struct z12 *z = zero12;

    z->makes_sums = z->d.walk.step == SCHED_FIRST;
    z->copying = false;
    ds_pipe_begin(&z->d);
}

static void end_of_backward(void *zero12)
{
    struct z12 *z = zero12;

    if (walk_is_stage(&z->d.walk))
        reduce_stage(z);
    if (z->stage2 && !z->contiguous && !z->compact)
        for (int t = 0; t < z->d.m->ntensors; t++)
            z->live[t] = z12_owns(z, t) ? Z12_THERE : Z12_GONE;
}

static const struct walk_hooks hooks = {
    .init = init, .begin = begin, .end_of_backward = end_of_backward, .optimizer = z12_step, .begin_pass = begin_pass,
    .end_of_micro_step = end_of_micro_step, .end_of_pass = ds_pipe_end_of_pass, .post_backward = post_backward, .compute = compute,
    .pre_run = pre_run, .post_run = z12_post_run, .pass = z12_pass, .pre_stage_act = ds_pipe_pre_act, .stage_act = ds_pipe_act,
    .grads = CAT_GRADS,
};

/* ---- the whole ---- */

static int setup(struct z12 *z, const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    size_t n = (size_t)local->model->ntensors + 1;
    int64_t experts = 0, part = 0;

    z->start = calloc(n, sizeof *z->start);
    z->live = calloc(n, 1);
    z->bucket = calloc(n, sizeof *z->bucket);
    z->late = calloc(n, sizeof *z->late);
    z->pending = calloc(n, sizeof *z->pending);
    z->there = calloc(n, sizeof *z->there);
    z->handed = calloc(3 * n, sizeof *z->handed);
    z->at = calloc(n, sizeof *z->at);
    z->own_at = calloc(n, sizeof *z->own_at);
    if (!p->ds.use_multi_rank_bucket_allreduce && p->ds.reduce_scatter)
        z->owner_last = calloc(2 * (size_t)local->data_ranks, sizeof *z->owner_last);
    if (ds_init(&z->d, local, s, &hooks) < 0)
        return -1;
    z->d.walk.last_differs = true;      /* it reduces; stage 2 always does, but adds the padding with the last one only */
    z->stage2 = p->strategy == STRAT_ZERO2;
    z->overlap = p->ds.overlap_comm;
    z->host = p->ds.offload_optimizer.device != OFFLOAD_NONE;
    z->contiguous = p->ds.contiguous_gradients || z->host;
    z->copied = z->host ? sched_event(s) : 0;
    z->newer = plan_has_deepspeed_0_19_8(p);
    z->wide = p->ds.grad_accum_fp32 && !z->stage2 && z->d.dt != DT_FP32;
    z->compact = p->ds.grad_accum_fp32 && z->newer && z->d.dt != DT_FP32;
    z->bt = z->wide && z->compact ? DT_FP32 : z->d.dt;
    z->be = dtype_bytes(z->bt);
    z->bucket_size = p->ds.reduce_bucket_size;
    z->stream = z->overlap ? STREAM_REDUCE : STREAM_COMPUTE;
    if (z12_make_groups(z, z->late) < 0)
        return -1;
    z->params = calloc((size_t)z->ngroups, sizeof *z->params);
    if (!z->params)
        return fail("out of memory for parameter groups");
    z12_measure(z);
    z12_declare(z);
    ds_pipe_declare(&z->d);
    for (int g = 1; g < z->ngroups; g++)
        experts += z->group[g].padded, part += z->group[g].part;
    sched_unit(s, "model", 0, z->d.m->trainable, z->group->padded + experts, z->group->part + part);
    return 0;
}

static void notes(const struct z12 *z)
{
    sched_note(z->d.s, "DeepSpeed all-reduces every gradient bucket and gathers all parameters after the "
                       "step: three times the parameters on the wire, not two");
    if (z->contiguous)
        sched_note(z->d.s, "the gradient bucket has reduce_bucket_size elements whatever the model's size");
    if (z->wide && !z->compact)     /* copy_grads_in_partition: the average replaces a copy that nobody reads */
        sched_note(z->d.s, "DeepSpeed 0.19.6 averages gradients here and then trains on each rank's own, since they "
                           "accumulate in fp32 at stage 1 (mended in 0.19.8); its memory was not compared in this case");
    if (z->muon)
        sched_note(z->d.s, "every rank that has a part of a matrix orthogonalises all of it; the memory of Newton-Schulz is that without "
                           "torch.compile, with which DeepSpeed runs it");
    if (z->stage2 && z->d.p->accumulation > 1)
        sched_note(z->d.s, "stage 2 reduces after every micro-step: accumulation saves no communication");
    if (z->d.p->parallel.context > 1)   /* average_tensor() divides by world / sequence_parallel_size; stage 3 by world */
        sched_note(z->d.s, "with parallel.context stages 1 and 2 of DeepSpeed leave gradients, and the norm that clip is compared with, "
                           "context times as large as the mean (stage 3 does not); the schedule has the mean");
}

int lower_zero12(const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct z12 z = { 0 };
    int rc = -1;

    if (p->strategy == STRAT_DDP)
        return (p->parallel.pipeline > 1 && p->precision == DT_BF16 ? lower_ds_bf16 : lower_ds_stage0)(local, s);
    if (p->strategy == STRAT_ZERO1 && p->ds.grad_accum_fp32 && p->precision == DT_BF16
        && p->ds.offload_optimizer.device == OFFLOAD_NONE)
        return lower_ds_bf16(local, s);
    if (setup(&z, local, s) < 0)
        goto out;
    s->hooks = HOOKS_OF_GRADIENTS;
    if (walk_steps(&z.d.walk) < 0)
        goto out;
    notes(&z);
    rc = 0;
out:
    ds_free(&z.d);
    ds_undeclare(&z.grads);
    ds_undeclare(&z.narrow);
    ds_undeclare(&z.sums);
    ds_undeclare(&z.updates);
    free(z.params);
    free(z.start);
    free(z.live);
    free(z.bucket);
    free(z.late);
    free(z.pending);
    free(z.there);
    free(z.handed);
    free(z.at);
    free(z.own_at);
    free(z.slices);
    free(z.group);
    free(z.belongs);
    free(z.members);
    free(z.owner_last);
    return rc;
}
