/* plan_groups.c -- the axes of a plan's ranks and the table of its groups. */
#include "model/plan/plan_groups.h"

#include <assert.h>

#include "model/plan/framework.h"

/* struct schedules: a bit a group in `communicates`, a byte in an entry. */
_Static_assert((int)NGROUP <= (int)PLAN_GROUPS && (int)PLAN_GROUPS <= 32, "a table has a place for every group");

struct mesh plan_mesh(const struct plan *p)
{
    const struct parallel_options *of = &p->parallel;
    int64_t data = plan_data_ranks(p), shard = p->shard_group < 1 || p->shard_group > data ? data : p->shard_group;
    struct mesh m = { .order = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT, AXIS_TENSOR } };

    for (int a = 0; a < NAXIS; a++)
        m.size[a] = 1;
    m.size[AXIS_PIPE] = of->pipeline > 1 ? of->pipeline : 1;
    m.size[AXIS_CONTEXT] = of->context > 1 ? of->context : 1;
    m.size[AXIS_TENSOR] = of->tensor > 1 ? of->tensor : 1;
    m.size[AXIS_SHARD] = shard / m.size[AXIS_CONTEXT];
    m.size[AXIS_REPLICA] = data / shard;
    return m;
}

int64_t plan_batch_rank(const struct plan *p, int64_t rank)
{
    struct mesh m = plan_mesh(p);
    struct mesh_group batch = mesh_group(&m, MESH_AXIS(AXIS_REPLICA) | MESH_AXIS(AXIS_SHARD));

    return mesh_place(&batch, rank);
}

int plan_groups_add(struct plan_groups *groups, const struct mesh *m, enum group is, struct group_rule rule)
{
    static const char *const names[NGROUP] = { "data", "shard", "replica", "reshard", "root_reshard", "secondary", "node", "across",
                                               "tensor", "context", "pipe", "tied", "model", "world", "stage", "context_a2a",
                                               "context_p2p", "expert", "expert_data", "expert_tensor", "instance" };
    struct mesh_group of = mesh_group(m, rule.axes);
    bool world = is == GROUP_DATA && mesh_ranks(&of) == mesh_world(m);

    if (rule.run)
        of = mesh_inner(&of, rule.run);
    if (rule.over)
        of = mesh_outer(&of, rule.over);
    if (rule.nplaces)
        of = mesh_some(&of, rule.nplaces, rule.place);
    assert(groups->n < PLAN_GROUPS && plan_groups_find(groups, is) < 0);
    groups->group[groups->n] = (struct plan_group){ .is = is, .name = world ? "world" : names[is], .ranks = mesh_ranks(&of),
                                                    .of = of };
    return groups->n++;
}

int plan_groups_find(const struct plan_groups *groups, enum group is)
{
    for (int g = 0; g < groups->n; g++)
        if (groups->group[g].is == is)
            return g;
    return -1;
}

unsigned plan_expert_axes(const struct plan *p)
{
    return PLAN_SHARDED | (p->parallel.expert_tensor > 1 ? 0 : MESH_AXIS(AXIS_TENSOR)) | (framework_of(p)->experts_span_replicas ? MESH_AXIS(AXIS_REPLICA) : 0);
}

void plan_groups_hybrid(const struct mesh *m, bool shards, bool replicas, struct plan_groups *out)
{
    if (shards)
        plan_groups_add(out, m, GROUP_SHARD, (struct group_rule){ .axes = PLAN_SHARDED });
    if (replicas)
        plan_groups_add(out, m, GROUP_REPLICA, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) });
}

/* Of the ranks that compute one copy of the model together. */
static void within_a_copy(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    static const struct { enum mesh_axis axis; enum group is; } of[] = {
        { AXIS_TENSOR, GROUP_TENSOR }, { AXIS_CONTEXT, GROUP_CONTEXT }, { AXIS_PIPE, GROUP_PIPE },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (m->size[of[i].axis] > 1)
            plan_groups_add(out, m, of[i].is, (struct group_rule){ .axes = MESH_AXIS(of[i].axis) });
    bool two = p->model.tied || p->megatron.mtp_num_layers > 0;     /* embeddings */

    if (two && m->size[AXIS_PIPE] > 1 && !pipeline_is_v(p->parallel.pipeline_schedule))
        plan_groups_add(out, m, GROUP_TIED, (struct group_rule){ .axes = MESH_AXIS(AXIS_PIPE), .nplaces = 2,
                                                                 .place = { 0, m->size[AXIS_PIPE] - 1 } });
}

/* Experts are shared out over runs of ranks that are others' data-, context- and tensor-parallel ones: torchtitan's sparse mesh
 * (distributed/parallel_dims.py: efsdp, ep; its replicas stay), Megatron-LM's expert grid (core/parallel_state.py: expt_tp, which is one
 * rank or all tensor-parallel ones, ep, expt_dp); DeepSpeed's _create_expert_and_data_parallel() (utils/groups.py), which has a group of
 * expert-data ranks where that is one rank, too. */
static void of_experts(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    unsigned all = plan_expert_axes(p);
    struct mesh_group of = mesh_group(m, all);

    if (p->parallel.expert > 1)
        plan_groups_add(out, m, GROUP_EXPERT, (struct group_rule){ .axes = all, .run = p->parallel.expert });
    if (p->parallel.expert > 1 && (mesh_ranks(&of) > p->parallel.expert || framework_of(p)->lone_expert_data))
        plan_groups_add(out, m, GROUP_EXPERT_DATA, (struct group_rule){ .axes = all, .over = p->parallel.expert });
    if (p->parallel.expert_tensor > 1)
        plan_groups_add(out, m, GROUP_EXPERT_TENSOR, (struct group_rule){ .axes = all | MESH_AXIS(AXIS_TENSOR),
                                                                          .run = (p->parallel.expert > 1 ? p->parallel.expert : 1) * p->parallel.expert_tensor });
}

/* With tensor-parallel ranks (else it is GROUP_DATA) and delayed scaling, unless tp_only_amax_red; or routers that have a bias. */
static void of_a_stage(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    bool delayed = plan_scaled(p) == SCALED_FP8_TENSOR && p->megatron.fp8_recipe == FP8_DELAYED && !p->megatron.tp_only_amax_red;
    bool biased = framework_of(p)->biases_routers && p->model.route_groups > 0;

    if ((delayed || biased) && m->size[AXIS_TENSOR] > 1)
        plan_groups_add(out, m, GROUP_STAGE, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED | MESH_AXIS(AXIS_TENSOR) });
}

void plan_groups(const struct plan *p, struct plan_groups *out)
{
    const struct framework *f = framework_of(p);
    struct mesh m = plan_mesh(p);

    out->n = 0;
    plan_groups_add(out, &m, GROUP_DATA, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | PLAN_SHARDED });
    if (f->state_groups)
        f->state_groups(p, &m, out);
    else
        plan_groups_hybrid(&m, m.size[AXIS_REPLICA] > 1, m.size[AXIS_REPLICA] > 1, out);
    within_a_copy(p, &m, out);
    if (f->copy_groups)
        f->copy_groups(p, &m, out);
    of_experts(p, &m, out);
    of_a_stage(p, &m, out);
}

struct mesh_lie plan_groups_slowest(const struct plan *p, const struct plan_groups *groups, int g)
{
    return mesh_slowest(&groups->group[g].of, p->cluster.world_size, p->cluster.gpus_per_node);
}
