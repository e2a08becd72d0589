/* handover.c -- see handover.h. */
#include "sim/phases/handover.h"

#include <string.h>

#include "sim/phases/engine_weights.h"
#include "sim/price/coll_cost.h"
#include "sim/price/gpu_rates.h"

/* One rank's broadcast to the engines: how much of its link or adapter it reaches is not published; half of it is taken as the least. */
#define LINK_LEAST 0.5

/* Seconds that the two frameworks take for each tensor of a checkpoint, whatever its size: its name is looked up, parts are joined, it is handed
 * over and copied to its place.  NVIDIA-NeMo/RL pull 3294 (B200, vLLM, colocated, rounding to MXFP8 included) before and after it was mended: 9.67
 * and 2.98 s for Qwen3-30B-A3B's 18,867 tensors (0.51 and 0.16 ms), 18.40 and 7.26 s for Qwen3-235B-A22B's 36,945 (0.50 and 0.20); slime with SGLang
 * in buckets of 512 MB 16 s for a mixture of 30B (zhaochenyang20/Awesome-ML-SYS-Tutorial issue 169): 0.85.  Tensor by tensor, each by a handle of its
 * own, verl took 40 ms (the same issue), which it does no longer. */
#define TENSOR_S      0.50e-3
#define TENSOR_LEAST  0.16e-3
#define TENSOR_MOST   0.85e-3

/* Tensors as checkpoints have them: each expert's own. */
static int64_t named_tensors(const struct model *m)
{
    int64_t n = 0;

    for (int i = 0; i < m->ntensors; i++) {
        const struct tensor *t = &m->tensors[i];
        int64_t matrices = t->role == ROLE_EXPERTS_IN ? 2 : 1;      /* gate and up */
        if (t->adapter == ADAPTER_NONE)
            n += role_is_of_experts(t->role) && t->ndim == 3 ? t->shape[0] * matrices : 1;
    }
    return n;
}

static int64_t largest_tensor(const struct model *m)
{
    int64_t most = 0;

    for (int i = 0; i < m->ntensors; i++)
        most = m->tensors[i].numel > most ? m->tensors[i].numel : most;
    return most;
}

static bool is_shared_out(const struct plan *p) { return p->strategy == STRAT_FSDP || p->strategy == STRAT_ZERO3; }

/* Parameters of experts. */
static int64_t of_experts(const struct model *m)
{
    int64_t sum = 0;

    for (int i = 0; i < m->ntensors; i++)
        sum += role_is_of_experts(m->tensors[i].role) ? m->tensors[i].numel : 0;
    return sum;
}

/* `calls` of an operation over `ranks`, of which `per_node` share a node, each of `bytes` / calls. */
static int add_calls(const struct plan *p, enum coll_op op, int64_t ranks, int64_t per_node, int64_t bytes, int64_t calls, struct handover *h)
{
    struct cost one;

    if (ranks < 2 || bytes == 0)
        return 0;
    if (coll_cost(&p->cluster, op, ranks, per_node < 1 ? 1 : per_node < ranks ? per_node : ranks, ceil_div(bytes, calls), &one) < 0)
        return -1;
    h->time.s += (double)calls * one.s;
    h->time.low_s += (double)calls * one.low_s;
    h->time.high_s += (double)calls * one.high_s;
    h->time.basis = basis_worst(h->time.basis, one.basis);
    return 0;
}

/* Tensor ranks are neighbours, expert ranks the next ones, stages of a pipeline the farthest apart (megatron-core 0.16.1, parallel_state.py:
 * "tp-cp-ep-dp-pp").  verl 0.7.0's per_tensor_generator(): the stage that has a tensor broadcasts each rank's part of it; experts' parts are then
 * gathered over expert ranks and over the ranks that cut an expert, other tensors' over tensor ranks. */
static int gather(const struct plan *p, int64_t kept, struct handover *h)
{
    const struct cluster *c = &p->cluster;
    const struct parallel_options *by = &p->parallel;
    int64_t node = c->gpus_per_node, tensor = by->tensor > 1 ? by->tensor : 1, pipe = by->pipeline > 1 ? by->pipeline : 1;
    int64_t sharing = by->expert > 1 ? by->expert : 1, cut = by->expert_tensor > 1 ? by->expert_tensor : 1;
    int64_t experts = of_experts(&p->model), all = p->model.params, rest = all - experts;
    int64_t shards = p->strategy == STRAT_FSDP && p->shard_group > 0 ? p->shard_group : c->world_size / tensor / pipe;

    if (is_shared_out(p) && add_calls(p, COLL_ALL_GATHER, shards, node, all * kept, h->calls, h) < 0)
        return -1;
    int64_t part = rest / tensor + experts / sharing / cut;
    return add_calls(p, COLL_BROADCAST, pipe, node / (c->world_size / pipe), part * kept, h->calls, h) < 0 ||
           add_calls(p, COLL_ALL_GATHER, sharing, node / cut, experts / cut * kept, h->calls, h) < 0 ||
           add_calls(p, COLL_ALL_GATHER, cut, node, experts * kept, h->calls, h) < 0 ||
           add_calls(p, COLL_ALL_GATHER, tensor, node, rest * kept, h->calls, h) < 0 ? -1 : 0;
}

/* Into the engine: its part read and written on the device, there in as many bits as it has, or all of it by the network. */
static void deliver(const struct plan *p, const struct engine *e, bool apart, struct handover *h)
{
    const struct cluster *c = &p->cluster;
    const struct gpu_rates *rates = gpu_rates(&c->gpu);
    struct engine wide = *e;
    wide.codes = CODES_NONE;
    double part = (double)engine_weights(&wide, &p->model, 0), coded = (double)engine_weights(e, &p->model, 0);
    double link = c->inter > 0 ? c->inter / (c->nics > 0 ? c->nics : 1) : c->intra;
    double s = apart ? (double)h->bytes / link : (part + coded) / gpu_stream(&c->gpu);

    h->time.s += s;
    h->time.low_s += apart ? s : s / rates->hbm_spread;
    h->time.high_s += apart ? s / LINK_LEAST : s * rates->hbm_spread;
}

int handover_of(const struct plan *p, const struct engine *e, int64_t kept, bool apart, int64_t bucket, struct handover *out)
{
    const struct model *m = &p->model;
    int64_t wide = dtype_bytes(e->weights), largest = largest_tensor(m) * kept;

    memset(out, 0, sizeof *out);
    bool cut = is_shared_out(p) || p->parallel.tensor > 1 || p->parallel.pipeline > 1 || p->parallel.expert > 1;

    out->bytes = m->params * wide;
    out->gathered = cut ? m->params * kept : 0;
    int64_t each = bucket > largest ? bucket : bucket > 0 ? largest : m->params * kept / m->ntensors;
    out->calls = bucket > 0 ? ceil_div(m->params * kept, each) : m->ntensors;
    out->time.basis = BASIS_PUBLISHED;
    out->peak = bucket > largest ? bucket : largest;
    out->peak = cut ? out->peak + (kept == wide ? 0 : out->peak / kept * wide) : kept == wide ? 0 : largest / kept * wide;
    if (gather(p, kept, out) < 0)
        return -1;
    deliver(p, e, apart, out);
    out->tensors = named_tensors(m);
    out->time.s += (double)out->tensors * TENSOR_S;
    out->time.low_s += (double)out->tensors * TENSOR_LEAST;
    out->time.high_s += (double)out->tensors * TENSOR_MOST;
    return 0;
}
