/* saved.c -- the bytes of a checkpoint, from the tensors and what the optimizer keeps of each. */
#include "sim/bill/saved.h"

#include "base/dtype.h"
#include "base/fail.h"
#include "model/lower/common/optimizer.h"
#include "sim/price/space_cost.h"

/* States of one whole tensor.  AdamW of torch's kind: as the recipe says, master included. */
static int64_t states_of(const struct plan *p, const struct recipe *r, const struct tensor *t)
{
    int64_t parts[OPTIMIZER_PARTS], sum = 0;

    if (t->frozen)
        return 0;
    if (p->optimizer == OPTIMIZER_ADAMW)
        return t->numel * r->optimizer;
    if (r->optimizer > 8)                           /* an fp32 master beside the two moments that the recipe counts */
        sum = t->numel * (r->optimizer - 8);
    for (int n = optimizer_states(p, t, t->shape[0], parts); n > 0; n--)
        sum += parts[n - 1];
    return sum;
}

/* Who writes what: the weights by one rank or by all, the states likewise. */
struct manner { bool weights_by_all, states_by_all, no_weights; const char *by; };

static struct manner manner_of(const struct plan *p)
{
    static const struct manner
        one = { false, false, false, "rank 0 alone (torch.save)" },
        dcp = { true, true, false, "every rank its part (torch.distributed.checkpoint)" },
        core = { true, true, false, "every rank its part (dist_checkpointing, fully parallel)" },
        stage12 = { false, true, false, "rank 0 the weights, every rank its partition of the states (save_checkpoint)" },
        stage3 = { true, true, true, "every rank its partition of master and moments (save_checkpoint)" };

    if (p->dialect == DIALECT_MEGATRON)
        return core;
    if (p->strategy == STRAT_FSDP || p->dialect == DIALECT_PAPER)
        return dcp;
    if (p->dialect != DIALECT_DEEPSPEED || p->strategy == STRAT_DDP)
        return one;
    return p->strategy == STRAT_ZERO3 ? stage3 : stage12;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* How many copies of the states, and of the weights, the ranks hold together; at most one a node is read from storage. */
static int64_t copies(const struct plan *p, bool sharded)
{
    int64_t each = plan_data_ranks(p), group = p->shard_group > 0 ? p->shard_group : 1;

    return smaller(sharded ? ceil_div(each, group) : each, p->cluster.nodes);
}

int saved_of(const struct plan *p, struct saved *out)
{
    const struct recipe r = plan_recipe(p);
    const struct manner m = manner_of(p);
    int64_t world = p->cluster.world_size, per = p->cluster.gpus_per_node, by_one, by_all;

    if (p->dialect == DIALECT_MEGATRON && p->optimizer != OPTIMIZER_ADAMW)
        return fail("bill: what Megatron's checkpoints hold of an optimizer other than AdamW is not known here");
    *out = (struct saved){ .by = m.by, .partly = p->model.trainable < p->model.params };
    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        if (!t->frozen && !m.no_weights)
            out->weights += t->numel * (int64_t)dtype_bytes(plan_kept(&r, t));
        out->states += states_of(p, &r, t);
    }
    out->bytes = out->weights + out->states;
    by_one = (m.weights_by_all ? 0 : out->weights) + (m.states_by_all ? 0 : out->states);
    by_all = out->bytes - by_one;
    out->writers = by_all ? world : 1;
    out->rank = by_one + ceil_div(by_all, world);
    out->node = by_one + ceil_div(by_all, world) * smaller(per, world);
    out->read = out->weights * copies(p, !plan_keeps_whole(p->strategy)) + out->states * copies(p, p->strategy > STRAT_DDP);
    return 0;
}

void saved_times(const struct plan *p, const struct saved *c, const struct storage *to, struct save_times *out)
{
    double all = 0, read = 0, node_read = (double)c->read / (double)p->cluster.nodes;

    *out = (struct save_times){ .snapshot_s = p->cluster.is_host ? 0 : (double)c->rank / space_cost_link_rate(p), .write_s = -1, .read_s = -1 };
    if (!(to->shared > 0) && !(to->node > 0))
        return;
    if (to->shared > 0) {
        all = (double)c->bytes / to->shared;
        read = (double)c->read / to->shared;
    }
    if (to->node > 0 && (double)c->node / to->node > all)
        all = (double)c->node / to->node;
    if (to->node > 0 && node_read / to->node > read)
        read = node_read / to->node;
    out->write_s = all;
    out->read_s = read;
}
