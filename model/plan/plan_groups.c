/* plan_groups.c -- the axes of a plan's ranks and the table of its groups. */
#include "model/plan/plan_groups.h"

#include <assert.h>

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
                                               "context_p2p", "expert", "expert_data", "expert_tensor" };
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

/* Context-parallel ranks have the same tensors: FSDP shards them over both axes. */
enum { SHARDED = MESH_AXIS(AXIS_SHARD) | MESH_AXIS(AXIS_CONTEXT) };

unsigned plan_expert_axes(const struct plan *p)
{
    return SHARDED | (p->parallel.expert_tensor > 1 ? 0 : MESH_AXIS(AXIS_TENSOR)) | (p->dialect == DIALECT_MEGATRON ? MESH_AXIS(AXIS_REPLICA) : 0);
}

static int64_t shard_ranks(const struct mesh *m)
{
    return m->size[AXIS_SHARD] * m->size[AXIS_CONTEXT];
}

/* FSDP1 has two groups where its strategy is a hybrid one, whatever their sizes; a shard group of one
 * rank falls back to NO_SHARD, without replicas.  Elsewhere the sizes decide. */
static void hybrid(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    enum fsdp1_sharding how = p->fsdp.sharding_strategy;
    bool two = m->size[AXIS_REPLICA] > 1, replicas = two;

    if (p->dialect == DIALECT_TORCH_FSDP1) {
        two = how == FSDP1_HYBRID_SHARD || how == FSDP1_HYBRID_SHARD_ZERO2;
        replicas = two && shard_ranks(m) > 1;
    }
    if (two)
        plan_groups_add(out, m, GROUP_SHARD, (struct group_rule){ .axes = SHARDED });
    if (replicas)
        plan_groups_add(out, m, GROUP_REPLICA, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) });
}

/* FSDP2's reshard_after_forward k, of the units or, where they have none, of the root: a run of k inside
 * the shard group; and the root's own where it is another. */
static void reshards(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t units = p->fsdp.reshard_after_forward, root = p->fsdp.root_reshard_after_forward;
    int64_t k[2] = { units > 1 ? units : root, units > 1 && root != units ? root : 0 };

    if (p->strategy != STRAT_FSDP || p->dialect != DIALECT_TORCH)
        return;
    for (int i = 0; i < 2; i++)
        if (k[i] > 1 && shard_ranks(m) % k[i] == 0)
            plan_groups_add(out, m, i ? GROUP_ROOT_RESHARD : GROUP_RESHARD,
                            (struct group_rule){ .axes = SHARDED, .run = k[i] });
}

/* groups._create_zero_param_parallel_group(): runs of at most so many ranks, a communicator of their own also where that is all. */
static void secondary(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t n = p->ds.zero_hpz_partition_size, ranks = plan_data_ranks(p);

    if (p->strategy != STRAT_ZERO3 || p->dialect != DIALECT_DEEPSPEED)
        return;
    if (n > 1)
        plan_groups_add(out, m, GROUP_SECONDARY, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | SHARDED,
                                                                      .run = n < ranks ? n : ranks });
    if (m->size[AXIS_TENSOR] > 1)       /* beside AutoTP barriers, and the comparison of traces, are of all ranks */
        plan_groups_add(out, m, GROUP_WORLD, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | SHARDED | MESH_AXIS(AXIS_TENSOR) });
}

/* groups._get_local_all_to_all_group(): the two levels of quantised reductions; on one node they are not used. */
static void levels(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t node = plan_quantised_node(p);
    unsigned all = MESH_AXIS(AXIS_REPLICA) | SHARDED;

    if (node == 0)
        return;
    plan_groups_add(out, m, GROUP_NODE, (struct group_rule){ .axes = all, .run = node });
    plan_groups_add(out, m, GROUP_ACROSS, (struct group_rule){ .axes = all, .over = node });
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
    bool two = p->model.tied || (p->dialect == DIALECT_MEGATRON && p->megatron.mtp_num_layers > 0);     /* embeddings */

    if (two && m->size[AXIS_PIPE] > 1 && !pipeline_is_v(p->parallel.pipeline_schedule))
        plan_groups_add(out, m, GROUP_TIED, (struct group_rule){ .axes = MESH_AXIS(AXIS_PIPE), .nplaces = 2,
                                                                 .place = { 0, m->size[AXIS_PIPE] - 1 } });
}

/* create_hierarchical_groups() of megatron/core/parallel_state.py: neighbours exchange heads. */
static void hierarchy(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    int64_t run = p->megatron.a2a_ranks;

    if (p->dialect != DIALECT_MEGATRON || run <= 1 || m->size[AXIS_CONTEXT] % run)
        return;
    plan_groups_add(out, m, GROUP_CONTEXT_A2A, (struct group_rule){ .axes = MESH_AXIS(AXIS_CONTEXT), .run = run });
    plan_groups_add(out, m, GROUP_CONTEXT_P2P, (struct group_rule){ .axes = MESH_AXIS(AXIS_CONTEXT), .over = run });
}

/* Megatron-LM's groups of the gradient norm (optimizer.py, get_grad_stats_parallel_group()): with the distributed optimizer all ranks,
 * else those that have parts of one model. */
static void of_the_norm(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    unsigned copy = MESH_AXIS(AXIS_PIPE) | MESH_AXIS(AXIS_TENSOR), all = copy | MESH_AXIS(AXIS_REPLICA) | SHARDED;

    if (p->dialect != DIALECT_MEGATRON || m->size[AXIS_PIPE] * m->size[AXIS_TENSOR] == 1)
        return;
    if (p->strategy == STRAT_ZERO1)
        plan_groups_add(out, m, GROUP_WORLD, (struct group_rule){ .axes = all });
    else
        plan_groups_add(out, m, GROUP_MODEL, (struct group_rule){ .axes = copy });
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
    if (p->parallel.expert > 1 && (mesh_ranks(&of) > p->parallel.expert || p->dialect == DIALECT_DEEPSPEED))
        plan_groups_add(out, m, GROUP_EXPERT_DATA, (struct group_rule){ .axes = all, .over = p->parallel.expert });
    if (p->parallel.expert_tensor > 1)
        plan_groups_add(out, m, GROUP_EXPERT_TENSOR, (struct group_rule){ .axes = all | MESH_AXIS(AXIS_TENSOR),
                                                                          .run = (p->parallel.expert > 1 ? p->parallel.expert : 1) * p->parallel.expert_tensor });
}

/* With tensor-parallel ranks (else it is GROUP_DATA) and delayed scaling, unless tp_only_amax_red; or routers that have a bias. */
static void of_a_stage(const struct plan *p, const struct mesh *m, struct plan_groups *out)
{
    bool delayed = plan_scaled(p) == SCALED_FP8_TENSOR && p->megatron.fp8_recipe == FP8_DELAYED && !p->megatron.tp_only_amax_red;
    bool biased = p->dialect == DIALECT_MEGATRON && p->model.route_groups > 0;

    if ((delayed || biased) && m->size[AXIS_TENSOR] > 1)
        plan_groups_add(out, m, GROUP_STAGE, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | SHARDED | MESH_AXIS(AXIS_TENSOR) });
}

void plan_groups(const struct plan *p, struct plan_groups *out)
{
    struct mesh m = plan_mesh(p);

    out->n = 0;
    plan_groups_add(out, &m, GROUP_DATA, (struct group_rule){ .axes = MESH_AXIS(AXIS_REPLICA) | SHARDED });
    hybrid(p, &m, out);
    reshards(p, &m, out);
    secondary(p, &m, out);
    levels(p, &m, out);
    within_a_copy(p, &m, out);
    hierarchy(p, &m, out);
    of_the_norm(p, &m, out);
    of_experts(p, &m, out);
    of_a_stage(p, &m, out);
}

struct mesh_lie plan_groups_slowest(const struct plan *p, const struct plan_groups *groups, int g)
{
    return mesh_slowest(&groups->group[g].of, p->cluster.world_size, p->cluster.gpus_per_node);
}
