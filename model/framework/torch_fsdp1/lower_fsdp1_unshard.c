/* lower_fsdp1_unshard.c -- when a unit's parameters are whole.
 *
 * A sharded unit is gathered straight into _full_param_padded, of which the
 * parameters are views: one full copy, no copy-out.  NO_SHARD gathers nothing; in
 * mixed precision it casts the whole parameter instead, and drops that after use. */
#include <assert.h>
#include <string.h>

#include "model/framework/torch_fsdp1/lower_fsdp1.h"

int fsdp1_params(const struct fsdp1 *f, enum unit_class c, enum phase phase)
{
    return f->sharded || fsdp1_casts(f, c) ? f->fam[c].full[phase == PHASE_BACKWARD] : f->fam[c].shard;
}

/* Is there anything to do?  Forward finds sharded units gathered after a no_sync
 * micro-step of SHARD_GRAD_OP, backward finds those that forward left. */
static bool needs_unshard(const struct fsdp1 *f, struct at u, enum phase phase)
{
    if (!f->sharded)
        return fsdp1_casts(f, u.c);
    return phase == PHASE_FORWARD ? !f->now.gathered : f->frees_after_forward && u.c != UC_ROOT;
}

/* ---- the rate limiter ---- */

/* Takes the oldest event and makes the issuing thread wait for it. */
static void await_oldest(struct fsdp1 *f, enum phase phase)
{
    struct limiter *l = &f->now.limiter;

    sched_op(f->s, OP_WAIT, STREAM_ISSUE, phase, "rate limiter")->wait[0] = l->queue[0];
    memmove(l->queue, l->queue + 1, (size_t)--l->n * sizeof *l->queue);
}

/* dequeue_if_needed(): called by every _unshard(), also by those that find their
 * unit gathered. */
static void limit(struct fsdp1 *f, enum phase phase)
{
    if (f->now.limiter.n >= 2)
        await_oldest(f, phase);
}

static bool queued(const struct limiter *l, uint16_t event)
{
    for (int i = 0; i < l->n; i++)
        if (l->queue[i] == event)
            return true;
    return false;
}

/* Room for an event that is about to be recorded.  A model of one unit or two frees
 * the same one again while it is queued: it is then awaited here, after all of this
 * micro-step was issued, and not at the start of the next; the device has as much
 * work before it either way. */
static void make_room(struct fsdp1 *f, uint16_t event, enum phase phase)
{
    while (queued(&f->now.limiter, event))
        await_oldest(f, phase);
    assert(f->now.limiter.n < (int)(sizeof f->now.limiter.queue / sizeof *f->now.limiter.queue));
}

/* ---- unshard, reshard ---- */

/* _use_low_precision_shard(): the shard in the compute dtype.  Under NO_SHARD that
 * is already the whole parameter. */
static void cast_shard(struct fsdp1 *f, struct at u, enum phase phase, bool waits)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    int64_t elems = f->size[u.c].shard;
    struct op *o = sched_copy(f->s, STREAM_COPY_IN, phase, "cast shard", elems * dtype_bytes(f->kept[u.c]),
                              elems * dtype_bytes(f->r.used));

    o->after = waits ? AFTER(STREAM_COMPUTE) : 0;
    walk_name(&f->walk, u);
    sched_does(f->s, COPY_SET, 1);
    sched_act(f->s, ACT_R, m->shard, u.i, u.by);
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, f->sharded ? m->mp_shard[phase == PHASE_BACKWARD]
                                          : m->full[phase == PHASE_BACKWARD], u.i, u.by);
}

/* _wait_for_computation_stream(): a root that is frozen has nothing to cast, adapters have. */
static void casts_wait(struct fsdp1 *f, struct at u, enum phase phase)
{
    if (f->r.used == f->r.kept)
        return;
    sched_op(f->s, OP_MEMORY, STREAM_COPY_IN, phase, "wait for the optimizer")->after = AFTER(STREAM_COMPUTE);
    walk_name(&f->walk, u);
}

void fsdp1_unshard(struct fsdp1 *f, struct at u, enum phase phase, bool waits)
{
    const struct fsdp1_families *m = &f->fam[u.c];
    bool needed = needs_unshard(f, u, phase), casts = fsdp1_casts(f, u.c);

    if (f->offload)
        fsdp1_bring(f, u, phase, waits);
    else if (needed && casts)
        cast_shard(f, u, phase, waits);
    else if (waits)
        casts_wait(f, u, phase);
    limit(f, phase);
    if (f->offload && !needed)
        fsdp1_drop_brought(f, u, phase);
    if (!needed || !f->sharded)
        return;
    struct op *o = sched_coll(f->s, STREAM_GATHER, phase, COLL_ALL_GATHER, f->group, f->r.wire_gather,
                              RED_NONE, f->size[u.c].padded);
    o->after = (casts || f->offload ? AFTER(STREAM_COPY_IN) : 0) | (waits ? AFTER(STREAM_COMPUTE) : 0);
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, m->full[phase == PHASE_BACKWARD], u.i, u.by);
    if (f->offload)
        sched_act(f->s, fsdp1_holds_brought(f, u.c) ? ACT_R : ACT_R | ACT_FREE, fsdp1_brought(f, u.c, phase), u.i, u.by);
    else if (casts)                 /* post_unshard() */
        sched_act(f->s, ACT_R | ACT_FREE, m->mp_shard[phase == PHASE_BACKWARD], u.i, u.by);
    else
        sched_act(f->s, ACT_R, m->shard, u.i, u.by);
}

void fsdp1_await(struct fsdp1 *f, struct at u, enum phase phase)
{
    if (!needs_unshard(f, u, phase) && !f->offload)
        return;
    struct op *o = sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, phase,
                            f->sharded ? "await all-gather" : "await cast");
    o->after = f->sharded ? AFTER(STREAM_GATHER) : AFTER(STREAM_COPY_IN);
    walk_name(&f->walk, u);
}

/* Frees the unsharded parameter?  _post_forward_reshard(), _should_free_in_backward()
 * and, for NO_SHARD's cast copy, post_reshard(). */
static bool frees(const struct fsdp1 *f, struct at u, enum phase phase)
{
    if (!f->sharded)
        return fsdp1_casts(f, u.c);
    if (phase == PHASE_FORWARD)
        return f->frees_after_forward && u.c != UC_ROOT;
    return f->frees_after_forward || f->now.reduce;
}

static uint16_t event_of(const struct fsdp1 *f, struct at u, enum phase phase)
{
    if (unit_is_adapter(u.c))
        return f->ev_adapter[f->now.way][u.position % RING][u.c - UC_ADAPTER];
    return u.c == UC_ROOT ? f->ev_root : phase == PHASE_FORWARD ? f->ev_forward[u.position % RING] : f->ev_backward[u.position % RING];
}

void fsdp1_reshard(struct fsdp1 *f, struct at u, enum phase phase)
{
    uint16_t event = event_of(f, u, phase);
    bool limited = f->sharded && f->p->fsdp.limit_all_gathers;

    if (f->offload && fsdp1_holds_brought(f, u.c))
        fsdp1_release_brought(f, u, phase);
    if (!frees(f, u, phase))
        return;
    if (limited)
        make_room(f, event, phase);
    struct op *o = sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, phase, "reshard");
    o->record = limited ? event : 0;
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_FREE, fsdp1_params(f, u.c, phase), u.i, u.by);
    if (limited)
        f->now.limiter.queue[f->now.limiter.n++] = event;
}
