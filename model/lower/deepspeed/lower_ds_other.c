/* lower_ds_other.c -- DeepSpeed's stage 0 and BF16_Optimizer: whole gradients in
 * .grad on every rank, reduced after the last micro-step's backward.
 *
 * Stage 0 in 16 bits is FP16_Optimizer (runtime/fp16/fused_optimizer.py), since the
 * configuration's "AdamW" is FusedAdam; in fp32 it is FusedAdam alone.
 * BF16_Optimizer is runtime/bf16_optimizer.py.  All of DeepSpeed 0.19.6. */
#include "model/lower/common/micro_steps.h"
#include "model/lower/deepspeed/lower_ds_other.h"

struct other {
    struct ds d;
    bool      bf16;
    enum dtype sum;                 /* bf16: in which gradients are added up; se: its bytes */
    int64_t   se;
    int64_t   padded, part;
    int params, clones, flat, clone, master, adam, hp_grads, wide_list, wide_flat, partial, hp_temp, wire, mask, masked;
    int flat_part, master_part, hp_part;    /* layouts: this rank's partition where it lies in `flat`; the
                                             * master as parameters; the partition in the fp32 gradients */
    struct ds_families grads;
    bool      add;                  /* .grad exists */
};

/* ---- micro-steps ---- */

static void entry(void *arg, enum pass pass, enum piece_id piece, int block, int by)
{
    const struct other *o = arg;
    const struct ds *d = &o->d;
    bool in_block = piece_is_block(piece);

    sched_act(d->s, ACT_R, o->flat, 0, 0);
    if (pass == PASS_FORWARD)
        return;
    if (piece == PIECE_HEAD && d->tied >= 0 && !o->add)
        ds_act(d, &o->grads, ACT_ALLOC, d->tied, 0);
    if (piece == PIECE_EMBED && d->tied >= 0 && o->add)
        sched_act(d->s, ACT_FREE, o->partial, 0, 0);
    for (int i = 0; i < d->nready[piece]; i++) {
        int t = d->ready[piece][i].tensor;
        int what = o->add ? ACT_A : t == d->tied ? ACT_W : ACT_ALLOC | ACT_WRITE;
        ds_act_by(d, &o->grads, what, t + (in_block ? block * d->per_block : 0), by);
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
        sched_act(d->s, ACT_R, o->flat, 0, 0);
        ds_reads_frozen(d);
        if (i == 1)
            sched_act(d->s, ACT_ALLOC, o->partial, 0, 0);
        for (int k = 0; k < d->nready[PIECE_HEAD]; k++)
            if (d->ready[PIECE_HEAD][k].kernel >= cuts[i] && d->ready[PIECE_HEAD][k].kernel < end)
                ds_act(d, &o->grads, ACT_A, d->ready[PIECE_HEAD][k].tensor, 0);
        if (i == 2)
            sched_act(d->s, ACT_FREE, d->acts[PIECE_HEAD], 0, 0);
    }
    ds_blocks(d, PASS_BACKWARD, GRADS_DROP, entry, o);
    ds_whole(d, PASS_BACKWARD, GRADS_DROP, PIECE_EMBED, 0, 0, entry, o);
}

static int64_t grad_bytes(const struct other *o) { return o->d.m->trainable * o->d.e; }

static void backward(struct other *o)
{
    struct schedules *s = o->d.s;

    if (o->bf16 && o->add) {           /* backward_prologue: clear_lp_grads zeroes */
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "zero gradients", 0, grad_bytes(o));
        sched_does(s, COPY_ZERO, 0);
        ds_act_all(&o->d, &o->grads, ACT_W);
    }
    if (o->add)
        backward_add(o);
    else
        ds_pass(&o->d, PASS_BACKWARD, GRADS_KEEP, entry, o);
    if (!o->bf16)
        return;
    /* update_hp_grads: one gradient after the other, through an fp32 copy. */
    int64_t trained = o->d.m->trainable;
    if (o->sum == o->d.dt) {
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to gradients", grad_bytes(o) + o->se * trained, o->se * trained);
        sched_does(s, COPY_ADD, 1);
    } else {
        sched_copy(s, STREAM_COMPUTE, PHASE_BACKWARD, "add to fp32 gradients", grad_bytes(o) + 12 * trained, 8 * trained);
        sched_does(s, COPY_ADD, 1);
        sched_act(s, ACT_ALLOC | ACT_FREE, o->hp_temp, 0, 0);
    }
    sched_act(s, ACT_A, o->hp_grads, 0, 0);
    ds_act_all(&o->d, &o->grads, ACT_R);
}

static void micro_pass(void *arg, const struct micro *m)
{
    struct other *o = arg;

    o->add = !m->first;
    if (m->pass == MICRO_FORWARD)
        ds_pass(&o->d, PASS_FORWARD, GRADS_IN_PLACE, entry, o);
    else
        backward(o);
}

/* PipelineEngine's ReduceTiedGrads. */
static void sum_tied(struct other *o)
{
    for (int t = 0; t < o->d.m->ntensors; t++)
        if (ds_is_shared(&o->d, t)) {
            ds_pipe_sum_tied(&o->d, t, o->bf16 ? o->sum : o->d.dt);
            if (o->bf16)
                sched_act(o->d.s, ACT_RW, o->hp_grads, 0, 0);
            else
                ds_act(&o->d, &o->grads, ACT_RW, t, 0);
        }
}

static int micro_steps(struct other *o, bool first_step)
{
    struct micro_order order = { .steps = o->d.p->accumulation, .first_differs = true };

    if (o->d.p->parallel.pipeline > 1) {
        int rc = ds_pipe_passes(&o->d, first_step, micro_pass, o);
        sum_tied(o);
        return rc;
    }
    micro_steps_emit(o->d.s, &order, &(struct micro_calls){ .emit = micro_pass }, o);
    return 0;
}

/* ---- reduction: engine.allreduce_bucket ---- */

/* Tensors [t0, t1), `elems` elements, that are reduced together: .grad of each, or of BF16_Optimizer the
 * flat fp32 gradients as they are. */
struct bucket { int t0, t1, n; int64_t elems; };    /* n of them train */

/* In a passing buffer they lie end to end. */
static int bucket_layout(const struct other *o, const struct bucket *b, enum dtype dt)
{
    const struct ds *d = &o->d;
    int layout = sched_layout(d->s, 0);
    int64_t at = 0;

    for (int t = b->t0; t < b->t1 && layout; t++) {
        if (d->m->tensors[t].frozen)
            continue;
        sched_slice(d->s, HOLDS_GRAD, dt, t, 0, d->m->tensors[t].numel, at);
        at += d->m->tensors[t].numel * dtype_bytes(dt);
    }
    return layout;
}

static void act_source(const struct other *o, int what, const struct bucket *b)
{
    if (o->bf16)
        sched_act(o->d.s, what, o->hp_grads, 0, 0);
    for (int t = b->t0; t < b->t1 && !o->bf16 && o->d.s->detailed; t++)
        if (!o->d.m->tensors[t].frozen)
            ds_act(&o->d, &o->grads, what, t, 0);
}

/* On a passing buffer; below 0: there is none. */
static void act_bucket(const struct other *o, int what, const struct bucket *b, int buf, enum dtype dt)
{
    if (buf < 0)
        act_source(o, what, b);
    else
        sched_act_as(o->d.s, what, buf, 0, 0, bucket_layout(o, b, dt));
}

static void copy(const struct other *o, const char *what, int64_t reads, int64_t writes, double scale)
{
    sched_copy(o->d.s, STREAM_COMPUTE, PHASE_REDUCE, what, reads, writes);
    sched_does(o->d.s, COPY_SET, scale);
}

/* postscale_gradients: by gradient_predivide_factor before and by the rest after, where they are not 1. */
static void scale(const struct other *o, const struct bucket *b, int buf, double by)
{
    int64_t wire = b->elems * o->d.ce;

    if (by >= 1 && by <= 1)
        return;
    copy(o, "divide", wire, wire, by);
    act_bucket(o, ACT_RW, b, buf, o->d.comm);
}

static void reduce_in(const struct other *o, const struct bucket *b, int buf)
{
    double factor = o->d.p->ds.prescale;

    scale(o, b, buf, 1 / factor);
    ds_coll(&o->d, STREAM_COMPUTE, PHASE_REDUCE, COLL_ALL_REDUCE, o->d.comm, RED_SUM, b->elems);
    act_bucket(o, ACT_RW, b, buf, o->d.comm);
    scale(o, b, buf, factor / (double)o->d.n);
}

static void reduce_once(struct other *o, const struct bucket *b)
{
    struct ds *d = &o->d;
    enum dtype have = o->bf16 ? o->sum : d->dt;
    int64_t bytes = b->elems * dtype_bytes(have), wire = b->elems * d->ce;
    int flat = -1, cast = -1;

    if (!o->bf16 && b->n > 1) {
        flat = ds_scratch(d, CAT_BUCKET, "flattened gradients", round512(bytes));
        copy(o, "flatten", bytes, bytes, 1);
        act_source(o, ACT_R, b);
        act_bucket(o, ACT_ALLOC | ACT_WRITE, b, flat, have);
    }
    if (d->comm != have) {
        cast = ds_scratch(d, CAT_BUCKET, "gradients on the wire", round512(wire));
        copy(o, "cast", bytes, wire, 1);
        act_bucket(o, ACT_R, b, flat, have);
        act_bucket(o, ACT_ALLOC | ACT_WRITE, b, cast, d->comm);
    }
    reduce_in(o, b, cast >= 0 ? cast : flat);
    if (cast >= 0) {
        copy(o, "cast back", wire, bytes, 1);
        act_bucket(o, ACT_W, b, flat, have);
        act_bucket(o, ACT_READ | ACT_FREE, b, cast, d->comm);
    }
    copy(o, "copy back", bytes, bytes, 1);
    if (flat >= 0) {
        act_source(o, ACT_W, b);
        act_bucket(o, ACT_READ | ACT_FREE, b, flat, have);
    } else {                        /* DeepSpeed copies it onto itself */
        sched_does(d->s, COPY_NOTHING, 1);
        act_source(o, ACT_USE, b);
    }
}

static void reduce(struct other *o)
{
    const struct model *m = o->d.m;
    struct bucket b = { 0 };

    if (o->bf16) {                  /* one tensor: the flat fp32 gradients */
        reduce_once(o, &(struct bucket){ 0, m->ntensors, m->ntrainable, o->padded });
        return;
    }
    while (b.t1 < m->ntensors) {
        const struct tensor *x = &m->tensors[b.t1++];
        b.n += !x->frozen;
        b.elems += x->frozen ? 0 : x->numel;
        if (b.n > 0 && (b.elems > o->d.p->limits.ds_allreduce || b.t1 == m->ntensors)) {
            reduce_once(o, &b);
            b = (struct bucket){ b.t1, b.t1, 0, 0 };
        }
    }
}

/* ---- steps ---- */

static struct op *adam(struct other *o, int64_t elems)
{
    return lower_adamw(o->d.s, o->d.p, ADAMW_THEN_CAST, elems);
}

static struct op *pass_over(struct other *o, const char *what, int64_t reads, int64_t writes,
                            enum copy_fn fn)
{
    struct op *c = sched_copy(o->d.s, STREAM_COMPUTE, PHASE_OPTIMIZER, what, reads, writes);

    sched_does(o->d.s, fn, 1);
    return c;
}

/* What a model's ranks agree on; under Ulysses the ranks that share positions.  They have the same gradients, of which only the first rank's
 * count in the sum: it stays what it is. */
static void among_model(const struct other *o, enum dtype t, enum red_op red)
{
    const struct ds *d = &o->d;

    if (d->p->parallel.context <= 1) {
        ds_among_model(d, t, red);
        return;
    }
    sched_coll(d->s, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, GROUP_CONTEXT, t, red, 1);
    sched_moves(d->s, red == RED_MAX ? OF_OVERFLOW : OF_META);
}

/* FusedAdam alone; utils.clip_grad_norm_, called by the engine. */
static void step_fp32(struct other *o, bool first)
{
    struct ds *d = &o->d;

    if (d->p->clip > 0) {
        pass_over(o, "gradient norm", grad_bytes(o), 0, COPY_NORM);
        ds_act_all(d, &o->grads, ACT_R);
        among_model(o, DT_FP32, RED_SUM);
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_REDUCE, DT_FP32, RED_SUM, 1);
        sched_moves(d->s, OF_META); /* the average of what all have: it stays what it is */
        pass_over(o, "scale gradients", grad_bytes(o), grad_bytes(o), COPY_CLIP);
        ds_act_all(d, &o->grads, ACT_RW);
    }
    adam(o, d->m->trainable);
    ds_act_all(d, &o->grads, ACT_R);
    sched_act(d->s, ACT_RW, o->params, 0, 0);
    sched_act(d->s, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, o->adam, 0, 0);
    sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");
    ds_act_all(d, &o->grads, ACT_FREE);
}

/* Has this rank tensors that another one counts in the norm?  _require_avoid_recompute_norm(): of tensor-parallel ranks behind the first
 * what all have whole, of a pipeline's last stage what is tied.  Ranks that share positions are such ranks to it, and have all whole
 * (parallel_state_sp.py: get_model_parallel_rank is get_sequence_parallel_rank). */
static bool leaves_out_of_the_norm(const struct ds *d)
{
    bool tied = false;

    for (int t = 0; t < d->m->ntensors; t++)
        tied |= ds_is_shared(d, t);
    return d->local->share.tensor_rank > 0 || d->local->share.context_rank > 0 || (tied && !d->local->share.embeds);
}

/* get_flattened_grad_norm(): such a rank makes a mask of the flat gradient's length: zeros, their cumulative sum (fp32 both), the mask; then
 * a copy of the gradient without what it hides. */
static void norm_of_flat_gradient(struct other *o, uint8_t guard)
{
    struct schedules *s = o->d.s;
    int64_t p = o->d.m->trainable;

    if (leaves_out_of_the_norm(&o->d)) {
        pass_over(o, "mask of what other ranks count", 12 * p, 9 * p, COPY_NOTHING)->flags = guard;
        sched_act(s, ACT_ALLOC | ACT_FREE, o->mask, 0, 0);
        pass_over(o, "masked gradients", 5 * p, 4 * p, COPY_NOTHING)->flags = guard;
        sched_act(s, ACT_ALLOC | ACT_FREE, o->masked, 0, 0);
    }
    pass_over(o, "gradient norm", 4 * p, 0, COPY_NORM)->flags = guard;
    sched_act(s, ACT_R, o->wide_flat, 0, 0);
}

/* FP16_Optimizer.step: fp32 copies of all gradients, then their concatenation. */
static void flat_fp32_gradient(struct other *o, uint8_t guard)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t p = d->m->trainable;

    pass_over(o, "gradients to fp32", grad_bytes(o), 4 * p, COPY_SET)->flags = guard;
    ds_act_all(d, &o->grads, ACT_R);
    sched_act(s, ACT_ALLOC | ACT_WRITE, o->wide_list, 0, 0);
    pass_over(o, "flatten gradients", 4 * p, 4 * p, COPY_SET)->flags = guard;
    sched_act(s, ACT_ALLOC | ACT_WRITE, o->wide_flat, 0, 0);
    sched_act(s, ACT_READ | ACT_FREE, o->wide_list, 0, 0);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "drop gradients");
    ds_act_all(d, &o->grads, ACT_FREE);
}

/* The master's new values into the flat parameters. */
static struct op *update_parameters(struct other *o)
{
    struct ds *d = &o->d;
    struct op *c = pass_over(o, "update parameters", o->part * 4, o->part * d->e, COPY_SET);

    sched_act_as(d->s, ACT_R, o->master, 0, 0, o->master_part);
    sched_act_as(d->s, ACT_W, o->flat, 0, 0, o->flat_part);
    return c;
}

static void step_fp16(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t p = d->m->trainable;
    uint8_t guard = d->dt == DT_FP16 ? OPF_GUARDED : 0;

    pass_over(o, "look for overflow", grad_bytes(o), 0, COPY_OVERFLOW);
    ds_act_all(d, &o->grads, ACT_R);
    among_model(o, DT_UINT8, RED_MAX);
    struct op *w = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read overflow");
    w->after = AFTER(STREAM_COMPUTE);
    flat_fp32_gradient(o, guard);
    norm_of_flat_gradient(o, guard);
    among_model(o, DT_FP32, RED_SUM);
    pass_over(o, "unscale and clip", 4 * p, 4 * p, COPY_CLIP)->flags = guard;
    sched_act(s, ACT_RW, o->wide_flat, 0, 0);
    adam(o, p)->flags = guard;
    sched_act(s, ACT_RW, o->master, 0, 0);
    sched_act(s, ACT_RW, o->adam, 0, 0);
    sched_act(s, ACT_R | ACT_FREE, o->wide_flat, 0, 0);
    update_parameters(o)->flags = guard;
}

/* BF16_Optimizer.step: the norm is local, for every rank has all gradients. */
static void step_bf16(struct other *o, bool first)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t all = o->se * d->m->trainable;

    pass_over(o, "gradient norm", all, 0, COPY_NORM);
    sched_act(s, ACT_R, o->hp_grads, 0, 0);
    ds_among_model(d, DT_FP32, RED_SUM);
    struct op *w = sched_op(s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "read the norm");
    w->after = AFTER(STREAM_COMPUTE);
    if (d->p->clip > 0) {
        pass_over(o, "clip gradients", all, all, COPY_CLIP);
        sched_act(s, ACT_RW, o->hp_grads, 0, 0);
    }
    if (o->sum != DT_FP32) {        /* the partition's, widened for the optimizer */
        pass_over(o, "gradients to fp32", o->se * o->part, 4 * o->part, COPY_SET);
        sched_act_as(s, ACT_R, o->hp_grads, 0, 0, o->hp_part);
        sched_act(s, ACT_ALLOC | ACT_WRITE, o->wide_flat, 0, 0);
    }
    adam(o, o->part);
    if (o->sum != DT_FP32)
        sched_act(s, ACT_READ | ACT_FREE, o->wide_flat, 0, 0);
    else
        sched_act_as(s, ACT_R, o->hp_grads, 0, 0, o->hp_part);
    sched_act(s, ACT_RW, o->master, 0, 0);
    sched_act(s, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, o->adam, 0, 0);
    update_parameters(o);
    if (d->n > 1) {
        ds_coll(d, STREAM_COMPUTE, PHASE_OPTIMIZER, COLL_ALL_GATHER, d->dt, RED_NONE, o->padded);
        sched_act_as(s, ACT_R, o->flat, 0, 0, o->flat_part);
        sched_act(s, ACT_W, o->flat, 0, 0);
    }
    pass_over(o, "zero fp32 gradients", 0, o->se * o->padded, COPY_ZERO);
    sched_act(s, ACT_W, o->hp_grads, 0, 0);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero_grad");   /* _take_model_step: to None */
    ds_act_all(d, &o->grads, ACT_FREE);
}

static int whole_step(struct other *o, enum sched_id id)
{
    bool first = id == SCHED_FIRST;

    sched_begin(o->d.s, id);
    int rc = micro_steps(o, first);
    reduce(o);
    if (o->bf16)
        step_bf16(o, first);
    else if (o->d.dt == DT_FP32)
        step_fp32(o, first);
    else
        step_fp16(o);
    ds_pipe_tell_loss(&o->d);
    lower_read_loss(o->d.s);
    sched_end(o->d.s, id);
    return rc;
}

/* ---- init ---- */

static void init_copy(struct other *o, const char *what, int64_t reads, int64_t writes)
{
    sched_copy(o->d.s, STREAM_COMPUTE, PHASE_INIT, what, reads, writes);
    sched_does(o->d.s, COPY_SET, 1);
}

/* The partition, cloned in passing, becomes the fp32 master. */
static void widen_master(struct other *o, const char *what)
{
    struct schedules *s = o->d.s;

    init_copy(o, what, o->part * o->d.e, o->part * 4);
    sched_act(s, ACT_ALLOC | ACT_FREE, o->clone, 0, 0);
    sched_act_as(s, ACT_R, o->flat, 0, 0, o->flat_part);
    sched_act_as(s, ACT_ALLOC | ACT_WRITE, o->master, 0, 0, o->master_part);
}

/* FP16_Optimizer.initialize_optimizer_states steps once with a zero gradient.  Its states are zero
 * afterwards; that DeepSpeed thereby counts a step and decays the weights once is not followed: as data
 * the entry does nothing, and the next one says what is in the states. */
static void born_states(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;

    ds_memory(d, PHASE_INIT, "zero gradient", ACT_ALLOC | ACT_WRITE, o->wide_flat);
    s->ops[s->nops - 1].flags = OPF_LOAD;
    adam(o, d->m->trainable);
    sched_act(s, ACT_ALLOC, o->adam, 0, 0);
    sched_act(s, ACT_FREE, o->wide_flat, 0, 0);
    ds_memory(d, PHASE_INIT, "zero states", ACT_W, o->adam);
    s->ops[s->nops - 1].flags = OPF_LOAD;
}

static void init_stage0(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t bytes = d->m->trainable * d->e;

    sched_begin(s, SCHED_INIT);
    ds_pipe_construct(d);
    ds_load_model(d, o->params);
    if (d->dt != DT_FP32) {
        init_copy(o, "clone parameters", bytes, bytes);
        sched_act(s, ACT_R, o->params, 0, 0);
        sched_act(s, ACT_ALLOC | ACT_WRITE, o->clones, 0, 0);
        init_copy(o, "flatten parameters", bytes, bytes);
        sched_act(s, ACT_ALLOC | ACT_WRITE, o->flat, 0, 0);
        sched_act(s, ACT_READ | ACT_FREE, o->clones, 0, 0);
        sched_act(s, ACT_FREE, o->params, 0, 0);
        widen_master(o, "fp32 parameters");
        born_states(o);
    }
    ds_pipe_greet(d);
    sched_end(s, SCHED_INIT);
}

static void init_bf16(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;

    sched_begin(s, SCHED_INIT);
    ds_pipe_construct(d);
    ds_load_model(d, o->params);
    init_copy(o, "flatten parameters", d->m->trainable * d->e, o->padded * d->e);
    sched_act(s, ACT_ALLOC | ACT_WRITE, o->flat, 0, 0);
    sched_act(s, ACT_READ | ACT_FREE, o->params, 0, 0);
    widen_master(o, "fp32 partition");
    ds_memory(d, PHASE_INIT, "fp32 gradients", ACT_ALLOC | ACT_WRITE, o->hp_grads);
    s->ops[s->nops - 1].flags = OPF_LOAD;
    ds_pipe_greet(d);
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
        if (!d->m->tensors[t].frozen && d->m->tensors[t].numel > n)
            n = d->m->tensors[t].numel;
    return n;
}

/* Adam's states: flat, or in fp32 two tensors for each parameter. */
static int adam_layout(const struct other *o, bool fp32)
{
    const struct ds *d = &o->d;
    int64_t left = d->rank * o->part * o->bf16, at = 0;
    int layout = sched_layout(d->s, 0);

    if (!fp32) {
        ds_flat_slices(d, NULL, HOLDS_EXP_AVG, DT_FP32, left, o->part, 0);
        ds_flat_slices(d, NULL, HOLDS_EXP_AVG_SQ, DT_FP32, left, o->part, round512(o->part * 4));
        return layout;
    }
    for (int t = 0; t < d->m->ntensors; t++) {
        const struct tensor *x = &d->m->tensors[t];
        if (x->frozen)
            continue;
        sched_slice(d->s, HOLDS_EXP_AVG, DT_FP32, t, 0, x->numel, at);
        sched_slice(d->s, HOLDS_EXP_AVG_SQ, DT_FP32, t, 0, x->numel, at + wide_bytes(d, x));
        at += adam_bytes(d, x);
    }
    return layout;
}

static void describe(struct other *o, bool fp32)
{
    const struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t left = d->rank * o->part * o->bf16;     /* of the partition; stage 0 has all */

    sched_holds(s, o->params, ds_apart(d, HOLDS_PARAM, d->dt));
    if (!fp32)
        sched_holds(s, o->flat, ds_flat(d, NULL, HOLDS_PARAM, d->dt, 0, o->padded, 0));
    sched_holds(s, o->clones, ds_apart(d, HOLDS_PARAM, d->dt));
    sched_holds(s, o->master, ds_flat(d, NULL, HOLDS_MASTER, DT_FP32, left, o->part, 0));
    sched_holds(s, o->adam, adam_layout(o, fp32));
    sched_holds(s, o->hp_grads, ds_flat(d, NULL, HOLDS_GRAD, o->sum, 0, o->padded, 0));
    sched_holds(s, o->wide_list, ds_apart(d, HOLDS_GRAD, DT_FP32));
    sched_holds(s, o->wide_flat, ds_flat(d, NULL, HOLDS_GRAD, DT_FP32, left, o->part, 0));
    o->flat_part = ds_flat(d, NULL, HOLDS_PARAM, d->dt, left, o->part, left * d->e);
    o->master_part = ds_flat(d, NULL, HOLDS_PARAM, DT_FP32, left, o->part, 0);
    o->hp_part = ds_flat(d, NULL, HOLDS_GRAD, o->sum, left, o->part, left * o->se);
}

static void declare(struct other *o)
{
    struct ds *d = &o->d;
    struct schedules *s = d->s;
    int64_t all = ds_sum(d, ds_tensor_bytes);
    bool fp32 = d->dt == DT_FP32 && !o->bf16;

    o->params = sched_buf(s, CAT_PARAMS, fp32 ? "parameters" : "parameters before flattening",
                          NULL, 0, 1, all);
    o->clones = sched_buf(s, CAT_PARAMS, "clones of parameters", NULL, 0, 1, all);
    o->flat = fp32 ? o->params : sched_buf(s, CAT_PARAMS, "flat parameters", NULL, 0, 1,
                                           round512(o->padded * d->e));
    o->clone = sched_buf(s, CAT_TEMPORARIES, "clone", NULL, 0, 1, round512(o->part * d->e));
    o->master = sched_buf(s, CAT_OPTIMIZER, "fp32 parameters", NULL, 0, 1, round512(o->part * 4));
    o->adam = sched_buf(s, CAT_OPTIMIZER, "exp_avg, exp_avg_sq", NULL, 0, 1,
                        fp32 ? ds_sum(d, adam_bytes) : 2 * round512(o->part * 4));
    o->hp_grads = sched_buf(s, CAT_GRADS, o->se == 4 ? "fp32 gradients" : "gradients that are added up", NULL, 0, 1,
                            round512(o->padded * o->se));
    o->wide_list = sched_buf(s, CAT_TEMPORARIES, "gradients in fp32", NULL, 0, 1, ds_sum(d, wide_bytes));
    o->wide_flat = sched_buf(s, CAT_TEMPORARIES, "flat fp32 gradients", NULL, 0, 1, round512((o->bf16 ? o->part : o->padded) * 4));
    o->mask = sched_buf(s, CAT_TEMPORARIES, "mask, and two sums it is made of", NULL, 0, 1, 2 * round512(4 * (o->padded + 1)) + round512(o->padded + 1));
    o->masked = sched_buf(s, CAT_TEMPORARIES, "gradients without what is masked", NULL, 0, 1, round512(4 * o->padded) + round512(o->padded + 1));
    o->partial = sched_buf(s, CAT_GRADS, "first part of the tied gradient", NULL, 0, 1,
                           d->tied >= 0 ? ds_tensor_bytes(d, &d->m->tensors[d->tied]) : 0);
    o->hp_temp = sched_buf(s, CAT_TEMPORARIES, "one gradient in fp32", NULL, 0, 1, round512(4 * largest(d)));
    o->grads.trained = true;
    ds_declare(d, &o->grads, CAT_GRADS, "gradient", 1, ds_tensor_bytes);
    ds_hold(d, &o->grads, HOLDS_GRAD, d->dt);
    if (s->detailed)
        describe(o, fp32);
}

static int lower_other(struct other *o, const struct local_model *local, struct schedules *s)
{
    int rc = ds_init(&o->d, local, s);

    if (rc == 0) {
        o->padded = o->bf16 ? round_up(o->d.m->trainable, 2 * o->d.n) : o->d.m->trainable;
        o->part = o->bf16 ? o->padded / o->d.n : o->padded;
        o->sum = local->plan->ds.grad_accum_fp32 ? DT_FP32 : o->d.dt;
        o->se = dtype_bytes(o->sum);
        declare(o);
        ds_pipe_declare(&o->d);
        sched_unit(s, "model", 0, o->d.m->trainable, o->padded, o->part);
        if (o->bf16)
            init_bf16(o);
        else
            init_stage0(o);
        if (whole_step(o, SCHED_FIRST) < 0 || whole_step(o, SCHED_STEADY) < 0)
            rc = -1;
    }
    ds_free(&o->d);
    ds_undeclare(&o->grads);
    return rc;
}

int lower_ds_stage0(const struct local_model *local, struct schedules *s)
{
    struct other o = { .bf16 = false };

    if (local->plan->parallel.context > 1)      /* _reduce_non_expert_gradients() divides by world / sequence_parallel_size */
        sched_note(s, "with parallel.context stage 0 of DeepSpeed leaves gradients context times as large as the mean; the schedule has the mean");
    return lower_other(&o, local, s);
}

int lower_ds_bf16(const struct local_model *local, struct schedules *s)
{
    struct other o = { .bf16 = true };

    if (local->plan->strategy == STRAT_DDP)
        sched_note(s, "in bf16 a pipeline at stage 0 takes BF16_Optimizer too: the optimizer's states are cut over the data-parallel ranks, and "
                      "gradients are added up in bf16");
    else
        sched_note(s, "BF16_Optimizer keeps the fp32 gradients of the whole model on every rank");
    return lower_other(&o, local, s);
}
