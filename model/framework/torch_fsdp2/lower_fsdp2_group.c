/* lower_fsdp2_group.c -- FSDP2's entries of one unit.
 *
 * Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py of PyTorch 2.15: what is allocated, copied,
 * waited for and freed, in the order in which they issue it.
 *
 * Parameters are sharded one by one on dimension 0: every rank keeps
 * ceil(rows/N) rows of each, padding included, so a unit of padded size A holds
 * A/N elements a rank, gathers A and reduces A. */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

static int64_t kept_ranks(const struct fsdp2 *f, enum unit_class c) { return fsdp2_kept_ranks(f, c); }

/* The ranks that share what a unit keeps after forward; the root's may be others. */
static enum group kept_group(const struct fsdp2 *f, enum unit_class c)
{
    return fsdp2_has_head(c) && f->reshard_ranks && f->root_ranks && f->root_ranks != f->reshard_ranks
         ? GROUP_ROOT_RESHARD : GROUP_RESHARD;
}

static enum group group_of(const struct fsdp2 *f, enum unit_class c) { return c == UC_EXPERTS ? GROUP_EXPERT_DATA : f->group; }

/* Its gather is done. */
static uint16_t gathered(const struct fsdp2 *f, enum unit_class c) { return c == UC_EXPERTS ? f->ev_gather_experts : f->ev_gather; }

/* FSDPParamGroup.unshard -> foreach_all_gather: cast and copy into this rank's
 * slot, then gather. */
void fsdp2_unshard(struct fsdp2 *f, struct at u, enum phase phase, bool root_of_forward, bool again)
{
    struct schedules *s = f->s;
    const struct families *m = &f->fam[u.c];
    const struct sizes *z = &f->size[u.c];
    /* After a reshard to k ranks the second gather runs among those. */
    bool small = again && kept_ranks(f, u.c);
    uint16_t after = root_of_forward ? AFTER(STREAM_COMPUTE) : 0;   /* _root_pre_forward: after the optimizer */
    int64_t n = small ? kept_ranks(f, u.c) : fsdp2_ranks(f, u.c);
    int64_t bytes = z->used / n;
    enum dtype wire = fsdp2_wire(f, u.c);

    if (fsdp2_ranks(f, u.c) == 1)
        return;                     /* nothing to gather: see wait_for_unshard() */
    if (fsdp2_scales(f, u, phase, after))
        after = AFTER(STREAM_GROUP);
    struct op *o = sched_copy(s, f->copy_in, phase, "copy-in",
                              small ? bytes : z->shard_bytes, bytes);
    o->after = after;
    if (small)
        o->wait[0] = fsdp2_has_head(u.c) ? f->ev_root_kept : f->ev_kept;
    walk_name(&f->walk, u);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_R, small ? m->post_forward : m->shard, u.i, u.by);
    sched_act(s, ACT_ALLOC, m->cast, u.i, u.by);
    if (z->cast_work > 0)
        sched_act(s, ACT_ALLOC | ACT_FREE, m->cast_work, u.i, u.by);
    sched_act_as(s, ACT_ALLOC | ACT_WRITE, m->gathered, u.i, u.by, small ? m->own_kept : m->own);
    o = sched_coll(s, STREAM_GATHER, phase, COLL_ALL_GATHER, small ? kept_group(f, u.c) : group_of(f, u.c),
                   wire, RED_NONE, z->used / dtype_bytes(wire));
    o->after = AFTER(f->copy_in);
    o->record = gathered(f, u.c);
    walk_name(&f->walk, u);
    sched_act_as(s, ACT_R, m->gathered, u.i, u.by, small ? m->own_kept : m->own);
    sched_act_as(s, ACT_W, m->gathered, u.i, u.by, small ? m->gathered_kept : 0);
    sched_act(s, ACT_FREE, m->cast, u.i, u.by);     /* foreach_all_gather returns */
}

/* CommContext.release_all_gather_state_for_comm_reuse: the previous unit's
 * all-gather output goes once the gather streams wait for its copy-out. */
void fsdp2_release(struct fsdp2 *f, struct at prev)
{
    struct op *o = sched_op(f->s, OP_MEMORY, STREAM_COPY_IN, PHASE_FORWARD, "release");

    o->wait[0] = f->ev_copy_out;
    walk_name(&f->walk, prev);
    sched_act(f->s, ACT_FREE, f->fam[prev.c].gathered, prev.i, prev.by);
}

/* foreach_all_gather_copy_out: a second full copy, into the parameters. */
void fsdp2_copy_out(struct fsdp2 *f, struct at u, enum phase phase, bool again)
{
    const struct families *m = &f->fam[u.c];
    int64_t bytes = f->size[u.c].used, ranks = fsdp2_ranks(f, u.c);
    struct op *o;

    o = sched_copy(f->s, STREAM_COMPUTE, phase, "copy-out",
                   ranks > 1 ? bytes : f->size[u.c].shard_bytes, bytes);
    o->wait[0] = ranks > 1 ? gathered(f, u.c) : 0;
    o->flags |= ranks > 1 ? 0 : OPF_HOOK;
    o->record = f->ev_copy_out;
    walk_name(&f->walk, u);
    sched_does(f->s, COPY_SET, 1);
    sched_act_as(f->s, ACT_R, ranks > 1 ? m->gathered : m->shard, u.i, u.by,
                 again && ranks > 1 && kept_ranks(f, u.c) ? m->gathered_kept : 0);
    if (fsdp2_casts_alone(f, u.c))
        sched_act(f->s, ACT_ALLOC | ACT_FREE, m->cast, u.i, u.by);
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, m->unsharded, u.i, u.by);
}

/* FSDPParamGroup.reshard after forward. */
void fsdp2_reshard(struct fsdp2 *f, struct at u)
{
    const struct families *m = &f->fam[u.c];

    if (kept_ranks(f, u.c)) {       /* to_sharded_post_forward: keep 1/k of it */
        int64_t kept = f->size[u.c].padded / kept_ranks(f, u.c) * dtype_bytes(f->r.used);
        sched_set(f->s, STREAM_COMPUTE, PHASE_FORWARD, "keep 1/k", kept, kept)->record =
            fsdp2_has_head(u.c) ? f->ev_root_kept : f->ev_kept;
        walk_name(&f->walk, u);
        sched_act(f->s, ACT_ALLOC | ACT_WRITE, m->post_forward, u.i, u.by);
        sched_act(f->s, ACT_R, m->unsharded, u.i, u.by);
    } else {
        sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "reshard");
        walk_name(&f->walk, u);
    }
    sched_act(f->s, ACT_FREE, m->unsharded, u.i, u.by);
}

/* Reduce-scatter, HSDP's all-reduce, cast, accumulate: foreach_reduce. */
static void reduce(struct fsdp2 *f, struct at u)
{
    struct schedules *s = f->s;
    const struct families *m = &f->fam[u.c];
    int64_t ranks = fsdp2_ranks(f, u.c), padded_elems = f->size[u.c].reduced, shard = padded_elems / ranks;
    int64_t wire = dtype_bytes(f->r.wire_reduce), kept = shard * dtype_bytes(f->r.kept);
    /* torchtitan divides the loss by the global number of tokens: set_gradient_divide_factor(1). */
    enum red_op red = f->r.wire_reduce == DT_FP16 ? RED_SUM : fsdp2_has_experts(f) ? RED_PREMUL_SUM : RED_AVG;
    /* The output becomes the sharded gradient itself, unless it must be cast or
     * added to one that exists. */
    int out = f->cast_grads || f->has_sharded ? m->rs_out : m->grads;
    enum stream st = STREAM_REDUCE;
    struct op *o;

    if (ranks > 1)
        o = sched_coll(s, st, PHASE_REDUCE, COLL_REDUCE_SCATTER, group_of(f, u.c), f->r.wire_reduce,
                       red, padded_elems);
    else
        o = sched_copy(s, st, PHASE_REDUCE, "copy (one rank)", padded_elems * wire, shard * wire);
    o->after = AFTER(STREAM_COMPUTE);
    o->record = f->ev_reduce;
    walk_name(&f->walk, u);
    if (ranks == 1)
        sched_does(s, COPY_SET, 1);
    o->flags |= OPF_HOOK;
    sched_act(s, ACT_R, m->rs_in, u.i, u.by);
    sched_act(s, ACT_ALLOC | ACT_WRITE, out, u.i, u.by);
    if (f->hybrid) {
        st = STREAM_ALL_REDUCE;
        o = sched_coll(s, st, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_REPLICA, f->r.wire_reduce, red == RED_PREMUL_SUM ? RED_SUM : red, shard);
        o->after = AFTER(STREAM_REDUCE);
        walk_name(&f->walk, u);
        sched_act(s, ACT_RW, out, u.i, u.by);
    }
    if (f->cast_grads) {            /* to the dtype of the sharded parameter */
        sched_set(s, st, PHASE_REDUCE, "cast grads", shard * wire, kept);
        walk_name(&f->walk, u);
        sched_act(s, ACT_ALLOC | ACT_WRITE, f->has_sharded ? m->grads_new : m->grads, u.i, u.by);
        sched_act(s, f->hybrid ? ACT_R : ACT_R | ACT_FREE, out, u.i, u.by);
        out = m->grads_new;
    }
    if (f->has_sharded) {
        sched_copy(s, st, PHASE_REDUCE, "add to grads", 2 * kept, kept);
        walk_name(&f->walk, u);
        sched_does(s, COPY_ADD, 1);
        sched_act(s, ACT_A, m->grads, u.i, u.by);
        sched_act(s, f->hybrid && out == m->rs_out ? ACT_R : ACT_R | ACT_FREE, out, u.i, u.by);
    }
}

/* set_requires_gradient_sync(False): the unsharded gradient stays, in the wider of the two dtypes
 * (_set_unsharded_grad_dtypes). */
void fsdp2_accumulate(struct fsdp2 *f, struct at u)
{
    const struct families *m = &f->fam[u.c];

    if (!f->wide_grads || f->has_unsharded || f->size[u.c].trained == 0)
        return;
    sched_set(f->s, STREAM_COMPUTE, PHASE_BACKWARD, "upcast grads", f->size[u.c].grads_bytes,
              f->size[u.c].grads_wide_bytes);
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, m->grads_wide, u.i, u.by);
    sched_act(f->s, ACT_R | ACT_FREE, m->grads_full, u.i, u.by);
    if (u.c == fsdp2_embeds(f).c)
        fsdp2_table_widened(f);
}

/* RegisterPostBackwardFunction -> FSDPParamGroup.post_backward. */
void fsdp2_post_backward(struct fsdp2 *f, struct at u, const struct at *prev)
{
    struct schedules *s = f->s;
    const struct families *m = &f->fam[u.c];
    const struct sizes *z = &f->size[u.c];
    struct op *o;
    int grads;

    grads = f->wide_grads && f->has_unsharded ? m->grads_wide : m->grads_full;
    bool sums = f->reduce && fsdp2_lay_out_grads(f, u, grads);
    sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "reshard");
    walk_name(&f->walk, u);
    sched_act(s, ACT_FREE, m->unsharded, u.i, u.by);
    if (!f->reduce) {
        fsdp2_accumulate(f, u);
        return;
    }
    if (z->trained == 0)            /* no gradients: fsdp_params_with_grad is empty */
        return;
    if (prev) {                     /* at most one reduce-scatter input in flight */
        o = sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "await reduce-scatter");
        o->wait[0] = f->ev_reduce;
        walk_name(&f->walk, *prev);
        sched_act(s, ACT_FREE, f->fam[prev->c].rs_in, prev->i, prev->by);
        if (fsdp2_shards_experts(f, *prev) && f->size[UC_EXPERTS].trained > 0)
            sched_act(s, ACT_FREE, f->fam[UC_EXPERTS].rs_in, prev->i, prev->by);
    }
    o = sched_copy(s, STREAM_COMPUTE, PHASE_REDUCE, "copy-in grads", z->trained * dtype_bytes(f->r.used),
                   z->reduced * dtype_bytes(f->r.wire_reduce));
    o->after = sums ? AFTER(STREAM_TENSOR) : 0;
    walk_name(&f->walk, u);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_ALLOC | ACT_WRITE, m->rs_in, u.i, u.by);
    sched_act(s, ACT_R | ACT_FREE, grads, u.i, u.by);
    if (u.c == fsdp2_embeds(f).c && f->table > 0)
        sched_act(s, ACT_R | ACT_FREE, f->table_own, 0, 0);
    reduce(f, u);
}

/* In backward the copy of the gathered unit goes at once, and the gather streams
 * wait for the copy-out before the next gather. */
void fsdp2_regather(struct fsdp2 *f, struct at u)
{
    fsdp2_copy_out(f, u, PHASE_BACKWARD, true);
    if (fsdp2_ranks(f, u.c) == 1)
        return;
    struct op *o = sched_op(f->s, OP_MEMORY, STREAM_COPY_IN, PHASE_BACKWARD, "release");
    o->after = AFTER(STREAM_COMPUTE);
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_FREE, f->fam[u.c].gathered, u.i, u.by);
    if (kept_ranks(f, u.c))
        sched_act(f->s, ACT_FREE, f->fam[u.c].post_forward, u.i, u.by);
}
