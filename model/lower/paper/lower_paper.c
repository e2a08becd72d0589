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
#include "model/lower/common/micro_steps.h"
#include "model/lower/paper/lower_paper.h"

static struct at unit(const struct paper *z, int position, int by)
{
    struct unit_ref r = unit_at(&z->map, position);
    return (struct at){ r.cls, r.index, r.cls == UC_ROOT ? 0 : by };
}

void paper_name(struct paper *z, struct at u)
{
    sched_of(z->s, unit_class_name(u.c), u.i, u.by);
}

/* Has a unit something that trains?  One without parameters, as of a model without embedding and head, is treated so. */
static bool trains(const struct paper *z, enum unit_class c) { return z->numel[c] > 0 || z->frozen_padded[c] == 0; }

/* Acts on a family of what trains, and on one of what does not, where the unit has them. */
static void act(struct paper *z, int what, int family, struct at u)
{
    if (trains(z, u.c))
        sched_act(z->s, what, family, u.i, u.by);
}

static void act_frozen(struct paper *z, int what, int family, struct at u)
{
    if (family >= 0)
        sched_act(z->s, what, family, u.i, u.by);
}

/* ---- communication ---- */

/* One of a unit's flat parameters. */
static void gather_flat(struct paper *z, struct at u, enum phase phase, uint16_t after, int from, int what, int into, int64_t elems)
{
    struct op *o = sched_coll(z->s, STREAM_GATHER, phase, COLL_ALL_GATHER, z->group, z->r.wire_gather, RED_NONE, elems);

    o->after = after;
    o->record = z->ev_gather;
    paper_name(z, u);
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
    if (trains(z, u.c))
        gather_flat(z, u, phase, z->away.params ? AFTER(STREAM_H2D) : after, from, z->away.params ? ACT_R | ACT_FREE : ACT_R,
                    z->gathered[u.c], z->padded[u.c]);
}

static void drop(struct paper *z, struct at u, enum phase phase)
{
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "drop");
    paper_name(z, u);
    act(z, ACT_FREE, z->gathered[u.c], u);
    act_frozen(z, ACT_FREE, z->frozen_gathered[u.c], u);
}

/* Of norms that saw a share of the positions, of q's and k's that saw the rank's heads: one all-reduce for all of a unit
 * (Megatron-LM, finalize_model_grads.py, which has one for the model), flattened and copied back. */
static void sum_partial(struct paper *z, struct at u, int family)
{
    int64_t bytes = z->partial[u.c] * dtype_bytes(z->r.grad);
    struct op *o;

    if (bytes == 0)
        return;
    o = sched_copy(z->s, STREAM_TENSOR, PHASE_REDUCE, "flatten partial gradients", bytes, bytes);
    o->after = AFTER(STREAM_COMPUTE) | (family == z->grads[UC_ROOT] ? AFTER(STREAM_REDUCE) : 0);    /* a tied embedding's is in the same buffer */
    paper_name(z, u);
    sched_does(z->s, COPY_SET, 1);
    sched_act_as(z->s, ACT_R, family, u.i, u.by, z->partial_grads[u.c]);
    sched_act(z->s, ACT_ALLOC | ACT_W, z->sums[u.c], u.i, u.by);
    sched_coll(z->s, STREAM_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TENSOR, z->r.wire_reduce, RED_SUM, z->partial[u.c]);
    paper_name(z, u);
    sched_act(z->s, ACT_RW, z->sums[u.c], u.i, u.by);
    sched_copy(z->s, STREAM_TENSOR, PHASE_REDUCE, "copy sums back", bytes, bytes);
    paper_name(z, u);
    sched_does(z->s, COPY_SET, 1);
    sched_act_as(z->s, ACT_W, family, u.i, u.by, z->partial_grads[u.c]);
    sched_act(z->s, ACT_R | ACT_FREE, z->sums[u.c], u.i, u.by);
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

    if (!trains(z, u.c))
        return;
    if (z->away.states)
        paper_away_await(z);
    sum_partial(z, u, z->full_grads[u.c]);
    if (z->n > 1) {
        o = sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE,
                       z->shards_optimizer ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, z->group, z->r.wire_reduce,
                       z->p->deterministic ? RED_SUM : RED_AVG,
                       z->shards_optimizer ? z->padded[u.c] : z->numel[u.c]);
        o->after = sums;
        paper_name(z, u);
        sched_act(z->s, ACT_R, z->full_grads[u.c], u.i, u.by);
        sched_act_as(z->s, ACT_W, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
    }
    if (sched_group_ranks(z->s, GROUP_REPLICA) > 1) {
        o = sched_coll(z->s, STREAM_ALL_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_REPLICA,
                       z->r.wire_reduce, RED_AVG, shard);
        o->after = z->n > 1 ? AFTER(STREAM_REDUCE) : sums;
        paper_name(z, u);
        sched_act_as(z->s, ACT_RW, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
    }
    if (z->away.states) {
        paper_away_gradient(z, u, AFTER(STREAM_ALL_REDUCE) | (z->n > 1 ? AFTER(STREAM_REDUCE) : sums));
        return;
    }
    o = sched_copy(z->s, STREAM_REDUCE, PHASE_REDUCE, "add to shard", 2 * shard * e, shard * e);
    o->after = AFTER(STREAM_ALL_REDUCE) | (z->n > 1 ? 0 : sums);
    paper_name(z, u);
    sched_does(z->s, COPY_ADD, 1);
    sched_act_as(z->s, ACT_A, z->grads[u.c], u.i, u.by, z->shards_grads ? 0 : z->own_grads[u.c]);
    sched_act_as(z->s, ACT_R | ACT_FREE, z->full_grads[u.c], u.i, u.by, z->own_grads[u.c]);
}

/* ---- compute ---- */

static const struct at tied = { UC_TIED, 0, 0 };

/* A pass reads the parameters of a unit, as they are gathered or as they are kept. */
static void read_params(struct paper *z, struct at u)
{
    act(z, ACT_R, z->shards_params ? z->gathered[u.c] : z->params[u.c], u);
    act_frozen(z, ACT_R, z->shards_params ? z->frozen_gathered[u.c] : z->frozen[u.c], u);
}

/* Parameters and gradients of a unit that a pass works with. */
static void works_with(struct paper *z, struct at u, bool forward)
{
    if (forward || z->part != OF_WEIGHTS)
        read_params(z, u);
    if (!forward && z->part != OF_INPUTS)                   /* a unit's own buffer is fresh, the model's were zeroed */
        act(z, z->fresh_grads ? ACT_W : ACT_A, z->fresh_grads ? z->full_grads[u.c] : z->grads[u.c], u);
}

static void run(struct paper *z, struct at u, enum piece_id piece, enum pass pass, int block, int by,
                int k0, int k1)
{
    bool forward = pass == PASS_FORWARD, split = !forward && z->part != ALL_OF_IT;
    enum piece_id runs = !split ? piece : piece == PIECE_HEAD ? PIECE_HEAD_SPLIT : PIECE_BLOCK_SPLIT;

    if (split)
        *(z->part == OF_INPUTS ? &k1 : &k0) = z->s->program.piece[runs].split;
    sched_compute(z->s, forward ? PHASE_FORWARD : PHASE_BACKWARD, runs, pass, k0, k1,
                  GRADS_IN_PLACE, CAT_GRADS);
    sched_of(z->s, piece == PIECE_EMBED ? "embedding" : piece == PIECE_HEAD ? "head" : "block", block, by);
    works_with(z, u, forward);
    if (z->ties && !piece_is_block(piece))
        works_with(z, tied, forward);
}

/* Half-block units, and a block that backward computes anew: its MLP's turn, which comes first,
 * does so and reads attention's parameters as well. */
static bool needs_attention(const struct paper *z, struct unit_ref ref)
{
    return z->map.kind == UNIT_HALF_BLOCK && recompute_whole(z->p->recompute) &&
           piece_is_recomputed(program_piece_of_block(z->p, ref.block));
}

static int kept(const struct paper *z, enum piece_id piece, int block)
{
    return piece_is_block(piece) ? z->kept_blocks + block : z->kept_ends;
}

static void run_blocks(struct paper *z, struct at u, struct unit_ref ref, int by_block, enum pass pass)
{
    bool forward = pass == PASS_FORWARD;

    for (int k = 0; k < ref.nblocks; k++) {
        int b = forward ? ref.block + k : ref.block + ref.nblocks - 1 - k;
        enum piece_id piece = program_piece_of_block(z->p, b);
        bool half = z->map.kind == UNIT_HALF_BLOCK;
        bool first = !half || (u.c == UC_ATTENTION) == forward;     /* of the block's pass */
        bool last = !half || !first;
        int cut = half ? program_half(&z->s->program, piece, pass, forward) : 0;
        run(z, u, piece, pass, b, by_block, half && !first ? cut : 0, half && first ? cut : -1);
        if (!forward && first && needs_attention(z, ref))
            read_params(z, (struct at){ UC_ATTENTION, u.i, u.by });
        if (forward && first)
            sched_act(z->s, ACT_ALLOC, z->acts[piece], kept(z, piece, b), by_block);
        if (!forward && last && z->part != OF_INPUTS)
            sched_act(z->s, ACT_FREE, z->acts[piece], kept(z, piece, b), by_block);
    }
}

static void await_gather(struct paper *z, struct at u, enum phase phase)
{
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "await gather")->wait[0] = z->ev_gather;
    paper_name(z, u);
}

static bool is_root(const struct paper *z, struct at u) { return u.c == z->root.c; }

/* The unit is there for compute; it was asked for just in time, or while the unit before
 * it was computed, and then the next one is asked for now. */
static void fetch(struct paper *z, struct at u, enum phase phase, bool ahead, int next, int by)
{
    if (!z->shards_params || (phase == PHASE_BACKWARD && z->part == OF_WEIGHTS))
        return;
    if (!ahead)
        gather(z, u, phase, AFTER(STREAM_COMPUTE));
    if (is_root(z, u) && z->ties)
        gather(z, tied, phase, AFTER(STREAM_COMPUTE));
    await_gather(z, u, phase);
    if (z->prefetches && next >= z->unit0 && next < z->unit1)
        gather(z, unit(z, next, by), phase, 0);
}

/* A unit that the one before it asked for, or the root. */
static bool is_ahead(const struct paper *z, int before)
{
    return z->prefetches && (z->root.c != NUC || (before >= z->unit0 && before < z->unit1));
}

static void forward_unit(void *arg, struct unit_step st)
{
    struct paper *z = arg;
    struct at u = unit(z, st.position, st.by);

    fetch(z, u, PHASE_FORWARD, is_ahead(z, st.position - 1), st.position + 1, st.by);
    run_blocks(z, u, unit_at(&z->map, st.position), st.by_block, PASS_FORWARD);
    if (z->shards_params)
        drop(z, u, PHASE_FORWARD);
}

static void alloc_full_grads(struct paper *z, struct at u)
{
    if (!z->fresh_grads || z->part == OF_INPUTS || !trains(z, u.c))
        return;
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "gradient buffer");
    paper_name(z, u);
    sched_act(z->s, ACT_ALLOC, z->full_grads[u.c], u.i, u.by);
    if (is_root(z, u) && z->ties)
        sched_act(z->s, ACT_ALLOC, z->full_grads[UC_TIED], 0, 0);
}

/* A block's two halves are needed at once where it is computed anew. */
static void fetch_backward(struct paper *z, struct at u, struct unit_step st, struct unit_ref ref)
{
    bool both = z->shards_params && needs_attention(z, ref);

    if (!both || u.c == UC_MLP)
        fetch(z, u, PHASE_BACKWARD, is_ahead(z, st.position + 1), st.position - 1, st.by);
    else if (z->prefetches && st.position > z->unit0)
        gather(z, unit(z, st.position - 1, st.by), PHASE_BACKWARD, 0);
    if (!both || u.c != UC_MLP)
        return;
    if (!z->prefetches)
        gather(z, unit(z, st.position - 1, st.by), PHASE_BACKWARD, AFTER(STREAM_COMPUTE));
    await_gather(z, unit(z, st.position - 1, st.by), PHASE_BACKWARD);
}

static void backward_unit(void *arg, struct unit_step st)
{
    struct paper *z = arg;
    struct at u = unit(z, st.position, st.by);

    fetch_backward(z, u, st, unit_at(&z->map, st.position));
    alloc_full_grads(z, u);
    run_blocks(z, u, unit_at(&z->map, st.position), st.by_block, PASS_BACKWARD);
    if (z->shards_params && z->part != OF_WEIGHTS)
        drop(z, u, PHASE_BACKWARD);
    if (z->fresh_grads && z->part != OF_INPUTS)
        reduce_unit(z, u);
}

/* A block of a model that is one unit. */
static void root_block(struct paper *z, enum pass pass, int b, int by)
{
    enum piece_id piece = program_piece_of_block(z->p, b);

    run(z, z->root, piece, pass, b, by, 0, -1);
    if (pass == PASS_BACKWARD && z->part == OF_INPUTS)
        return;
    sched_act(z->s, pass == PASS_FORWARD ? ACT_ALLOC : ACT_FREE, z->acts[piece], kept(z, piece, b), by);
}

static void root_block_forward(void *z, int block, int by)  { root_block(z, PASS_FORWARD, block, by); }
static void root_block_backward(void *z, int block, int by) { root_block(z, PASS_BACKWARD, block, by); }

static bool is_stage(const struct paper *z) { return z->p->parallel.pipeline > 1; }

/* Equal ones as a repeat, but in a pipeline, whose micro-steps have activations of their own. */
static void all_blocks(struct paper *z, bool backwards)
{
    if (!is_stage(z)) {
        units_blocks_emit(z->local, z->s, backwards, backwards ? root_block_backward : root_block_forward, z);
        return;
    }
    for (int i = 0, n = z->block1 - z->block0; i < n; i++)
        root_block(z, backwards ? PASS_BACKWARD : PASS_FORWARD, backwards ? z->block1 - 1 - i : z->block0 + i, 0);
}

static void all_units(struct paper *z, bool backwards)
{
    void (*emit)(void *z, struct unit_step at) = backwards ? backward_unit : forward_unit;

    if (z->map.n == 0)
        all_blocks(z, backwards);
    else if (!is_stage(z))
        units_emit(&z->map, z->s, backwards, emit, z);
    else
        for (int i = 0, n = z->unit1 - z->unit0; i < n; i++)
            emit(z, (struct unit_step){ backwards ? z->unit1 - 1 - i : z->unit0 + i, 0, 0 });
}

static void root_piece(struct paper *z, enum piece_id piece, enum pass pass)
{
    run(z, z->root, piece, pass, 0, 0, 0, -1);
    if (pass == PASS_BACKWARD && z->part == OF_INPUTS)
        return;
    sched_act(z->s, pass == PASS_FORWARD ? ACT_ALLOC : ACT_FREE, z->acts[piece], kept(z, piece, 0), 0);
}

static void drop_root(struct paper *z, enum phase phase)
{
    drop(z, z->root, phase);
    if (z->ties)
        drop(z, tied, phase);
}

static void forward(struct paper *z)
{
    bool root = z->root.c != NUC;

    if (root)
        fetch(z, z->root, PHASE_FORWARD, false, z->unit0, 0);
    if (z->embeds)
        root_piece(z, PIECE_EMBED, PASS_FORWARD);
    all_units(z, false);
    if (z->heads)
        root_piece(z, PIECE_HEAD, PASS_FORWARD);
    if (root && z->shards_params)
        drop_root(z, PHASE_FORWARD);
}

static void backward(struct paper *z)
{
    bool root = z->root.c != NUC;

    if (root)
        fetch(z, z->root, PHASE_BACKWARD, false, z->unit1 - 1, 0);
    if (z->fresh_grads && z->part != OF_INPUTS)     /* buffers are those of the last micro-step, which have been reduced then */
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "await last gradients")->after =
            z->away.states ? AFTER(STREAM_D2H) : AFTER(STREAM_REDUCE);
    if (root)
        alloc_full_grads(z, z->root);
    if (z->heads)
        root_piece(z, PIECE_HEAD, PASS_BACKWARD);
    all_units(z, true);
    if (z->embeds)
        root_piece(z, PIECE_EMBED, PASS_BACKWARD);
    if (root && z->shards_params && z->part != OF_WEIGHTS)
        drop_root(z, PHASE_BACKWARD);
    if (!root || !z->fresh_grads || z->part == OF_INPUTS)
        return;
    reduce_unit(z, z->root);
    if (z->ties)
        reduce_unit(z, tied);
}

/* ---- whole steps ---- */

/* Stages 0 and 1 are one unit, the whole model: one collective on all of it. */
static void whole_model(struct paper *z, enum coll_op op, enum dtype t, enum red_op red, int family,
                        enum phase phase)
{
    if (z->n < 2)
        return;
    struct op *o = sched_coll(z->s, STREAM_REDUCE, phase, op, z->group, t, red,
                              op == COLL_ALL_REDUCE ? z->numel[UC_ROOT] : z->padded[UC_ROOT]);
    o->after = AFTER(STREAM_COMPUTE);
    sched_act(z->s, ACT_R, family, 0, 0);
    if (op == COLL_REDUCE_SCATTER)
        sched_act_as(z->s, ACT_W, family, 0, 0, z->own_grads[UC_ROOT]);
    else
        sched_act(z->s, ACT_W, family, 0, 0);
    struct op *w = sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "await");
    w->after = AFTER(STREAM_REDUCE);
}

static void use_all(struct paper *z, int what, const int family[NUC])
{
    for (int c = 0; c < NUC; c++)
        if (z->map.of_class[c] > 0 && (family == z->frozen ? family[c] >= 0 : trains(z, (enum unit_class)c)))
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
        for (int i = 0; i < z->map.of_class[c] && trains(z, (enum unit_class)c); i++)
            sched_act_as(s, what, z->grads[c], i, 0, what == ACT_R ? z->norm_grads[c] : z->shards_grads ? 0 : z->own_grads[c]);
}

static void zero_gradients(struct paper *z, enum phase phase, int64_t bytes)
{
    sched_copy(z->s, STREAM_COMPUTE, phase, "zero gradients", 0, bytes);
    sched_does(z->s, COPY_ZERO, 0);
    use_all(z, ACT_W, z->grads);
}

/* Gradients of the whole model: averaged, or only `summed` up to now.  Averages may be taken again of what is added up so far;
 * the tensor-parallel ranks' parts are added up once, with the `last` micro-step's. */
static void reduce_model(struct paper *z, bool summed, bool last)
{
    if (last)
        sum_partial(z, (struct at){ UC_ROOT, 0, 0 }, z->grads[UC_ROOT]);
    if (last && z->partial[UC_ROOT] > 0)
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await sums")->after = AFTER(STREAM_TENSOR);
    whole_model(z, z->shards_optimizer ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, z->r.wire_reduce,
                summed ? RED_SUM : RED_AVG, z->grads[UC_ROOT], PHASE_REDUCE);
}

/* What was handed to its owners must not be handed over again with the next micro-step's. */
static void forget_others(struct paper *z)
{
    int64_t all = z->padded[UC_ROOT];

    sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "zero others' gradients", 0,
               (all - all / z->n) * dtype_bytes(z->r.grad));
    sched_does(z->s, COPY_ZERO, 0);
    sched_act_as(z->s, ACT_W, z->grads[UC_ROOT], 0, 0, z->others_grads);
}

/* The sum over all micro-steps becomes the average over ranks. */
static void average_own(struct paper *z, int64_t bytes)
{
    struct op *o = sched_copy(z->s, own_stream(z), PHASE_REDUCE, "average gradients", bytes, bytes);

    o->after = AFTER(STREAM_REDUCE) | AFTER(STREAM_D2H);
    sched_does(z->s, COPY_SET, 1.0 / (double)z->n);
    own_gradients(z->s, ACT_RW, z);
}

/* Where a model is reduced as a whole: after every micro-step, or once after the last. */
struct passes {
    struct paper *z;
    bool each;                      /* the model is reduced within every micro-step */
    bool summed;                    /* each is added to what the owners have of those before */
};

static void micro_pass(void *arg, const struct micro *m)
{
    const struct passes *e = arg;

    e->z->away.first = m->first;
    if (m->pass == MICRO_FORWARD) {
        forward(e->z);
        return;
    }
    backward(e->z);
    if (e->each)
        reduce_model(e->z, e->summed, m->last);
    if (e->summed)
        forget_others(e->z);
}

/* ---- a pipeline's stage ---- */

struct stage { struct paper *z; struct stage_ports ports; };

static void stage_act(void *stage, const struct pipeline_act *a)
{
    struct stage *g = stage;
    struct paper *z = g->z;

    if (stage_ports_does(&g->ports, a) || a->verb > PIPE_WEIGHT || stage_ports_idle(&g->ports, a))
        return;
    paper_enter_chunk(z, &g->ports, a);
    z->part = a->verb == PIPE_FORWARD || stage_ports_whole(&g->ports, a) ? ALL_OF_IT : a->verb == PIPE_INPUT ? OF_INPUTS
            : OF_WEIGHTS;
    stage_ports_begin(&g->ports, a);
    (a->verb == PIPE_FORWARD ? forward : backward)(z);
    stage_ports_end(&g->ports, a);
}

/* Stages 2 and 3 reduce every micro-step; stages 0 and 1 once, after the last. */
static int pipeline(struct paper *z, bool first)
{
    struct stage_memory none = { -1, -1, -1, -1 };
    struct stage g = { .z = z };
    int rc = stage_ports_open(&g.ports, z->local, z->s, PIPE_RUNTIME, &none, first, false);

    if (rc == 0)
        stage_ports_run(&g.ports, stage_act, &g);
    stage_ports_close(&g.ports);
    if (rc < 0)
        return -1;
    paper_reduce_tied(z);
    if (!z->fresh_grads)
        reduce_model(z, false, true);
    if (z->p->deterministic && z->n > 1)
        average_own(z, paper_own_elems(z) * dtype_bytes(z->r.grad));
    return 0;
}

static void micro_steps(struct paper *z)
{
    int64_t m = z->p->accumulation;
    bool whole = !z->fresh_grads, every = z->p->sync_every_micro_step && whole;
    struct passes e = { z, whole && (m == 1 || every), every && m > 1 && z->shards_optimizer && z->n > 1 };

    micro_steps_emit(z->s, &(struct micro_order){ .steps = m, .first_differs = z->away.states,
                                                  .last_differs = e.each && z->partial[UC_ROOT] > 0 },
                     &(struct micro_calls){ .emit = micro_pass }, &e);
    if (whole && !e.each)
        reduce_model(z, false, true);
    if (e.summed || (z->p->deterministic && z->n > 1))
        average_own(z, paper_own_elems(z) * dtype_bytes(z->r.grad));
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

/* Parameters that every rank has whole: each updated its part. */
static void gather_updated(struct paper *z)
{
    for (int c = 0; c < NUC; c++)
        for (int i = 0; i < z->map.of_class[c] && trains(z, (enum unit_class)c); i++) {
            struct op *o = sched_coll(z->s, STREAM_GATHER, PHASE_OPTIMIZER, COLL_ALL_GATHER, z->group, z->r.wire_gather,
                                      RED_NONE, z->padded[c]);
            o->after = z->away.states ? AFTER(STREAM_H2D) : AFTER(STREAM_COMPUTE);
            o->flags |= lower_guard(z->p);
            sched_of(z->s, unit_class_name((enum unit_class)c), i, 0);
            sched_act_as(z->s, ACT_R, z->params[c], i, 0, z->own_params[c]);
            sched_act(z->s, ACT_W, z->params[c], i, 0);
        }
}

static int step(struct paper *z, enum sched_id id)
{
    int64_t elems = paper_own_elems(z), e = dtype_bytes(z->r.grad);
    int rc = 0;

    sched_begin(z->s, id);
    if (z->away.states)
        paper_away_begin(z);
    if (is_stage(z))
        rc = pipeline(z, id == SCHED_FIRST);
    else
        micro_steps(z);
    sched_op(z->s, OP_MEMORY, own_stream(z), PHASE_REDUCE, "await reductions")->after =
        AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE) | (z->away.states ? AFTER(STREAM_D2H) : 0);
    before_step(z, elems * e);
    if (z->away.states)
        paper_away_step(z);
    else
        update(z, elems);
    if (z->shards_optimizer && !z->shards_params && z->n > 1)
        gather_updated(z);
    if (!z->away.states)
        zero_gradients(z, PHASE_OPTIMIZER, elems * e);
    lower_read_loss(z->s);
    sched_end(z->s, id);
    return rc;
}

static void init(struct paper *z)
{
    sched_begin(z->s, SCHED_INIT);
    if (z->away.states) {
        paper_away_init(z);
        sched_end(z->s, SCHED_INIT);
        return;
    }
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model states")->flags = OPF_LOAD;
    use_all(z, ACT_ALLOC | ACT_WRITE, z->params);
    use_all(z, ACT_ALLOC | ACT_WRITE, z->frozen);
    use_all(z, ACT_ALLOC | ACT_WRITE, z->grads);
    use_all(z, ACT_ALLOC | ACT_WRITE, z->optimizer);
    sched_end(z->s, SCHED_INIT);
}

int lower_paper(const struct local_model *local, struct schedules *s)
{
    const struct plan *p = local->plan;
    struct plan whole = *p;             /* stages 0 and 1 have one unit, but where each pass of a stage is reduced by itself */
    struct local_model units = *local;
    struct paper z = { .p = p, .local = local, .s = s, .r = plan_recipe(p), .n = local->shard_ranks,
                       .shards_optimizer = p->strategy != STRAT_DDP,
                       .shards_grads = p->strategy >= STRAT_ZERO2,
                       .shards_params = p->strategy >= STRAT_ZERO3 && local->shard_ranks > 1,
                       .fresh_grads = p->strategy >= STRAT_ZERO2 || p->deterministic,
                       .prefetches = p->strategy == STRAT_FSDP, .root = { UC_ROOT, 0, 0 }, .embeds = true, .heads = true };

    s->hooks = p->strategy == STRAT_FSDP;
    paper_away_setup(&z);
    z.rank_in_group = local->shard_rank;        /* padding is equal on all: so are sizes */
    whole.unit = is_stage(&z) && p->deterministic ? UNIT_BLOCK : UNIT_MODEL;
    if (!z.shards_grads)
        units.plan = &whole;
    unit_map_init(&z.map, &units);
    z.unit1 = z.map.n;
    z.group = z.n < local->data_ranks ? GROUP_SHARD : GROUP_DATA;
    for (int c = 0; c < NUC; c++)
        if (z.map.of_class[c] > 0)
            paper_declare(&z, (enum unit_class)c);
    lower_declare_activations(s, local, z.acts);
    z.ev_gather = sched_event(s);
    init(&z);
    return step(&z, SCHED_FIRST) < 0 ? -1 : step(&z, SCHED_STEADY);
}
