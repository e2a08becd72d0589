/* local_model.c -- a plan as one rank of its mesh has it: see local_model.h. */
#include "model/plan/local_model.h"

#include <stdlib.h>

#include "base/fail.h"
#include "model/arch/packed.h"
#include "model/plan/framework.h"
#include "model/plan/native_experts.h"
#include "model/plan/titan_experts.h"

/* Of the model's first and last layers that stay in 16 bits the rank's: its chunks lie in the model's order. */
static void count_ends(const struct plan *p, const struct local_share *s, struct megatron_options *o)
{
    int64_t start = p->megatron.num_layers_at_start_in_bf16, end = p->model.layers - p->megatron.num_layers_at_end_in_bf16;

    o->num_layers_at_start_in_bf16 = o->num_layers_at_end_in_bf16 = 0;
    for (int c = 0; c < s->nchunks; c++)
        for (int64_t i = 0; i < s->chunk[c].blocks; i++) {
            o->num_layers_at_start_in_bf16 += s->chunk[c].first + i < start;
            o->num_layers_at_end_in_bf16 += s->chunk[c].first + i >= end;
        }
}

/* The share of the whole model, in a plan of its own. */
static int cut(const struct plan *p, struct local_model *out)
{
    out->own.plan = *p;
    out->own.partial = calloc((size_t)out->whole->ntensors + 2, 1);
    if (!out->own.partial)
        return fail("out of memory for a rank's tensors");
    if (local_share_model(out->whole, &out->share, &out->own.plan.model, out->own.partial) < 0) {
        free(out->own.partial);
        return -1;
    }
    if (native_experts_has(p) && native_experts_split(&out->own.plan.model, &out->own.partial) < 0) {
        model_free(&out->own.plan.model);
        free(out->own.partial);
        return -1;
    }
    count_ends(p, &out->share, &out->own.plan.megatron);
    out->plan = &out->own.plan;
    out->model = &out->own.plan.model;
    out->partial = out->own.partial;
    return 0;
}

/* What FSDP shards of packed weights: their codes, as elements of the unit's one dtype (bnb_4bit_quant_storage); torchao's scalers, too. */
static int store(const struct plan *p, struct local_model *out)
{
    struct model *m = &out->own.plan.model;

    out->own.plan = *p;
    if (model_with_layers(&p->model, p->model.layers, m) < 0)
        return -1;
    for (int i = 0; i < m->ntensors; i++) {
        struct tensor *t = &m->tensors[i];
        if (t->packed == BASE_PLAIN || t->is_bias)
            continue;
        t->numel = t->shape[0] = ceil_div(packed_sharded(t), dtype_bytes(plan_recipe(p).frozen));
        t->shape[1] = 1;
        t->in_out = false;
    }
    out->plan = &out->own.plan;
    out->model = m;
    return 0;
}

int local_model_of(const struct plan *p, int64_t rank, struct local_model *out)
{
    struct mesh m = plan_mesh(p);
    struct mesh_group shard = mesh_group(&m, MESH_AXIS(AXIS_SHARD) | MESH_AXIS(AXIS_CONTEXT));
    struct mesh_group data = mesh_group(&m, MESH_AXIS(AXIS_REPLICA) | MESH_AXIS(AXIS_SHARD) | MESH_AXIS(AXIS_CONTEXT));

    *out = (struct local_model){ .plan = p, .whole = &p->model, .model = &p->model, .rank = rank, .share = local_share_of(p, rank),
                                 .data_ranks = mesh_ranks(&data), .data_rank = mesh_place(&data, rank),
                                 .shard_ranks = mesh_ranks(&shard), .shard_rank = mesh_place(&shard, rank) };
    if (p->strategy == STRAT_FSDP && p->model.training.base != BASE_PLAIN)
        return store(p, out);
    if (p->parallel.expert > 1) {
        struct mesh_group all = mesh_group(&m, plan_expert_axes(p));
        out->expert_data_ranks = mesh_ranks(&all) / p->parallel.expert;
        out->expert_data_rank = mesh_place(&all, rank) / p->parallel.expert;
    }
    if (framework_of(p)->registered || p->parallel.expert > 1 || p->fsdp.grouped_experts) {
        if ((framework_of(p)->registered ? framework_of(p)->registered : titan_experts_model)(p, &out->own.registered) < 0)
            return -1;
        out->whole = &out->own.registered;
        out->share.vocab = out->whole->vocab;
        if (cut(p, out) == 0)
            return 0;
        model_free(&out->own.registered);
        return -1;
    }
    return m.size[AXIS_TENSOR] > 1 || m.size[AXIS_PIPE] > 1 ? cut(p, out) : 0;
}

void local_model_free(struct local_model *local)
{
    if (local->model == &local->own.plan.model)
        model_free(&local->own.plan.model);
    if (local->whole == &local->own.registered)
        model_free(&local->own.registered);
    free(local->own.partial);
}
