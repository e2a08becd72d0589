/* lower_ddp_alone.c -- an optimizer that steps within backward, on one GPU that no DDP wraps: torchtune's register_optim_in_bwd_hooks()
 * (training/_optim_utils.py of 0.6): a hook of each parameter, run when its gradient has been accumulated, steps an optimizer of its own and
 * frees the gradient (zero_grad()).  A weight that is used twice has one gradient, the sum. */
#include "model/lower/common/lower_internal.h"
#include "model/framework/torch_ddp/lower_ddp.h"

/* The tensor whose gradient a kernel of the entry completes, the i-th; -1: no more. */
static int ready(const struct ddp *d, const struct walk_run *r, int kernel, int i)
{
    const struct kernel *k = &d->s->program.piece[r->piece].kernels[PASS_BACKWARD][kernel];

    return i < 4 && k->ready[i] >= 0 ? program_tensor(d->p, r->piece, r->block, k->ready[i]) : -1;
}

bool ddp_has_ready(const struct ddp *d, const struct walk_run *r, int kernel) { return ready(d, r, kernel, 0) >= 0; }

void ddp_update_ready(struct ddp *d, const struct walk_run *r)
{
    int64_t elems = 0;
    int tensors = 0;

    for (int k = r->k0; k < r->k1; k++)
        for (int i = 0, t; (t = ready(d, r, k, i)) >= 0; i++, tensors++)
            elems += d->m->tensors[t].numel;
    if (tensors == 0)
        return;
    struct op *o = lower_torch_adamw(d->s, d->p, elems);
    o->flags |= lower_guard(d->p);
    o->u.optimizer.tensors = tensors;
    sched_act(d->s, ACT_RW, d->params, 0, 0);
    for (int k = r->k0; k < r->k1; k++)
        for (int i = 0, t; (t = ready(d, r, k, i)) >= 0; i++)
            sched_act(d->s, ACT_R | ACT_FREE, d->grad_family[t], ddp_instance_of(d, t), 0);
    sched_act(d->s, d->updated ? ACT_RW : ACT_ALLOC | ACT_READ | ACT_WRITE, d->optimizer, 0, 0);
    if (d->paged_bytes > 0 && !d->updated) {
        sched_op(d->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "managed memory");
        sched_act(d->s, ACT_ALLOC, d->paged, 0, 0);
    }
    d->updated = true;
}
