#include "model/plan/plan_groups.h"

#include <string.h>

static struct mesh mesh_of(const struct plan *p, int64_t shard)
{
    struct mesh m = { .order = { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT, AXIS_TENSOR } };

    for (int a = 0; a < NAXIS; a++)
        m.size[a] = 1;
    m.size[AXIS_REPLICA] = p->cluster.world_size / shard;
    m.size[AXIS_SHARD] = shard;
    return m;
}

/* FSDP2's reshard_after_forward k, of the units or, where they have none, of the root: a run of k inside
 * the shard group; and the root's own where it is another. */
static void reshards(const struct plan *p, int64_t shard, struct plan_groups *out)
{
    int64_t units = p->fsdp.reshard_after_forward, root = p->fsdp.root_reshard_after_forward;
    int64_t k[2] = { units > 1 ? units : root, units > 1 && root != units ? root : 0 };
    bool fsdp2 = p->strategy == STRAT_FSDP && p->dialect == DIALECT_TORCH;

    for (int i = 0; i < 2; i++) {
        int g = GROUP_RESHARD + i;
        out->has[g] = fsdp2 && k[i] > 1 && shard % k[i] == 0;
        out->of[g] = out->has[g] ? mesh_inner(&out->of[GROUP_SHARD], k[i]) : out->of[GROUP_SHARD];
    }
}

/* FSDP1 has two groups where its strategy is a hybrid one, whatever their sizes; a shard group of one
 * rank falls back to NO_SHARD, without replicas.  Elsewhere the sizes decide. */
static void hybrid(const struct plan *p, int64_t shard, struct plan_groups *out)
{
    enum fsdp1_sharding how = p->fsdp.sharding_strategy;

    out->has[GROUP_SHARD] = out->has[GROUP_REPLICA] = shard < p->cluster.world_size;
    if (p->dialect == DIALECT_TORCH_FSDP1) {
        out->has[GROUP_SHARD] = how == FSDP1_HYBRID_SHARD || how == FSDP1_HYBRID_SHARD_ZERO2;
        out->has[GROUP_REPLICA] = out->has[GROUP_SHARD] && shard > 1;
    }
}

void plan_groups(const struct plan *p, struct plan_groups *out)
{
    int64_t world = p->cluster.world_size;
    int64_t shard = p->shard_group < 1 || p->shard_group > world ? world : p->shard_group;
    struct mesh m = mesh_of(p, shard);

    memset(out, 0, sizeof *out);
    out->has[GROUP_WORLD] = true;
    hybrid(p, shard, out);
    out->of[GROUP_WORLD] = mesh_group(&m, MESH_AXIS(AXIS_REPLICA) | MESH_AXIS(AXIS_SHARD));
    out->of[GROUP_SHARD] = mesh_group(&m, MESH_AXIS(AXIS_SHARD));
    out->of[GROUP_REPLICA] = mesh_group(&m, MESH_AXIS(AXIS_REPLICA));
    reshards(p, shard, out);
}

struct mesh_lie plan_group_slowest(const struct plan *p, const struct plan_groups *groups, enum group g)
{
    return mesh_slowest(&groups->of[g], p->cluster.world_size, p->cluster.gpus_per_node);
}
