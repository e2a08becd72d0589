/* lower_fsdp2_experts.c -- FSDP2 with expert parallelism, as torchtitan has it (b5bcd76c, distributed/fsdp.py, apply_fsdp_to_decoder()).
 *
 * A block is one FSDPState of two parameter groups: its experts, which the ranks that have the same of them share (GROUP_EXPERT_DATA), and
 * the rest, which all share.  Both are gathered when the block's forward begins, the rest first, and reduced when its backward ends, the
 * experts first.  Since the host waits inside each block, what follows is prefetched by lists (set_modules_to_forward_prefetch): the next
 * block once this one's parameters are there; on the way back the experts of the one before first.
 *
 * Tensors of experts are cut by expert, or where expert ranks times sharing ranks are more than there are experts, on their next
 * dimension.  A block without experts beside others is one parameter group, gathered and reduced in its turn.
 *
 * With fsdp.ignores_experts those that a rank has alone are none of FSDP's parameters (NeMo Automodel, components/moe/parallelizer.py, apply_fsdp():
 * ignored_params): a block's forward reads them where they are, and autograd adds up their gradients in their own dtype until zero_grad(). */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

#include "model/lower/common/optimizer.h"

int fsdp2_dim(const struct fsdp2 *f, enum unit_class c)
{
    return c == UC_EXPERTS && f->p->parallel.expert * f->local->expert_data_ranks > f->m->experts;
}

int fsdp2_expert_tensors(const struct fsdp2 *f)
{
    int n = 0;

    for (int t = 0; t < f->m->ntensors && fsdp2_has_experts(f); t++)
        n += role_is_of_experts(f->m->tensors[t].role) && !f->m->tensors[t].frozen;
    return n;
}

void fsdp2_prefetch_with_experts(struct fsdp2 *f, struct at u, enum phase phase)
{
    bool back = phase == PHASE_BACKWARD;

    if (!fsdp2_shards_experts(f, u)) {
        fsdp2_unshard(f, u, phase, false, back);
        return;
    }
    fsdp2_unshard(f, back ? fsdp2_experts(u) : u, phase, false, back);
    fsdp2_unshard(f, back ? u : fsdp2_experts(u), phase, false, back);
}

/* The last of the unit before was retained for its copy-out (AllGatherState); of experts that a rank has alone nothing was gathered. */
void fsdp2_pre_forward_with_experts(struct fsdp2 *f, struct at u)
{
    struct at prev = walk_at(&f->walk, u.position - 1, u.by);
    bool shared = fsdp2_ranks(f, UC_EXPERTS) > 1, after = fsdp2_shards_experts(f, prev);

    if (!after || shared)
        fsdp2_release(f, after ? fsdp2_experts(prev) : prev);
    fsdp2_copy_out(f, u, PHASE_FORWARD, false);
    if (fsdp2_shards_experts(f, u)) {
        fsdp2_release(f, u);
        fsdp2_copy_out(f, fsdp2_experts(u), PHASE_FORWARD, false);
    }
    if (u.position + 1 < f->walk.map.n)
        fsdp2_prefetch_with_experts(f, walk_at(&f->walk, u.position + 1, u.by), PHASE_FORWARD);
}

void fsdp2_post_backward_with_experts(struct fsdp2 *f, struct at u, const struct at *before)
{
    bool with = fsdp2_shards_experts(f, u);

    if (fsdp2_with_experts(f, u) && !with)
        fsdp2_add_ignored(f, u);
    if (with)
        fsdp2_post_backward(f, fsdp2_experts(u), before);
    fsdp2_post_backward(f, u, with && f->size[UC_EXPERTS].trained > 0 ? NULL : before);
}

/* ---- experts that FSDP ignores ---- */

void fsdp2_declare_ignored(struct fsdp2 *f)
{
    struct schedules *s = f->s;
    struct families *m = &f->fam[UC_EXPERTS];
    const struct sizes *z = &f->size[UC_EXPERTS];
    const char *of = unit_class_name(UC_EXPERTS);
    int n = f->walk.map.of_class[UC_EXPERTS];

    *m = (struct families){ .shard = sched_buf(s, CAT_PARAMS, "params", of, 0, n, z->shard_bytes) };
    m->unsharded = m->shard;
    m->optimizer = sched_buf(s, CAT_OPTIMIZER, optimizer_states_title(f->p), of, 0, n, z->optimizer_bytes);
    m->grads = m->grads_full = m->grads_wide = sched_buf(s, CAT_UNSHARDED_GRADS, "grads", of, 0, n, z->grads_bytes);
    m->grads_new = sched_buf(s, CAT_UNSHARDED_GRADS, "grads to add", of, 0, n, z->grads_bytes);
    s->bufs[m->grads].experts = s->bufs[m->grads_new].experts = true;
    for (int i = 0; i < n; i++)
        sched_unit(s, of, i, z->numel, z->padded, z->padded);
}

/* Where the block's others are new and they are not, they are new tensors that are added behind backward: AccumulateGrad adds each as it comes. */
void fsdp2_leave_ignored(struct fsdp2 *f, struct at u)
{
    const struct families *m = &f->fam[UC_EXPERTS];

    if (f->size[UC_EXPERTS].trained == 0)
        return;
    if (f->has_ignored && f->has_unsharded) {
        sched_act(f->s, ACT_A, m->grads, u.i, u.by);
        return;
    }
    sched_act(f->s, ACT_ALLOC, f->has_ignored ? m->grads_new : m->grads, u.i, u.by);
    sched_act(f->s, ACT_W, f->has_ignored ? m->grads_new : m->grads, u.i, u.by);
}

void fsdp2_add_ignored(struct fsdp2 *f, struct at u)
{
    const struct families *m = &f->fam[UC_EXPERTS];
    int64_t bytes = f->size[UC_EXPERTS].grads_bytes;

    if (f->size[UC_EXPERTS].trained == 0 || !f->has_ignored || f->has_unsharded)
        return;
    sched_copy(f->s, STREAM_COMPUTE, PHASE_BACKWARD, "add to grads", 2 * bytes, bytes);
    walk_name(&f->walk, u);
    sched_does(f->s, COPY_ADD, 1);
    sched_act(f->s, ACT_A, m->grads, u.i, u.by);
    sched_act(f->s, ACT_R | ACT_FREE, m->grads_new, u.i, u.by);
}
