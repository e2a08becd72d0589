/* lower_paper_whole.c -- what ranks have whole: of stages 0 and 1, which are one unit, all gradients, reduced by one collective; of
 * stages 1 and 2 parameters, of which each rank updates its part. */
#include "model/framework/paper/lower_paper.h"

void paper_reduce_model(struct paper *z, bool summed, bool last)
{
    bool scatters = z->shards_optimizer;
    int grads = z->grads[UC_ROOT];

    if (last)
        paper_sum_partial(z, walk_root, grads);
    if (last && z->partial[UC_ROOT] > 0)
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await sums")->after = AFTER(STREAM_TENSOR);
    if (z->n < 2)
        return;
    sched_coll(z->s, STREAM_REDUCE, PHASE_REDUCE, scatters ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE, z->group, z->r.wire_reduce,
               summed ? RED_SUM : RED_AVG, scatters ? z->padded[UC_ROOT] : z->numel[UC_ROOT])->after = AFTER(STREAM_COMPUTE);
    sched_act(z->s, ACT_R, grads, 0, 0);
    sched_act_as(z->s, ACT_W, grads, 0, 0, scatters ? z->own_grads[UC_ROOT] : 0);
    sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_REDUCE, "await")->after = AFTER(STREAM_REDUCE);
}

void paper_forget_others(struct paper *z)
{
    int64_t all = z->padded[UC_ROOT];

    sched_copy(z->s, STREAM_COMPUTE, PHASE_REDUCE, "zero others' gradients", 0, (all - all / z->n) * dtype_bytes(z->r.grad));
    sched_does(z->s, COPY_ZERO, 0);
    sched_act_as(z->s, ACT_W, z->grads[UC_ROOT], 0, 0, z->others_grads);
}

void paper_gather_updated(struct paper *z)
{
    for (int c = 0; c < NUC; c++)
        for (int i = 0; i < z->walk.map.of_class[c] && paper_trains(z, (enum unit_class)c); i++) {
            struct op *o = sched_coll(z->s, STREAM_GATHER, PHASE_OPTIMIZER, COLL_ALL_GATHER, z->group, z->r.wire_gather,
                                      RED_NONE, z->padded[c]);
            o->after = z->away.states ? AFTER(STREAM_H2D) : AFTER(STREAM_COMPUTE);
            o->flags |= lower_guard(z->p);
            sched_of(z->s, unit_class_name((enum unit_class)c), i, 0);
            sched_act_as(z->s, ACT_R, z->params[c], i, 0, z->own_params[c]);
            sched_act(z->s, ACT_W, z->params[c], i, 0);
        }
}
