/* lower_fsdp2.c -- torch.distributed.fsdp.fully_shard (FSDP2), and HSDP.
 *
 * Source: torch/distributed/fsdp/_fully_shard/ of PyTorch 2.15: what is allocated,
 * copied, waited for and freed, in the order in which _fsdp_state.py and
 * _fsdp_param_group.py issue it.  The names of its functions stand at the entries.
 *
 * Parameters are sharded one by one on dimension 0: every rank keeps
 * ceil(rows/N) rows of each, padding included, so a unit of padded size A holds
 * A/N elements a rank, gathers A and reduces A. */
#include <stddef.h>

#include "model/lower/common/micro_steps.h"
#include "model/lower/common/optimizer.h"
#include "model/lower/torch/lower_fsdp2.h"

static const struct at the_root = { UC_ROOT, 0, 0 };

static int64_t kept_ranks(const struct fsdp2 *f, enum unit_class c) { return fsdp2_kept_ranks(f, c); }

/* The ranks that share what a unit keeps after forward; the root's may be others. */
static enum group kept_group(const struct fsdp2 *f, enum unit_class c)
{
    return c == UC_ROOT && f->reshard_ranks && f->root_ranks && f->root_ranks != f->reshard_ranks
         ? GROUP_ROOT_RESHARD : GROUP_RESHARD;
}

void fsdp2_name(struct fsdp2 *f, struct at u)
{
    if (u.c != UC_ROOT)
        sched_of(f->s, unit_class_name(u.c), u.i, u.by);
    else
        sched_of(f->s, "root", 0, 0);
}

/* ---- one unit's entries ---- */

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
    bool small = again && kept_ranks(f, u.c), from_host = f->offload && !small;
    uint16_t after = root_of_forward ? AFTER(STREAM_COMPUTE) : 0;   /* _root_pre_forward: after the optimizer */
    int64_t n = small ? kept_ranks(f, u.c) : fsdp2_ranks(f, u.c);
    int64_t bytes = z->used / n;
    enum dtype wire = fsdp2_wire(f, u.c);

    if (fsdp2_ranks(f, u.c) == 1)
        return;                     /* nothing to gather: see wait_for_unshard() */
    if (from_host)
        fsdp2_bring(f, u, STREAM_COPY_IN, phase, after);
    if (fsdp2_scales(f, u, phase, after))
        after = AFTER(STREAM_GROUP);
    struct op *o = sched_copy(s, f->copy_in, phase, "copy-in",
                              small || from_host ? bytes : z->shard_bytes, bytes);
    o->after = from_host ? 0 : after;
    if (small)
        o->wait[0] = u.c == UC_ROOT ? f->ev_root_kept : f->ev_kept;
    fsdp2_name(f, u);
    sched_does(s, COPY_SET, 1);
    if (from_host)
        fsdp2_brought(f, ACT_R, u);
    else
        sched_act(s, ACT_R, small ? m->post_forward : m->shard, u.i, u.by);
    if (!f->offload)
        sched_act(s, ACT_ALLOC, m->cast, u.i, u.by);
    if (z->cast_work > 0)
        sched_act(s, ACT_ALLOC | ACT_FREE, m->cast_work, u.i, u.by);
    sched_act_as(s, ACT_ALLOC | ACT_WRITE, m->gathered, u.i, u.by, small ? m->own_kept : m->own);
    o = sched_coll(s, STREAM_GATHER, phase, COLL_ALL_GATHER, small ? kept_group(f, u.c) : group_of(f, u.c),
                   wire, RED_NONE, z->used / dtype_bytes(wire));
    o->after = AFTER(f->copy_in);
    o->record = gathered(f, u.c);
    fsdp2_name(f, u);
    sched_act_as(s, ACT_R, m->gathered, u.i, u.by, small ? m->own_kept : m->own);
    sched_act_as(s, ACT_W, m->gathered, u.i, u.by, small ? m->gathered_kept : 0);
    if (!f->offload)                /* foreach_all_gather returns */
        sched_act(s, ACT_FREE, m->cast, u.i, u.by);
    else if (from_host)
        fsdp2_brought(f, ACT_FREE, u);
}

/* CommContext.release_all_gather_state_for_comm_reuse: the previous unit's
 * all-gather output goes once the gather streams wait for its copy-out. */
void fsdp2_release(struct fsdp2 *f, struct at prev)
{
    struct op *o = sched_op(f->s, OP_MEMORY, STREAM_COPY_IN, PHASE_FORWARD, "release");

    o->wait[0] = f->ev_copy_out;
    fsdp2_name(f, prev);
    sched_act(f->s, ACT_FREE, f->fam[prev.c].gathered, prev.i, prev.by);
}

/* foreach_all_gather_copy_out: a second full copy, into the parameters. */
void fsdp2_copy_out(struct fsdp2 *f, struct at u, enum phase phase, bool again)
{
    const struct families *m = &f->fam[u.c];
    int64_t bytes = f->size[u.c].used, ranks = fsdp2_ranks(f, u.c);
    struct op *o;

    if (fsdp2_brings_alone(f)) {
        fsdp2_bring_alone(f, u, phase);
        return;
    }
    o = sched_copy(f->s, STREAM_COMPUTE, phase, "copy-out",
                   ranks > 1 ? bytes : f->size[u.c].shard_bytes, bytes);
    o->wait[0] = ranks > 1 ? gathered(f, u.c) : 0;
    o->flags |= ranks > 1 ? 0 : OPF_HOOK;
    o->record = f->ev_copy_out;
    fsdp2_name(f, u);
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
        sched_copy(f->s, STREAM_COMPUTE, PHASE_FORWARD, "keep 1/k", kept, kept)->record =
            u.c == UC_ROOT ? f->ev_root_kept : f->ev_kept;
        fsdp2_name(f, u);
        sched_does(f->s, COPY_SET, 1);
        sched_act(f->s, ACT_ALLOC | ACT_WRITE, m->post_forward, u.i, u.by);
        fsdp2_on_unsharded(f, ACT_R, u);
    } else {
        sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_FORWARD, "reshard");
        fsdp2_name(f, u);
    }
    fsdp2_on_unsharded(f, ACT_FREE, u);
}

/* Where autograd leaves the gradients of the last entry: in new tensors, or added to what earlier
 * micro-steps left. */
static void leave_grads(struct fsdp2 *f, struct at u)
{
    const struct families *m = &f->fam[u.c];

    if (f->size[u.c].trained == 0)
        return;
    if (f->has_unsharded)
        sched_act(f->s, ACT_A, f->wide_grads ? m->grads_wide : m->grads_full, u.i, u.by);
    else
        sched_act(f->s, ACT_W, m->grads_full, u.i, u.by);
}

/* Half-block units, and a block that backward computes anew: its MLP's turn, which comes first,
 * does so and reads attention's parameters as well. */
static bool needs_attention(const struct fsdp2 *f, int block)
{
    return f->map.kind == UNIT_HALF_BLOCK && recompute_whole(f->p->recompute) &&
           piece_is_recomputed(program_piece_of_block(f->p, block));
}

/* The kernels of a backward that is in two halves. */
static void part_of(const struct fsdp2 *f, enum piece_id split, enum piece_id *piece, int *k0, int *k1)
{
    if (f->part == WHOLE_BACKWARD)
        return;
    *piece = split;
    *(f->part == INPUT_PART ? k1 : k0) = f->s->program.piece[split].split;
}

/* Kernels of a unit's blocks. */
void fsdp2_compute(struct fsdp2 *f, struct at u, int position, int by_block, enum pass pass)
{
    struct unit_ref ref = unit_at(&f->map, position);
    struct schedules *s = f->s;

    for (int k = 0; k < ref.nblocks; k++) {
        int b = pass == PASS_FORWARD ? ref.block + k : ref.block + ref.nblocks - 1 - k;
        enum piece_id kept = program_piece_of_block(f->p, b), piece = kept;
        bool backward = pass == PASS_BACKWARD && f->part != INPUT_PART;     /* gradients of weights */
        int k0 = 0, k1 = -1;
        bool first = true, last = true;     /* segment of the block's pass */
        if (f->map.kind == UNIT_HALF_BLOCK) {
            first = (u.c == UC_ATTENTION) == (pass == PASS_FORWARD);
            last = !first;
            int cut = program_half(&s->program, piece, pass, pass == PASS_FORWARD);
            *(first ? &k1 : &k0) = cut;
        }
        if (pass == PASS_BACKWARD)
            part_of(f, PIECE_BLOCK_SPLIT, &piece, &k0, &k1);
        sched_compute(s, pass == PASS_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD, piece, pass, k0, k1,
                      f->has_unsharded ? GRADS_DROP : GRADS_KEEP, CAT_UNSHARDED_GRADS);
        sched_of(s, "block", b, by_block);
        fsdp2_on_unsharded(f, ACT_R, u);
        if (fsdp2_has_experts(f))
            fsdp2_on_unsharded(f, ACT_R, fsdp2_experts(u));
        if (pass == PASS_BACKWARD && first && needs_attention(f, b))
            fsdp2_on_unsharded(f, ACT_R, (struct at){ UC_ATTENTION, u.i, u.by });
        if (pass == PASS_FORWARD && first)
            sched_act(s, ACT_ALLOC, f->acts[kept], f->kept_blocks + b, by_block);
        if (backward && !f->has_unsharded && k == 0 && f->size[u.c].trained > 0)
            sched_act(s, ACT_ALLOC, f->fam[u.c].grads_full, u.i, u.by);
        if (backward && !f->has_unsharded && fsdp2_has_experts(f))
            sched_act(s, ACT_ALLOC, f->fam[UC_EXPERTS].grads_full, u.i, u.by);
        if (backward)
            leave_grads(f, u);
        if (backward && fsdp2_has_experts(f))
            leave_grads(f, fsdp2_experts(u));
        if (backward && last)
            sched_act(s, ACT_FREE, f->acts[kept], f->kept_blocks + b, by_block);
    }
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
    int out = f->cast_grads ? m->rs_out : f->offload ? m->grads_new : f->has_sharded ? m->rs_out : m->grads;
    enum stream st = STREAM_REDUCE;
    struct op *o;

    if (ranks > 1)
        o = sched_coll(s, st, PHASE_REDUCE, COLL_REDUCE_SCATTER, group_of(f, u.c), f->r.wire_reduce,
                       red, padded_elems);
    else
        o = sched_copy(s, st, PHASE_REDUCE, "copy (one rank)", padded_elems * wire, shard * wire);
    o->after = AFTER(STREAM_COMPUTE);
    o->record = f->ev_reduce;
    fsdp2_name(f, u);
    if (ranks == 1)
        sched_does(s, COPY_SET, 1);
    o->flags |= OPF_HOOK;
    sched_act(s, ACT_R, m->rs_in, u.i, u.by);
    sched_act(s, ACT_ALLOC | ACT_WRITE, out, u.i, u.by);
    if (f->hybrid) {
        st = STREAM_ALL_REDUCE;
        o = sched_coll(s, st, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_REPLICA, f->r.wire_reduce, red == RED_PREMUL_SUM ? RED_SUM : red, shard);
        o->after = AFTER(STREAM_REDUCE);
        fsdp2_name(f, u);
        sched_act(s, ACT_RW, out, u.i, u.by);
    }
    if (f->cast_grads) {            /* to the dtype of the sharded parameter */
        sched_copy(s, st, PHASE_REDUCE, "cast grads", shard * wire, kept);
        fsdp2_name(f, u);
        sched_does(s, COPY_SET, 1);
        sched_act(s, ACT_ALLOC | ACT_WRITE, f->has_sharded || f->offload ? m->grads_new : m->grads, u.i, u.by);
        sched_act(s, f->hybrid ? ACT_R : ACT_R | ACT_FREE, out, u.i, u.by);
        out = m->grads_new;
    }
    if (f->offload) {
        fsdp2_send_grads(f, u, st, out);
    } else if (f->has_sharded) {
        sched_copy(s, st, PHASE_REDUCE, "add to grads", 2 * kept, kept);
        fsdp2_name(f, u);
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
    sched_copy(f->s, STREAM_COMPUTE, PHASE_BACKWARD, "upcast grads", f->size[u.c].grads_bytes,
               f->size[u.c].grads_wide_bytes);
    fsdp2_name(f, u);
    sched_does(f->s, COPY_SET, 1);
    sched_act(f->s, ACT_ALLOC | ACT_WRITE, m->grads_wide, u.i, u.by);
    sched_act(f->s, ACT_R | ACT_FREE, m->grads_full, u.i, u.by);
    if (u.c == UC_ROOT)
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
    fsdp2_name(f, u);
    fsdp2_on_unsharded(f, ACT_FREE, u);
    if (!f->reduce) {
        fsdp2_accumulate(f, u);
        return;
    }
    if (z->trained == 0)            /* no gradients: fsdp_params_with_grad is empty */
        return;
    if (prev) {                     /* at most one reduce-scatter input in flight */
        o = sched_op(s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "await reduce-scatter");
        o->wait[0] = f->ev_reduce;
        fsdp2_name(f, *prev);
        sched_act(s, ACT_FREE, f->fam[prev->c].rs_in, prev->i, prev->by);
        if (prev->c == UC_FULL && fsdp2_has_experts(f))
            sched_act(s, ACT_FREE, f->fam[UC_EXPERTS].rs_in, prev->i, prev->by);
    }
    o = sched_copy(s, STREAM_COMPUTE, PHASE_REDUCE, "copy-in grads", z->trained * dtype_bytes(f->r.used),
                   z->reduced * dtype_bytes(f->r.wire_reduce));
    o->after = sums ? AFTER(STREAM_TENSOR) : 0;
    fsdp2_name(f, u);
    sched_does(s, COPY_SET, 1);
    sched_act(s, ACT_ALLOC | ACT_WRITE, m->rs_in, u.i, u.by);
    sched_act(s, ACT_R | ACT_FREE, grads, u.i, u.by);
    if (u.c == UC_ROOT && f->table > 0)
        sched_act(s, ACT_R | ACT_FREE, f->table_own, 0, 0);
    reduce(f, u);
}

/* ---- a micro-step ---- */

struct at fsdp2_at(const struct fsdp2 *f, int position, int by)
{
    struct unit_ref r = unit_at(&f->map, position);
    return (struct at){ r.cls, r.index, r.cls == UC_ROOT ? 0 : by };
}

static void forward_unit(void *arg, struct unit_step st)
{
    struct fsdp2 *f = arg;
    struct at u = fsdp2_at(f, st.position, st.by);
    struct at prev = fsdp2_at(f, st.position - 1, st.by);

    if (fsdp2_has_experts(f)) {
        fsdp2_forward_with_experts(f, st);
        return;
    }
    fsdp2_unshard(f, u, PHASE_FORWARD, false, false);
    if (f->nshard > 1)
        fsdp2_release(f, prev);
    fsdp2_copy_out(f, u, PHASE_FORWARD, false);
    fsdp2_compute(f, u, st.position, st.by_block, PASS_FORWARD);
    if (f->reshard)
        fsdp2_reshard(f, u);
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
    fsdp2_name(f, u);
    sched_act(f->s, ACT_FREE, f->fam[u.c].gathered, u.i, u.by);
    if (kept_ranks(f, u.c))
        sched_act(f->s, ACT_FREE, f->fam[u.c].post_forward, u.i, u.by);
}

/* First units of which no input wants a gradient: autograd does not come to their post_backward; their turn comes in the root's final
 * callback, behind the root's own. */
static int late_units(const struct fsdp2 *f)
{
    bool frozen_half = f->map.kind == UNIT_HALF_BLOCK && f->size[UC_ATTENTION].trained == 0;

    return f->map.n == 0 || !program_first_differs(f->p) ? 0 : frozen_half ? 2 : 1;
}

/* Of units from `position` on the one that backward reduced last: a unit without anything that trains reduces nothing.  NULL: there is none. */
static const struct at *reduced_last(const struct fsdp2 *f, int position, int by, struct at *u)
{
    for (; position < f->map.n; position++) {
        *u = fsdp2_at(f, position, by);
        if (f->size[u->c].trained > 0)
            return u;
    }
    return NULL;
}

static void backward_unit(void *arg, struct unit_step st)
{
    struct fsdp2 *f = arg;
    struct at u = fsdp2_at(f, st.position, st.by);
    struct at prev, next = fsdp2_at(f, st.position - 1, st.by);
    bool both = needs_attention(f, unit_at(&f->map, st.position).block);

    if (fsdp2_has_experts(f)) {
        fsdp2_backward_with_experts(f, st);
        return;
    }
    if (f->reshard) {
        if (!both || u.c == UC_MLP)
            fsdp2_regather(f, u);
        if (st.position > 0)        /* one unit of backward prefetch */
            fsdp2_unshard(f, next, PHASE_BACKWARD, false, true);
        if (both && u.c == UC_MLP)
            fsdp2_regather(f, next);
    }
    fsdp2_compute(f, u, st.position, st.by_block, PASS_BACKWARD);
    if (st.position >= late_units(f))
        fsdp2_post_backward(f, u, reduced_last(f, st.position + 1, st.by, &prev));
}

/* Kernels [k0,k1) of the embedding or the head; k1 < 0: to the end.  The first piece of the root's in backward
 * allocates its gradients. */
void fsdp2_root_compute(struct fsdp2 *f, enum piece_id piece, enum pass pass, int k0, int k1)
{
    bool backward = pass == PASS_BACKWARD, apart = f->map.of_class[UC_HEAD] > 0;
    struct at u = { piece == PIECE_HEAD && apart ? UC_HEAD : UC_ROOT, 0, 0 };
    bool first = apart || piece == PIECE_HEAD || !f->local->share.heads;

    enum piece_id run = piece;
    bool begins = k0 == 0, ends = k1 < 0;
    bool loss = backward ? !ends : !begins;     /* the trainer's, which reads no parameters: they may be resharded */

    if (backward && piece == PIECE_HEAD)
        part_of(f, PIECE_HEAD_SPLIT, &run, &k0, &k1);
    sched_compute(f->s, backward ? PHASE_BACKWARD : PHASE_FORWARD, run, pass, k0, k1,
                  f->has_unsharded ? GRADS_DROP : GRADS_KEEP, CAT_UNSHARDED_GRADS);
    if (!loss)
        fsdp2_on_unsharded(f, ACT_R, u);
    sched_of(f->s, piece == PIECE_EMBED ? "embedding" : "head", 0, 0);
    if (backward && f->part == INPUT_PART)
        return;
    if (!backward && begins)
        sched_act(f->s, ACT_ALLOC, f->acts[piece], f->kept_ends, 0);
    else if (backward && ends)
        sched_act(f->s, ACT_FREE, f->acts[piece], f->kept_ends, 0);
    if (first && backward && ends && !f->has_unsharded && f->size[u.c].trained > 0)
        sched_act(f->s, ACT_ALLOC, f->fam[u.c].grads_full, 0, 0);
    if (backward && ends)
        leave_grads(f, u);
    if (backward && piece == PIECE_EMBED)
        fsdp2_table_left(f);
}

/* A block of a model that is one unit: the root's parameters. */
static void root_block(struct fsdp2 *f, enum pass pass, int block, int by)
{
    enum piece_id piece = program_piece_of_block(f->p, block);

    sched_compute(f->s, pass == PASS_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD, piece, pass, 0, -1,
                  f->has_unsharded ? GRADS_DROP : GRADS_KEEP, CAT_UNSHARDED_GRADS);
    sched_of(f->s, "block", block, by);
    fsdp2_on_unsharded(f, ACT_R, the_root);
    sched_act(f->s, pass == PASS_FORWARD ? ACT_ALLOC : ACT_FREE, f->acts[piece], block, by);
    if (pass == PASS_BACKWARD)
        leave_grads(f, the_root);
}

static void root_block_forward(void *f, int block, int by)  { root_block(f, PASS_FORWARD, block, by); }
static void root_block_backward(void *f, int block, int by) { root_block(f, PASS_BACKWARD, block, by); }

static void forward(struct fsdp2 *f)
{
    fsdp2_unshard(f, the_root, PHASE_FORWARD, true, false);
    fsdp2_copy_out(f, the_root, PHASE_FORWARD, false);
    if (fsdp2_has_experts(f))
        fsdp2_prefetch_with_experts(f, fsdp2_at(f, 0, 0), PHASE_FORWARD);
    fsdp2_root_compute(f, PIECE_EMBED, PASS_FORWARD, 0, -1);
    if (f->map.n == 0)
        units_blocks_emit(f->local, f->s, false, root_block_forward, f);
    units_emit(&f->map, f->s, false, forward_unit, f);
    int returns = f->s->program.returns[PASS_FORWARD];
    fsdp2_root_compute(f, PIECE_HEAD, PASS_FORWARD, 0, returns > 0 ? returns : -1);
    struct at last = fsdp2_at(f, f->map.n - 1, 0);
    last = fsdp2_has_experts(f) ? fsdp2_experts(last) : last;
    if (fsdp2_ranks(f, last.c) > 1) /* FSDPState._post_forward of the root */
        fsdp2_release(f, last);
    if (f->root_reshard)
        fsdp2_reshard(f, the_root);
    if (returns > 0)
        fsdp2_root_compute(f, PIECE_HEAD, PASS_FORWARD, returns, -1);
}

static void backward(struct fsdp2 *f)
{
    struct at last, late;
    int nlate = late_units(f);
    const struct at *reduced = reduced_last(f, nlate, 0, &last);
    int returns = f->s->program.returns[PASS_BACKWARD];

    if (returns > 0)                /* the trainer's loss: the root's pre_backward comes behind it */
        fsdp2_root_compute(f, PIECE_HEAD, PASS_BACKWARD, 0, returns);
    if (f->root_reshard) {
        fsdp2_unshard(f, the_root, PHASE_BACKWARD, false, true);
        fsdp2_regather(f, the_root);
    }
    if (f->reshard && fsdp2_has_experts(f))
        fsdp2_prefetch_with_experts(f, fsdp2_at(f, f->map.n - 1, 0), PHASE_BACKWARD);
    else if (f->reshard && f->map.n > 0)    /* the root's pre_backward prefetches the last unit */
        fsdp2_unshard(f, fsdp2_at(f, f->map.n - 1, 0), PHASE_BACKWARD, false, true);
    fsdp2_root_compute(f, PIECE_HEAD, PASS_BACKWARD, returns, -1);
    if (f->map.n == 0)
        units_blocks_emit(f->local, f->s, true, root_block_backward, f);
    units_emit(&f->map, f->s, true, backward_unit, f);
    fsdp2_root_compute(f, PIECE_EMBED, PASS_BACKWARD, 0, -1);
    /* The root's inputs need no gradient: its turn comes in the final callback,
     * after all of backward (_root_post_backward_final_callback). */
    fsdp2_post_backward(f, the_root, reduced);
    if (f->size[UC_ROOT].trained > 0)
        reduced = &the_root;
    for (int i = 0; i < nlate; i++) {
        fsdp2_post_backward(f, fsdp2_at(f, i, 0), reduced);
        if (f->size[fsdp2_at(f, i, 0).c].trained > 0) {
            late = fsdp2_at(f, i, 0);
            reduced = &late;
        }
    }
    if (!f->reduce)
        return;
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await reductions")->after = AFTER(STREAM_REDUCE) | AFTER(STREAM_ALL_REDUCE);
    if (reduced)
        sched_act(f->s, ACT_FREE, f->fam[reduced->c].rs_in, reduced->i, 0);
    if (f->hybrid && (f->cast_grads || f->has_sharded || f->offload))
        for (int c = 0; c < NUC; c++)       /* AllReduceState holds these until now */
            if (f->map.of_class[c] > 0 && f->size[c].trained > 0)
                sched_act_all(f->s, ACT_FREE, f->offload && !f->cast_grads ? f->fam[c].grads_new : f->fam[c].rs_out);
    if (f->offload)
        fsdp2_await_grads(f);
}

static void micro_pass(void *arg, const struct micro *m)
{
    struct fsdp2 *f = arg;
    bool every = f->p->sync_every_micro_step;

    f->reduce = every || m->last;
    f->has_unsharded = !every && !m->first;
    f->has_sharded = every && !m->first;
    if (m->pass == MICRO_FORWARD)
        forward(f);
    else
        backward(f);
}

static void micro_steps(struct fsdp2 *f)
{
    struct micro_order order = { .steps = f->p->accumulation, .first_differs = true,
                                 .last_differs = !f->p->sync_every_micro_step };

    micro_steps_emit(f->s, &order, &(struct micro_calls){ .emit = micro_pass }, f);
}

/* ---- the optimizer, and whole steps ---- */

static void for_all(struct fsdp2 *f, int act, size_t family)
{
    for (int c = 0; c < NUC; c++)
        if (f->map.of_class[c] > 0)
            sched_act_all(f->s, act, *(const int *)((const char *)&f->fam[c] + family));
}

static void for_grads(struct fsdp2 *f, int act)
{
    for (int c = 0; c < NUC; c++)
        if (f->map.of_class[c] > 0 && f->size[c].trained > 0)
            sched_act_all(f->s, act, f->fam[c].grads);
}

static void own_gradients(struct schedules *s, int what, void *arg)
{
    (void)s;
    for_grads(arg, what);
}

static void optimizer(struct fsdp2 *f, bool first)
{
    enum stream st = f->offload ? STREAM_HOST : STREAM_COMPUTE;
    int64_t elems = 0;

    for (int c = 0; c < NUC; c++)
        elems += f->size[c].stepped * f->map.of_class[c];
    int experts = fsdp2_expert_tensors(f);
    const struct norm_sum sums[] = {                /* the norms of all, stacked; experts' apart */
        { GROUP_EXPERT_DATA, fsdp2_ranks(f, UC_EXPERTS) > 1 ? experts : 0 }, { GROUP_EXPERT, experts },
        { f->group, f->nshard > 1 ? f->m->ntrainable - experts : 0 },
        { GROUP_TENSOR, f->local->share.tensor_ranks > 1 ? f->m->ntensors : 0 } };
    lower_before_step(f->s, &(struct step_gradients){ f->p, st, elems * dtype_bytes(f->r.kept), sums, 4, own_gradients, f });
    /* On the CPU it is a loop over parameters: as many passes over memory as the lists take. */
    struct op *o = fsdp2_step(f, elems);
    o->stream = (uint8_t)st;
    o->flags |= lower_guard(f->p);
    for_grads(f, ACT_R);
    for_all(f, ACT_RW, offsetof(struct families, shard));
    for_all(f, first ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW, offsetof(struct families, optimizer));
    sched_act(f->s, ACT_ALLOC | ACT_FREE, f->foreach_temp, 0, 0);    /* _init_group() has made all states by then */
    if (f->offload)
        sched_op(f->s, OP_WAIT, STREAM_ISSUE, PHASE_OPTIMIZER, "the CPU's optimizer")->after = AFTER(STREAM_HOST);
    fsdp2_precompute_scales(f);
    sched_op(f->s, OP_MEMORY, st, PHASE_OPTIMIZER, "zero_grad");
    for_grads(f, ACT_FREE);
    lower_read_loss(f->s);
}

static void init(struct fsdp2 *f)
{
    sched_begin(f->s, SCHED_INIT);
    if (f->offload) {
        fsdp2_offload_init(f);
        sched_end(f->s, SCHED_INIT);
        return;
    }
    /* Built on the meta device, sharded, then materialised: only shards exist. */
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_INIT, "materialise shards")->flags = OPF_LOAD;
    for_all(f, ACT_ALLOC | ACT_WRITE, offsetof(struct families, shard));
    if (f->statistics >= 0)
        sched_act(f->s, ACT_ALLOC | ACT_WRITE, f->statistics, 0, 0);
    sched_end(f->s, SCHED_INIT);
}

static void setup(struct fsdp2 *f)
{
    const struct plan *p = f->p;
    int64_t reshard_arg = p->fsdp.reshard_after_forward, foreach = 0;

    f->r = plan_recipe(p);
    f->nshard = f->local->shard_ranks;
    f->rank_in_group = f->local->shard_rank;
    f->copy_in = STREAM_COPY_IN;
    f->hybrid = f->nshard < f->local->data_ranks;
    f->reshard = reshard_arg != 0;
    /* Before 2.9 the root kept its parameters whatever it was given. */
    f->root_reshard = p->fsdp.root_reshard_after_forward > 0 && plan_version(p) >= 2009;
    f->group = f->hybrid ? GROUP_SHARD : GROUP_DATA;
    f->reshard_ranks = reshard_arg > 1 ? reshard_arg : 0;
    f->wide_grads = f->r.wire_reduce != f->r.used;
    f->cast_grads = f->r.wire_reduce != f->r.kept;
    f->root_ranks = p->fsdp.root_reshard_after_forward > 1 ? p->fsdp.root_reshard_after_forward : 0;
    fsdp2_offload_setup(f);
    f->table = f->local->share.tensor_ranks > 1 && f->local->share.embeds ? f->local->whole->vocab * f->m->token_width : 0;
    unit_map_init(&f->map, f->local);
    f->statistics = lower_declare_statistics(f->s, f->local);
    for (int c = 0; c < NUC; c++)
        if (f->map.of_class[c] > 0) {
            fsdp2_measure(f, (enum unit_class)c);
            fsdp2_declare(f, (enum unit_class)c);
            fsdp2_parts(f, (enum unit_class)c);
            if (f->s->detailed)
                fsdp2_describe(f, (enum unit_class)c);
            if (f->offload)
                fsdp2_offload_declare(f, (enum unit_class)c);
            foreach += f->size[c].foreach_bytes * f->map.of_class[c];
        }
    if (f->table > 0)
        fsdp2_tensor_declare(f);
    lower_declare_activations(f->s, f->local, f->acts);
    if (p->parallel.pipeline > 1)
        stage_memory_declare(&f->stage, f->local, f->s);
    if (f->offload) {
        f->foreach_temp = sched_buf_in(f->s, SPACE_HOST, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, fsdp2_loop_bytes(f));
    } else {
        f->foreach_temp = sched_buf(f->s, CAT_TEMPORARIES, "AdamW's temporaries", NULL, 0, 1, foreach);
        fsdp2_foreach_parts(f);
        fsdp2_step_temporaries(f);
    }
    f->ev_gather = sched_event(f->s);
    f->ev_gather_experts = sched_event(f->s);
    f->ev_copy_out = sched_event(f->s);
    f->ev_reduce = sched_event(f->s);
    f->ev_kept = sched_event(f->s);
    f->ev_root_kept = sched_event(f->s);
}

int lower_fsdp2(const struct local_model *local, struct schedules *s)
{
    struct fsdp2 f = { .p = local->plan, .local = local, .m = local->model, .s = s };
    int rc = 0;

    s->hooks = true;
    setup(&f);
    init(&f);
    for (int id = SCHED_FIRST; id <= SCHED_STEADY && rc == 0; id++) {
        sched_begin(s, (enum sched_id)id);
        f.first = id == SCHED_FIRST;
        if (f.p->parallel.pipeline > 1)
            rc = fsdp2_pipeline(&f, id == SCHED_FIRST);
        else
            micro_steps(&f);
        optimizer(&f, id == SCHED_FIRST);
        sched_end(s, (enum sched_id)id);
    }
    fsdp2_offload_free(&f);
    return rc;
}
