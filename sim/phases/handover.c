/* handover.c -- see handover.h. */
#include "sim/phases/handover.h"

#include <string.h>

#include "base/fail.h"
#include "sim/price/coll_cost.h"
#include "sim/price/gpu_rates.h"

/* Within a node and by a network: half of what a link has is always reached by large messages, as NCCL's own model has it at these sizes;
 * all of it never is exceeded. */
#define LINK_LEAST 0.5

static int64_t largest_tensor(const struct model *m)
{
    int64_t most = 0;

    for (int i = 0; i < m->ntensors; i++)
        most = m->tensors[i].numel > most ? m->tensors[i].numel : most;
    return most;
}

static bool is_shared_out(const struct plan *p) { return p->strategy == STRAT_FSDP || p->strategy == STRAT_ZERO3; }

static int gather(const struct plan *p, int64_t each, struct handover *h)
{
    const struct cluster *c = &p->cluster;
    struct cost one;
    int64_t ranks = p->strategy == STRAT_FSDP && p->shard_group > 0 ? p->shard_group : c->world_size;

    if (!is_shared_out(p) || ranks < 2)
        return 0;
    if (coll_cost(c, COLL_ALL_GATHER, ranks, ranks < c->gpus_per_node ? ranks : c->gpus_per_node, each, &one) < 0)
        return -1;
    h->time.s += (double)h->calls * one.s;
    h->time.low_s += (double)h->calls * one.low_s;
    h->time.high_s += (double)h->calls * one.high_s;
    h->time.basis = basis_worst(h->time.basis, one.basis);
    return 0;
}

/* Into the engine: its part read and written on the device, or all of it by the network. */
static void deliver(const struct plan *p, const struct engine *e, bool apart, struct handover *h)
{
    const struct cluster *c = &p->cluster;
    const struct gpu_rates *rates = gpu_rates(&c->gpu);
    double part = (double)engine_params(&p->model, e->tensor) * (double)dtype_bytes(e->weights);
    double link = c->inter > 0 ? c->inter / (c->nics > 0 ? c->nics : 1) : c->intra;
    double s = apart ? (double)h->bytes / link : 2 * part / gpu_stream(&c->gpu);

    h->time.s += s;
    h->time.low_s += apart ? s : s / rates->hbm_spread;
    h->time.high_s += apart ? s / LINK_LEAST : s * rates->hbm_spread;
}

int handover_of(const struct plan *p, const struct engine *e, int64_t kept, bool apart, int64_t bucket, struct handover *out)
{
    const struct model *m = &p->model;
    int64_t wide = dtype_bytes(e->weights), largest = largest_tensor(m) * kept;

    memset(out, 0, sizeof *out);
    if (p->parallel.tensor > 1 || p->parallel.pipeline > 1 || p->parallel.expert > 1)
        return fail("hand over: weights of a trainer with tensor, pipeline or expert parallelism are not planned: FSDP, ZeRO and DDP are");
    out->bytes = m->params * wide;
    out->gathered = is_shared_out(p) ? m->params * kept : 0;
    int64_t each = bucket > largest ? bucket : bucket > 0 ? largest : m->params * kept / m->ntensors;
    out->calls = bucket > 0 ? ceil_div(m->params * kept, each) : m->ntensors;
    out->time.basis = BASIS_PUBLISHED;
    out->peak = bucket > largest ? bucket : largest;
    out->peak = is_shared_out(p) ? out->peak + (kept == wide ? 0 : out->peak / kept * wide) : kept == wide ? 0 : largest / kept * wide;
    if (gather(p, each, out) < 0)
        return -1;
    deliver(p, e, apart, out);
    return 0;
}
