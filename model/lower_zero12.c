/* lower_zero12.c -- DeepSpeed's stages 0, 1 and 2; here DeepSpeedZeroOptimizer, which
 * is stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py of 0.19.6).
 *
 * All parameters live in one flat buffer of A = pad(P, 2N) elements; rank r owns
 * elements [r A/N, (r+1) A/N) whatever tensors they belong to, with an fp32 master
 * and Adam's states for them.  There is no reduce-scatter: buckets are all-reduced
 * and each rank keeps what it owns.  model/README.md derives what it costs. */
#include "model/lower_zero12.h"

#include <stdlib.h>

#include "model/fail.h"
#include "model/lower_ds_other.h"

/* ---- sizes ---- */

static int64_t numel(const struct z12 *z, int t) { return z->d.m->tensors[t].numel; }

/* _round_robin_reorder: parameters 0, N, 2N, ...; 1, N+1, ... */
static void flat_order(struct z12 *z, int *order)
{
    int n = z->d.m->ntensors, k = 0;
    int64_t step = z->d.p->ds.round_robin_gradients ? z->d.n : 1, at = 0;

    for (int64_t first = 0; first < step && first < n; first++)
        for (int64_t t = first; t < n; t += step) {
            z->start[t] = at;
            at += numel(z, (int)t);
            order[k++] = (int)t;
        }
}

static void measure(struct z12 *z)
{
    int64_t left = z->d.rank * z->part, right = left + z->part;
    int64_t filled = z->d.m->params < right ? z->d.m->params : right;

    z->own_pad = filled < left ? z->part : right - filled;
    for (int t = 0; t < z->d.m->ntensors; t++) {
        int64_t a = z->start[t] > left ? z->start[t] : left;
        int64_t b = z->start[t] + numel(z, t) < right ? z->start[t] + numel(z, t) : right;
        if (b <= a)
            continue;
        z->nown++;
        z->own_numel += numel(z, t);
        if (b - a > z->own_largest)
            z->own_largest = b - a;
    }
    if (z->own_pad > z->own_largest)
        z->own_largest = z->own_pad;
}

static int64_t wide_bytes(const struct ds *d, const struct tensor *t)
{
    (void)d;
    return round512(t->numel * 4);
}

static void declare(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    bool twice = z->stage2 && d->p->accumulation > 1;
    int64_t e = z->wide ? 4 : d->e;

    z->params = sched_buf(s, CAT_PARAMS, "parameters before flattening", NULL, 0, 1,
                          ds_sum(d, ds_tensor_bytes));
    z->flat = sched_buf(s, CAT_PARAMS, "flat parameters", NULL, 0, 1, round512(z->padded * d->e));
    z->master = sched_buf(s, CAT_OPTIMIZER, "fp32 partition", NULL, 0, 1, round512(z->part * 4));
    z->adam = sched_buf(s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", NULL, 0, 1, 2 * round512(z->part * 4));
    z->ipg = sched_buf(s, CAT_BUCKET, "gradient bucket", "bucket", 0, z->overlap ? 2 : 1,
                       round512(z->bucket_size * d->e));
    z->own = sched_buf(s, CAT_GRADS, "gradients that touch the partition", NULL, 0, twice ? 2 : 1,
                       round512(z->own_numel * d->e));
    z->pad = sched_buf(s, CAT_GRADS, "zeros beyond the last gradient", NULL, 0, 1, round512(z->own_pad * e));
    z->flat_grad = sched_buf(s, CAT_TEMPORARIES, "flat gradient partition", NULL, 0, 1,
                             round512(z->part * e));
    z->wide_grad = sched_buf(s, CAT_TEMPORARIES, "fp32 gradient partition", NULL, 0, 1,
                             round512(z->part * 4));
    z->partial = sched_buf(s, CAT_GRADS, "first part of the tied gradient", NULL, 0, 1,
                           d->tied >= 0 ? ds_tensor_bytes(d, &d->m->tensors[d->tied]) : 0);
    ds_declare(d, &z->grads, CAT_GRADS, "gradient", twice && !z->contiguous ? 2 : 1,
               z->wide ? wide_bytes : ds_tensor_bytes);
}

/* ---- init ---- */

/* The constructor: flatten, fp32 partition, and a zero gradient that
 * initialize_optimizer_states makes and drops. */
static void init(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t model = s->bufs[z->params].bytes, flat = s->bufs[z->flat].bytes;
    bool on_device = cluster_available(&d->p->cluster) - model >= flat;

    sched_begin(s, SCHED_INIT);
    ds_memory(d, PHASE_INIT, "model to device", ACT_ALLOC, z->params);
    ds_broadcast_model(d, z->params);
    if (!on_device)                 /* too full: flattened on the host */
        ds_memory(d, PHASE_INIT, "parameters to host", ACT_FREE, z->params);
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "flatten parameters", d->m->params * d->e, z->padded * d->e);
    sched_act(s, ACT_ALLOC, z->flat, 0, 0);
    if (on_device)
        sched_act(s, ACT_FREE, z->params, 0, 0);
    if (d->dt != DT_FP32) {
        sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "clone partition", z->part * d->e, z->part * d->e);
        sched_act(s, ACT_ALLOC, z->flat_grad, 0, 0);
    }
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "fp32 partition", z->part * d->e, z->part * 4);
    sched_act(s, ACT_USE, z->flat, 0, 0);
    sched_act(s, ACT_ALLOC, z->master, 0, 0);
    if (d->dt != DT_FP32)
        sched_act(s, ACT_FREE, z->flat_grad, 0, 0);
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "zero gradient", 0, z->part * 4);
    sched_act(s, ACT_ALLOC | ACT_FREE, z->wide_grad, 0, 0);
    sched_end(s, SCHED_INIT);
}

/* ---- a micro-step ---- */

static void use_flat(void *arg, enum pass pass, enum piece_id piece, int block, int by)
{
    const struct z12 *z = arg;

    (void)pass, (void)piece, (void)block, (void)by;
    sched_act(z->d.s, ACT_USE, z->flat, 0, 0);
}

/* reduce_gradients, stage 1 without overlap_comm: after backward, registration order. */
static void reduce_after(struct z12 *z)
{
    int *pending = z->late + z->d.m->ntensors, n = 0;

    for (int t = 0; t < z->d.m->ntensors; t++) {
        if (z12_acts(z, &t, 1)) {
            z12_copy_in(z, pending, n);
            n = 0;
            z12_hook(z, t);
            continue;
        }
        z12_add(z, t);
        pending[n++] = t;
    }
    z12_copy_in(z, pending, n);
}

/* independent_gradient_partition_epilogue. */
static void epilogue(struct z12 *z, bool boundary)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t bytes = z->own_numel * d->e;

    z12_flush(z);
    if (z->overlap)
        ds_synchronize(d, PHASE_REDUCE, "synchronize");
    z12_free_late(z);
    if (z->copy == 1) {             /* all_grad_tensors keeps the sum of earlier micro-steps */
        sched_copy(s, STREAM_COMPUTE, PHASE_REDUCE, "accumulate own gradients", 2 * bytes, bytes);
        if (z->contiguous && z->own_numel > 0) {
            sched_act(s, ACT_USE, z->own, 0, 0);
            sched_act(s, ACT_FREE, z->own, 1, 0);
        }
        for (int t = 0; t < d->m->ntensors && !z->contiguous; t++)
            if (z12_owns(z, t)) {
                ds_act(d, &z->grads, ACT_USE, t, 0);
                ds_act(d, &z->grads, ACT_FREE, t, 1);
            }
    }
    if (boundary && z->own_pad > 0) /* get_flat_partition */
        ds_memory(d, PHASE_REDUCE, "pad own gradients", ACT_ALLOC, z->pad);
    if (z->ipg_live)
        ds_memory(d, PHASE_REDUCE, "release bucket", ACT_FREE, z->ipg);
    z->ipg_live = false;
}

static void micro_step(struct z12 *z, bool first, bool boundary)
{
    z->first_micro = first;
    z->hooks = z->stage2 || (boundary && z->overlap);
    z->copy = z->stage2 && !first;
    z->grad_copy = z->copy && !z->contiguous;
    z->own_live = false;
    z->nth = 0;
    if (z->wide)
        z->mode = Z12_ADD;
    else if (z->hooks && z->contiguous && (z->stage2 || first))
        z->mode = Z12_STREAM;
    else
        z->mode = first || z->stage2 ? Z12_KEEP : Z12_ADD;
    if (z->copy)
        for (int t = 0; t < z->d.m->ntensors; t++)
            z->live[t] = 0;         /* of copy 1 */
    ds_pass(&z->d, PASS_FORWARD, GRADS_IN_PLACE, use_flat, z);
    z12_backward(z);
    if (!z->stage2 && boundary && !z->hooks)
        reduce_after(z);
    if (z->stage2 || boundary)
        epilogue(z, boundary);
}

/* ---- the step ---- */

static void drop_grads(struct z12 *z, bool own)
{
    bool any = false;

    for (int t = 0; t < z->d.m->ntensors; t++) {
        if (!z->live[t] || z12_owns(z, t) != own)
            continue;
        if (!any)
            sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop gradients");
        any = true;
        ds_act(&z->d, &z->grads, ACT_FREE, t, 0);
        z->live[t] = 0;
    }
}

static void drop_own(struct z12 *z)
{
    drop_grads(z, true);
    if (z->contiguous && z->own_numel > 0)
        sched_op(z->d.s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop own gradients");
    if (z->contiguous && z->own_numel > 0)
        sched_act(z->d.s, ACT_FREE, z->own, 0, 0);
    if (z->own_pad > 0)
        ds_memory(&z->d, PHASE_OPTIMIZER, "drop padding", ACT_FREE, z->pad);
}

/* check_overflow and scaled_global_norm. */
static void overflow_and_norm(struct z12 *z)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t bytes = z->part * (z->wide ? 4 : d->e);
    bool guarded = d->dt != DT_FP32 && d->p->ds.check_grad_overflow;

    if (guarded) {
        sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "look for overflow", bytes, 0);
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_UINT8, RED_MAX, 1);
        struct op *o = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow");
        o->after = AFTER(STREAM_COMPUTE);
    }
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", bytes, 0)->flags =
        guarded ? OPF_GUARDED : 0;
    /* One gradient at a time, in fp64. */
    sched_act(s, ACT_ALLOC | ACT_FREE, ds_scratch(d, CAT_TEMPORARIES, "gradient in fp64",
                                                  round512(z->own_largest * 8)), 0, 0);
    ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1)->flags =
        guarded ? OPF_GUARDED : 0;
}

/* DeepSpeedZeroOptimizer.step.  What is freed is freed with overflow as well. */
static void step(struct z12 *z, bool first)
{
    struct ds *d = &z->d;
    struct schedules *s = d->s;
    int64_t e = z->wide ? 4 : d->e, bytes = z->part * e;
    uint8_t guard = d->dt != DT_FP32 && d->p->ds.check_grad_overflow ? OPF_GUARDED : 0;
    bool flattens = z->nown + (z->own_pad > 0) > 1, casts = e != 4;
    int grad = casts ? z->wide_grad : flattens ? z->flat_grad : -1;

    overflow_and_norm(z);
    drop_grads(z, false);
    if (flattens) {
        sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "flatten gradients", bytes, bytes)->flags = guard;
        sched_act(s, ACT_ALLOC, z->flat_grad, 0, 0);
    }
    if (casts) {
        sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradients to fp32", bytes, z->part * 4)->flags = guard;
        sched_act(s, ACT_ALLOC, z->wide_grad, 0, 0);
        if (flattens)
            sched_act(s, ACT_FREE, z->flat_grad, 0, 0);
    }
    if (grad >= 0)
        drop_own(z);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "unscale and clip", z->part * 4, z->part * 4)->flags = guard;
    struct op *o = sched_op(s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "AdamW");
    o->u.optimizer.elems = z->part;
    o->flags = guard;
    sched_act(s, ACT_USE, z->master, 0, 0);
    sched_act(s, first ? ACT_ALLOC : ACT_USE, z->adam, 0, 0);
    if (grad >= 0)
        ds_memory(d, PHASE_OPTIMIZER, "drop fp32 gradients", ACT_FREE, grad);
    else
        drop_own(z);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "update parameters", z->part * 4,
               z->part * d->e)->flags = guard;
    sched_act(s, ACT_USE, z->flat, 0, 0);
    if (d->n > 1) {                 /* all_gather_dp_groups: all of it in one call */
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_GATHER, d->dt, RED_NONE, z->padded)->flags = guard;
        sched_act(s, ACT_USE, z->flat, 0, 0);
    }
    read_loss(s);
}

static void optimizer_step(struct z12 *z, enum sched_id id)
{
    int64_t m = z->d.p->accumulation, middle = m - (z->stage2 ? 1 : 2);

    sched_begin(z->d.s, id);
    micro_step(z, true, m == 1);
    if (z->stage2 && m > 1) {       /* padding comes with the last one only */
        if (m > 2) {
            sched_repeat(z->d.s, m - 2);
            micro_step(z, false, false);
            sched_repeat_end(z->d.s);
        }
        micro_step(z, false, true);
    } else if (m > 1) {
        if (middle > 0) {
            sched_repeat(z->d.s, middle);
            micro_step(z, false, false);
            sched_repeat_end(z->d.s);
        }
        micro_step(z, false, true);
    }
    if (z->stage2 && !z->contiguous)
        for (int t = 0; t < z->d.m->ntensors; t++)
            z->live[t] = z12_owns(z, t);
    step(z, id == SCHED_FIRST);
    sched_end(z->d.s, id);
}

/* ---- the whole ---- */

static int setup(struct z12 *z, const struct plan *p, int64_t rank, struct schedules *s)
{
    size_t n = (size_t)p->model.ntensors + 1;

    z->start = calloc(n, sizeof *z->start);
    z->live = calloc(n, 1);
    z->bucket = calloc(n, sizeof *z->bucket);
    z->late = calloc(2 * n, sizeof *z->late);
    if (!p->ds.use_multi_rank_bucket_allreduce && p->ds.reduce_scatter)
        z->owner_last = calloc((size_t)p->cluster.world_size, sizeof *z->owner_last);
    if (ds_init(&z->d, p, rank, s) < 0)
        return -1;
    z->stage2 = p->strategy == STRAT_ZERO2;
    z->overlap = p->ds.overlap_comm;
    z->contiguous = p->ds.contiguous_gradients;
    z->wide = p->ds.grad_accum_fp32 && !z->stage2 && z->d.dt != DT_FP32;
    z->bucket_size = p->ds.reduce_bucket_size;
    z->padded = round_up(p->model.params, 2 * z->d.n);
    z->part = z->padded / z->d.n;
    z->stream = z->overlap ? STREAM_REDUCE : STREAM_COMPUTE;
    flat_order(z, z->late);
    measure(z);
    declare(z);
    sched_unit(s, "model", 0, p->model.params, z->padded, z->part);
    return 0;
}

static void notes(const struct z12 *z)
{
    sched_note(z->d.s, "DeepSpeed all-reduces every gradient bucket and gathers all parameters after the "
                       "step: three times the parameters on the wire, not two");
    if (z->contiguous)
        sched_note(z->d.s, "the gradient bucket has reduce_bucket_size elements whatever the model's size");
    if (z->stage2 && z->d.p->accumulation > 1)
        sched_note(z->d.s, "stage 2 reduces after every micro-step: accumulation saves no communication");
}

int lower_zero12(const struct plan *p, int64_t rank, struct schedules *s)
{
    struct z12 z = { 0 };
    int rc = -1;

    if (p->strategy == STRAT_DDP)
        return lower_ds_stage0(p, rank, s);
    if (p->strategy == STRAT_ZERO1 && p->ds.grad_accum_fp32 && p->precision == DT_BF16)
        return lower_ds_bf16(p, rank, s);
    if (setup(&z, p, rank, s) < 0)
        goto out;
    init(&z);
    optimizer_step(&z, SCHED_FIRST);
    optimizer_step(&z, SCHED_STEADY);
    notes(&z);
    rc = 0;
out:
    ds_free(&z.d);
    ds_undeclare(&z.grads);
    free(z.start);
    free(z.live);
    free(z.bucket);
    free(z.late);
    free(z.slices);
    free(z.owner_last);
    return rc;
}

/* Whole tensors stay on every rank whose partition they touch, so the rank with
 * the most is one next to a large tensor.  Two fingers over tensors and ranks. */
int zero12_ranks(const struct plan *p, int64_t ranks[4])
{
    struct z12 z = { .d = { .p = p, .m = &p->model, .n = p->cluster.world_size } };
    int64_t part = round_up(p->model.params, 2 * z.d.n) / z.d.n, best = 0, most = -1, inside = 0;
    int lo = 0, hi = 0, n = p->model.ntensors;
    int *order = calloc((size_t)n + 1, sizeof *order);

    ranks[0] = 0;
    z.start = calloc((size_t)n + 1, sizeof *z.start);
    if (p->strategy == STRAT_DDP || !z.start || !order)
        goto out;
    flat_order(&z, order);
    for (int64_t r = 0; r < z.d.n && r * part < p->model.params; r++) {
        for (; hi < n && z.start[order[hi]] < (r + 1) * part; hi++)
            inside += numel(&z, order[hi]);
        for (; lo < hi && z.start[order[lo]] + numel(&z, order[lo]) <= r * part; lo++)
            inside -= numel(&z, order[lo]);
        if (inside > most) {
            most = inside;
            best = r;
        }
    }
out:
    free(z.start);
    free(order);
    ranks[1] = best;
    return best ? 2 : 1;
}
