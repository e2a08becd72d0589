/* lower_fsdp2_experts.c -- FSDP2 with expert parallelism, as torchtitan has it (b5bcd76c, distributed/fsdp.py, apply_fsdp_to_decoder()).
 *
 * A block is one FSDPState of two parameter groups: its experts, which the ranks that have the same of them share (GROUP_EXPERT_DATA), and
 * the rest, which all share.  Both are gathered when the block's forward begins, the rest first, and reduced when its backward ends, the
 * experts first.  Since the host waits inside each block, what follows is prefetched by lists (set_modules_to_forward_prefetch): the next
 * block once this one's parameters are there; on the way back the experts of the one before first.
 *
 * Tensors of experts are cut by expert, or where expert ranks times sharing ranks are more than there are experts, on their next
 * dimension.  A block without experts beside others is one parameter group, gathered and reduced in its turn. */
#include "model/framework/torch_fsdp2/lower_fsdp2.h"

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

    if (!fsdp2_with_experts(f, u)) {
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
    bool shared = fsdp2_ranks(f, UC_EXPERTS) > 1, after = fsdp2_with_experts(f, prev);

    if (!after || shared)
        fsdp2_release(f, after ? fsdp2_experts(prev) : prev);
    fsdp2_copy_out(f, u, PHASE_FORWARD, false);
    if (fsdp2_with_experts(f, u)) {
        fsdp2_release(f, u);
        fsdp2_copy_out(f, fsdp2_experts(u), PHASE_FORWARD, false);
    }
    if (u.position + 1 < f->walk.map.n)
        fsdp2_prefetch_with_experts(f, walk_at(&f->walk, u.position + 1, u.by), PHASE_FORWARD);
}

void fsdp2_post_backward_with_experts(struct fsdp2 *f, struct at u, const struct at *before)
{
    bool with = fsdp2_with_experts(f, u);

    if (with)
        fsdp2_post_backward(f, fsdp2_experts(u), before);
    fsdp2_post_backward(f, u, with && f->size[UC_EXPERTS].trained > 0 ? NULL : before);
}
