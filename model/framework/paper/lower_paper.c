/* lower_paper.c -- the strategies as their papers state them: DDP with one
 * all-reduce, ZeRO stages 1, 2 and 3 (arXiv 1910.02054), and FSDP as stage 3
 * with units and one unit of prefetch (arXiv 2304.11277).
 *
 * Model states are flat: a unit of T elements is padded to A = N*ceil(T/N), and
 * a rank's shard is A/N.  Gradients are produced in place in buffers that exist
 * from the start, which is what "2 bytes of gradient a parameter" means.
 *
 *              params      grads       optimizer   per step on the wire
 *   ddp        e           e           k           all-reduce P
 *   zero1      e           e           k/N         reduce-scatter P, all-gather P
 *   zero2      e           e/N         k/N         the same, unit by unit
 *   zero3,fsdp e/N         e/N         k/N         all-gather P twice, reduce-scatter P
 *
 * with e = 2, k = 12 in mixed precision and e = 4, k = 8 in fp32; one state in place of two (sgd, Lion) takes 4 off k.
 * What does not train has no gradient and no state: its parameters are flat units of their own, gathered likewise. */
#include "model/framework/paper/lower_paper.h"

/* Acts on a family of what trains, and on one of what does not, where the unit has them. */
static void act(struct paper *z, int what, int family, struct at u)
{
    if (paper_trains(z, u.c))
        sched_act(z->s, what, family, u.i, u.by);
}

static void act_frozen(struct paper *z, int what, int family, struct at u)
{
    if (family >= 0)
        sched_act(z->s, what, family, u.i, u.by);
}

/* ---- communication ---- */

static const struct at tied = { UC_TIED, 0, 0, -1, 0 };

/* One of a unit's flat parameters. */
static void gather_flat(struct paper *z, struct at u, enum phase phase, uint16_t after, int from, int what, int into, int64_t elems)
{
    struct op *o = sched_coll(z->s, STREAM_GATHER, phase, COLL_ALL_GATHER, z->group, z->r.wire_gather, RED_NONE, elems);

    o->after = after;
    o->record = z->ev_gather;
    walk_name(&z->walk, u);
    sched_act(z->s, what, from, u.i, u.by);
    sched_act(z->s, ACT_ALLOC | ACT_W, into, u.i, u.by);
}

static void gather(struct paper *z, struct at u, enum phase phase, uint16_t after)
{
    int from = z->away.params ? paper_away_bring(z, u, phase, after) : z->params[u.c];

    if (from < 0) {                 /* one rank: it was brought where it is used */
        z->s->ops[z->s->nops - 1].record = z->ev_gather;
        return;
    }
    if (z->frozen_padded[u.c] > 0)
        gather_flat(z, u, phase, after, z->frozen[u.c], ACT_R, z->frozen_gathered[u.c], z->frozen_padded[u.c]);
    if (paper_trains(z, u.c))
        gather_flat(z, u, phase, z->away.params ? AFTER(STREAM_H2D) : after, from, z->away.params ? ACT_R | ACT_FREE : ACT_R,
                    z->gathered[u.c], z->padded[u.c]);
}

static void drop_one(struct paper *z, struct at u, enum phase phase)
{
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "drop");
    walk_name(&z->walk, u);
    act(z, ACT_FREE, z->gathered[u.c], u);
    act_frozen(z, ACT_FREE, z->frozen_gathered[u.c], u);
}

static void drop(struct paper *z, struct at u, enum phase phase)
{
    if (!z->shards_params || u.c == NUC)
        return;
    drop_one(z, u, phase);
    if (u.c == z->walk.root.c && z->walk.ties)
        drop_one(z, tied, phase);
}

/* What the reduction of a unit's gradients waits for. */
static uint16_t after_sums(const struct paper *z, struct at u)
{
    return AFTER(STREAM_COMPUTE) | (z->partial[u.c] > 0 ? AFTER(STREAM_TENSOR) : 0);
}

/* A unit's gradients are reduced as soon as they are complete and added to those that the rank
 * keeps.  Deterministic, they are summed only: the average is taken once, in the end. */
static void reduce_unit(struct paper *z, struct at u)
{
    struct op *o;
    int64_t shard = z->shards_optimizer ? z->padded[u.c] / z->n : z->numel[u.c], e = dtype_bytes(z->r.grad);
    uint16_t sums = after_sums(z, u);

    if (!paper_trains(z, u.c))
        return;
    if (z->away.states)
        paper_away_await(z);
    paper_sum_partial(z, u, z->full_grads[u.c]);
    if (z->n > 1) {
        o = sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE,
                       z->shards_optimizer ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, z->group, z->r.wire_reduce,
                       z->p->deterministic ? RED_SUM : RED_AVG,
                       z->shards_optimizer ? z->padded[u.c] : z->numel[u.c]);
        o->after = sums;
        walk_name(&z->walk, u);
        sched_act(z->s, ACT_R, z->full_grads[u.c], u.i, u.by);
        sched_act_as(z->s, ACT_W, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
    }
    if (sched_group_ranks(z->s, GROUP_REPLICA) > 1) {
        o = sched_coll(z->s, STREAM_ALL_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_REPLICA,
                       z->r.wire_reduce, RED_AVG, shard);
        o->after = z->n > 1 ? AFTER(STREAM_REDUCE) : sums;
        walk_name(&z->walk, u);
        sched_act_as(z->s, ACT_RW, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
    }
    if (z->away.states) {
        paper_away_gradient(z, u, AFTER(STREAM_ALL_REDUCE) | (z->n > 1 ? AFTER(STREAM_REDUCE) : sums));
        return;
    }
    o = sched_copy(z->s, STREAM_REDUCE, PHASE_REDUCE, "add to shard", 2 * shard * e, shard * e);
    o->after = AFTER(STREAM_ALL_REDUCE) | (z->n > 1 ? 0 : sums);
    walk_name(&z->walk, u);
    sched_does(z->s, COPY_ADD, 1);
    sched_act_as(z->s, ACT_A, z->grads[u.c], u.i, u.by, z->shards_grads ? 0 : z->own_grads[u.c]);
    sched_act_as(z->s, ACT_R | ACT_FREE, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
}

/* ---- hooks ---- */

static bool is_root(const struct paper *z, struct at u) { return u.c == z->walk.root.c; }

/* Of a pass's units, one at that place. */
static bool has_unit(const struct paper *z, int position) { return position >= z->walk.unit0 && position < z->walk.unit1; }

static void await_gather(struct paper *z, struct at u, enum phase phase)
{
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "await gather")->wait[0] = z->ev_gather;
    walk_name(&z->walk, u);
}

/* The unit is there for compute.  It was asked for just in time, or while the unit before it was computed, and then the next one
 * is asked for now. */
static void fetch(struct paper *z, struct at u, enum phase phase, int before, int next)
{
    bool ahead = !is_root(z, u) && z->prefetches && (z->walk.root.c != NUC || has_unit(z, before));

    if (!z->shards_params || u.c == NUC || (phase == PHASE_BACKWARD && z->walk.part == WEIGHT_PART))
        return;
    if (!ahead)
        gather(z, u, phase, AFTER(STREAM_COMPUTE));
    if (is_root(z, u) && z->walk.ties)
        gather(z, tied, phase, AFTER(STREAM_COMPUTE));
    await_gather(z, u, phase);
    if (z->prefetches && has_unit(z, next))
        gather(z, walk_at(&z->walk, next, u.by), phase, 0);
}

static void pre_forward(void *paper, struct at u)
{
    struct paper *z = paper;

    fetch(z, u, PHASE_FORWARD, u.position - 1, is_root(z, u) ? z->walk.unit0 : u.position + 1);
}

static void post_forward(void *paper, struct at u) { drop(paper, u, PHASE_FORWARD); }

/* A block's two halves are needed at once where it is computed anew. */
static void fetch_both(struct paper *z, struct at u)
{
    struct at attention = walk_at(&z->walk, u.position - 1, u.by);

    if (u.c == UC_MLP) {
        fetch(z, u, PHASE_BACKWARD, u.position + 1, u.position - 1);
        if (!z->prefetches)
            gather(z, attention, PHASE_BACKWARD, AFTER(STREAM_COMPUTE));
        await_gather(z, attention, PHASE_BACKWARD);
    } else if (z->prefetches && u.position > z->walk.unit0)
        gather(z, attention, PHASE_BACKWARD, 0);
}

static void alloc_full_grads(struct paper *z, struct at u)
{
    if (!z->fresh_grads || u.c == NUC || z->walk.part == INPUT_PART || !paper_trains(z, u.c))
        return;
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "gradient buffer");
    walk_name(&z->walk, u);
    sched_act(z->s, ACT_ALLOC, z->full_grads[u.c], u.i, u.by);
    if (is_root(z, u) && z->walk.ties)
        sched_act(z->s, ACT_ALLOC, z->full_grads[UC_TIED], 0, 0);
}

/* Buffers are those of the last micro-step, which have been reduced then. */
static void pre_backward(void *paper, struct at u)
{
    struct paper *z = paper;

    if (is_root(z, u)) {
        fetch(z, u, PHASE_BACKWARD, 0, z->walk.unit1 - 1);
        if (z->fresh_grads && z->walk.part != INPUT_PART)
            sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "await last gradients")->after =
                z->away.states ? AFTER(STREAM_D2H) : AFTER(STREAM_REDUCE);
    } else if (z->shards_params && walk_needs_both(&z->walk, u))
        fetch_both(z, u);
    else
        fetch(z, u, PHASE_BACKWARD, u.position + 1, u.position - 1);
    alloc_full_grads(z, u);
}

static void post_backward(void *paper, struct at u)
{
    struct paper *z = paper;

    if (z->walk.part != WEIGHT_PART)
        drop(z, u, PHASE_BACKWARD);
    if (u.c == NUC || !z->fresh_grads || z->walk.part == INPUT_PART)
        return;
    reduce_unit(z, u);
    if (is_root(z, u) && z->walk.ties)
        reduce_unit(z, tied);
}

/* A pass reads the parameters of a unit, as they are gathered or as they are kept. */
static void read_params(struct paper *z, struct at u)
{
    act(z, ACT_R, z->shards_params ? z->gathered[u.c] : z->params[u.c], u);
    act_frozen(z, ACT_R, z->shards_params ? z->frozen_gathered[u.c] : z->frozen[u.c], u);
}

/* A unit's own buffer of gradients is fresh, the model's were zeroed. */
static void works_with(struct paper *z, struct at u, const struct walk_run *r)
{
    if (r->forward || z->walk.part != WEIGHT_PART)
        read_params(z, u);
    if (r->weights)
        act(z, z->fresh_grads ? ACT_W : ACT_A, z->fresh_grads ? z->full_grads[u.c] : z->grads[u.c], u);
}

static void compute(void *paper, const struct walk_run *r)
{
    struct paper *z = paper;

    works_with(z, r->u, r);
    if (z->walk.ties && !piece_is_block(r->piece))
        works_with(z, tied, r);
    if (r->both)
        read_params(z, (struct at){ .c = UC_ATTENTION, .i = r->u.i, .by = r->u.by });
}

/* ---- whole steps ---- */

static void use_all(struct paper *z, int what, const int family[NUC])
{
    for (int c = 0; c < NUC; c++)
        if (z->walk.map.of_class[c] > 0 && (family == z->frozen ? family[c] >= 0 : paper_trains(z, (enum unit_class)c)))
            sched_act_all(z->s, what, family[c]);
}

/* Where this rank's own gradients and states are worked on. */
static enum stream own_stream(const struct paper *z) { return z->away.states ? STREAM_HOST : STREAM_COMPUTE; }

/* Gradients that the optimizer of this rank reads; those that are only read, for their norm, are counted by one of the
 * ranks that have them. */
static void own_gradients(struct schedules *s, int what, void *arg)
{
    const struct paper *z = arg;

    for (int c = 0; c < NUC; c++)
        for (int i = 0; i < z->walk.map.of_class[c] && paper_trains(z, (enum unit_class)c); i++)
            sched_act_as(s, what, z->grads[c], i, 0, what == ACT_R ? z->norm_grads[c] : z->shards_grads ? 0 : z->own_grads[c]);
}

/* The sum over all micro-steps becomes the average over ranks. */
static void average_own(struct paper *z, int64_t bytes)
{
    struct op *o = sched_copy(z->s, own_stream(z), PHASE_REDUCE, "average gradients", bytes, bytes);

    o->after = AFTER(STREAM_REDUCE) | AFTER(STREAM_D2H);
    sched_does(z->s, COPY_SET, 1.0 / (double)z->n);
    own_gradients(z->s, ACT_RW, z);
}

/* Where a model is reduced as a whole: after every micro-step, or once after the last; a stage's after the last. */
static void end_of_micro_step(void *paper)
{
    struct paper *z = paper;

    if (z->reduces_each)
        paper_reduce_model(z, z->sums_each, z->walk.last);
    if (z->sums_each)
        paper_forget_others(z);
}

static void end_of_backward(void *paper)
{
    struct paper *z = paper;

    if (walk_is_stage(&z->walk))
        paper_reduce_tied(z);
    if (!z->fresh_grads && !z->reduces_each)
        paper_reduce_model(z, false, true);
    if (z->sums_each || (z->p->deterministic && z->n > 1))
        average_own(z, paper_own_elems(z) * dtype_bytes(z->r.grad));
    sched_op(z->s, OP_MEMORY, own_stream(z), PHASE_REDUCE, "await reductions")->after =
        AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE) | (z->away.states ? AFTER(STREAM_D2H) : 0);
}

static void before_step(struct paper *z, int64_t bytes)
{
    const struct norm_sum sums[] = { { z->group, z->shards_optimizer && z->n > 1 },
                                     { GROUP_TENSOR, z->local->share.tensor_ranks > 1 } };

    if (z->away.grads_in != SPACE_DISK)
        lower_before_step(z->s, &(struct step_gradients){ z->p, own_stream(z), bytes, sums, 2, own_gradients, z });
    else if (z->p->clip > 0)
        paper_away_norm(z, sums, 2);
}

static void update(struct paper *z, int64_t elems)
{
    lower_adamw(z->s, z->p, ADAMW_ONE_KERNEL, elems)->flags |= lower_guard(z->p);
    use_all(z, ACT_R, z->grads);
    use_all(z, ACT_RW, z->optimizer);
    use_all(z, ACT_RW, z->params);
}

static void optimizer(void *paper)
{
    struct paper *z = paper;
    int64_t elems = paper_own_elems(z), bytes = elems * dtype_bytes(z->r.grad);

    before_step(z, bytes);
    if (z->away.states)
        paper_away_step(z);
    else
        update(z, elems);
    if (z->shards_optimizer && !z->shards_params && z->n > 1)
        paper_gather_updated(z);
    if (z->away.states)
        return;
    sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero gradients", 0, bytes);
    sched_does(z->s, COPY_ZERO, 0);
    use_all(z, ACT_W, z->grads);
}

static void init(void *paper)
{
    struct paper *z = paper;

    if (z->away.states) {
        paper_away_init(z);
        return;
    }
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model states")->flags = OPF_LOAD;
    use_all(z, ACT_ALLOC | ACT_WRITE, z->params);
    use_all(z, ACT_ALLOC | ACT_WRITE, z->frozen);
    use_all(z, ACT_ALLOC | ACT_WRITE, z->grads);
    use_all(z, ACT_ALLOC | ACT_WRITE, z->optimizer);
}

static const struct walk_hooks hooks = {
    .init = init, .begin = paper_away_begin, .end_of_backward = end_of_backward, .optimizer = optimizer, .end_of_micro_step = end_of_micro_step,
    .pre_forward = pre_forward, .post_forward = post_forward, .pre_backward = pre_backward, .post_backward = post_backward,
    .compute = compute, .fate = GRADS_IN_PLACE, .grads = CAT_GRADS,
};

int lower_paper(const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct plan whole = *p;             /* stages 0 and 1 have one unit, but where each pass of a stage is reduced by itself */
    struct paper z = { .p = p, .local = local, .s = s, .r = plan_recipe(p), .n = local->shard_ranks,
                       .shards_optimizer = p->strategy != STRAT_DDP,
                       .shards_grads = p->strategy >= STRAT_ZERO2,
                       .shards_params = p->strategy >= STRAT_ZERO3 && local->shard_ranks > 1,
                       .fresh_grads = p->strategy >= STRAT_ZERO2 || p->deterministic,
                       .prefetches = p->strategy == STRAT_FSDP };
    bool each = p->accumulation == 1 || p->sync_every_micro_step;

    whole.unit = p->parallel.pipeline > 1 && p->deterministic ? UNIT_BLOCK : UNIT_MODEL;
    walk_open(&z.walk, local, z.shards_grads ? NULL : &whole, s, &hooks, &z);
    s->hooks = p->strategy == STRAT_FSDP ? HOOKS_OF_UNITS : HOOKS_NONE;
    paper_away_setup(&z);
    z.rank_in_group = local->shard_rank;        /* padding is equal on all: so are sizes */
    z.group = z.n < local->data_ranks ? GROUP_SHARD : GROUP_DATA;
    z.reduces_each = !z.fresh_grads && each && !walk_is_stage(&z.walk);
    z.sums_each = z.reduces_each && p->accumulation > 1 && z.shards_optimizer && z.n > 1;
    for (int c = 0; c < NUC; c++)
        if (z.walk.map.of_class[c] > 0)
            paper_declare(&z, (enum unit_class)c);
    lower_declare_activations(s, local, z.walk.acts);
    z.ev_gather = sched_event(s);
    z.walk.first_differs = z.away.states;
    z.walk.last_differs = z.reduces_each && z.partial[UC_ROOT] > 0;
    return walk_steps(&z.walk);
}
