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
 * with e = 2, k = 12 in mixed precision and e = 4, k = 8 in fp32. */
#include "model/lower_internal.h"

struct paper {
    const struct plan *p;
    struct schedules  *s;
    struct unit_map    map;
    struct recipe      r;
    int64_t            n;                   /* ranks a shard group has */
    bool shards_optimizer, shards_grads, shards_params, prefetches;
    int64_t            numel[NUC], padded[NUC];
    int                params[NUC], grads[NUC], optimizer[NUC], gathered[NUC], full_grads[NUC];
    int                acts[NPIECE];
    uint16_t           ev_gather;
    enum group         group;               /* where states are sharded */
};

struct at { enum unit_class c; int i, by; };

static const struct at root = { UC_ROOT, 0, 0 };

static struct at unit(const struct paper *z, int position, int by)
{
    struct unit_ref r = unit_at(&z->map, position);
    return (struct at){ r.cls, r.index, r.cls == UC_ROOT ? 0 : by };
}

static void name(struct paper *z, struct at u)
{
    sched_of(z->s, unit_class_name(u.c), u.i, u.by);
}

/* ---- communication ---- */

static void gather(struct paper *z, struct at u, enum phase phase, uint16_t after)
{
    struct op *o = sched_coll(z->s, STREAM_GATHER, phase, COLL_ALL_GATHER, z->group,
                              z->r.wire_gather, RED_NONE, z->padded[u.c]);

    o->after = after;
    o->record = z->ev_gather;
    name(z, u);
    sched_act(z->s, ACT_USE, z->params[u.c], u.i, u.by);
    sched_act(z->s, ACT_ALLOC, z->gathered[u.c], u.i, u.by);
}

static void drop(struct paper *z, struct at u, enum phase phase)
{
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "drop");
    name(z, u);
    sched_act(z->s, ACT_FREE, z->gathered[u.c], u.i, u.by);
}

/* Stage 2 and 3: a unit's gradients are reduced as soon as they are complete and
 * added to the shard. */
static void reduce_unit(struct paper *z, struct at u)
{
    struct op *o;
    int64_t shard = z->padded[u.c] / z->n, e = dtype_bytes(z->r.grad);

    if (z->n > 1) {
        o = sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, COLL_REDUCE_SCATTER, z->group,
                       z->r.wire_reduce, RED_AVG, z->padded[u.c]);
        o->after = AFTER(STREAM_COMPUTE);
        name(z, u);
        sched_act(z->s, ACT_USE, z->full_grads[u.c], u.i, u.by);
    }
    if (z->s->group_size[GROUP_REPLICA] > 1) {
        o = sched_coll(z->s, STREAM_ALL_REDUCE, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_REPLICA,
                       z->r.wire_reduce, RED_AVG, shard);
        o->after = z->n > 1 ? AFTER(STREAM_REDUCE) : AFTER(STREAM_COMPUTE);
        name(z, u);
        sched_act(z->s, ACT_USE, z->full_grads[u.c], u.i, u.by);
    }
    o = sched_copy(z->s, STREAM_REDUCE, PHASE_REDUCE, "add to shard", 2 * shard * e, shard * e);
    o->after = AFTER(STREAM_ALL_REDUCE) | (z->n > 1 ? 0 : AFTER(STREAM_COMPUTE));
    name(z, u);
    sched_act(z->s, ACT_USE, z->grads[u.c], u.i, u.by);
    sched_act(z->s, ACT_USE | ACT_FREE, z->full_grads[u.c], u.i, u.by);
}

/* ---- compute ---- */

static void run(struct paper *z, struct at u, enum piece_id piece, enum pass pass, int block, int by,
                int k0, int k1)
{
    bool forward = pass == PASS_FORWARD;

    sched_compute(z->s, forward ? PHASE_FORWARD : PHASE_BACKWARD, piece, pass, k0, k1,
                  GRADS_IN_PLACE, CAT_GRADS);
    sched_of(z->s, piece == PIECE_EMBED ? "embedding" : piece == PIECE_HEAD ? "head" : "block", block, by);
    sched_act(z->s, ACT_USE, z->shards_params ? z->gathered[u.c] : z->params[u.c], u.i, u.by);
    if (!forward)
        sched_act(z->s, ACT_USE, z->shards_grads ? z->full_grads[u.c] : z->grads[u.c], u.i, u.by);
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
        if (forward && first)
            sched_act(z->s, ACT_ALLOC, z->acts[piece], b, by_block);
        if (!forward && last)
            sched_act(z->s, ACT_FREE, z->acts[piece], b, by_block);
    }
}

/* The unit is there for compute; it was asked for just in time, or while the unit before
 * it was computed, and then the next one is asked for now. */
static void fetch(struct paper *z, struct at u, enum phase phase, bool ahead, int next, int by)
{
    if (!z->shards_params)
        return;
    if (!ahead)
        gather(z, u, phase, AFTER(STREAM_COMPUTE));
    struct op *o = sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "await gather");
    o->wait[0] = z->ev_gather;
    name(z, u);
    if (z->prefetches && next >= 0 && next < z->map.n)
        gather(z, unit(z, next, by), phase, 0);
}

static void forward_unit(void *arg, struct unit_step st)
{
    struct paper *z = arg;
    struct at u = unit(z, st.position, st.by);

    fetch(z, u, PHASE_FORWARD, z->prefetches, st.position + 1, st.by);
    run_blocks(z, u, unit_at(&z->map, st.position), st.by_block, PASS_FORWARD);
    if (z->shards_params)
        drop(z, u, PHASE_FORWARD);
}

static void alloc_full_grads(struct paper *z, struct at u)
{
    if (!z->shards_grads)
        return;
    struct op *o = sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "gradient buffer");
    if (u.c == UC_ROOT)             /* first in backward: the last micro-step's have been reduced */
        o->after = AFTER(STREAM_REDUCE);
    name(z, u);
    sched_act(z->s, ACT_ALLOC, z->full_grads[u.c], u.i, u.by);
}

static void backward_unit(void *arg, struct unit_step st)
{
    struct paper *z = arg;
    struct at u = unit(z, st.position, st.by);

    fetch(z, u, PHASE_BACKWARD, z->prefetches, st.position - 1, st.by);
    alloc_full_grads(z, u);
    run_blocks(z, u, unit_at(&z->map, st.position), st.by_block, PASS_BACKWARD);
    if (z->shards_params)
        drop(z, u, PHASE_BACKWARD);
    if (z->shards_grads)
        reduce_unit(z, u);
}

/* A block of a model that is one unit. */
static void root_block(struct paper *z, enum pass pass, int b, int by)
{
    enum piece_id piece = program_piece_of_block(z->p, b);

    run(z, root, piece, pass, b, by, 0, -1);
    sched_act(z->s, pass == PASS_FORWARD ? ACT_ALLOC : ACT_FREE, z->acts[piece], b, by);
}

static void root_block_forward(void *z, int b, int by)  { root_block(z, PASS_FORWARD, b, by); }
static void root_block_backward(void *z, int b, int by) { root_block(z, PASS_BACKWARD, b, by); }

static void all_blocks(struct paper *z, enum pass pass)
{
    if (z->map.n == 0)
        blocks_emit(z->p, z->s, pass == PASS_BACKWARD,
                    pass == PASS_FORWARD ? root_block_forward : root_block_backward, z);
}

static void micro_step(struct paper *z)
{
    fetch(z, root, PHASE_FORWARD, false, 0, 0);
    run(z, root, PIECE_EMBED, PASS_FORWARD, 0, 0, 0, -1);
    sched_act(z->s, ACT_ALLOC, z->acts[PIECE_EMBED], 0, 0);
    all_blocks(z, PASS_FORWARD);
    units_emit(&z->map, z->s, false, forward_unit, z);
    run(z, root, PIECE_HEAD, PASS_FORWARD, 0, 0, 0, -1);
    sched_act(z->s, ACT_ALLOC, z->acts[PIECE_HEAD], 0, 0);
    if (z->shards_params)
        drop(z, root, PHASE_FORWARD);

    fetch(z, root, PHASE_BACKWARD, false, z->map.n - 1, 0);
    alloc_full_grads(z, root);
    run(z, root, PIECE_HEAD, PASS_BACKWARD, 0, 0, 0, -1);
    sched_act(z->s, ACT_FREE, z->acts[PIECE_HEAD], 0, 0);
    all_blocks(z, PASS_BACKWARD);
    units_emit(&z->map, z->s, true, backward_unit, z);
    run(z, root, PIECE_EMBED, PASS_BACKWARD, 0, 0, 0, -1);
    sched_act(z->s, ACT_FREE, z->acts[PIECE_EMBED], 0, 0);
    if (z->shards_params)
        drop(z, root, PHASE_BACKWARD);
    if (z->shards_grads)
        reduce_unit(z, root);
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
    sched_act(z->s, ACT_USE, family, 0, 0);
    struct op *w = sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, phase, "await");
    w->after = AFTER(STREAM_REDUCE);
}

static void use_all(struct paper *z, const int family[NUC])
{
    for (int c = 0; c < NUC; c++)
        if (z->map.of_class[c] > 0)
            sched_act_all(z->s, ACT_USE, family[c]);
}

static void step(struct paper *z, enum sched_id id)
{
    int64_t m = z->p->accumulation, elems = 0, e = dtype_bytes(z->r.grad);
    bool whole = !z->shards_grads;
    bool every = z->p->sync_every_micro_step && whole;

    for (int c = 0; c < NUC; c++)
        elems += (z->shards_optimizer ? z->padded[c] / z->n : z->numel[c]) * z->map.of_class[c];
    sched_begin(z->s, id);
    if (m > 1)
        sched_repeat(z->s, m);
    micro_step(z);
    if (whole && (m == 1 || every))
        whole_model(z, z->shards_optimizer ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, z->r.wire_reduce,
                    RED_AVG, z->grads[UC_ROOT], PHASE_REDUCE);
    if (m > 1)
        sched_repeat_end(z->s);
    if (whole && m > 1 && !every)
        whole_model(z, z->shards_optimizer ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, z->r.wire_reduce,
                    RED_AVG, z->grads[UC_ROOT], PHASE_REDUCE);
    struct op *o = sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await reductions");
    o->after = AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
    if (z->p->clip > 0)
        clip_by_norm(z->s, elems * e, z->group, z->shards_optimizer && z->n > 1);
    o = sched_op(z->s, OP_OPTIMIZER, STREAM_COMPUTE, PHASE_OPTIMIZER, "AdamW");
    o->u.optimizer.elems = elems;
    use_all(z, z->grads);
    use_all(z, z->optimizer);
    use_all(z, z->params);
    if (z->shards_optimizer && !z->shards_params && z->n > 1) {
        for (int c = 0; c < NUC; c++)
            for (int i = 0; i < z->map.of_class[c]; i++) {
                o = sched_coll(z->s, STREAM_GATHER, PHASE_OPTIMIZER, COLL_ALL_GATHER, z->group,
                               z->r.wire_gather, RED_NONE, z->padded[c]);
                o->after = AFTER(STREAM_COMPUTE);
                sched_of(z->s, unit_class_name((enum unit_class)c), i, 0);
                sched_act(z->s, ACT_USE, z->params[c], i, 0);
            }
    }
    sched_copy(z->s, STREAM_COMPUTE, PHASE_OPTIMIZER, "zero gradients", 0, elems * e);
    use_all(z, z->grads);
    read_loss(z->s);
    sched_end(z->s, id);
}

static void declare(struct paper *z, enum unit_class c)
{
    struct schedules *s = z->s;
    const char *of = c == UC_ROOT ? NULL : unit_class_name(c);
    int n = z->map.of_class[c];
    int64_t e = dtype_bytes(z->r.kept), g = dtype_bytes(z->r.grad);
    int64_t whole, shard;

    z->numel[c] = unit_sum(&z->map, c, tensor_numel, NULL);
    z->padded[c] = round_up(z->numel[c], z->n);
    shard = z->padded[c] / z->n;
    whole = z->shards_optimizer && z->n > 1 ? z->padded[c] : z->numel[c];
    z->params[c] = sched_buf(s, CAT_PARAMS, "params", of, 0, n, e * (z->shards_params ? shard : whole));
    z->grads[c] = sched_buf(s, CAT_GRADS, "grads", of, 0, n, g * (z->shards_grads ? shard : whole));
    z->optimizer[c] = sched_buf(s, CAT_OPTIMIZER, "optimizer states", of, 0, n,
                                z->r.optimizer * (z->shards_optimizer ? shard : whole));
    z->gathered[c] = sched_buf(s, CAT_UNSHARDED, "gathered params", of, 0, n, e * z->padded[c]);
    z->full_grads[c] = sched_buf(s, CAT_UNSHARDED_GRADS, "unit's grads", of, 0, n, g * z->padded[c]);
    for (int i = 0; i < n; i++)
        sched_unit(s, unit_class_name(c), i, z->numel[c], z->padded[c], shard);
}

static void init(struct paper *z)
{
    sched_begin(z->s, SCHED_INIT);
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "model states");
    for (int c = 0; c < NUC; c++)
        if (z->map.of_class[c] > 0) {
            sched_act_all(z->s, ACT_ALLOC, z->params[c]);
            sched_act_all(z->s, ACT_ALLOC, z->grads[c]);
            sched_act_all(z->s, ACT_ALLOC, z->optimizer[c]);
        }
    sched_end(z->s, SCHED_INIT);
}

int lower_paper(const struct plan *p, int64_t rank, struct schedules *s)
{
    struct plan whole = *p;             /* stages 0 and 1 have one unit */
    struct paper z = { .p = p, .s = s, .r = plan_recipe(p), .n = p->shard_group,
                       .shards_optimizer = p->strategy != STRAT_DDP,
                       .shards_grads = p->strategy >= STRAT_ZERO2,
                       .shards_params = p->strategy >= STRAT_ZERO3 && p->shard_group > 1,
                       .prefetches = p->strategy == STRAT_FSDP };

    (void)rank;                         /* padding is equal on all: so are ranks */
    if (!z.shards_grads)
        whole.unit = UNIT_MODEL;
    unit_map_init(&z.map, z.shards_grads ? p : &whole);
    z.group = z.n < p->cluster.world_size ? GROUP_SHARD : GROUP_WORLD;
    s->group_size[GROUP_SHARD] = z.group == GROUP_SHARD ? z.n : 0;
    s->group_size[GROUP_REPLICA] = p->cluster.world_size / z.n > 1 ? p->cluster.world_size / z.n : 0;
    for (int c = 0; c < NUC; c++)
        if (z.map.of_class[c] > 0)
            declare(&z, (enum unit_class)c);
    declare_activations(s, p, z.acts);
    z.ev_gather = sched_event(s);
    init(&z);
    step(&z, SCHED_FIRST);
    step(&z, SCHED_STEADY);
    return 0;
}
