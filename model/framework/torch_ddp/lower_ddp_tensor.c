/* lower_ddp_tensor.c -- DistributedDataParallel over a model whose tensors are cut (parallelize_module()).
 *
 * torch/distributed/tensor/parallel/ddp.py of 2.15 keeps local tensors as parameters and makes DTensors of them in a hook before the
 * model's forward.  Backward of that hook comes when all else is done: autograd runs what was recorded first last.  So every
 * gradient waits, whole, until the end of backward; then, in the reverse order of registration, each reaches its parameter, what is a
 * part of a sum (norms' under sequence parallelism) added up over the tensor-parallel ranks first, and buckets are reduced with
 * nothing beside them.  tests/golden/grid/torch/ddp.txt has the order. */
#include "model/lower/common/lower_internal.h"
#include "model/framework/torch_ddp/lower_ddp.h"

void ddp_late_order(struct ddp *d)
{
    int n = 0;

    for (int t = d->ntensors - 1; t >= 0; t--)
        if (!d->m->tensors[t].frozen && ddp_has(d, t))
            d->at->order[n++] = t;
}

/* Where autograd leaves a gradient: in .grad's own storage, or in one that waits. */
static int family_of(const struct ddp *d, int t, bool fresh)
{
    return d->grad_family[t] + (fresh && d->apart ? 0 : d->waiting);
}

void ddp_late_grads(struct ddp *d, const struct walk_run *r)
{
    const struct piece *q = &d->s->program.piece[r->piece];

    for (int k = 0; k < q->nkernels[PASS_BACKWARD]; k++)
        for (int i = 0; i < 4 && q->kernels[PASS_BACKWARD][k].ready[i] >= 0; i++) {
            int t = program_tensor(d->p, r->piece, r->block, q->kernels[PASS_BACKWARD][k].ready[i]);
            sched_act(d->s, ACT_ALLOC | ACT_WRITE, family_of(d, t, d->fresh), ddp_instance_of(d, t), 0);
        }
}

/* What became of the gradients order[from] to order[last]: added to earlier ones, copied into their buckets. */
static void settle(struct ddp *d, int from, int last, bool fresh, bool sync)
{
    int64_t bytes = 0;

    for (int i = from; i <= last; i++)
        bytes += d->m->tensors[d->at->order[i]].numel * dtype_bytes(d->r.grad);
    if (!fresh && d->apart) {
        sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "add gradients", 2 * bytes, bytes)->after = AFTER(STREAM_TENSOR);
        for (int i = from, t; i <= last; i++) {
            t = d->at->order[i];
            sched_act(d->s, ACT_RW, d->grad_family[t], ddp_instance_of(d, t), 0);
            sched_act(d->s, ACT_R | ACT_FREE, d->grad_family[t] + d->waiting, ddp_instance_of(d, t), 0);
        }
    }
    if (!sync)
        return;
    sched_copy(d->s, STREAM_COMPUTE, PHASE_REDUCE, "divide into buckets", fresh || d->apart ? bytes : 2 * bytes, bytes)->after =
        AFTER(STREAM_TENSOR);
    for (int i = from, t; i <= last; i++) {
        t = d->at->order[i];
        sched_act(d->s, d->view ? ACT_R | ACT_FREE : ACT_R, d->grad_family[t] + (d->apart ? 0 : d->waiting), ddp_instance_of(d, t), 0);
        d->at->pending[d->at->now->of[t]]--;
    }
    sched_act(d->s, ACT_RW, ddp_bucket_buf(d, d->at->now->of[d->at->order[from]]), 0, 0);
    ddp_launch(d);
}

void ddp_late_settle(struct ddp *d)
{
    int n = d->at->ntrainable, from = 0;

    for (int i = 0; i < n; i++) {
        int t = d->at->order[i];
        bool partial = d->local->partial && (d->local->partial[t] & MESH_AXIS(AXIS_TENSOR));
        if (partial) {
            sched_coll(d->s, STREAM_TENSOR, PHASE_REDUCE, COLL_ALL_REDUCE, GROUP_TENSOR, d->r.grad, RED_SUM,
                       d->m->tensors[t].numel)->after = AFTER(STREAM_COMPUTE);
            sched_act(d->s, ACT_RW, family_of(d, t, d->fresh), ddp_instance_of(d, t), 0);
        }
        if (i + 1 == n || d->at->now->of[d->at->order[i + 1]] != d->at->now->of[t]) {       /* its bucket is full */
            settle(d, from, i, d->fresh, d->sync);
            from = i + 1;
        }
    }
}
