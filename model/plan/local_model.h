/* local_model.h -- which tensors of a plan's model one rank has, and which ranks have the same: lowerings
 * read it in place of the plan's model and its world size.
 *
 *     struct local_model local;
 *     if (local_model_of(plan, rank, &local) < 0) ...
 *     ... local.model->tensors[t].numel, local.data_ranks ...
 *     local_model_free(&local); */
#ifndef DPX_LOCAL_MODEL_H
#define DPX_LOCAL_MODEL_H

#include "model/plan/local_share.h"
#include "model/plan/plan_groups.h"

struct local_model {
    const struct plan  *plan;       /* the plan with `model` below as its model; its world is the whole */
    const struct model *whole;      /* the plan's model as it was, of all ranks; in dialect megatron as GPTModel
                                     * registers it, with parallel.expert as torchtitan does */
    const struct model *model;      /* the tensors that this rank has, with its share of their rows and columns */
    const uint8_t *partial;         /* bit MESH_AXIS(a) of partial[t]: this rank's gradient of tensor t is a part of a
                                     * sum over axis a; NULL: none is of any */
    int64_t rank;                   /* in the world */
    struct local_share share;       /* which stages of a pipeline its chunks are, which cut of tensors */
    /* Ranks that have the same tensors and take other samples, or other positions of them: gradients are averaged
     * over them (GROUP_DATA); those of them that keep a share of each state; where this rank stands in both. */
    int64_t data_ranks, data_rank;
    int64_t shard_ranks, shard_rank;
    int64_t expert_data_ranks, expert_data_rank;    /* with parallel.expert: the ranks that have the same experts */
    struct { struct plan plan; struct model registered; uint8_t *partial; } own;    /* where the model is another than the plan's; else unused */
};

/* What `rank` has.  A model that is not cut is the plan's own.  0, or -1 reported and nothing to free;
 * `out` must not be moved: it points into itself. */
int  local_model_of(const struct plan *p, int64_t rank, struct local_model *out);
void local_model_free(struct local_model *local);

#endif
