/* lower_fsdp2_ends.c -- FSDP2's units of what is outside of the blocks.
 *
 * PyTorch's examples leave it to the root.  accelerate (1.14 on) and torchtitan (since August 2025) shard the embedding by itself, and the
 * last norm with the head as one unit, which is not resharded after forward; a tied embedding belongs to the latter.  verl shards an
 * embedding alone.  What no unit has (positions, an embedding's norm, a last norm that was not found) is the root's, which has no unit where
 * that is nothing.
 *
 * A unit of several modules registers its post-backward on the inputs of the first one that runs (FSDPParamGroup.pre_forward): those of the
 * last norm need gradients, an embedding's are numbers of tokens.  So the head's unit is reduced when its backward ends, the embedding's and
 * a tied one in the root's final callback, which goes over units in the order of modules. */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

static struct at end(enum unit_class c) { return (struct at){ c, 0, 0, -1, 0 }; }

struct at fsdp2_embeds(const struct fsdp2 *f)
{
    const int *n = f->walk.map.of_class;

    return end(n[UC_EMBED] ? UC_EMBED : n[UC_OUTPUT] ? UC_OUTPUT : UC_ROOT);
}

struct at fsdp2_heads(const struct fsdp2 *f) { return end(f->walk.map.of_class[UC_EMBED] && fsdp2_has_tail(f) ? UC_OUTPUT : NUC); }

struct at fsdp2_first(const struct fsdp2 *f) { return f->walk.map.of_class[UC_ROOT] ? walk_root : fsdp2_embeds(f); }

int fsdp2_last_ends(const struct fsdp2 *f, struct at to[2])
{
    int n = 0;

    if (f->walk.map.of_class[UC_ROOT])
        to[n++] = walk_root;
    if (fsdp2_embeds(f).c != UC_ROOT)
        to[n++] = fsdp2_embeds(f);
    return n;
}

bool fsdp2_is_forward_only(const struct fsdp2 *f, int position)
{
    const struct recorded *r = f->m->recorded;

    return r && position >= 0 && position < f->walk.map.n && r->turn[position] == REC_FORWARD_ONLY;
}

bool fsdp2_is_prefetched_in_vain(const struct fsdp2 *f, struct at u)
{
    return (u.c == UC_EMBED && f->reshard && f->size[u.c].trained == 0) || fsdp2_is_forward_only(f, u.position);
}

/* FSDPParamGroup.finalize_backward: "a mistargeted unshard". */
void fsdp2_drop_prefetched(struct fsdp2 *f, struct at u)
{
    struct op *o;

    if (f->nshard == 1)
        return;
    o = sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "await all-gather");
    o->after = AFTER(STREAM_GATHER);
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_FREE, f->fam[u.c].gathered, u.i, u.by);
    if (fsdp2_kept_ranks(f, u.c))
        sched_act(f->s, ACT_FREE, f->fam[u.c].post_forward, u.i, u.by);
}

/* Has the root a tensor that the head's piece reads, or the embedding's? */
static bool has_rest(const struct fsdp2 *f, enum piece_id piece)
{
    int of = piece == PIECE_HEAD ? TENSOR_HEAD : TENSOR_EMBED;

    for (int i = 0, t; (t = unit_tensor(&f->walk.map, UC_ROOT, i)) >= 0; i++)
        if (f->m->tensors[t].block == of)
            return true;
    return false;
}

void fsdp2_compute_rest(struct fsdp2 *f, const struct walk_run *r)
{
    const struct families *m = &f->fam[UC_ROOT];
    bool opens = r->piece == PIECE_HEAD || !has_rest(f, PIECE_HEAD);

    if (!has_rest(f, r->piece))
        return;
    sched_act(f->s, ACT_R, m->unsharded, 0, 0);
    if (!r->weights || f->size[UC_ROOT].trained == 0)
        return;
    if (opens && !f->has_unsharded)
        sched_act(f->s, ACT_ALLOC, m->grads_full, 0, 0);
    fsdp2_leave_grads(f, walk_root);
}

/* ---- a head that the loss calls for each part of the tokens (torchtune's LinearCrossEntropyLoss), behind the model ----
 *
 * Each call is a forward of its own (iter_forward_root): its all-gather waits for all before it, and the gather's output goes with its end.
 * In backward each call's unit is gathered again, and nothing is prefetched: what the next one asks for is the unit itself, which is there.
 * The weight is one leaf of autograd's, whose AccumulateGrad runs behind the last call's product, with the sum: one reduction. */

void fsdp2_call(struct fsdp2 *f, struct at u, bool forward)
{
    enum phase phase = forward ? PHASE_FORWARD : PHASE_BACKWARD;

    if (!f->root_reshard && f->walk.call == 0 && !forward)
        return;                             /* forward kept it */
    if (!f->root_reshard && f->walk.call > 0 && forward)
        return;
    fsdp2_unshard(f, u, phase, forward, false);
    if (forward)
        fsdp2_copy_out(f, u, phase, false);
    else
        fsdp2_regather(f, u);
}

void fsdp2_called(struct fsdp2 *f, struct at u, bool forward)
{
    bool gathered = f->root_reshard || f->walk.call == 0;

    if (!forward && f->walk.call == f->walk.calls - 1) {
        fsdp2_post_backward(f, u, NULL);
        return;
    }
    if (forward && gathered && f->nshard > 1)
        fsdp2_release(f, u);
    if (f->root_reshard && forward)
        fsdp2_reshard(f, u);
    if (forward)
        return;
    sched_op(f->s, OP_MEMORY, STREAM_COMPUTE, PHASE_BACKWARD, "reshard");
    walk_name(&f->walk, u);
    sched_act(f->s, ACT_FREE, f->fam[u.c].unsharded, u.i, u.by);
}
