/* lower_ds_other.c -- DeepSpeed's stage 0 and BF16_Optimizer: whole gradients in
 * .grad on every rank, reduced after the last micro-step's backward.
 *
 * Stage 0 in 16 bits is FP16_Optimizer (runtime/fp16/fused_optimizer.py), since the
 * configuration's "AdamW" is FusedAdam; in fp32 it is FusedAdam alone.
 * BF16_Optimizer is runtime/bf16_optimizer.py.  All of DeepSpeed 0.19.6. */
#include "model/lower_ds_other.h"

struct other {
    struct ds d;
    bool      bf16;
    int64_t   padded, part;
    int params, clones, flat, clone, master, adam, hp_grads, wide_list, wide_flat, partial, hp_temp, wire;
    struct ds_families grads;
    bool      add;                  /* .grad exists */
};

enum { ELEMENTS_PER_BUFFER = 500000000 };   /* engine.buffered_allreduce_fallback */

/* ---- micro-steps ---- */

static void entry(void *arg, enum pass pass, enum piece_id piece, int block, int by)
{
    const struct other *o = arg;
    const struct ds *d = &o->d;
    bool in_block = piece == PIECE_BLOCK || piece == PIECE_BLOCK_RECOMPUTED;

    sched_act(d->s, ACT_USE, o->flat, 0, 0);
    if (pass == PASS_FORWARD)
        return;
    if (piece == PIECE_HEAD && d->tied >= 0 && !o->add)
        ds_act(d, &o->grads, ACT_ALLOC, d->tied, 0);
    if (piece == PIECE_EMBED && d->tied >= 0 && o->add)
        sched_act(d->s, ACT_FREE, o->partial, 0, 0);
    for (int i = 0; i < d->nready[piece]; i++) {
        int t = d->ready[piece][i].tensor;
        if (!o->add && t == d->tied)
            continue;
        ds_act_by(d, &o->grads, o->add ? ACT_USE : ACT_ALLOC, t + (in_block ? block * d->per_block : 0), by);
    }
}

/* Where .grad exists, the head's part of a tied weight's gradient is kept beside it
 * until the embedding's is there. */
static void backward_add(struct other *o)
{
    const struct ds *d = &o->d;
    int tied = d->tied_kernel, cuts[] = { 0, tied, tied + 1, -1 };

    if (tied < 0) {
        ds_pass(d, PASS_BACKWARD, GRADS_DROP, entry, o);
        return;
    }
    for (int i = 0; i < 3; i++) {
        int end = cuts[i + 1] < 0 ? d->s->program.piece[PIECE_HEAD].nkernels[PASS_BACKWARD] : cuts[i + 1];
        if (end == cuts[i] && i < 2)
            continue;
        sched_compute(d->s, PHASE_BACKWARD, PIECE_HEAD, PASS_BACKWARD, cuts[i], end,
                      i == 1 ? GRADS_KEEP : GRADS_DROP, CAT_GRADS);
        ds_name(d, PIECE_HEAD, 0, 0);
        sched_act(d->s, ACT_USE, o->flat, 0, 0);
        if (i == 1)
            sched_act(d->s, ACT_ALLOC, o->partial, 0, 0);
        if (i == 2)
            sched_act(d->s, ACT_FREE, d->acts[PIECE_HEAD], 0, 0);
    }
    ds_blocks(d, PASS_BACKWARD, GRADS_DROP, entry, o);
    ds_whole(d, PASS_BACKWARD, GRADS_DROP, PIECE_EMBED, 0, 0, entry, o);
}

static int64_t grad_bytes(const struct other *o) { return o->d.m->params * o->d.e; }

static void micro_step(struct other *o, bool add)
{
    struct schedules *s = o->d.s;

    o->add = add;
    ds_pass(&o->d, PASS_FORWARD, GRADS_IN_PLACE, entry, o);
    if (o->bf16 && add)             /* backward_prologue: clear_lp_grads zeroes */
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "zero gradients", 0, grad_bytes(o));
    if (add)
        backward_add(o);
    else
        ds_pass(&o->d, PASS_BACKWARD, GRADS_KEEP, entry, o);
    if (!o->bf16)
        return;
    /* update_hp_grads: one gradient after the other, through an fp32 copy. */
    sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to fp32 gradients",
               grad_bytes(o) + 12 * o->d.m->params, 8 * o->d.m->params);
    sched_act(s, ACT_ALLOC | ACT_FREE, o->hp_temp, 0, 0);
    sched_act(s, ACT_USE, o->hp_grads, 0, 0);
}

static void micro_steps(struct other *o, bool grads_exist)
{
    int64_t m = o->d.p->accumulation;

    micro_step(o, grads_exist);
    if (m > 1) {
        sched_repeat(o->d.s, m - 1);
        micro_step(o, true);
        sched_repeat_end(o->d.s);
    }
}

/* ---- reduction: engine.allreduce_bucket ---- */

static void reduce_once(struct other *o, int64_t elems, int tensors, int source)
{
    struct ds *d = &o->d;
    enum dtype have = o->bf16 ? DT_FP32 : d->dt;
    int64_t bytes = elems * dtype_bytes(have), wire = elems * d->ce;
    int flat = -1, cast = -1;

    if (tensors > 1) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "flatten", bytes, bytes);
        flat = ds_scratch(d, CAT_BUCKET, "flattened gradients", round512(bytes));
        sched_act(d->s, ACT_ALLOC, flat, 0, 0);
    }
    if (d->comm != have) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "cast", bytes, wire);
        cast = ds_scratch(d, CAT_BUCKET, "gradients on the wire", round512(wire));
        sched_act(d->s, ACT_ALLOC, cast, 0, 0);
    }
    ds_coll(d, STREAM_COMPUTE, PHASE_REDUCE, COLL_ALL_REDUCE, d->comm, RED_SUM, elems);
    if (cast >= 0 || flat >= 0 || source >= 0)
        sched_act(d->s, ACT_USE, cast >= 0 ? cast : flat >= 0 ? flat : source, 0, 0);
    sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "divide", wire, wire);
    if (cast >= 0) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "cast back", wire, bytes);
        sched_act(d->s, ACT_FREE, cast, 0, 0);
    }
    sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "copy back", bytes, bytes);
    if (flat >= 0)
        sched_act(d->s, ACT_FREE, flat, 0, 0);
}

static void reduce(struct other *o)
{
    const struct model *m = o->d.m;
    int64_t elems = 0;
    int n = 0;

    if (o->bf16) {                  /* one tensor: the flat fp32 gradients */
        reduce_once(o, o->padded, 1, o->hp_grads);
        return;
    }
    for (int t = 0; t < m->ntensors; t++) {
        elems += m->tensors[t].numel;
        n++;
        if (elems > ELEMENTS_PER_BUFFER) {
            reduce_once(o, elems, n, -1);
            elems = n = 0;
        }
    }
    if (n > 0)
        reduce_once(o, elems, n, -1);
}

/* ---- steps ---- */

static void adam(struct other *o, int64_t elems, bool born)
{
    struct schedules *s = o->d.s;
    struct op *a = sched_op(s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "AdamW");

    a->u.optimizer.elems = elems;
    sched_act(s, born ? ACT_ALLOC : ACT_USE, o->adam, 0, 0);
}

/* utils.clip_grad_norm_, called by the engine. */
static void step_fp32(struct other *o, bool first)
{
    struct ds *d = &o->d;

    if (d->p->clip > 0) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", grad_bytes(o), 0);
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1);
        sched_copy(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "scale gradients", grad_bytes(o), grad_bytes(o));
    }
    adam(o, d->m->params, first);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    ds_act_all(d, &o->grads, ACT_FREE);
}

/* FP16_Optimizer.step: fp32 copies of all gradients, then their concatenation. */
static void step_fp16(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t p = d->m->params;
    uint8_t guard = d->dt == DT_FP16 ? OPF_GUARDED : 0;

    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "look for overflow", grad_bytes(o), 0);
    struct op *w = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow");
    w->after = AFTER(STREAM_COMPUTE);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradients to fp32", grad_bytes(o), 4 * p)->flags = guard;
    sched_act(s, ACT_ALLOC, o->wide_list, 0, 0);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "flatten gradients", 4 * p, 4 * p)->flags = guard;
    sched_act(s, ACT_ALLOC, o->wide_flat, 0, 0);
    sched_act(s, ACT_FREE, o->wide_list, 0, 0);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop gradients");
    ds_act_all(d, &o->grads, ACT_FREE);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", 4 * p, 0)->flags = guard;
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "unscale and clip", 4 * p, 4 * p)->flags = guard;
    adam(o, p, false);
    s->ops[s->nops - 1].flags = guard;
    sched_act(s, ACT_FREE, o->wide_flat, 0, 0);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "update parameters", 4 * p, p * d->e)->flags = guard;
}

/* BF16_Optimizer.step: the norm is local, for every rank has all gradients. */
static void step_bf16(struct other *o, bool first)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t all = 4 * d->m->params;

    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "gradient norm", all, 0);
    struct op *w = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read the norm");
    w->after = AFTER(STREAM_COMPUTE);
    if (d->p->clip > 0)
        sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "clip gradients", all, all);
    adam(o, o->part, first);
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "update parameters", o->part * 4, o->part * d->e);
    if (d->n > 1) {
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_GATHER, d->dt, RED_NONE, o->padded);
        sched_act(s, ACT_USE, o->flat, 0, 0);
    }
    sched_copy(s, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero fp32 gradients", 0, 4 * o->padded);
    sched_act(s, ACT_USE, o->hp_grads, 0, 0);
}

static void whole_step(struct other *o, enum sched_id id)
{
    bool first = id == SCHED_FIRST;

    sched_begin(o->d.s, id);
    micro_steps(o, o->bf16 && !first);
    reduce(o);
    if (o->bf16)
        step_bf16(o, first);
    else if (o->d.dt == DT_FP32)
        step_fp32(o, first);
    else
        step_fp16(o);
    read_loss(o->d.s);
    sched_end(o->d.s, id);
}

/* ---- init ---- */

static void init_stage0(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t p = d->m->params;

    sched_begin(s, SCHED_INIT);
    ds_memory(d, PHASE_INIT, "model to device", ACT_ALLOC, o->params);
    ds_broadcast_model(d, o->params);
    if (d->dt != DT_FP32) {
        ds_memory(d, PHASE_INIT, "clone parameters", ACT_ALLOC, o->clones);
        sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "flatten parameters", p * d->e, p * d->e);
        sched_act(s, ACT_ALLOC, o->flat, 0, 0);
        sched_act(s, ACT_FREE, o->clones, 0, 0);
        sched_act(s, ACT_FREE, o->params, 0, 0);
        sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "fp32 parameters", p * d->e, p * 4);
        sched_act(s, ACT_ALLOC | ACT_FREE, o->clone, 0, 0);
        sched_act(s, ACT_ALLOC, o->master, 0, 0);
        ds_memory(d, PHASE_INIT, "zero gradient", ACT_ALLOC, o->wide_flat);
        adam(o, p, true);           /* initialize_optimizer_states steps once */
        sched_act(s, ACT_FREE, o->wide_flat, 0, 0);
    }
    sched_end(s, SCHED_INIT);
}

static void init_bf16(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;

    sched_begin(s, SCHED_INIT);
    ds_memory(d, PHASE_INIT, "model to device", ACT_ALLOC, o->params);
    ds_broadcast_model(d, o->params);
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "flatten parameters", d->m->params * d->e, o->padded * d->e);
    sched_act(s, ACT_ALLOC, o->flat, 0, 0);
    sched_act(s, ACT_FREE, o->params, 0, 0);
    sched_copy(s, STREAM_COMPUTE, PHASE_INIT, "fp32 partition", o->part * d->e, o->part * 4);
    sched_act(s, ACT_ALLOC | ACT_FREE, o->clone, 0, 0);
    sched_act(s, ACT_ALLOC, o->master, 0, 0);
    ds_memory(d, PHASE_INIT, "fp32 gradients", ACT_ALLOC, o->hp_grads);
    sched_end(s, SCHED_INIT);
}

/* ---- the whole ---- */

static int64_t wide_bytes(const struct ds *d, const struct tensor *t)
{
    (void)d;
    return round512(4 * t->numel);
}

static int64_t adam_bytes(const struct ds *d, const struct tensor *t) { return 2 * wide_bytes(d, t); }

static int64_t largest(const struct ds *d)
{
    int64_t n = 0;

    for (int t = 0; t < d->m->ntensors; t++)
        n = d->m->tensors[t].numel > n ? d->m->tensors[t].numel : n;
    return n;
}

static void declare(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t all = ds_sum(d, ds_tensor_bytes);
    bool fp32 = d->dt == DT_FP32 && !o->bf16;

    o->params = sched_buf(s, CAT_PARAMS, fp32 ? "parameters" : "parameters before flattening", NULL, 0, 1, all);
    o->clones = sched_buf(s, CAT_PARAMS, "clones of parameters", NULL, 0, 1, all);
    o->flat = fp32 ? o->params : sched_buf(s, CAT_PARAMS, "flat parameters", NULL, 0, 1,
                                           round512(o->padded * d->e));
    o->clone = sched_buf(s, CAT_TEMPORARIES, "clone", NULL, 0, 1, round512(o->part * d->e));
    o->master = sched_buf(s, CAT_OPTIMIZER, "fp32 parameters", NULL, 0, 1, round512(o->part * 4));
    o->adam = sched_buf(s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", NULL, 0, 1,
                        fp32 ? ds_sum(d, adam_bytes) : 2 * round512(o->part * 4));
    o->hp_grads = sched_buf(s, CAT_GRADS, "fp32 gradients", NULL, 0, 1, round512(o->padded * 4));
    o->wide_list = sched_buf(s, CAT_TEMPORARIES, "gradients in fp32", NULL, 0, 1, ds_sum(d, wide_bytes));
    o->wide_flat = sched_buf(s, CAT_TEMPORARIES, "flat fp32 gradients", NULL, 0, 1, round512(o->padded * 4));
    o->partial = sched_buf(s, CAT_GRADS, "first part of the tied gradient", NULL, 0, 1,
                           d->tied >= 0 ? ds_tensor_bytes(d, &d->m->tensors[d->tied]) : 0);
    o->hp_temp = sched_buf(s, CAT_TEMPORARIES, "one gradient in fp32", NULL, 0, 1, round512(4 * largest(d)));
    ds_declare(d, &o->grads, CAT_GRADS, "gradient", 1, ds_tensor_bytes);
}

static int lower_other(struct other *o, const struct plan *p, int64_t rank, struct schedules *s)
{
    int rc = ds_init(&o->d, p, rank, s);

    if (rc == 0) {
        o->padded = o->bf16 ? round_up(p->model.params, 2 * o->d.n) : p->model.params;
        o->part = o->bf16 ? o->padded / o->d.n : o->padded;
        declare(o);
        sched_unit(s, "model", 0, p->model.params, o->padded, o->part);
        if (o->bf16)
            init_bf16(o);
        else
            init_stage0(o);
        whole_step(o, SCHED_FIRST);
        whole_step(o, SCHED_STEADY);
    }
    ds_free(&o->d);
    ds_undeclare(&o->grads);
    return rc;
}

int lower_ds_stage0(const struct plan *p, int64_t rank, struct schedules *s)
{
    struct other o = { .bf16 = false };

    return lower_other(&o, p, rank, s);
}

int lower_ds_bf16(const struct plan *p, int64_t rank, struct schedules *s)
{
    struct other o = { .bf16 = true };

    sched_note(s, "BF16_Optimizer keeps the fp32 gradients of the whole model on every rank");
    return lower_other(&o, p, rank, s);
}
