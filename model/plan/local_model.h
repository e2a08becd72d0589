/* local_model.h -- which tensors of a plan's model one rank has, and which ranks have the same: lowerings
 * read it in place of the plan's model and its world size.
 *
 *     struct local_model local;
 *     local_model_of(plan, rank, &local);
 *     ... local.model->tensors[t].numel, local.data_ranks ... */
#ifndef DPX_LOCAL_MODEL_H
#define DPX_LOCAL_MODEL_H

#include "model/plan/plan_groups.h"

struct local_model {
    const struct plan  *plan;       /* its options; not its model, nor its world */
    const struct model *model;      /* the tensors that this rank has, with its share of their rows and columns */
    int64_t rank;                   /* in the world */
    /* Ranks that have the same tensors and take other samples: gradients are averaged over them (GROUP_WORLD);
     * those of them that keep a share of each state; where this rank stands in both. */
    int64_t data_ranks, data_rank;
    int64_t shard_ranks, shard_rank;
};

/* In today's plans every rank has the whole model; local_share.h can cut it.  The plan owns what `out` points to. */
void local_model_of(const struct plan *p, int64_t rank, struct local_model *out);

#endif
