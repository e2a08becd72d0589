/* expert_capacity.c -- see expert_capacity.h. */
#include "model/plan/expert_capacity.h"

#include <math.h>

#include "model/plan/plan_groups.h"

int64_t expert_capacity(int64_t tokens, int64_t used, int64_t experts, double factor, int64_t least)
{
    int64_t rows = (int64_t)ceil((double)(tokens * used) / (double)experts * factor);

    return rows > least ? rows : least;
}

/* With sequence parallelism each tensor-parallel rank routes its share of the positions. */
int64_t expert_capacity_tokens(const struct plan *p)
{
    int64_t cut = p->parallel.tensor > 1 && p->parallel.sequence ? p->parallel.tensor : 1;

    return p->micro_batch * plan_rank_seq(p) / cut;
}

int64_t expert_capacity_of(const struct plan *p, int64_t tokens)
{
    double factor = p->dialect == DIALECT_MEGATRON ? p->megatron.moe_expert_capacity_factor : 0;

    return factor > 0 ? expert_capacity(tokens, p->model.experts_used, p->model.experts, factor, 0) : 0;
}
