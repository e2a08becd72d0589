/* local_model.c -- the whole model on every rank of the mesh: see local_model.h. */
#include "model/plan/local_model.h"

void local_model_of(const struct plan *p, int64_t rank, struct local_model *out)
{
    struct mesh m = plan_mesh(p);
    struct mesh_group data = mesh_group(&m, MESH_AXIS(AXIS_REPLICA) | MESH_AXIS(AXIS_SHARD));

    *out = (struct local_model){ .plan = p, .model = &p->model, .rank = rank,
                                 .data_ranks = mesh_ranks(&data), .data_rank = mesh_place(&data, rank),
                                 .shard_ranks = m.size[AXIS_SHARD], .shard_rank = mesh_digit(&m, rank, AXIS_SHARD) };
}
